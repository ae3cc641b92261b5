//! Fields of providers, one set for each unit: `x-ratelimit-{limit,remaining,reset}-requests` as OpenAI
//! sends them, and `anthropic-ratelimit-requests-{limit,remaining,reset}`.
//!
//! A reset is the time until the quota is full again, not until one unit has returned.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use http::{HeaderMap, HeaderName};
use tower_ratelimit::clock::Timestamp;

use super::{
    Refill, ReportedQuota,
    field_values::{joined, least, rounded_down, values},
    legacy, times,
};
use crate::units::{INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS, TOKENS, Unit};

/// The fields of one quota.
struct FieldSet {
    unit: Unit,
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
    reads: ProviderReset,
}

/// The form of a reset.
enum ProviderReset {
    /// A length of time with units, such as `6m0s`, or seconds.
    Length,
    /// A date of RFC 3339.
    Instant,
}

/// A set whose names begin with `$before`, name the number, and end with `$after`.
macro_rules! field_set {
    ($unit:ident, $reads:ident, $before:literal, $after:literal) => {
        FieldSet {
            unit: $unit,
            limit: HeaderName::from_static(concat!($before, "limit", $after)),
            remaining: HeaderName::from_static(concat!($before, "remaining", $after)),
            reset: HeaderName::from_static(concat!($before, "reset", $after)),
            reads: ProviderReset::$reads,
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
pub(super) fn quotas(
    headers: &HeaderMap,
    now: Timestamp,
    unit: Unit,
) -> impl Iterator<Item = ReportedQuota> {
    let sets = FIELD_SETS.iter().filter(move |set| set.unit == unit);
    sets.filter_map(move |set| set.quota(headers, now))
}

/// The remaining requests in the first field that contains them.
pub(super) fn remaining(headers: &HeaderMap) -> Option<u64> {
    let sets = FIELD_SETS.iter().filter(|set| set.unit == REQUESTS);
    let mut least = sets.filter_map(|set| legacy::remaining_in(headers, &set.remaining));
    least.next()
}

impl FieldSet {
    fn quota(&self, headers: &HeaderMap, now: Timestamp) -> Option<ReportedQuota> {
        let all_remaining = joined(headers, &self.remaining)?;
        let resets = joined(headers, &self.reset)?;
        let sent = times::sent_at(headers, now);
        let lengths = values(&resets).map(|reset| match self.reads {
            ProviderReset::Length => times::rounded(reset),
            ProviderReset::Instant => {
                let length = legacy::until(reset, sent)?;
                Some((length, Duration::from_secs(1)))
            }
        });
        let least = least(values(&all_remaining), lengths)?;
        let (remaining, (reset, precision)) = (least.units, least.reset);
        let limit = joined(headers, &self.limit);
        let limit = limit.and_then(|limits| rounded_down(values(&limits).nth(least.place)?));
        let limit = limit.filter(|limit| *limit >= remaining);
        let used = limit.map_or(0, |limit| limit - remaining);
        let refill = refill(reset.saturating_add(precision), used);
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
fn refill(window: Duration, used: u64) -> Option<Refill> {
    let used = u32::try_from(used).unwrap_or(u32::MAX);
    let units = NonZeroU32::new(used)?;
    Some(Refill { window, units })
}
