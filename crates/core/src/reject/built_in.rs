//! The built-in rejections: a problem document, plain text, no body, and trailers for gRPC, which travel as HTTP headers.

use std::{fmt::Write, iter, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};

use super::{Content, Reject, Rejection, RejectionBody, RejectionKind};
use crate::{
    decision::{Decision, Unit},
    headers::is_grpc,
};

/// A problem document (RFC 9457) as `application/problem+json`. This is the default.
///
/// A denial is of the type that draft-ietf-httpapi-ratelimit-headers asks IANA to register, and lists the
/// policies that denied:
///
/// ```
/// use tower_ratelimit::{Key, LocalLimiter, Quota};
/// use tower_ratelimit::reject::{ProblemJson, Reject, Rejection};
///
/// let decision = LocalLimiter::new(Quota::per_day(1)).acquire(&Key::global(), 2);
/// let (parts, ()) = http::Request::new(()).into_parts();
/// let response: http::Response<String> =
///     ProblemJson.reject(&Rejection::denied(&parts, &decision));
/// assert_eq!(
///     response.body(),
///     "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
///      \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
///      \"status\":429,\"violated-policies\":[\"default\"]}",
/// );
/// ```
///
/// A request that is [shed](RejectionKind::Shed) has the type `temporary-reduced-capacity`, which the draft asks for as well, and
/// the same list.
///
/// Any other rejection has the type `about:blank`, which means no more than the status.
#[derive(Debug, Clone, Copy, Default)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a name for a choice, with nothing to it"
)]
pub struct ProblemJson;

impl<B: RejectionBody> Reject<B> for ProblemJson {
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B> {
        built_in(rejection, || problem(rejection).into_response(rejection))
    }

    fn content(&self, rejection: &Rejection<'_>) -> Option<Content<B>> {
        (!rejection.is_grpc()).then(|| problem(rejection))
    }
}

fn problem<B: RejectionBody>(rejection: &Rejection<'_>) -> Content<B> {
    let content_type = const { HeaderValue::from_static("application/problem+json") };
    Content::new(rejection, content_type, document(rejection))
}

fn document(rejection: &Rejection<'_>) -> Bytes {
    match rejection.kind() {
        RejectionKind::Denied => match rejection.decision() {
            Some(decision) => quota_exceeded(&decision.violated()),
            None => quota_exceeded(&iter::empty()),
        },
        RejectionKind::Shed => {
            let names = rejection
                .decision()
                .into_iter()
                .flat_map(Decision::violated);
            reduced_capacity(rejection.status().as_u16(), &names)
        }
        kind => {
            let status = kind.status();
            let title = status.canonical_reason().unwrap_or_default();
            let status = status.as_u16();
            format!(r#"{{"type":"about:blank","title":"{title}","status":{status}}}"#).into()
        }
    }
}

macro_rules! opening {
    () => {
        concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Request cannot be satisfied as assigned quota has been exceeded","#,
            r#""status":429,"violated-policies":["#,
        )
    };
}

const OPENING: &str = opening!();
const CLOSING: &str = "]}";

/// The document about a lone quota without a name of its own: the usual one needs no memory.
const UNNAMED: &str = concat!(opening!(), r#""default"]}"#);

/// The body of [`ProblemJson`] for a request that these policies deny, for responses that no layer writes.
pub fn quota_exceeded<'n>(names: &(impl Iterator<Item = &'n str> + Clone)) -> Bytes {
    let names = || names.clone();
    let mut first = names();
    if first.next() == Some("default") && first.next().is_none() {
        return Bytes::from_static(UNNAMED.as_bytes());
    }
    // Exact unless a name has to be escaped: `Bytes` takes a full buffer over without a second
    // allocation.
    let quotes = names().map(|name| name.len() + 2).sum::<usize>();
    let commas = names().count().saturating_sub(1);
    let mut text = String::with_capacity(OPENING.len() + quotes + commas + CLOSING.len());
    text.push_str(OPENING);
    push_names(&mut text, names());
    text.push_str(CLOSING);
    text.into()
}

/// The body for a request that these policies shed.
#[cold]
fn reduced_capacity<'n>(status: u16, names: &(impl Iterator<Item = &'n str> + Clone)) -> Bytes {
    let mut text = format!(
        r#"{{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Request cannot be satisfied due to temporary server capacity constraints","status":{status},"violated-policies":["#
    );
    push_names(&mut text, names.clone());
    text.push_str(CLOSING);
    text.into()
}

fn push_names<'n>(text: &mut String, names: impl Iterator<Item = &'n str>) {
    for (position, name) in names.enumerate() {
        if position > 0 {
            text.push(',');
        }
        push_json_string(text, name);
    }
}

fn push_json_string(text: &mut String, content: &str) {
    text.push('"');
    for character in content.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            '\0'..'\x20' => {
                let _ = write!(text, "\\u{:04x}", u32::from(character));
            }
            _ => text.push(character),
        }
    }
    text.push('"');
}

