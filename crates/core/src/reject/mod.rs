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

mod handler_denial;
#[doc(hidden)]
pub mod rejection;
#[cfg(test)]
mod tests;

pub use self::{
    handler_denial::Denial,
    rejection::{
        Empty, IsResponse, PlainText, ProblemJson, Reject, RejectFn, Rejection, RejectionBody,
        RejectionKind, quota_exceeded,
    },
};
