//! `RateLimit-Remaining`, `X-RateLimit-Remaining`, `X-Rate-Limit-Remaining` and
//! `X-RateLimit-Remaining-Requests`, each with its reset. Servers do not agree on its meaning.

use std::{num::NonZeroU32, time::Duration};

use http::{HeaderMap, HeaderName};

use super::{Refill, ToldQuota, date, duration, lone, ratelimit, whole};
use crate::clock::Timestamp;

/// A field with the units that are left, and the one with their reset.
struct FieldPair {
    remaining: HeaderName,
    reset: HeaderName,
    reads: Reads,
}

/// The form of a reset.
enum Reads {
    /// Seconds, a time since the epoch, or a date.
    Instant,
    /// A length of time, with a fraction or with units.
    Length,
    /// The same, until all units are there.
    LengthUntilFull,
}

/// Discord sends the length of time beside the instant.
static PAIRS: [FieldPair; 5] = [
    pair("ratelimit-remaining", "ratelimit-reset", Reads::Instant),
    pair(
        "x-ratelimit-remaining",
        "x-ratelimit-reset-after",
        Reads::Length,
    ),
    pair("x-ratelimit-remaining", "x-ratelimit-reset", Reads::Instant),
    pair(
        "x-rate-limit-remaining",
        "x-rate-limit-reset",
        Reads::Instant,
    ),
    pair(
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
        Reads::LengthUntilFull,
    ),
];

/// Beside the last pair: all units, in the time that `x-ratelimit-reset-requests` needs for those that
/// are used.
const LIMIT_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-limit-requests");

const fn pair(remaining: &'static str, reset: &'static str, reads: Reads) -> FieldPair {
    FieldPair {
        remaining: HeaderName::from_static(remaining),
        reset: HeaderName::from_static(reset),
        reads,
    }
}

/// A number from here on is a second since the epoch: no wait is 31 years long.
const EPOCH_SECONDS: u64 = 1_000_000_000;

/// A number from here on is a millisecond since the epoch.
const EPOCH_MILLIS: u64 = 1_000_000_000_000;

/// The quota of the first complete pair.
pub(super) fn quota(headers: &HeaderMap, now: Timestamp) -> Option<ToldQuota> {
    PAIRS.iter().find_map(|pair| {
        let remaining = whole(lone(headers, &pair.remaining)?)?;
        let reset = lone(headers, &pair.reset)?;
        let window = match pair.reads {
            Reads::Instant => until(reset, date::sent_at(headers, now))?,
            Reads::Length | Reads::LengthUntilFull => duration::with_units(reset)?,
        };
        let told = ToldQuota {
            remaining,
            window: Some(window),
            refill: ratelimit::refill(headers),
        };
        Some(match pair.reads {
            Reads::LengthUntilFull => one_by_one(told, window, headers),
            _ => told,
        })
    })
}

/// Units that come back one by one until all are there, if the response has the number of all: none
/// is left for the time of one, rather than until all are there.
fn one_by_one(told: ToldQuota, window: Duration, headers: &HeaderMap) -> ToldQuota {
    let limit = lone(headers, &LIMIT_REQUESTS).and_then(whole);
    let used = limit.and_then(|limit| limit.checked_sub(told.remaining));
    let used = used.map(|used| u32::try_from(used).unwrap_or(u32::MAX));
    let Some(used) = used.and_then(NonZeroU32::new) else {
        return told;
    };
    let refill = Refill {
        window,
        units: used,
    };
    let until_next = match told.remaining {
        0 => refill.interval(),
        _ => window,
    };
    ToldQuota {
        window: Some(until_next),
        refill: told.refill.or(Some(refill)),
        ..told
    }
}

/// The units that are left, by the first field that says so.
pub(super) fn remaining(headers: &HeaderMap) -> Option<u64> {
    let mut values = PAIRS
        .iter()
        .filter_map(|pair| whole(lone(headers, &pair.remaining)?));
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

/// A number that may have a fraction.
fn rounded_up(text: &str) -> Option<u64> {
    let Some((number, fraction)) = text.split_once('.') else {
        return whole(text);
    };
    let up = u64::from(fraction.bytes().any(|digit| digit != b'0'));
    whole(fraction)?;
    Some(whole(number)?.saturating_add(up))
}