/// The status in words, as `text/plain`.
///
/// ```
/// use tower_ratelimit::reject::{PlainText, Reject, Rejection, RejectionKind};
///
/// let (parts, ()) = http::Request::new(()).into_parts();
/// let rejection = Rejection::new(RejectionKind::Denied, &parts);
/// let response: http::Response<String> = PlainText.reject(&rejection);
/// assert_eq!(response.body(), "Too Many Requests\n");
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a name for a choice, with nothing to it"
)]
pub struct PlainText;

/// Only the status and the fields.
///
/// ```
/// use tower_ratelimit::reject::{Empty, Reject, Rejection, RejectionKind};
///
/// let (parts, ()) = http::Request::new(()).into_parts();
/// let rejection = Rejection::new(RejectionKind::Denied, &parts);
/// let response: http::Response<String> = Empty.reject(&rejection);
/// assert_eq!(response.status(), 429);
/// assert!(response.body().is_empty());
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a name for a choice, with nothing to it"
)]
pub struct Empty;

impl<B: RejectionBody> Reject<B> for PlainText {
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B> {
        built_in(rejection, || plain_text(rejection).into_response(rejection))
    }

    fn content(&self, rejection: &Rejection<'_>) -> Option<Content<B>> {
        (!rejection.is_grpc()).then(|| plain_text(rejection))
    }
}

impl<B: RejectionBody> Reject<B> for Empty {
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B> {
        built_in(rejection, || without_content(rejection))
    }
}

fn plain_text<B: RejectionBody>(rejection: &Rejection<'_>) -> Content<B> {
    let words = Bytes::from_static(in_words(rejection.kind()).as_bytes());
    let content_type = const { HeaderValue::from_static("text/plain; charset=utf-8") };
    Content::new(rejection, content_type, words)
}

const fn in_words(kind: RejectionKind) -> &'static str {
    match kind {
        RejectionKind::Denied => "Too Many Requests\n",
        RejectionKind::Banned => "Forbidden\n",
        RejectionKind::KeyMissing => "Bad Request\n",
        RejectionKind::KeyUnavailable => "Internal Server Error\n",
        RejectionKind::LimiterFailed | RejectionKind::Shed => "Service Unavailable\n",
    }
}

/// Room for what a rejection and the rate-limit fields need, so that the map is built once.
const MOST_FIELDS: usize = 10;

/// The response of a built-in rejection: `http` makes it, except to gRPC calls.
fn built_in<B: RejectionBody>(
    rejection: &Rejection<'_>,
    http: impl FnOnce() -> Response<B>,
) -> Response<B> {
    if rejection.is_grpc() {
        rejection.grpc_response()
    } else {
        http()
    }
}

impl<B: RejectionBody> Content<B> {
    fn new(rejection: &Rejection<'_>, content_type: HeaderValue, content: Bytes) -> Self {
        Self {
            length: content.len(),
            body: if rejection.is_head() {
                B::empty()
            } else {
                B::from_bytes(content)
            },
            content_type,
        }
    }

    /// The response, without a length for GET: the caller of the rejection may replace the body.
    fn into_response(self, rejection: &Rejection<'_>) -> Response<B> {
        let mut response = self.into_whole_response(rejection);
        // From an empty body a server would conclude 0.
        if !rejection.is_head() {
            response.headers_mut().remove(header::CONTENT_LENGTH);
        }
        response
    }
}

impl<B> Content<B> {
    /// The response as it is sent, without the fields about the limit.
    pub(super) fn into_whole_response(self, rejection: &Rejection<'_>) -> Response<B> {
        let mut response = with_status(rejection.status(), self.body);
        let headers = response.headers_mut();
        headers.append(header::CONTENT_TYPE, self.content_type);
        headers.append(header::CONTENT_LENGTH, self.length.into());
        forbid_caching(headers);
        response
    }
}

fn without_content<B: RejectionBody>(rejection: &Rejection<'_>) -> Response<B> {
    let mut response = with_status(rejection.status(), B::empty());
    forbid_caching(response.headers_mut());
    response
}

fn with_status<B>(status: StatusCode, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().reserve(MOST_FIELDS);
    response
}

