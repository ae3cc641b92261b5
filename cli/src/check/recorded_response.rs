//! A recorded response: as `curl -i` prints it, or its body alone.

use std::{fs, path::Path};

use http::{HeaderName, HeaderValue, Response, StatusCode, header::CONTENT_TYPE};

/// Reads a recorded response.
///
/// # Errors
///
/// An unreadable file, or a head that is none.
pub(super) fn read(file: &Path) -> Result<Response<String>, String> {
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
