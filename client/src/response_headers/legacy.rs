//! Older fields: `RateLimit-Remaining`, `X-RateLimit-Remaining`, `X-Rate-Limit-Remaining` and
//! `X-RateLimit-Remaining-Requests`, each with its reset. Servers disagree about its meaning.

use std::{num::NonZeroU32, time::Duration};

use http::{HeaderMap, HeaderName};

use super::{Refill, ReportedQuota, date, duration, only_line, parse_digits, rate_limit};
use tower_ratelimit::Timestamp;

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
    /// A length of time like `Length`, until all units are back.
    LengthUntilFull,
}

/// Discord sends both a length of time and an instant; the length is first.
static PAIRS: [FieldPair; 5] = [
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
    pair(
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
        ResetForm::LengthUntilFull,
    ),
];

/// The limit of the last pair. All used units come back within `x-ratelimit-reset-requests`.
const LIMIT_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-limit-requests");

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

/// Whether any of the fields may exist. Most responses have none, and a walk over their names costs
/// a fifth of the five searches.
fn may_exist(headers: &HeaderMap) -> bool {
    headers.keys().map(HeaderName::as_str).any(|name| {
        let name = name.strip_prefix("x-").unwrap_or(name);
        name.starts_with("rate")
    })
}

/// The quota of the first complete pair.
pub(super) fn quota(headers: &HeaderMap, now: Timestamp) -> Option<ReportedQuota> {
    if !may_exist(headers) {
        return None;
    }
    PAIRS.iter().find_map(|pair| {
        let remaining = parse_digits(only_line(headers, &pair.remaining)?)?;
        let reset = only_line(headers, &pair.reset)?;
        let window = match pair.reads {
            ResetForm::Instant => until(reset, date::sent_at(headers, now))?,
            ResetForm::Length | ResetForm::LengthUntilFull => duration::with_units(reset)?,
        };
        let quota = ReportedQuota {
            remaining,
            window: Some(window),
            refill: rate_limit::refill(headers),
        };
        Some(match pair.reads {
            ResetForm::LengthUntilFull => one_by_one(quota, window, headers),
            _ => quota,
        })
    })
}

/// Units that come back one by one. If the response has their limit, the window of an empty quota
/// is the time of one unit, not that of all.
fn one_by_one(quota: ReportedQuota, window: Duration, headers: &HeaderMap) -> ReportedQuota {
    let limit = only_line(headers, &LIMIT_REQUESTS).and_then(parse_digits);
    let used = limit.and_then(|limit| limit.checked_sub(quota.remaining));
    let used = used.map(|used| u32::try_from(used).unwrap_or(u32::MAX));
    let Some(used) = used.and_then(NonZeroU32::new) else {
        return quota;
    };
    let refill = Refill {
        window,
        units: used,
    };
    let until_next = match quota.remaining {
        0 => refill.interval(),
        _ => window,
    };
    ReportedQuota {
        window: Some(until_next),
        refill: quota.refill.or(Some(refill)),
        ..quota
    }
}

/// The remaining units in the first field that contains them.
pub(super) fn remaining(headers: &HeaderMap) -> Option<u64> {
    let mut values = PAIRS
        .iter()
        .filter_map(|pair| parse_digits(only_line(headers, &pair.remaining)?));
    values.next()
}

/// The time until a reset: seconds, a time since the epoch in seconds or milliseconds, or a date.
pub(super) fn until(text: &str, sent: Timestamp) -> Option<Duration> {
    let Some(number) = rounded_up(text) else {
        let second = date::http(text).or_else(|| date::rfc3339(text))?;
        return Some(date::until(second, sent));
    };
    Some(match number {
        EPOCH_MILLIS.. => {
            let micros = number.saturating_mul(1_000);
            Duration::from_micros(micros.saturating_sub(sent.as_micros()))
        }
        EPOCH_SECONDS.. => date::until(number, sent),
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
