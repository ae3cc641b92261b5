//! The gateway's own responses: problem documents, errors of JSON-RPC for calls of MCP, and the operator's page for denied
//! requests of browsers.

use std::{fs::File, io::Read as _, path::PathBuf, str};

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse as _, Response},
};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER},
};

use tower_ratelimit::{
    mcp::McpRejection,
    reject::{ProblemJson, Reject, Rejection, RejectionBody},
};
use tower_ratelimit_service::{
    errors::{ServeError, fault},
    tls::{ConfigFiles, ReloadedFiles},
};

/// The most bytes of a page.
const MAX_PAGE: u64 = 256 * 1024;

/// The place of the seconds to wait.
const PLACE: &str = "{retry_after}";

/// The page of the last valid file. Clones share it.
pub(super) type DeniedPage = ReloadedFiles<PageFile>;

/// The file of the page.
pub(super) struct PageFile(pub(super) PathBuf);

/// A page without its places, where it is split.
pub(super) struct Page(Vec<Bytes>);

impl ConfigFiles for PageFile {
    type Contents = Vec<u8>;
    type Config = Page;

    const NAME: &'static str = "the page for denied requests";
    const UNCHANGED: &'static str = "the page for denied requests stays as it was";

    fn read(&self) -> Result<Vec<u8>, ServeError> {
        let mut contents = Vec::new();
        // A byte more than allowed shows that it is too large.
        File::open(&self.0)
            .and_then(|file| file.take(MAX_PAGE + 1).read_to_end(&mut contents))
            .map_err(|error| fault(&self.place(), &error))?;
        Ok(contents)
    }

    fn config(&self, contents: &Vec<u8>) -> Result<Page, ServeError> {
        let place = self.place();
        if contents.len() as u64 > MAX_PAGE {
            return Err(ServeError(format!(
                "{place}:\nit is too large: a page has at most 256 KiB, which are {MAX_PAGE} bytes"
            )));
        }
        let text = str::from_utf8(contents).map_err(|error| {
            let line = 1 + contents[..error.valid_up_to()]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count();
            ServeError(format!(
                "{place}:\nit is not UTF-8, in line {line}: a page is a text in UTF-8"
            ))
        })?;
        let parts = text
            .split(PLACE)
            .map(|part| Bytes::copy_from_slice(part.as_bytes()));
        Ok(Page(parts.collect()))
    }
}

impl PageFile {
    fn place(&self) -> String {
        format!("--denied-page {}", self.0.display())
    }
}

impl Page {
    fn with_wait(&self, wait: &[u8]) -> Bytes {
        match &*self.0 {
            [whole] => whole.clone(),
            parts => parts.join(wait).into(),
        }
    }
}

/// In the extensions of a request that was read as a call of MCP.
#[derive(Clone, Copy)]
pub(super) struct ReadCall;

/// The rejection of a request: of a call of MCP that was read in JSON-RPC.
pub(super) struct CallOrProblem;

impl<B: RejectionBody> Reject<B> for CallOrProblem {
    fn reject(&self, rejection: &Rejection<'_>) -> http::Response<B> {
        if rejection.parts().extensions.get::<ReadCall>().is_some() {
            McpRejection.reject(rejection)
        } else {
            ProblemJson.reject(rejection)
        }
    }
}

/// An error of the upstream.
#[derive(Clone)]
struct OfUpstream;

