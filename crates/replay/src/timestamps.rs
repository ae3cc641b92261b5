//! Timestamps as RFC 3339 writes them, with or without seconds.

use jiff::Timestamp as Instant;
use tower_ratelimit::clock::Timestamp;

/// The time of the operating system's clock, in whole seconds.
pub fn now() -> Timestamp {
    Timestamp::from_secs(seconds(Instant::now()).unwrap_or(0))
}

/// Reads `2026-11-21T03:00Z`, `2026-11-21T03:00:30Z` or `2026-11-21T08:30+05:30`.
///
/// # Errors
///
/// A text that is no time.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "{text:?} is no time; accepted are, for example, 2026-11-21T03:00Z and \
             2026-11-21T08:30+05:30"
        )
    };
    rfc3339(text).map(Timestamp::from_secs).ok_or_else(wrong)
}

/// The seconds from 1970 to the time of an RFC 3339 text.
pub(crate) fn rfc3339(text: &str) -> Option<u64> {
    seconds(text.parse().ok()?)
}

/// The seconds from 1970 to `21/Nov/2026:03:00:01 +0000`, the time of Apache's and nginx's logs.
pub(crate) fn common_log(text: &str) -> Option<u64> {
    let instant = Instant::strptime("%d/%b/%Y:%H:%M:%S %z", text);
    seconds(instant.ok()?)
}

fn seconds(instant: Instant) -> Option<u64> {
    instant.as_second().try_into().ok()
}

/// The time as `2026-11-21T03:00:00Z`.
pub fn display(time: Timestamp) -> String {
    format(time, "%Y-%m-%dT%H:%M:%SZ")
}

/// The time in UTC, by a format of `strftime`.
pub(crate) fn format(time: Timestamp, format: &str) -> String {
    let instant = i64::try_from(time.as_micros())
        .ok()
        .and_then(|micros| Instant::from_microsecond(micros).ok());
    // The last one is of the year 9999.
    let instant = instant.unwrap_or(Instant::MAX);
    instant.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_both_formats_are_read() {
        for text in [
            "2026-11-21T03:00Z",
            "2026-11-21 03:00:00Z",
            "2026-11-21t03:00:00z",
            "2026-11-21T08:30+05:30",
            "2026-11-20T22:00-05:00",
        ] {
            assert_eq!(rfc3339(text), Some(1_795_230_000), "{text}");
        }
        for text in ["21/Nov/2026:03:00:00 +0000", "21/Nov/2026:08:30:00 +0530"] {
            assert_eq!(common_log(text), Some(1_795_230_000), "{text}");
        }
        for text in [
            "",
            "2026-11-21",
            "2026-11-21T03:00",
            "2026-02-29T03:00Z",
            "2026-11-21T24:00Z",
            "1969-12-31T23:59Z",
            "21/Nov/1926:03:00:00 +0000",
            "29/Feb/2100:23:59:59 -1400",
        ] {
            assert_eq!((rfc3339(text), common_log(text)), (None, None), "{text}");
        }
    }

    #[test]
    fn times_are_written_as_they_are_read() {
        for text in ["1970-01-01T00:00:00Z", "2024-02-29T23:59:59Z"] {
            assert_eq!(parse(text).map(display).as_deref(), Ok(text));
        }
        assert!(display(Timestamp::from_micros(u64::MAX)).starts_with("9999-"));
    }
}
