//! `Reject`, which makes the response to a request that does not pass, what it knows of the request, and the built-in ones: a
//! problem document, plain text, no body, and trailers for gRPC, which travel as HTTP headers.

use std::{
    any::Any,
    fmt::{self, Write},
    iter,
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, request::Parts,
};
use http_body_util::{
    BodyExt, Full,
    combinators::{BoxBody, UnsyncBoxBody},
};

use crate::{
    decision::{Decision, Unit},
    headers::{Headers, Renderer, is_grpc},
};

/// Makes the response to a request that does not pass.
///
/// [`RejectFn`] makes one from a closure.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not make a `Response<{B}>`",
    label = "expected a rejection: `ProblemJson`, `PlainText`, `Empty` or a `Reject<{B}>` of your own",
    note = "the built-in rejections know some bodies only, see `RejectionBody`; around a layer that makes a body of its own put `.map_response(|response: http::Response<_>| response.map(axum::body::Body::new))` between the two, for any other use `.rejection_fn(|rejection| ...)` with a closure that returns `Response<{B}>`"
)]
pub trait Reject<B>: Send + Sync + 'static {
    /// The response. The layer adds the [rate-limit fields](crate::headers) to a denial, unless
    /// it is in gRPC, to a gRPC call: such a client reads the wait from gRPC's own fields. Both
    /// have gRPC's content type: the request, see [`is_grpc`](Rejection::is_grpc), and the response.
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B>;

    /// The content of a built-in response to a denial of an HTTP client. The layer then makes the response
    /// with the fields about the limit in one step.
    #[doc(hidden)]
    fn content(&self, _: &Rejection<'_>) -> Option<Content<B>> {
        None
    }
}

/// A request that does not pass, and the reason.
#[derive(Debug, Clone, Copy)]
pub struct Rejection<'a> {
    kind: RejectionKind,
    parts: &'a Parts,
    decision: Option<&'a Decision>,
    detects_grpc: bool,
    shed_status: StatusCode,
}

/// The reason why a request does not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// The limit is used up: 429.
    Denied,
    /// The limit has nothing left for the [priority](crate::Priority) of the request, and would allow a
    /// critical one: 503, or the status set with [`shed_status`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.shed_status).
    Shed,
    /// The client is on a deny list: 403.
    Banned,
    /// The client sent no key: 400.
    KeyMissing,
    /// The server is set up in a way that leaves the extractor without its source: 500.
    KeyUnavailable,
    /// The limiter could not decide: 503.
    LimiterFailed,
}

impl RejectionKind {
    /// The status of the response to an HTTP client.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Denied => StatusCode::TOO_MANY_REQUESTS,
            Self::Banned => StatusCode::FORBIDDEN,
            Self::KeyMissing => StatusCode::BAD_REQUEST,
            Self::KeyUnavailable => StatusCode::INTERNAL_SERVER_ERROR,
            Self::LimiterFailed | Self::Shed => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl<'a> Rejection<'a> {
    /// A rejection of this kind without a limiter's decision.
    pub const fn new(kind: RejectionKind, parts: &'a Parts) -> Self {
        Self {
            kind,
            parts,
            decision: None,
            detects_grpc: true,
            shed_status: RejectionKind::Shed.status(),
        }
    }

    /// A limiter's denial.
    pub const fn denied(parts: &'a Parts, decision: &'a Decision) -> Self {
        let kind = if decision.is_shed() {
            RejectionKind::Shed
        } else {
            RejectionKind::Denied
        };
        Self {
            decision: Some(decision),
            ..Self::new(kind, parts)
        }
    }

    /// Whether the request's content type may make it a gRPC call.
    #[doc(hidden)]
    #[must_use]
    pub const fn detecting_grpc(self, detects_grpc: bool) -> Self {
        Self {
            detects_grpc,
            ..self
        }
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn with_shed_status(self, shed_status: StatusCode) -> Self {
        Self {
            shed_status,
            ..self
        }
    }

    /// Whether only the [priority](crate::Priority) of the request caused the denial.
    pub const fn is_shed(&self) -> bool {
        matches!(self.kind, RejectionKind::Shed)
    }

    /// The reason why the request does not pass.
    pub const fn kind(&self) -> RejectionKind {
        self.kind
    }

    /// The [kind](Self::kind)'s status: 429, 403, 400, 500 or 503. Of a shed request the status that the
    /// layer sets, by default 503.
    pub const fn status(&self) -> StatusCode {
        match self.kind {
            RejectionKind::Shed => self.shed_status,
            kind => kind.status(),
        }
    }

    /// The decision of a limiter that denied. Its waits include the
    /// [jitter](crate::headers::Headers::jitter).
    pub const fn decision(&self) -> Option<&'a Decision> {
        self.decision
    }

    /// The head of the request.
    pub const fn parts(&self) -> &'a Parts {
        self.parts
    }

