//! Headers: the fields that report limits to clients.
//!
//! | field | on | switch |
//! |---|---|---|
//! | `RateLimit-Policy: "default";q=100;w=60` | every response | [`ietf`](Headers::ietf) |
//! | `RateLimit: "default";r=42;t=26` | every response | [`ietf`](Headers::ietf) |
//! | `X-RateLimit-Limit: 100` | every response | [`x_ratelimit`](Headers::x_ratelimit) |
//! | `X-RateLimit-Remaining: 42` | every response | [`x_ratelimit`](Headers::x_ratelimit) |
//! | `X-RateLimit-Reset: 26` | every response | [`x_ratelimit`](Headers::x_ratelimit) |
//! | `Retry-After: 7` | denials; 1 with a limiter that fails | [`retry_after`](Headers::retry_after) |
//! | `X-RateLimit-Retry-After: 7` | denials, off by default | [`x_ratelimit_retry_after`](Headers::x_ratelimit_retry_after) |
//!
//! The draft of the first two has expired, and its successor renames `r` and `t`, see [`IetfDraft`].
//!
//! Redirects (3xx) get none of them: a client that has nothing left might not follow. Denials of
//! gRPC calls report the wait in gRPC's own fields instead, see [`reject`](crate::reject).
//!
//! # The numbers
//!
//! - `q` and `X-RateLimit-Limit`: the most units that are available at once; `w`: the seconds in
//!   which that many are renewed.
//! - `r` and `X-RateLimit-Remaining`: units that are left.
//! - `t` and `X-RateLimit-Reset`: seconds within which a client can use no more than what is left;
//!   of a quota that denied, the wait. A client that spreads its remaining units over them is not denied.
//! - `Retry-After`: the longest wait of the quotas that denied. It is left out when the request
//!   can never fit, and when the wait is unknown, as for a limit on concurrency.
//!
//! Seconds are rounded up, so that no client that waits returns too early, and units down. With several
//! quotas the IETF fields list each, and the others report the one that binds, see
//! [`Decision::binding`](crate::Decision::binding). A limiter that does not report what is left gets the
//! policy and the limit alone.
//!
//! # Fields that exist already
//!
//! From an inner layer or from the handler, treated alike:
//!
//! - the IETF fields are lists, so a second line is added;
//! - of two `X-RateLimit-` sets the one with less remaining stays, as a whole; of equals the
//!   first. Fractions are rounded down. A set without remaining is replaced by one with it. A set whose remaining is no number, or
//!   occurs twice, stays;
//! - of two waits the longer stays; a date stays.
//!
//! Two layers whose policies have the same name are not detected: name them apart, see
//! [`Quota::named`](crate::Quota::named).
//!
//! Scripts in a browser can read these fields across origins only when
//! `Access-Control-Expose-Headers` lists them.

#[doc(hidden)]
pub mod config;
mod quota_numbers;
mod rendered_text_cache;
mod renderer;
mod response_fields;
#[cfg(test)]
mod tests;
mod texts;

use http::{HeaderMap, header::CONTENT_TYPE};

pub use self::config::{IetfDraft, ResetFormat};
#[doc(hidden)]
pub use self::{config::Headers, quota_numbers::QuotaNumbers, renderer::Renderer};

const GRPC: &str = "application/grpc";

/// Whether a request or response with these fields is gRPC, by its `Content-Type`. gRPC-Web, whose
/// trailers are part of the body, is not.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return false;
    };
    let Some((media_type, rest)) = value.as_bytes().split_at_checked(GRPC.len()) else {
        return false;
    };
    media_type.eq_ignore_ascii_case(GRPC.as_bytes())
        && matches!(rest, [] | [b'+' | b';' | b' ' | b'\t', ..])
}
