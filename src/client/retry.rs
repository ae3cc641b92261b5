//! Retries: which requests are sent again, and when.

use std::{fmt, sync::Arc, time::Duration};

use http::{Method, StatusCode, request::Parts};

use super::{
    SignalSource,
    common::Common,
    dice::draw,
    sent_request::{Heard, Refusal, SentRequest},
};
use crate::headers::is_grpc;

/// A call is refused for a limit at most this often before it gives up.
const MOST_REFUSALS: u32 = 10;

/// The first wait before a request is sent again that failed for another reason.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Which requests are sent again, and how often.
///
/// By default requests are sent again that say the same when they come twice: those by `GET`, `HEAD`,
/// `OPTIONS`, `TRACE`, `PUT` and `DELETE`, and those with an `Idempotency-Key`; others only where a
/// gRPC server allows it. Each waits for its turn again, and counts again.
///
/// - Refused for a limit: again after the time that the server names and a random share of 500 ms,
///   which doubles up to 20 s; at most ten times.
/// - 408, 502, 503, 504, or a connection that fails before there is a response: again after a random
///   share of 100 ms, which doubles; at most [`attempts`](Self::attempts) in all, and no more than one
///   for five requests of the last ten seconds, and ten.
///
/// When nothing helps the caller gets the last response, or the error if there was none, or if it came
/// after more than a second: a response is held no longer, since it may hold the only connection.
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
    /// The server refused the request for its limit.
    Throttled,
    /// The response has this status: 408, 502, 503 or 504.
    Status(StatusCode),
    /// The connection failed before there was a response.
    Connection,
}

impl Retry {
    /// The rules above, with three attempts.
    pub const fn new() -> Self {
        Self {
            attempts: 3,
            throttled_always: false,
            when: None,
        }
    }

    /// Nothing is sent again: requests only wait for their turn.
    pub const fn none() -> Self {
        Self {
            attempts: 0,
            throttled_always: false,
            when: None,
        }
    }

    /// How often a request is sent at most that fails for another reason than a limit, the first
    /// time included. Defaults to 3; with 0 or 1 nothing is sent again for such a reason.
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = if attempts == 0 { 1 } else { attempts };
        self
    }

    /// Sends also those requests again that a limit refused and that may not come twice, such as a
    /// `POST`. Defaults to no.
    ///
    /// A server refuses nearly always before it has done anything, but nothing proves it.
    pub const fn throttled_always(mut self) -> Self {
        self.throttled_always = true;
        self
    }

    /// Decides whether a request may be sent again after a failure, in place of its method, of
    /// [`throttled_always`](Self::throttled_always), and of a gRPC server that allows it. How often
    /// stays bounded, and nothing is sent again that a gRPC server forbids.
    ///
    /// ```
    /// use tower_ratelimit::client::{Failure, Retry};
    ///
    /// // Searches are sent by POST and change nothing.
    /// let retry = Retry::new().when(|parts, _: &Failure| parts.uri.path() == "/search");
    /// # let _ = retry;
    /// ```
    pub fn when(mut self, when: impl Fn(&Parts, &Failure) -> bool + Send + Sync + 'static) -> Self {
        self.when = Some(Arc::new(when));
        self
    }

    pub(super) const fn is_none(&self) -> bool {
        self.attempts == 0
    }

    /// Whether there is an answer after which this request may be sent again, so that it has to be
    /// kept.
    pub(super) fn may_want(&self, parts: &Parts) -> bool {
        let for_any = self.throttled_always || self.when.is_some();
        !self.is_none() && (for_any || is_idempotent(parts) || is_grpc(&parts.headers))
    }

    /// Whether a request may be sent again, of which the failure itself does or does not allow it.
    fn allows(&self, parts: &Parts, failure: Failure, is_safe: bool) -> bool {
        match &self.when {
            Some(when) => when(parts, &failure),
            None => is_safe || is_idempotent(parts),
        }
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

/// Whether the request says the same when it comes twice.
fn is_idempotent(parts: &Parts) -> bool {
    let by_method = [
        Method::GET,
        Method::HEAD,
        Method::OPTIONS,
        Method::TRACE,
        Method::PUT,
        Method::DELETE,
    ];
    by_method.contains(&parts.method) || parts.headers.contains_key("idempotency-key")
}

/// The attempts of one call.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    refusals: u32,
    failures: u32,
}

/// The request that may be sent again, and the time that its call has left.
#[derive(Clone, Copy)]
pub(super) struct Again<'r> {
    pub(super) retry: &'r Retry,
    pub(super) parts: &'r Parts,
    pub(super) left: Duration,
    pub(super) common: &'r Common,
}

impl Again<'_> {
    /// The wait until a request is sent again that got this response; `None` if it is not.
    pub(super) fn after_response(
        &self,
        tried: &mut Attempts,
        sent: &SentRequest,
        status: StatusCode,
        heard: Heard,
    ) -> Option<Duration> {
        let is_transient = matches!(status.as_u16(), 408 | 502 | 503 | 504);
        match heard {
            Heard::Refused(refusal) => self.after_refusal(tried, refusal),
            Heard::Nothing if is_transient => {
                self.after_failure(tried, sent, Failure::Status(status))
            }
            Heard::Forbidden | Heard::Nothing => None,
        }
    }

    fn after_refusal(&self, tried: &mut Attempts, refusal: Refusal) -> Option<Duration> {
        // A gRPC server that names a wait allows to try again whatever it is.
        let is_safe = refusal.source == SignalSource::Grpc || self.retry.throttled_always;
        let allowed = self.retry.allows(self.parts, Failure::Throttled, is_safe);
        // No request goes before the share is over, whoever's it is.
        let wait = refusal.pause.wait.saturating_add(refusal.pause.spread);
        if !allowed || tried.refusals >= MOST_REFUSALS || wait > self.left {
            return None;
        }
        tried.refusals += 1;
        Some(wait)
    }

    /// The wait until a request is sent again that failed in another way; `None` if it is not.
    pub(super) fn after_failure(
        &self,
        tried: &mut Attempts,
        sent: &SentRequest,
        failure: Failure,
    ) -> Option<Duration> {
        let is_last = tried.failures + 1 >= self.retry.attempts;
        if is_last || !self.retry.allows(self.parts, failure, false) {
            return None;
        }
        let wait = draw(AFTER_FAILURE, tried.failures, self.common.dice.fraction());
        if wait > self.left || !sent.may_retry(self.common) {
            return None;
        }
        tried.failures += 1;
        Some(wait)
    }
}