/// The response, with the page if it is a denial of the gateway.
pub(super) fn replaced(mut response: Response, page: Option<&DeniedPage>) -> Response {
    let is_denial =
        response.status() == StatusCode::TOO_MANY_REQUESTS && !is_of_upstream(&response);
    if let Some(page) = page.filter(|_| is_denial) {
        let headers = response.headers_mut();
        let wait = headers.get(RETRY_AFTER).map(HeaderValue::as_bytes);
        let page = page.config().with_wait(wait.unwrap_or_default());
        for (name, value) in [
            (CONTENT_TYPE, "text/html; charset=utf-8"),
            (CACHE_CONTROL, "no-store"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.remove(CONTENT_LENGTH);
        *response.body_mut() = Body::from(page);
    }
    response
}

/// Whether the response is an error of the upstream.
pub(super) fn is_of_upstream(response: &Response) -> bool {
    response.extensions().get::<OfUpstream>().is_some()
}

/// Marks a response of the upstream that is an error.
pub(super) fn mark<B>(response: &mut http::Response<B>) {
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        response.extensions_mut().insert(OfUpstream);
    }
}

/// Whether `Accept` prefers HTML to JSON, as that of browsers for pages does. Programs that accept both alike get JSON.
pub(super) fn prefers_html(headers: &HeaderMap) -> bool {
    let html = quality(headers, "text", &["html"]);
    html > quality(headers, "application", &["problem+json", "json"])
}

/// The quality of the best of these types, in thousandths: the one of the most specific range that contains it
/// (RFC 9110, 12.5.1).
fn quality(headers: &HeaderMap, kind: &str, subkinds: &[&str]) -> u16 {
    let of = |subkind: &str| {
        let lines = headers.get_all(ACCEPT).into_iter();
        let ranges = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','));
        let found = ranges.filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let (range_kind, range_subkind) = parts.next()?.split_once('/')?;
            let is = |part: &str, name: &str| part.eq_ignore_ascii_case(name);
            let specificity = match () {
                () if is(range_kind, kind) && is(range_subkind, subkind) => 2,
                () if is(range_kind, kind) && range_subkind == "*" => 1,
                () if range_kind == "*" && range_subkind == "*" => 0,
                () => return None,
            };
            Some((specificity, weight(parts)))
        });
        found.max().map_or(0, |(_, weight)| weight)
    };
    subkinds
        .iter()
        .map(|subkind| of(subkind))
        .max()
        .unwrap_or(0)
}

/// The parameter `q` in thousandths; 1 without one, and 0 for one that is no number from 0 to 1.
fn weight<'r>(mut parameters: impl Iterator<Item = &'r str>) -> u16 {
    let text = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let weight = text.map_or(Ok(1.0), str::parse::<f32>);
    match weight {
        Ok(weight) if (0.0..=1.0).contains(&weight) => (weight * 1000.0) as u16,
        _ => 0,
    }
}

/// A problem document with the status only.
pub(super) fn problem(status: StatusCode) -> Response {
    let title = status.canonical_reason().unwrap_or_default();
    let body = format!(
        r#"{{"type":"about:blank","title":"{title}","status":{}}}"#,
        status.as_u16()
    );
    let kind = [(CONTENT_TYPE, "application/problem+json")];
    (status, kind, body).into_response()
}

/// The response to a client that has too many requests at the same time.
pub(super) fn too_many() -> Response {
    let mut response = problem(StatusCode::TOO_MANY_REQUESTS);
    let second = HeaderValue::from_static("1");
    response.headers_mut().insert(RETRY_AFTER, second);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_for_those_who_prefer_html() {
        for (accept, expected) in [
            // Firefox, Chromium and Safari, for a page.
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                true,
            ),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,\
             application/signed-exchange;v=b3;q=0.7",
                true,
            ),
            ("text/html", true),
            ("TEXT/HTML; charset=utf-8", true),
            ("text/*", true),
            ("application/json;q=0.5, text/html;q=0.6", true),
            ("text/html, */*;q=0", true),
            ("*/*", false),
            ("", false),
            ("application/json, text/plain, */*", false),
            ("text/html, application/json", false),
            ("text/html, application/problem+json", false),
            ("text/html;q=0, */*;q=0.1", false),
            ("text/html;q=0", false),
            ("text/html;q=2", false),
            ("text/html;q=x", false),
            ("image/*", false),
            ("html", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(prefers_html(&headers), expected, "{accept}");
        }
        assert!(!prefers_html(&HeaderMap::new()));
    }

    #[test]
    fn wait_is_filled_in_wherever_the_page_has_a_place() {
        for (page, wait, expected) in [
            (
                "again in {retry_after} s, {retry_after}",
                "30",
                "again in 30 s, 30",
            ),
            ("again in {retry_after} s", "", "again in  s"),
            ("{retry_after}", "1", "1"),
            ("later { retry_after }", "30", "later { retry_after }"),
            ("", "30", ""),
        ] {
            let page = PageFile(PathBuf::new())
                .config(&page.into())
                .expect("a page");
            assert_eq!(page.with_wait(wait.as_bytes()), expected);
        }
    }
}
