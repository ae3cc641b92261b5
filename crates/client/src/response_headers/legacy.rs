//! Older fields: `RateLimit-Remaining`, `X-RateLimit-Remaining` and `X-Rate-Limit-Remaining`, each with its reset, about
//! whose meaning servers disagree; and those of providers, one set for each unit:
//! `x-ratelimit-{limit,remaining,reset}-requests` as OpenAI sends them, and
//! `anthropic-ratelimit-requests-{limit,remaining,reset}`. A reset of these is the time until the quota is full again, not
//! until one unit has returned.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use http::{HeaderMap, HeaderName};
use tower_ratelimit::clock::Timestamp;

use super::{
    Refill, ReportedQuota,
    field_values::{joined, least, parse_digits, rounded_down, values},
    rate_limit, times,
};
use crate::request_cost::{INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS, TOKENS, Unit};

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

/// The units that are left, by the first of the fields that the response has.
pub(crate) fn remaining(headers: &HeaderMap) -> Option<u64> {
    let pairs = PAIRS.iter().map(|pair| &pair.remaining);
    let sets = FIELD_SETS.iter().filter(|set| set.unit == REQUESTS);
    let mut names = pairs.chain(sets.map(|set| &set.remaining));
    names.find_map(|name| remaining_in(headers, name))
}

/// The least of the remaining units in this field.
fn remaining_in(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let text = joined(headers, name)?;
    values(&text).filter_map(rounded_down).min()
}

/// The time until a reset: seconds, a time since the epoch in seconds or milliseconds, or a date.
fn until(text: &str, sent: Timestamp) -> Option<Duration> {
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

/// The fields of one quota.
struct FieldSet {
    unit: Unit,
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
    reads: ResetForm,
}

/// A set whose names begin with `$before`, name the number, and end with `$after`.
macro_rules! field_set {
    ($unit:ident, $reads:ident, $before:literal, $after:literal) => {
        FieldSet {
            unit: $unit,
            limit: HeaderName::from_static(concat!($before, "limit", $after)),
            remaining: HeaderName::from_static(concat!($before, "remaining", $after)),
            reset: HeaderName::from_static(concat!($before, "reset", $after)),
            reads: ResetForm::$reads,
        }
    };
}

static FIELD_SETS: [FieldSet; 6] = [
    field_set!(REQUESTS, Length, "x-ratelimit-", "-requests"),
    field_set!(TOKENS, Length, "x-ratelimit-", "-tokens"),
    field_set!(REQUESTS, Instant, "anthropic-ratelimit-requests-", ""),
    field_set!(TOKENS, Instant, "anthropic-ratelimit-tokens-", ""),
    field_set!(
        INPUT_TOKENS,
        Instant,
        "anthropic-ratelimit-input-tokens-",
        ""
    ),
    field_set!(
        OUTPUT_TOKENS,
        Instant,
        "anthropic-ratelimit-output-tokens-",
        ""
    ),
];

/// The quotas of this unit.
pub(super) fn quotas_of_unit(
    headers: &HeaderMap,
    now: Timestamp,
    unit: Unit,
) -> impl Iterator<Item = ReportedQuota> {
    let sets = FIELD_SETS.iter().filter(move |set| set.unit == unit);
    sets.filter_map(move |set| set.quota(headers, now))
}

impl FieldSet {
    fn quota(&self, headers: &HeaderMap, now: Timestamp) -> Option<ReportedQuota> {
        let all_remaining = joined(headers, &self.remaining)?;
        let resets = joined(headers, &self.reset)?;
        let sent = times::sent_at(headers, now);
        let lengths = values(&resets).map(|reset| match self.reads {
            ResetForm::Length => times::rounded(reset),
            ResetForm::Instant => {
                let length = until(reset, sent)?;
                Some((length, Duration::from_secs(1)))
            }
        });
        let least = least(values(&all_remaining), lengths)?;
        let (remaining, (reset, precision)) = (least.units, least.reset);
        let limit = joined(headers, &self.limit);
        let limit = limit.and_then(|limits| rounded_down(values(&limits).nth(least.place)?));
        let limit = limit.filter(|limit| *limit >= remaining);
        let used = limit.map_or(0, |limit| limit - remaining);
        let refill = measured_refill(reset.saturating_add(precision), used);
        let window = match (remaining, refill) {
            // An empty quota waits for one unit, not for all.
            (0, Some(refill)) => reset / refill.units.get(),
            _ => reset,
        };
        Some(ReportedQuota {
            remaining,
            window: Some(window),
            refill,
            bucket: limit.and_then(NonZeroU64::new),
        })
    }
}

/// The refill of units that come back one by one.
fn measured_refill(window: Duration, used: u64) -> Option<Refill> {
    let used = u32::try_from(used).unwrap_or(u32::MAX);
    let units = NonZeroU32::new(used)?;
    Some(Refill { window, units })
}
