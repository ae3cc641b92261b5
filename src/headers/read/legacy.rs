//! `RateLimit-Remaining`, `X-RateLimit-Remaining` and `X-Rate-Limit-Remaining`, each with its reset,
//! of which nobody agrees what it means.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

use super::{ToldQuota, date, lone, ratelimit, whole};
use crate::clock::Timestamp;

/// What remains, and when it is reset.
static SETS: [(HeaderName, HeaderName); 3] = [
    set("ratelimit-remaining", "ratelimit-reset"),
    set("x-ratelimit-remaining", "x-ratelimit-reset"),
    set("x-rate-limit-remaining", "x-rate-limit-reset"),
];

const fn set(remaining: &'static str, reset: &'static str) -> (HeaderName, HeaderName) {
    let name = HeaderName::from_static;
    (name(remaining), name(reset))
}

/// A number from here on is a second since the epoch: no wait is 31 years long.
const EPOCH_SECONDS: u64 = 1_000_000_000;

/// A number from here on is a millisecond since the epoch.
const EPOCH_MILLIS: u64 = 1_000_000_000_000;

/// The quota that the first complete set tells.
pub(super) fn quota(headers: &HeaderMap, now: Timestamp) -> Option<ToldQuota> {
    SETS.iter().find_map(|(remaining, reset)| {
        Some(ToldQuota {
            remaining: whole(lone(headers, remaining)?)?,
            window: Some(until(lone(headers, reset)?, date::sent_at(headers, now))?),
            refill: ratelimit::refill(headers),
        })
    })
}

/// The units that are left, by the first field that says so.
pub(super) fn remaining(headers: &HeaderMap) -> Option<u64> {
    let mut values = SETS
        .iter()
        .filter_map(|(name, _)| whole(lone(headers, name)?));
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
