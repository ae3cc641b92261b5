//! `Retry-After` and `retry-after-ms`.

use std::time::Duration;

use http::{HeaderMap, HeaderName, header::RETRY_AFTER};

use super::{date, duration, values};
use tower_ratelimit::clock::Timestamp;

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// The most lines that are read.
const MOST_LINES: usize = 4;

/// The wait that a response requests, counted from `now`: of several values the longest.
///
/// Milliseconds count where the seconds are only their rounding. Otherwise the longer wait counts:
/// a proxy may have its own limit.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let sent = date::sent_at(headers, now);
    let coarse = longest(headers, &RETRY_AFTER, |text| wait(text, sent));
    let fine = longest(headers, &RETRY_AFTER_MS, duration::millis);
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
    match duration::seconds(text) {
        Some(seconds) => Some(seconds),
        None => Some(date::until(date::http(text)?, sent)),
    }
}
