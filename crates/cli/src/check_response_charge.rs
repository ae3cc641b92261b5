//! The charge for a recorded response, found by the layer that a service would have. A record is what `curl -i` prints, or
//! a body alone.

use std::{
    convert::Infallible,
    fmt::Write as _,
    fs,
    future::{poll_fn, ready},
    path::Path,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{
    HeaderName, HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE, request::Parts,
};
use http_body::Body as _;
use serde_json::{Map, Value, json};
use tokio::runtime::Builder;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_ratelimit::{
    observe::{Corrected, Event, SpendSource},
    rate_limit::Spent,
    rules::{HoldingRulesLayer, Rules, RulesLayer},
    spend::Tokens,
};

/// The charge for a recorded response.
#[derive(Debug)]
pub(crate) struct ResponseCharge {
    status: StatusCode,
    /// `None` if no rule with `spend` charges it.
    spent: Option<SpentUnits>,
}

#[derive(Debug)]
struct SpentUnits {
    tokens: Tokens,
    source: SpendSource,
    /// The quotas by the names of their policies, and their units.
    kept: Vec<(String, u64)>,
    /// The most units that a quota forgot, since they are beyond its debt.
    forgotten: u64,
}

/// Decides about a request by full quotas, and passes the response.
///
/// # Errors
///
/// When no runtime can be built.
pub(crate) fn of(
    rules: Rules,
    request: Parts,
    response: Response<String>,
) -> Result<ResponseCharge, String> {
    let kept = Arc::new(Mutex::new(None));
    let observed = Arc::clone(&kept);
    let observer = move |event: &Event<'_>| {
        if let Event::Corrected(corrected) = event {
            *unpoisoned(&observed) = units(corrected);
        }
    };
    let layer = RulesLayer::new(rules).observer(observer).holding();
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let status = response.status();
    let tokens = runtime.block_on(pass(&layer, request, response));
    let kept = unpoisoned(&kept).take();
    Ok(ResponseCharge {
        status,
        spent: kept.map(|kept| SpentUnits { tokens, ..kept }),
    })
}

fn unpoisoned<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The units after a response, without its tokens; `None` if its body does not determine them.
fn units(corrected: &Corrected<'_>) -> Option<SpentUnits> {
    let kept = corrected.kept();
    let kept = kept.map(|(quota, units)| (quota.name().to_owned(), units));
    Some(SpentUnits {
        tokens: Tokens::default(),
        source: corrected.source()?,
        kept: kept.collect(),
        forgotten: corrected.forgotten(),
    })
}

/// Passes a response through the layer. Returns its tokens, as far as the layer has read them.
async fn pass(layer: &HoldingRulesLayer, request: Parts, response: Response<String>) -> Tokens {
    let handle = Mutex::new(None);
    let service = layer.layer(service_fn(|request: Request<()>| {
        *unpoisoned(&handle) = request.extensions().get::<Spent>().cloned();
        ready(Ok::<_, Infallible>(response.clone()))
    }));
    let Ok(passed) = service.oneshot(Request::from_parts(request, ())).await;
    let mut body = pin!(passed.into_body());
    while poll_fn(|cx| body.as_mut().poll_frame(cx)).await.is_some() {}
    let handle = unpoisoned(&handle).take();
    handle.map_or_else(Tokens::default, |spent| spent.so_far())
}