    fn is_head(&self) -> bool {
        self.parts.method == Method::HEAD
    }
}

/// A rejection that a closure makes, for any response body.
///
/// ```
/// use http::{Response, StatusCode};
/// use tower_ratelimit::reject::{Reject, RejectFn, Rejection, RejectionKind};
///
/// let forbid = RejectFn::new(|_| {
///     let mut response = Response::new("come back later");
///     *response.status_mut() = StatusCode::FORBIDDEN;
///     response
/// });
/// let (parts, ()) = http::Request::new(()).into_parts();
/// let response = forbid.reject(&Rejection::new(RejectionKind::Denied, &parts));
/// assert_eq!(response.status(), StatusCode::FORBIDDEN);
/// ```
// A blanket implementation for closures would take precedence in the compiler's error messages: for a
// wrong rejection the message would be that it is no closure.
#[derive(Clone, Copy)]
pub struct RejectFn<F>(F);

impl<F> RejectFn<F> {
    /// The rejection that `f` makes.
    pub const fn new<T>(f: F) -> Self
    where
        F: Fn(&Rejection<'_>) -> T + Send + Sync + 'static,
        T: IsResponse,
    {
        Self(f)
    }
}

/// The [`Response`] that a closure of [`RejectFn`] returns. Implemented for no other type: the trait
/// exists for the compiler's message about a tuple.
#[diagnostic::on_unimplemented(
    message = "a rejection cannot be `{Self}`",
    label = "expected an `http::Response`",
    note = "what axum turns into a response, such as a tuple, becomes one by `.into_response()`, from `axum::response::IntoResponse`"
)]
pub trait IsResponse: sealed::Sealed {}

impl<B> IsResponse for Response<B> {}

mod sealed {
    pub trait Sealed {}

    impl<B> Sealed for http::Response<B> {}
}

impl<F, B> Reject<B> for RejectFn<F>
where
    F: Fn(&Rejection<'_>) -> Response<B> + Send + Sync + 'static,
{
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B> {
        (self.0)(rejection)
    }
}

impl<F> fmt::Debug for RejectFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RejectFn").finish_non_exhaustive()
    }
}

/// The response to a request that does not pass, by `reject`, with the fields about the limit.
#[doc(hidden)]
pub fn answer<B>(
    reject: &(impl Reject<B> + ?Sized),
    rejection: &Rejection<'_>,
    renderer: &Renderer,
) -> Response<B> {
    let mut response = match reject.content(rejection) {
        Some(content) => {
            let decision = rejection.decision();
            let fields = |of| renderer.denial(of, &content.content_type, content.length);
            match decision.and_then(fields) {
                // Only its numbers are new.
                Some(fields) => {
                    let mut response = Response::new(content.body);
                    *response.status_mut() = rejection.status();
                    *response.headers_mut() = fields;
                    return response;
                }
                None => content.into_whole_response(rejection),
            }
        }
        None => reject.reject(rejection),
    };
    // The client of a gRPC call reads the wait from gRPC's own fields, and a response of trailers alone should be small. The
    // request is checked first: that takes less time.
    if rejection.is_grpc() && is_grpc(response.headers()) {
        return response;
    }
    if let Some(decision) = rejection.decision() {
        let status = response.status();
        renderer.apply(decision, status, response.headers_mut());
    } else if rejection.kind() == RejectionKind::LimiterFailed {
        renderer.apply_failure(response.headers_mut());
    }
    response
}

