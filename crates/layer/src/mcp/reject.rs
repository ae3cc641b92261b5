//! Rejections as errors of JSON-RPC.

use std::fmt::Write as _;

use http::{HeaderValue, Response, StatusCode, header, request::Parts};

use super::{call::BadInput, message::Calls};
use tower_ratelimit_core::{
    decision::Decision,
    reject::rejection::{Reject, Rejection, RejectionBody, RejectionKind},
};

/// The code of a denial, of those that JSON-RPC leaves to servers (-32000 to -32099).
const DENIED: i32 = -32_029;
/// The code of MCP for a header that differs from the body.
const HEADER_MISMATCH: i32 = -32_020;
const INVALID_REQUEST: i32 = -32_600;
const INTERNAL_ERROR: i32 = -32_603;

/// An error of JSON-RPC, with the status and the fields of any other rejection.
///
/// The `id` is that of the request if a [`McpBodyLayer`](super::McpBodyLayer) has read it, otherwise `null`, and for a
/// batch. A denial has the code -32029; its `data` has the wait in `retryAfterMs`, which is `null` if it is unknown, and
/// the name of the quota in `policy`.
///
/// ```
/// use http::{Request, Response};
/// use tower_ratelimit::{Key, LocalLimiter, Quota, mcp::McpRejection};
/// use tower_ratelimit::reject::{Reject, Rejection};
///
/// let decision = LocalLimiter::new(Quota::per_day(1).fixed_window().named("searches"))
///     .acquire(&Key::global(), 2);
/// let (parts, ()) = Request::post("/mcp").body(())?.into_parts();
/// let response: Response<String> = McpRejection.reject(&Rejection::denied(&parts, &decision));
/// assert_eq!(
///     response.body(),
///     "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32029,\"message\":\"Too Many Requests\",\
///      \"data\":{\"retryAfterMs\":null,\"policy\":\"searches\"}}}",
/// );
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a name for a choice, with nothing to it"
)]
pub struct McpRejection;

/// The denial of a call of a batch, in the extensions of its response.
#[derive(Debug, Clone)]
pub(super) struct DenialOfCall(pub(super) Decision);

impl<B: RejectionBody> Reject<B> for McpRejection {
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B> {
        let code = match rejection.kind() {
            RejectionKind::Denied | RejectionKind::Shed => DENIED,
            RejectionKind::Banned | RejectionKind::KeyMissing => INVALID_REQUEST,
            _ => INTERNAL_ERROR,
        };
        let status = rejection.status();
        let message = status.canonical_reason().unwrap_or("Rejected");
        let data = rejection.decision().map(|decision| {
            let wait = decision.retry_after();
            let wait = wait.map_or(serde_json::Value::Null, |wait| {
                let millis = wait.as_nanos().div_ceil(1_000_000);
                u64::try_from(millis).unwrap_or(u64::MAX).into()
            });
            let policy = serde_json::Value::from(decision.binding().name());
            format!(r#"{{"retryAfterMs":{wait},"policy":{policy}}}"#)
        });
        let parts = rejection.parts();
        let mut response = response(parts, status, code, message, data.as_deref());
        if let Some(decision) = rejection.decision()
            && (parts.extensions.get::<Calls>()).is_some_and(|calls| calls.at.is_some())
        {
            response
                .extensions_mut()
                .insert(DenialOfCall(decision.clone()));
        }
        response
    }
}

/// The answer to a request whose body is not what it should be.
pub(super) fn refuse<B: RejectionBody>(parts: &Parts, BadInput(fault): BadInput) -> Response<B> {
    let status = StatusCode::BAD_REQUEST;
    response(parts, status, HEADER_MISMATCH, fault, None)
}

fn response<B: RejectionBody>(
    parts: &Parts,
    status: StatusCode,
    code: i32,
    message: &str,
    data: Option<&str>,
) -> Response<B> {
    let calls = parts.extensions.get::<Calls>();
    let id = calls.and_then(|calls| calls.id.as_deref());
    let id = id.unwrap_or("null");
    let mut text =
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}""#);
    if let Some(data) = data {
        let _ = write!(text, r#","data":{data}"#);
    }
    text.push_str("}}");
    let mut response = Response::new(B::from_bytes(text.into()));
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
