//! Header fields of responses: those that tower-ratelimit writes, and those of other servers.
//!
//! All work is bounded: a field of more than 8 KiB is ignored, only the most
//! restrictive quotas count, and no function fails.

mod field_values;
mod grpc;
mod legacy;
mod rate_limit;
mod reported_quota;
mod structured_list;
#[cfg(test)]
mod tests;
mod times;

use std::time::Duration;

use http::{HeaderMap, HeaderName, header::RETRY_AFTER};
use tower_ratelimit::clock::Timestamp;

use self::{
    field_values::{only_line, values},
    reported_quota::most_restrictive,
};
pub(crate) use self::{
    grpc::{Grpc, grpc},
    legacy::remaining as legacy_remaining,
    reported_quota::{Refill, ReportedQuota},
};
use crate::request_cost::{REQUESTS, Unit};

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The quotas of requests in a response that arrived at `now`: from `RateLimit`, otherwise from the older
/// fields.
#[inline]
pub(crate) fn quotas(headers: &HeaderMap, now: Timestamp) -> Vec<ReportedQuota> {
    let mut quotas = rate_limit::quotas(headers, REQUESTS);
    if quotas.is_empty() && legacy::may_exist(headers) {
        match legacy::quota(headers, now) {
            Some(quota) => quotas.extend([quota]),
            None => quotas.extend(legacy::quotas_of_unit(headers, now, REQUESTS)),
        }
    }
    most_restrictive(quotas)
}

/// The quotas of another unit: from `RateLimit`, whose policies name it, otherwise from the fields of
/// providers.
pub(crate) fn quotas_of(headers: &HeaderMap, now: Timestamp, unit: Unit) -> Vec<ReportedQuota> {
    let mut quotas = rate_limit::quotas(headers, unit);
    if quotas.is_empty() {
        quotas.extend(legacy::quotas_of_unit(headers, now, unit));
    }
    most_restrictive(quotas)
}

/// `x-should-retry`: whether the server wants the request again.
pub(crate) fn should_retry(headers: &HeaderMap) -> Option<bool> {
    match only_line(headers, &SHOULD_RETRY)? {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// The most lines that are read.
const MOST_LINES: usize = 4;

/// The wait that a response requests, counted from `now`: of several values the longest.
///
/// Milliseconds count where the seconds are only their rounding. Otherwise the longer wait counts:
/// a proxy may have its own limit.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let sent = times::sent_at(headers, now);
    let coarse = longest(headers, &RETRY_AFTER, |text| wait(text, sent));
    let fine = longest(headers, &RETRY_AFTER_MS, times::millis);
    let is_rounded = |(coarse, fine): &(Duration, Duration)| {
        *coarse > *fine && *coarse - *fine < Duration::from_secs(1)
    };
    match coarse.zip(fine).filter(is_rounded) {
        Some((_, fine)) => Some(fine),
        None => coarse.max(fine),
    }
}

/// Whether a response requests a wait, in any form.
pub(crate) fn has_retry_after(headers: &HeaderMap) -> bool {
    headers.contains_key(RETRY_AFTER) || headers.contains_key(&RETRY_AFTER_MS)
}

fn longest(
    headers: &HeaderMap,
    name: &HeaderName,
    wait: impl Fn(&str) -> Option<Duration>,
) -> Option<Duration> {
    let lines = headers.get_all(name).iter().take(MOST_LINES);
    let texts = lines.filter_map(|line| line.to_str().ok());
    texts.flat_map(values).filter_map(wait).max()
}

/// Seconds, with or without a fraction, or a date.
fn wait(text: &str, sent: Timestamp) -> Option<Duration> {
    match times::seconds(text) {
        Some(seconds) => Some(seconds),
        None => Some(times::until(times::http(text)?, sent)),
    }
}