fn forbid_caching(headers: &mut HeaderMap) {
    headers.append(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

static STATUS: HeaderName = HeaderName::from_static("grpc-status");
static MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
static DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
static PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const CONTENT_TYPE: &str = "application/grpc";

/// The type of the message in `grpc-status-details-bin`.
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// The longest `google.protobuf.Duration`, about 10,000 years.
const LONGEST_SECONDS: u64 = 315_576_000_000;

impl Rejection<'_> {
    /// Whether the request is a gRPC call, by its method and content type; never where the layer's
    /// [`grpc`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.grpc) is switched off.
    pub fn is_grpc(&self) -> bool {
        // A call is always a POST: a GET that claims to be one must not get 200, which
        // caches keep.
        self.detects_grpc && self.parts().method == Method::POST && is_grpc(&self.parts().headers)
    }

    /// The response to a gRPC call, see the [module](super#grpc).
    pub fn grpc_response<B: RejectionBody>(&self) -> Response<B> {
        self.grpc_response_with(default_message(self.kind()))
    }

    /// The response with a message of your own, percent-encoded as gRPC requires. Many peers accept
    /// no more than 8 KiB of fields, so it should be short.
    // Inlined, it would grow the frame of requests that pass: a tenth of their instructions.
    #[inline(never)]
    pub fn grpc_response_with<B: RejectionBody>(&self, message: &str) -> Response<B> {
        let (mut response, code) = (with_status(StatusCode::OK, B::empty()), grpc_code(self));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        headers.insert(&STATUS, HeaderValue::from(code));
        headers.insert(&MESSAGE, ascii(percent_encode(message)));
        if matches!(self.kind(), RejectionKind::Denied | RejectionKind::Shed) {
            put_wait(self.decision(), (code, message), headers);
        }
        response
    }
}

const fn default_message(kind: RejectionKind) -> &'static str {
    match kind {
        RejectionKind::Denied => "rate limit exceeded",
        RejectionKind::Shed => "temporary reduced capacity",
        RejectionKind::Banned => "forbidden",
        RejectionKind::KeyMissing => "bad request",
        RejectionKind::KeyUnavailable => "internal server error",
        RejectionKind::LimiterFailed => "service unavailable",
    }
}

/// The status of gRPC.
fn grpc_code(rejection: &Rejection<'_>) -> u64 {
    match rejection.kind() {
        RejectionKind::KeyMissing => 3,
        RejectionKind::Banned => 7,
        RejectionKind::Shed if rejection.status() != StatusCode::TOO_MANY_REQUESTS => 14,
        RejectionKind::Denied | RejectionKind::Shed => 8,
        RejectionKind::KeyUnavailable => 13,
        RejectionKind::LimiterFailed => 14,
    }
}

fn put_wait(decision: Option<&Decision>, (code, message): (u64, &str), headers: &mut HeaderMap) {
    if let Some(wait) = decision.and_then(Decision::retry_after) {
        let details = status_with_retry_info((code, message), wait);
        headers.insert(&DETAILS, ascii(BASE64_STANDARD_NO_PAD.encode(details)));
        headers.insert(&PUSHBACK, HeaderValue::from(pushback_millis(wait)));
    } else if !decision.is_some_and(ends_some_time) {
        headers.insert(&PUSHBACK, HeaderValue::from_static("-1"));
    }
}

/// Whether it passes once others have ended, which may be soon: the client's own back-off serves
/// better than any number of ours.
fn ends_some_time(denial: &Decision) -> bool {
    denial.binding().unit() == Unit::ConcurrentRequests
}

/// Rounded up, so that no client returns too early.
fn pushback_millis(wait: Duration) -> i32 {
    let millis = wait.as_nanos().div_ceil(1_000_000);
    i32::try_from(millis).unwrap_or(i32::MAX)
}

fn ascii(text: impl Into<Vec<u8>>) -> HeaderValue {
    HeaderValue::try_from(text.into()).expect("encoders write printable ASCII only")
}

/// The encoding of `grpc-message` in gRPC over HTTP/2; of the space as well, as tonic does.
fn percent_encode(message: &str) -> Vec<u8> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";

    let mut text = Vec::with_capacity(message.len() + 16);
    for byte in message.bytes() {
        match byte {
            b'%' | b'\0'..=b' ' | b'\x7F'.. => {
                let [high, low] = [byte >> 4, byte & 0xF].map(|half| HEX[usize::from(half)]);
                text.extend([b'%', high, low]);
            }
            _ => text.push(byte),
        }
    }
    text
}

/// A `google.rpc.Status` whose details are one `google.rpc.RetryInfo`, in protobuf.
fn status_with_retry_info((code, message): (u64, &str), wait: Duration) -> Vec<u8> {
    let mut retry_info = Vec::new();
    put_bytes(1, &duration(wait), &mut retry_info);

    let mut any = Vec::new();
    put_bytes(1, RETRY_INFO.as_bytes(), &mut any);
    put_bytes(2, &retry_info, &mut any);

    let mut status = Vec::new();
    put_varint(1, code, &mut status);
    put_bytes(2, message.as_bytes(), &mut status);
    put_bytes(3, &any, &mut status);
    status
}

fn duration(wait: Duration) -> Vec<u8> {
    let mut message = Vec::new();
    put_varint(1, wait.as_secs().min(LONGEST_SECONDS), &mut message);
    put_varint(2, u64::from(wait.subsec_nanos()), &mut message);
    message
}

/// A field of wire type 0; as in proto3, 0 is left out.
fn put_varint(field: u8, value: u64, to: &mut Vec<u8>) {
    if value > 0 {
        to.push(field << 3);
        varint(value, to);
    }
}

/// A field of wire type 2.
fn put_bytes(field: u8, bytes: &[u8], to: &mut Vec<u8>) {
    to.push(field << 3 | 2);
    varint(bytes.len() as u64, to);
    to.extend_from_slice(bytes);
}

fn varint(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}
