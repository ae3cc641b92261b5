//! Events counted through the `metrics` facade: requests to the gateway.

use std::time::Instant;

use http::StatusCode;
use metrics::{Counter, Histogram, counter, histogram};

use tower_ratelimit_service::metrics::{
    GATEWAY_DURATION, GATEWAY_REQUESTS, REFUSED_WAITS, UPSTREAM_ERRORS,
};

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
