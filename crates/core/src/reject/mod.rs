//! Rejections: what a client gets instead of the response.
//!
//! | rejection | status | body |
//! |---|---|---|
//! | [`ProblemJson`], the default | by [kind](RejectionKind) | `application/problem+json`, RFC 9457 |
//! | [`PlainText`] | by kind | the status in words |
//! | [`Empty`] | by kind | none |
//! | a closure, with `.rejection_fn(…)` | any | any |
//!
//! The first three need to know how to make the service's response body, see [`RejectionBody`]. A
//! closure makes it itself, so it works with any body.
//!
//! They also send `Cache-Control: no-store`, since RFC 6585 forbids caches to store a 429, and respond to
//! HEAD with the fields of a GET, also its `Content-Length`, and no body. They reveal nothing about the
//! key, the server's set-up or other clients. To a denial the layer then adds the
//! [rate-limit fields](crate::headers), whatever made it, unless it is in gRPC, to a gRPC call.
//!
//! A handler that calls a limiter itself responds in the same way with a [`Denial`], which
//! [`Decision::into_result`](crate::Decision::into_result) makes for `?`.
//!
//! # gRPC
//!
//! A gRPC client takes a bare 429 for `UNAVAILABLE`. So calls whose content type is
//! `application/grpc` get HTTP status 200 and these fields only:
//!
//! - `grpc-status`: 8 (`RESOURCE_EXHAUSTED`) for a denial, 3 (`INVALID_ARGUMENT`) for a missing
//!   key, 13 (`INTERNAL`) for one that the server could not read, 14 (`UNAVAILABLE`) for a limiter
//!   that failed;
//! - `grpc-message`;
//! - on denials whose wait is known `grpc-status-details-bin` with a `google.rpc.RetryInfo`, and
//!   `grpc-retry-pushback-ms` with the wait in milliseconds;
//! - on denials by a limit on [concurrency](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/concurrency/index.html) no wait, since it is unknown;
//! - on other denials `grpc-retry-pushback-ms: -1`: don't retry.
//!
//! The response is one HEADERS frame that ends the stream, so the connection and the other calls on
//! it continue, and a client that is still sending gets a reset.
//!
//! gRPC-Web (`application/grpc-web`) is not gRPC here. Put the layer inside the one that translates
//! it, such as tonic-web's, and a denial is the above, which that layer sends as fields of a
//! gRPC-Web response; CORS has to expose them to scripts. Around it a denial is a plain 429, since
//! a response to gRPC-Web is best framed by the layer that frames the others.
//!
//! A closure calls [`Rejection::grpc_response`] where it wants the same.
//!
//! The content type is the client's to choose. So any client of a service that is not gRPC can get
//! its own denials with 200 by sending POST with this content type: no other client is harmed, but
//! monitoring that counts statuses is misled.
//! [`RateLimitLayer::grpc(false)`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.grpc) switches the detection off, and
//! should do so wherever no gRPC is served. It is on by default because the other mistake costs
//! more: a gRPC client that gets 429 takes it for `UNAVAILABLE`, and many retry that at
//! once.
//!
//! # Examples
//!
//! ```
//! use bytes::Bytes;
//! use http::{Response, StatusCode, header};
//! use http_body_util::Full;
//! use tower_ratelimit::reject::{ProblemJson, Reject, Rejection, RejectionKind};
//!
//! let (parts, ()) = http::Request::new(()).into_parts();
//! let rejection = Rejection::new(RejectionKind::LimiterFailed, &parts);
//!
//! let response: Response<Full<Bytes>> = ProblemJson.reject(&rejection);
//! assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
//! assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
//! ```
//!
//! A closure sees the request and the decision:
//!
//! ```
//! use http::Response;
//! use tower_ratelimit::reject::{Reject, RejectFn, Rejection, RejectionKind};
//!
//! let busy = RejectFn::new(|rejection| {
//!     if rejection.is_grpc() {
//!         return rejection.grpc_response();
//!     }
//!     let mut response = Response::new(format!("{} is busy", rejection.parts().uri.path()));
//!     *response.status_mut() = rejection.status();
//!     response
//! });
//!
//! let (parts, ()) = http::Request::get("/search").body(())?.into_parts();
//! let response = busy.reject(&Rejection::new(RejectionKind::Denied, &parts));
//! assert_eq!(response.status(), 429);
//! assert_eq!(response.body(), "/search is busy");
//! # Ok::<(), http::Error>(())
//! ```

mod built_in;
mod denial;

use std::fmt;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, request::Parts};
use http_body_util::{
    BodyExt, Full,
    combinators::{BoxBody, UnsyncBoxBody},
};

use crate::{
    decision::Decision,
    headers::{Renderer, is_grpc},
};

#[doc(hidden)]
pub use self::denial::AnswerStyle;
pub use self::{
    built_in::{Empty, PlainText, ProblemJson, quota_exceeded},
    denial::Denial,
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
        Self {
            kind: if decision.is_shed() {
                RejectionKind::Shed
            } else {
                RejectionKind::Denied
            },
            parts,
            decision: Some(decision),
            detects_grpc: true,
            shed_status: RejectionKind::Shed.status(),
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

#[cfg(test)]
mod tests;

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
pub trait RejectionBody {
    /// A body of these bytes, which are UTF-8.
    fn from_bytes(bytes: Bytes) -> Self;

    /// A body of nothing, not even trailers.
    fn empty() -> Self;
}

impl RejectionBody for Full<Bytes> {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::new(bytes)
    }

    fn empty() -> Self {
        Self::default()
    }
}

impl<E: 'static> RejectionBody for BoxBody<Bytes, E> {
    fn from_bytes(bytes: Bytes) -> Self {
        Full::new(bytes).map_err(|never| match never {}).boxed()
    }

    fn empty() -> Self {
        Self::from_bytes(Bytes::new())
    }
}

impl<E: 'static> RejectionBody for UnsyncBoxBody<Bytes, E> {
    fn from_bytes(bytes: Bytes) -> Self {
        Full::new(bytes)
            .map_err(|never| match never {})
            .boxed_unsync()
    }

    fn empty() -> Self {
        Self::from_bytes(Bytes::new())
    }
}

impl RejectionBody for Bytes {
    fn from_bytes(bytes: Bytes) -> Self {
        bytes
    }

    fn empty() -> Self {
        Self::new()
    }
}

impl RejectionBody for Vec<u8> {
    fn from_bytes(bytes: Bytes) -> Self {
        bytes.into()
    }

    fn empty() -> Self {
        Self::new()
    }
}

impl RejectionBody for String {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::from_utf8_lossy(&bytes).into_owned()
    }

    fn empty() -> Self {
        Self::new()
    }
}

#[cfg(feature = "axum")]
impl RejectionBody for axum::body::Body {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::from(bytes)
    }

    fn empty() -> Self {
        Self::empty()
    }
}

#[cfg(feature = "tonic")]
impl RejectionBody for tonic::body::Body {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::new(Full::new(bytes))
    }

    fn empty() -> Self {
        Self::empty()
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
