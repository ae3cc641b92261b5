//! Retries: selects the requests that are sent again, and the time.

use std::{fmt, sync::Arc, time::Duration};

use http::{Method, StatusCode, request::Parts};
use tower_ratelimit::headers::is_grpc;

use crate::{
    deadlines_and_jitter::jittered_backoff,
    pacer_state::PacerState,
    permission_to_send::{SentRequest, Verdict},
    response_signals::OVERLOADED,
};

/// The most refusals of one call before it ends.
const MOST_REFUSALS: u32 = 10;

/// The longest random wait after the first failure.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Selects the requests that are sent again, and how often.
///
/// By default requests that may safely arrive twice: those by `GET`, `HEAD`, `OPTIONS`, `TRACE`,
/// `QUERY`, `PUT` and `DELETE`, and those with an `Idempotency-Key`; others only where a gRPC server permits
/// it. Each attempt waits for a turn, and counts.
///
/// - After a refusal: the wait that the server requests, and a random share of 500 ms that doubles
///   up to 20 s; at most ten times.
/// - After 408, 502, 503, 504, 529, or a connection that fails before a response: a random share of 100
///   ms that doubles; at most [`attempts`](Self::attempts) in total, and at most one retry per five
///   requests of the last ten seconds, plus ten.
///
/// When no attempt succeeds, the caller gets the last response, or the error if no response
/// arrived. It also gets the error of an attempt that took more than a second: no response is held
/// for longer, since it may hold the only connection.
#[derive(Clone)]
#[must_use]
pub struct Retry {
    attempts: u32,
    throttled_always: bool,
    when: Option<Arc<When>>,
}

type When = dyn Fn(&Parts, &Failure) -> bool + Send + Sync;

/// The reason to send a request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The server refused the request because of its limit.
    Throttled,
    /// The response has this status: 408, 502, 503, 504 or 529, or any failure with `x-should-retry: true`.
    Status(StatusCode),
    /// The connection failed before a response. The server may have received the request.
    Connection,
}

impl Retry {
    /// The rules above: refused requests up to ten times, others with three attempts in total.
    pub const fn new() -> Self {
        Self {
            attempts: 3,
            throttled_always: false,
            when: None,
        }
    }

    /// Sends nothing again: requests only wait for their turn.
    pub const fn none() -> Self {
        Self {
            attempts: 0,
            throttled_always: false,
            when: None,
        }
    }

    /// The most attempts for a request that fails for another reason than a limit, including the
    /// first one. Defaults to 3; 0 and 1 both mean no retry for such a reason.
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = if attempts == 0 { 1 } else { attempts };
        self
    }

    /// Also retries refused requests that may not safely arrive twice, such as a `POST`. Defaults
    /// to no.
    ///
    /// A server nearly always refuses before it does anything, but nothing proves it.
    pub const fn throttled_always(mut self) -> Self {
        self.throttled_always = true;
        self
    }

    /// Decides whether a request may be sent again after a failure. Replaces the rules about its
    /// method, [`throttled_always`](Self::throttled_always) and a gRPC server's permission. The
    /// number of attempts stays bounded, and a gRPC server's prohibition stays in force.
    ///
    /// ```
    /// use tower_ratelimit_client::{Failure, Retry};
    ///
    /// // Searches are sent by POST and change nothing.
    /// let retry = Retry::new().when(|parts, _: &Failure| parts.uri.path() == "/search");
    /// # let _ = retry;
    /// ```
    pub fn when(mut self, when: impl Fn(&Parts, &Failure) -> bool + Send + Sync + 'static) -> Self {
        self.when = Some(Arc::new(when));
        self
    }

    pub(crate) const fn is_none(&self) -> bool {
        self.attempts == 0
    }

    /// Whether some response would make this request be sent again, so that its body must be
    /// copied.
    pub(crate) fn may_want(&self, parts: &Parts) -> bool {
        let for_any = self.throttled_always || self.when.is_some();
        !self.is_none() && (for_any || is_idempotent(parts) || is_grpc(&parts.headers))
    }

    /// Whether a request may be sent again. `is_safe` is the permission that the failure itself
    /// gives.
    fn allows(&self, parts: &Parts, failure: Failure, is_safe: bool) -> bool {
        match &self.when {
            Some(when) => when(parts, &failure),
            None => is_safe || is_idempotent(parts),
        }
    }

    /// The wait before a retry, within the time `left`; `None` for no retry.
    pub(crate) fn wait(
        &self,
        attempts: &mut Attempts,
        parts: &Parts,
        left: Duration,
        (pacer, sent): (&PacerState, &SentRequest),
        (failure, verdict): (Failure, Verdict),
    ) -> Option<Duration> {
        let is_transient = match failure {
            Failure::Status(status) => {
                matches!(status.as_u16(), 408 | 502 | 503 | 504 | OVERLOADED)
            }
            Failure::Connection | Failure::Throttled => true,
        };
        let is_permitted = match verdict {
            Verdict::Refused(pause, is_permitted) => {
                let is_safe = is_permitted || self.throttled_always;
                let allowed = self.allows(parts, Failure::Throttled, is_safe);
                // The random time belongs to the destination's pause, so every request waits for its end.
                let wait = pause.wait.saturating_add(pause.spread);
                if !allowed || attempts.refusals >= MOST_REFUSALS || wait > left {
                    return None;
                }
                attempts.refusals += 1;
                return Some(wait);
            }
            Verdict::Permitted => true,
            Verdict::Nothing if is_transient => false,
            Verdict::Forbidden | Verdict::Nothing => return None,
        };
        let is_last = attempts.failures + 1 >= self.attempts;
        if is_last || !self.allows(parts, failure, is_permitted) {
            return None;
        }
        let fraction = pacer.jitter.fraction();
        let wait = jittered_backoff(AFTER_FAILURE, attempts.failures, fraction);
        if wait > left || !sent.may_retry(pacer) {
            return None;
        }
        attempts.failures += 1;
        Some(wait)
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("attempts", &self.attempts)
            .field("throttled_always", &self.throttled_always)
            .finish_non_exhaustive()
    }
}

/// Whether the request may safely arrive twice.
fn is_idempotent(parts: &Parts) -> bool {
    let by_method = [
        Method::GET,
        Method::HEAD,
        Method::OPTIONS,
        Method::TRACE,
        Method::PUT,
        Method::DELETE,
    ];
    // RFC 10008; older versions of the crate `http` have no constant for it.
    let is_query = parts.method.as_str() == "QUERY";
    let is_safe = is_query || by_method.contains(&parts.method);
    is_safe || parts.headers.contains_key("idempotency-key")
}

/// The attempts of one call.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    refusals: u32,
    failures: u32,
}
