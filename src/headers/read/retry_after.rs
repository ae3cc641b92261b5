//! `Retry-After`.

use std::time::Duration;

use http::{HeaderMap, header::RETRY_AFTER};

use super::{date, whole};
use crate::clock::Timestamp;

/// Lines beyond these are not looked at.
const MOST_LINES: usize = 4;

/// The wait that a response received at `now` asks for: of several lines the longest.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let lines = headers.get_all(RETRY_AFTER).iter().take(MOST_LINES);
    let texts = lines.filter_map(|line| line.to_str().ok());
    let sent = date::sent_at(headers, now);
    texts.filter_map(|text| wait(text.trim_ascii(), sent)).max()
}

/// Seconds, or a date.
pub(super) fn wait(text: &str, sent: Timestamp) -> Option<Duration> {
    match whole(text) {
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => Some(date::until(date::http(text)?, sent)),
    }
}
