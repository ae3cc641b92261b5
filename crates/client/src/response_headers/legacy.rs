//! Older fields: `RateLimit-Remaining`, `X-RateLimit-Remaining` and `X-Rate-Limit-Remaining`, each with
//! its reset. Servers disagree about its meaning.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use tower_ratelimit::clock::Timestamp;

use super::{
    ReportedQuota,
    field_values::{joined, least, parse_digits, rounded_down, values},
    rate_limit, times,
};

/// A field with the remaining units, and the field with their reset.
struct FieldPair {
    remaining: HeaderName,
    reset: HeaderName,
    reads: ResetForm,
}

/// The form of a reset.
enum ResetForm {
    /// Seconds, a time since the epoch, or a date.
    Instant,
    /// A length of time, with a fraction or with units.
    Length,
}

/// Discord sends both a length of time and an instant; the length is first.
static PAIRS: [FieldPair; 4] = [
    pair("ratelimit-remaining", "ratelimit-reset", ResetForm::Instant),
    pair(
        "x-ratelimit-remaining",
        "x-ratelimit-reset-after",
        ResetForm::Length,
    ),
    pair(
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        ResetForm::Instant,
    ),
    pair(
        "x-rate-limit-remaining",
        "x-rate-limit-reset",
        ResetForm::Instant,
    ),
];

const fn pair(remaining: &'static str, reset: &'static str, reads: ResetForm) -> FieldPair {
    FieldPair {
        remaining: HeaderName::from_static(remaining),
        reset: HeaderName::from_static(reset),
        reads,
    }
}

/// Numbers from here on are seconds since the epoch: no wait is 31 years long.
const EPOCH_SECONDS: u64 = 1_000_000_000;

/// Numbers from here on are milliseconds since the epoch.
const EPOCH_MILLIS: u64 = 1_000_000_000_000;

/// Whether any of these fields, or of those of providers, may exist. Most responses have none, and a walk
/// over their names costs a fifth of the searches.
pub(super) fn may_exist(headers: &HeaderMap) -> bool {
    headers.keys().map(HeaderName::as_str).any(|name| {
        let name = name.strip_prefix("x-").unwrap_or(name);
        name.starts_with("rate") || name.starts_with("anthropic-rate")
    })
}

/// The quota of the first complete pair.
pub(super) fn quota(headers: &HeaderMap, now: Timestamp) -> Option<ReportedQuota> {
    PAIRS.iter().find_map(|pair| {
        let remaining = joined(headers, &pair.remaining)?;
        let resets = joined(headers, &pair.reset)?;
        let sent = times::sent_at(headers, now);
        let windows = values(&resets).map(|reset| match pair.reads {
            ResetForm::Instant => until(reset, sent),
            ResetForm::Length => times::with_units(reset),
        });
        let least = least(values(&remaining), windows)?;
        Some(ReportedQuota {
            remaining: least.units,
            window: Some(least.reset),
            refill: rate_limit::refill(headers),
            bucket: None,
        })
    })
}

/// The remaining units in the first field that contains them.
pub(super) fn remaining(headers: &HeaderMap) -> Option<u64> {
    let mut least = PAIRS
        .iter()
        .filter_map(|pair| remaining_in(headers, &pair.remaining));
    least.next()
}

/// The least of the remaining units in this field.
pub(super) fn remaining_in(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let text = joined(headers, name)?;
    values(&text).filter_map(rounded_down).min()
}

/// The time until a reset: seconds, a time since the epoch in seconds or milliseconds, or a date.
pub(super) fn until(text: &str, sent: Timestamp) -> Option<Duration> {
    let Some(number) = rounded_up(text) else {
        let second = times::http(text).or_else(|| times::rfc3339(text))?;
        return Some(times::until(second, sent));
    };
    Some(match number {
        EPOCH_MILLIS.. => {
            let micros = number.saturating_mul(1_000);
            Duration::from_micros(micros.saturating_sub(sent.as_micros()))
        }
        EPOCH_SECONDS.. => times::until(number, sent),
        _ => Duration::from_secs(number),
    })
}

/// A number, possibly with a fraction.
fn rounded_up(text: &str) -> Option<u64> {
    let Some((number, fraction)) = text.split_once('.') else {
        return parse_digits(text);
    };
    let up = u64::from(fraction.bytes().any(|digit| digit != b'0'));
    parse_digits(fraction)?;
    Some(parse_digits(number)?.saturating_add(up))
}