/// A response body that the built-in rejections can make.
///
/// Implemented for `Full<Bytes>`, `http_body_util`'s boxed bodies, `Bytes`, `Vec<u8>`, `String`,
/// and with the features `axum` and `tonic` for the `Body` of each.
#[diagnostic::on_unimplemented(
    message = "there is no built-in rejection for the response body `{Self}`",
    label = "the built-in rejections don't know how to make this body",
    note = "around a layer or service that makes a body of its own, such as `TraceLayer`, `CompressionLayer` or `ServeDir`: put the limit inside it, or make the body one that is known, `.map_response(|response: http::Response<_>| response.map(axum::body::Body::new))` between the two",
    note = "for a body that you can make use `.rejection_fn(|rejection| ...)` with a closure that returns `Response<{Self}>`",
    note = "`axum::body::Body` and `tonic::body::Body` are known with the features `axum` and `tonic`"
)]
pub trait RejectionBody: Sized {
    /// A body of these bytes, which are UTF-8.
    fn from_bytes(bytes: Bytes) -> Self;

    /// A body of nothing, not even trailers.
    fn empty() -> Self {
        Self::from_bytes(Bytes::new())
    }
}

impl RejectionBody for Full<Bytes> {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::new(bytes)
    }
}

impl<E: 'static> RejectionBody for BoxBody<Bytes, E> {
    fn from_bytes(bytes: Bytes) -> Self {
        Full::new(bytes).map_err(|never| match never {}).boxed()
    }
}

impl<E: 'static> RejectionBody for UnsyncBoxBody<Bytes, E> {
    fn from_bytes(bytes: Bytes) -> Self {
        Full::new(bytes)
            .map_err(|never| match never {})
            .boxed_unsync()
    }
}

impl RejectionBody for Bytes {
    fn from_bytes(bytes: Bytes) -> Self {
        bytes
    }
}

impl RejectionBody for Vec<u8> {
    fn from_bytes(bytes: Bytes) -> Self {
        bytes.into()
    }
}

impl RejectionBody for String {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(feature = "axum")]
impl RejectionBody for axum::body::Body {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::from(bytes)
    }

    // This one allocates nothing.
    fn empty() -> Self {
        Self::empty()
    }
}

#[cfg(feature = "tonic")]
impl RejectionBody for tonic::body::Body {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::new(Full::new(bytes))
    }
}

/// The content of a response to an HTTP client.
#[derive(Debug)]
#[doc(hidden)]
pub struct Content<B> {
    body: B,
    content_type: HeaderValue,
    /// The length of the response to GET, which HEAD has as well (RFC 9110, section 8.6).
    length: usize,
}

/// The settings of a layer's responses to denied requests. Layers that expose their decisions insert it
/// into the extensions of requests, for handlers that deny requests themselves.
#[derive(Clone)]
#[allow(
    clippy::exhaustive_structs,
    missing_debug_implementations,
    reason = "hidden"
)]
#[doc(hidden)]
pub struct AnswerStyle {
    pub headers: Headers,
    pub grpc: bool,
    pub shed_status: StatusCode,
    pub rejection: ErasedReject,
}

/// A rejection of any type, for the one type of body that it is kept for.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "hidden")]
#[doc(hidden)]
pub struct ErasedReject(Arc<dyn Any + Send + Sync>);

impl ErasedReject {
    pub fn new<B: 'static>(rejection: Arc<impl Reject<B>>) -> Self {
        let rejection: Arc<dyn Reject<B>> = rejection;
        Self(Arc::new(rejection))
    }

    /// The rejection, if it was kept for bodies of type `B`.
    pub(super) fn get<B: 'static>(&self) -> Option<&dyn Reject<B>> {
        let rejection = self.0.downcast_ref::<Arc<dyn Reject<B>>>()?;
        Some(&**rejection)
    }
}

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
        built_in(rejection, || {
            let mut response = with_status(rejection.status(), B::empty());
            forbid_caching(response.headers_mut());
            response
        })
    }
}

fn plain_text<B: RejectionBody>(rejection: &Rejection<'_>) -> Content<B> {
    let words = Bytes::from_static(in_words(rejection.kind()).as_bytes());
    let content_type = const { HeaderValue::from_static("text/plain; charset=utf-8") };
    Content::new(rejection, content_type, words)
}

/// Whole lines, so that a denial allocates nothing for them.
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
    fn into_whole_response(self, rejection: &Rejection<'_>) -> Response<B> {
        let mut response = with_status(rejection.status(), self.body);
        let headers = response.headers_mut();
        headers.append(header::CONTENT_TYPE, self.content_type);
        headers.append(header::CONTENT_LENGTH, self.length.into());
        forbid_caching(headers);
        response
    }
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
