//! The charge for a recorded response, found by the layer that a service would have.

use std::{
    convert::Infallible,
    fmt::Write as _,
    future::{poll_fn, ready},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{Request, Response, StatusCode, request::Parts};
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
