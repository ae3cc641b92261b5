//! Events counted through the `metrics` facade: calls of the gRPC service, requests of the gateway.

mod gateway;

use std::{borrow::Cow, time::Duration};

use metrics::{SharedString, counter, histogram};

pub(crate) use self::gateway::{
    Answers, GATEWAY_DURATION, GATEWAY_REQUESTS, GATEWAY_SECONDS, UPSTREAM_ERRORS, UpstreamErrors,
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
