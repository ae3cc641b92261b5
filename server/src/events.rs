//! Events counted through the `metrics` facade: calls of the gRPC service, requests of the gateway.

mod gateway;

use std::{borrow::Cow, time::Duration};

use metrics::{SharedString, counter, gauge, histogram};

pub(crate) use self::gateway::{
    Answers, GATEWAY_DURATION, GATEWAY_REQUESTS, GATEWAY_SECONDS, REFUSED_WAITS, UPSTREAM_ERRORS,
    UpstreamErrors, refused_waits,
};

pub(crate) const RLS_REQUESTS: &str = "ratelimit_rls_requests_total";
pub(crate) const RLS_DURATION: &str = "ratelimit_rls_duration_seconds";

/// Counts a call of `ShouldRateLimit`. `domain` is `None` if no file has the domain: clients could invent any number.
pub(crate) fn rls_answered(domain: Option<String>, code: &'static str, took: Duration) {
    let domain = SharedString::from(domain.map_or(Cow::Borrowed("unknown"), Cow::from));
    histogram!(RLS_DURATION, "domain" => domain.clone(), "code" => code).record(took);
    counter!(RLS_REQUESTS, "domain" => domain, "code" => code).increment(1);
}

/// Counts a decision of the gRPC service without the store.
pub(crate) fn rls_degraded(reason: &'static str) {
    counter!("ratelimit_degraded_total", "policy" => "rls", "reason" => reason).increment(1);
}

pub(crate) const RESERVATIONS: &str = "ratelimit_rls_reservations_total";

/// Counts a call of `Reserve` or `Commit`. `domain` is that of [`rls_answered`].
pub(crate) fn reservation_answered(domain: Option<String>, call: &'static str, code: &'static str) {
    let domain = SharedString::from(domain.map_or(Cow::Borrowed("unknown"), Cow::from));
    counter!(RESERVATIONS, "domain" => domain, "call" => call, "code" => code).increment(1);
}

pub(crate) const RLQS_STREAMS: &str = "ratelimit_rlqs_streams";
pub(crate) const RLQS_BUCKETS: &str = "ratelimit_rlqs_buckets";
pub(crate) const RLQS_REPORTS: &str = "ratelimit_rlqs_reports_total";
pub(crate) const RLQS_REQUESTS: &str = "ratelimit_rlqs_requests_total";
pub(crate) const RLQS_ASSIGNMENTS: &str = "ratelimit_rlqs_assignments_total";
pub(crate) const RLQS_REFUSED: &str = "ratelimit_rlqs_refused_total";

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
    let domain = SharedString::from(domain.map_or(Cow::Borrowed("unknown"), Cow::from));
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