impl ResponseCharge {
    pub(crate) fn text(&self) -> String {
        let Some(spent) = &self.spent else {
            return format!(
                "\nresponse {}: no rule with `spend` charges it\n",
                self.status.as_str()
            );
        };
        let mut text = format!("\nresponse {}: {}\n", self.status.as_str(), spent.summary());
        let width = spent.kept.iter().map(|(name, _)| name.chars().count());
        let width = width.max().unwrap_or(0);
        for (name, units) in &spent.kept {
            // Writing to a string never fails.
            let _ = writeln!(text, "  {name:width$}  {units}");
        }
        if spent.forgotten > 0 {
            let _ = writeln!(text, "beyond the debt, and forgotten: {}", spent.forgotten);
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let Some(spent) = &self.spent else {
            return json!({ "status": self.status.as_u16(), "charged": null });
        };
        let tokens = &spent.tokens;
        let charged = spent.kept.iter();
        let charged = charged.map(|(name, units)| (name.clone(), json!(units)));
        json!({
            "status": self.status.as_u16(),
            "source": spent.source.as_str(),
            "model": tokens.model(),
            "input": tokens.input,
            "cached_input": tokens.cached_input,
            "cache_write": tokens.cache_write,
            "output": tokens.output,
            "reasoning": tokens.reasoning,
            "charged": charged.collect::<Map<_, _>>(),
            "forgotten": spent.forgotten,
        })
    }
}

impl SpentUnits {
    /// `gpt-4.1-mini, input 1000 (600 cached), output 500, reported`.
    fn summary(&self) -> String {
        let tokens = &self.tokens;
        let model = tokens.model().unwrap_or("no model");
        let kinds = [
            (tokens.cached_input, "cached"),
            (tokens.cache_write, "written to a cache"),
        ];
        let kinds = kinds.iter().filter(|(count, _)| *count > 0);
        let kinds: Vec<_> = kinds
            .map(|(count, kind)| format!("{count} {kind}"))
            .collect();
        let kinds = match kinds.as_slice() {
            [] => String::new(),
            kinds => format!(" ({})", kinds.join(", ")),
        };
        let source = self.source.as_str();
        format!(
            "{model}, input {}{kinds}, output {}, {source}",
            tokens.input, tokens.output
        )
    }
}

/// Reads a recorded response.
///
/// # Errors
///
/// An unreadable file, or a head that is none.
pub(crate) fn recorded(file: &Path) -> Result<Response<String>, String> {
    let text = fs::read(file).map_err(|error| error.to_string());
    let text = text.and_then(|bytes| String::from_utf8(bytes).map_err(|error| error.to_string()));
    text.and_then(|text| parse(&text))
        .map_err(|error| format!("{}: {error}", file.display()))
}

fn parse(text: &str) -> Result<Response<String>, String> {
    let mut rest = text;
    let mut head = None;
    // Interim responses, such as 100, stand before the one that counts.
    while rest.starts_with("HTTP/") {
        let (lines, body) = split_head(rest);
        head = Some(lines);
        rest = body;
    }
    let mut response = match head {
        Some(lines) => parse_head(lines)?,
        None => Response::new(()),
    };
    let headers = response.headers_mut();
    if head.is_none() {
        let is_json = rest.trim_start().starts_with(['{', '[']);
        let kind = if is_json {
            "application/json"
        } else {
            "text/event-stream"
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    Ok(response.map(|()| rest.to_owned()))
}

/// The head without the empty line that ends it, and the text after it.
fn split_head(text: &str) -> (&str, &str) {
    let ends = ["\r\n\r\n", "\n\n"].into_iter();
    let first = ends
        .filter_map(|end| Some((text.find(end)?, end.len())))
        .min();
    first.map_or((text, ""), |(at, len)| (&text[..at], &text[at + len..]))
}

fn parse_head(head: &str) -> Result<Response<()>, String> {
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    let code = status.split(' ').nth(1).unwrap_or_default();
    let code = StatusCode::from_bytes(code.as_bytes()).map_err(|_| {
        format!("{status:?} has no status; accepted is, for example, \"HTTP/1.1 200 OK\"")
    })?;
    let mut response = Response::new(());
    *response.status_mut() = code;
    for line in lines {
        let field = line.split_once(':').and_then(|(name, value)| {
            let name: HeaderName = name.parse().ok()?;
            Some((name, HeaderValue::from_str(value.trim()).ok()?))
        });
        let (name, value) = field.ok_or_else(|| format!("{line:?} is no field of a response"))?;
        response.headers_mut().append(name, value);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn output_of_curl_is_read_and_a_body_alone() {
        let curl = "HTTP/1.1 100 Continue\r\n\r\nHTTP/2 429 \r\nx-cost: 7\r\n\r\n{\"a\":\r\n\r\n1}";
        let response = parse(curl).expect("a response");
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["x-cost"], "7");
        assert_eq!(response.body(), "{\"a\":\r\n\r\n1}");
        for (body, kind) in [
            (" {}", "application/json"),
            ("[1]", "application/json"),
            ("data: {}\n\n", "text/event-stream"),
            ("", "text/event-stream"),
        ] {
            let response = parse(body).expect("a body");
            assert_eq!(response.headers()["content-type"], kind, "{body:?}");
            assert_eq!(response.body(), body);
        }
    }

    #[test]
    fn heads_that_are_none_are_errors() {
        for (text, error) in [
            ("HTTP/1.1", "\"HTTP/1.1\" has no status"),
            ("HTTP/1.1 abc\n\n", "\"HTTP/1.1 abc\" has no status"),
            ("HTTP/1.1 200\nnothing\n\n", "\"nothing\" is no field"),
            ("HTTP/1.1 200\na b: c\n\n", "\"a b: c\" is no field"),
        ] {
            let found = parse(text).expect_err(text);
            assert!(found.starts_with(error), "{found}");
        }
    }
}
