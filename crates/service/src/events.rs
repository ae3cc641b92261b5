//! Events counted through the `metrics` facade: calls of the gRPC service, requests of the gateway.

use std::time::{Duration, Instant};

use http::StatusCode;
use metrics::{Counter, Histogram, SharedString, counter, gauge, histogram};

use crate::metrics::{
    GATEWAY_DURATION, GATEWAY_REQUESTS, REFUSED_WAITS, RESERVATIONS, RLQS_ASSIGNMENTS,
    RLQS_BUCKETS, RLQS_REFUSED, RLQS_REPORTS, RLQS_REQUESTS, RLQS_STREAMS, RLS_DURATION,
    RLS_REQUESTS, UPSTREAM_ERRORS,
};

/// The label of a domain; `None` is one that no rules have.
fn label(domain: Option<String>) -> SharedString {
    domain.map_or(SharedString::const_str("unknown"), SharedString::from)
}

/// Counts a call of `ShouldRateLimit`. `domain` is `None` if no file has the domain: clients could invent any number.
pub(crate) fn rls_answered(domain: Option<String>, code: &'static str, took: Duration) {
    let domain = label(domain);
    histogram!(RLS_DURATION, "domain" => domain.clone(), "code" => code).record(took);
    counter!(RLS_REQUESTS, "domain" => domain, "code" => code).increment(1);
}

/// Counts a decision of the gRPC service without the store.
pub(crate) fn rls_degraded(reason: &'static str) {
    counter!("ratelimit_degraded_total", "policy" => "rls", "reason" => reason).increment(1);
}

/// Counts a call of `Reserve` or `Commit`. `domain` is that of [`rls_answered`].
pub(crate) fn reservation_answered(domain: Option<String>, call: &'static str, code: &'static str) {
    let domain = label(domain);
    counter!(RESERVATIONS, "domain" => domain, "call" => call, "code" => code).increment(1);
}

/// Adds to the number of open streams of the quota service.
pub(crate) fn rlqs_streams(change: f64) {
    gauge!(RLQS_STREAMS).increment(change);
}

/// Adds to the number of buckets with a share.
pub(crate) fn rlqs_buckets(change: f64) {
    gauge!(RLQS_BUCKETS).increment(change);
}

/// Counts the buckets of a message of reports.
pub(crate) fn rlqs_reported(buckets: usize) {
    counter!(RLQS_REPORTS).increment(buckets as u64);
}

/// Counts requests that clients have decided. `domain` is that of [`rls_answered`].
pub(crate) fn rlqs_requested(domain: Option<String>, allowed: u64, denied: u64) {
    let domain = label(domain);
    for (result, requests) in [("allowed", allowed), ("denied", denied)] {
        if requests > 0 {
            let domain = domain.clone();
            counter!(RLQS_REQUESTS, "domain" => domain, "result" => result).increment(requests);
        }
    }
}

/// Counts an action: `share`, `units`, `allow`, `deny` or `abandon`.
pub(crate) fn rlqs_assigned(kind: &'static str) {
    counter!(RLQS_ASSIGNMENTS, "kind" => kind).increment(1);
}

/// Counts a bucket that gets no share, or a stream that ends.
pub(crate) fn rlqs_refused(reason: &'static str) {
    counter!(RLQS_REFUSED, "reason" => reason).increment(1);
}

/// The classes of statuses, and the label of a request whose client left before the response.
const CODES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "cancelled"];

/// Counts responses. Each series exists from the start, so that Prometheus sees the first event as an increase.
pub(crate) struct Answers([(Counter, Histogram); CODES.len()]);

/// A request without a response.
pub(crate) struct PendingRequest<'a> {
    answers: &'a Answers,
    since: Instant,
    code: usize,
}

impl Answers {
    /// Counts in the recorder installed at this time.
    pub(crate) fn new() -> Self {
        let series = |code| {
            let requests = counter!(GATEWAY_REQUESTS, "code" => code);
            requests.increment(0);
            (requests, histogram!(GATEWAY_DURATION, "code" => code))
        };
        Self(CODES.map(series))
    }

    /// Starts a request, which counts as cancelled until it gets a response.
    pub(crate) fn begin(&self) -> PendingRequest<'_> {
        PendingRequest {
            answers: self,
            since: Instant::now(),
            code: CODES.len() - 1,
        }
    }
}

/// Counts requests whose client had too many others that waited for their bodies.
pub(crate) fn refused_waits() -> Counter {
    let refused = counter!(REFUSED_WAITS);
    refused.increment(0);
    refused
}

/// Counts requests without a response of the upstream, by cause.
pub(crate) struct UpstreamErrors<const N: usize>([Counter; N]);

impl<const N: usize> UpstreamErrors<N> {
    /// Counts in the recorder installed at this time.
    pub(crate) fn new(causes: [&'static str; N]) -> Self {
        Self(causes.map(|cause| {
            let errors = counter!(UPSTREAM_ERRORS, "cause" => cause);
            errors.increment(0);
            errors
        }))
    }

    pub(crate) fn count(&self, cause: usize) {
        self.0[cause].increment(1);
    }
}

impl PendingRequest<'_> {
    /// Counts the request by the status of its response, which has begun.
    pub(crate) fn respond(mut self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100);
        self.code = class.clamp(1, 5) - 1;
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let (requests, seconds) = &self.answers.0[self.code];
        requests.increment(1);
        seconds.record(self.since.elapsed());
    }
}
