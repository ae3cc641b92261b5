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
mod renderer;
mod response_fields;
#[cfg(test)]
mod tests;
mod texts;

use std::time::Duration;

use http::{HeaderMap, header::CONTENT_TYPE};

use crate::decision::{Decision, Policy, Status, Unit, whole_seconds};

pub use self::config::{IetfDraft, ResetFormat};
#[doc(hidden)]
pub use self::{config::Headers, renderer::Renderer};

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

/// The numbers of a decision about a layer's one quota. All its fields follow from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(hidden)]
pub struct QuotaNumbers {
    pub remaining: u64,
    /// Seconds of the effective window, which is the wait of a denial: the parameter `t`.
    seconds: u64,
    reset: u64,
}

/// The most quotas whose texts are cached.
const MOST_QUOTAS: usize = 4;

/// The numbers of a decision about a layer's few quotas, beside those of the binding one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct SeveralNumbers {
    /// Units left and seconds of each, in the order of the policies; zero behind them.
    pub of_each: [(u64, u64); MOST_QUOTAS],
    /// The index of the binding quota: numbers alone do not determine that of a denial.
    binding: usize,
    /// The index of the layer's policies: rules have several sets.
    set: usize,
}

impl SeveralNumbers {
    /// The numbers of a decision about these policies; `None` if they are many, or one does not report all numbers.
    fn of(
        decision: &Decision,
        (set, policies): (usize, &[Policy]),
        format: Option<ResetFormat>,
    ) -> Option<(Self, QuotaNumbers)> {
        let mut of_each = [(0, 0); MOST_QUOTAS];
        let places = of_each.get_mut(..policies.len())?;
        if decision.statuses().len() != policies.len() {
            return None;
        }
        let mut are_own = true;
        decision.for_each_quota(|at, policy, status| {
            match (places.get_mut(at), policies.get(at)) {
                (Some(place), Some(own)) if are_own && policy == own => {
                    match numbers_of(policy, status) {
                        (Some(remaining), Some(seconds)) => *place = (remaining, seconds),
                        _ => are_own = false,
                    }
                }
                _ => are_own = false,
            }
        });
        if !are_own {
            return None;
        }
        let binding = decision.binding_place();
        let status = decision.statuses().get(binding)?;
        let (remaining, seconds) = of_each[binding];
        let numbers = QuotaNumbers {
            remaining,
            seconds,
            reset: reset(format, decision, status, seconds),
        };
        Some((
            Self {
                of_each,
                binding,
                set,
            },
            numbers,
        ))
    }
}

/// The numbers of a quota that the fields report.
#[derive(Debug, Clone, Copy)]
struct ReportedQuota<'a> {
    policy: &'a Policy,
    /// The limit in force.
    pub limit: u64,
    pub remaining: Option<u64>,
    /// Seconds of the effective window: `None` without `remaining`, since nothing is reset then, and
    /// for a limit on concurrency.
    seconds: Option<u64>,
    /// The number of `X-RateLimit-Reset`.
    reset: Option<u64>,
}

impl<'a> ReportedQuota<'a> {
    #[inline]
    fn of(
        (policy, status): (&'a Policy, &Status),
        decision: &Decision,
        format: Option<ResetFormat>,
    ) -> Self {
        let (remaining, seconds) = numbers_of(policy, status);
        Self {
            policy,
            limit: status.limit(policy),
            remaining,
            seconds,
            reset: seconds.map(|seconds| reset(format, decision, status, seconds)),
        }
    }

    /// The numbers, if all are known.
    #[inline]
    fn numbers(&self) -> Option<QuotaNumbers> {
        Some(QuotaNumbers {
            remaining: self.remaining?,
            seconds: self.seconds?,
            reset: self.reset?,
        })
    }
}

/// The units left, and the seconds of the effective window.
#[inline]
fn numbers_of(policy: &Policy, status: &Status) -> (Option<u64>, Option<u64>) {
    let remaining = status.remaining();
    let timed = remaining.is_some() && policy.unit() != Unit::ConcurrentRequests;
    (remaining, status.seconds().filter(|_| timed))
}

/// The number of `X-RateLimit-Reset` for an effective window of `seconds`.
#[inline]
fn reset(format: Option<ResetFormat>, decision: &Decision, status: &Status, seconds: u64) -> u64 {
    match format {
        Some(ResetFormat::EpochSeconds) => {
            let now = Duration::from_micros(decision.decided_at().as_micros());
            let window = status.effective_window().unwrap_or_default();
            // Rounded once: two roundings up would report a second too many.
            whole_seconds(now.saturating_add(window))
        }
        _ => seconds,
    }
}
