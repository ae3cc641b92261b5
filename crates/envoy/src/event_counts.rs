//! Events counted through the `metrics` facade: calls of the gRPC services.

use std::time::Duration;

use metrics::{SharedString, counter, gauge, histogram};

use tower_ratelimit_service::metrics::{
    RESERVATIONS, RLQS_ASSIGNMENTS, RLQS_BUCKETS, RLQS_REFUSED, RLQS_REPORTS, RLQS_REQUESTS,
    RLQS_STREAMS, RLS_DURATION, RLS_REQUESTS,
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
