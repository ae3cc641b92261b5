//! Timestamps as RFC 3339 writes them, with or without seconds; and those of log lines, in all forms of servers.

use std::borrow::Cow;

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
fn rfc3339(text: &str) -> Option<u64> {
    seconds(text.parse().ok()?)
}

/// The seconds from 1970 to `21/Nov/2026:03:00:01 +0000`, the time of Apache's and nginx's logs.
fn common_log(text: &str) -> Option<u64> {
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

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

/// Parser of times. Caches the last second, since most lines share it.
#[derive(Debug)]
pub(crate) struct Dates {
    last: Option<(String, u64)>,
    /// Tomorrow, in microseconds: clocks of servers may be fast by at most a day.
    tomorrow: u64,
}

/// Microseconds since 1970, and whether they are of a whole second.
pub(crate) type LineTime = (u64, bool);

impl Dates {
    pub(crate) fn new() -> Self {
        Self {
            last: None,
            tomorrow: now().as_micros() + DAY,
        }
    }

    pub(crate) const fn is_to_come(&self, at: u64) -> bool {
        at > self.tomorrow
    }

    /// Reads `21/Nov/2026:03:00:01 +0000`, a time of RFC 3339, or a number of seconds,
    /// milliseconds, microseconds or nanoseconds since 1970, distinguished by its size.
    pub(crate) fn read(&mut self, text: &str) -> Option<LineTime> {
        if let Ok(number) = text.parse() {
            return from_integer(number);
        }
        match text.parse() {
            Ok(number) => from_number(number),
            Err(_) => self.date(text),
        }
    }

    /// Reads a time that is no number.
    pub(crate) fn date(&mut self, text: &str) -> Option<LineTime> {
        let (text, fraction) = split_fraction(text);
        let known = self.last.as_ref().filter(|(last, _)| *last == text);
        let second = match known {
            Some((_, second)) => *second,
            None => {
                let second = common_log(&text).or_else(|| rfc3339(&text))?;
                self.last = Some((text.into_owned(), second));
                second
            }
        };
        Some((second * SECOND + fraction.unwrap_or(0), fraction.is_none()))
    }
}

/// The time of an argument, in microseconds since 1970.
pub(crate) fn instant(text: &str) -> Option<u64> {
    Dates::new().date(text).map(|(at, _)| at)
}

/// The time without its fraction of a second, and the fraction in microseconds.
fn split_fraction(text: &str) -> (Cow<'_, str>, Option<u64>) {
    let Some(dot) = text.find(['.', ',']) else {
        return (text.into(), None);
    };
    let rest = &text[dot + 1..];
    let digits = rest.len()
        - rest
            .trim_start_matches(|sign: char| sign.is_ascii_digit())
            .len();
    let kept = &rest[..digits.min(6)];
    let micros = kept
        .parse::<u64>()
        .map_or(0, |number| number * 10_u64.pow(6 - kept.len() as u32));
    (
        format!("{}{}", &text[..dot], &rest[digits..]).into(),
        Some(micros),
    )
}

/// A number with a fraction, also `.0`: the server logs parts of seconds.
pub(crate) fn from_number(number: f64) -> Option<LineTime> {
    Some(((number * unit(number)?).round() as u64, false))
}

/// An integer. Only a number of seconds is a whole second.
pub(crate) fn from_integer(number: i128) -> Option<LineTime> {
    let unit = unit(number as f64)?;
    Some(((number as f64 * unit).round() as u64, unit == 1e6))
}

/// The least number that is a time, in seconds: 3 March 1973. Lesser ones are durations and counters.
const LEAST: f64 = 1e8;

/// Whether the number is too small for a time.
pub(crate) const fn is_small(number: f64) -> bool {
    number < LEAST
}

/// The microseconds in one unit of the number, distinguished by its size.
fn unit(number: f64) -> Option<f64> {
    match number {
        _ if !(LEAST..1e19).contains(&number) => None,
        _ if number < 1e11 => Some(1e6),
        _ if number < 1e14 => Some(1e3),
        _ if number < 1e17 => Some(1.0),
        _ => Some(1e-3),
    }
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

    #[test]
    fn times_of_all_forms_are_one_instant() {
        let mut dates = Dates::new();
        for (text, at, is_whole) in [
            ("21/Nov/2026:03:00:01 +0000", 1_795_230_001_000_000, true),
            ("21/Nov/2026:08:30:01 +0530", 1_795_230_001_000_000, true),
            ("2026-11-21T03:00:01Z", 1_795_230_001_000_000, true),
            ("2026-11-21T04:00:01.25+01:00", 1_795_230_001_250_000, false),
            ("2026-11-21 03:00:01,250Z", 1_795_230_001_250_000, false),
            ("1795230001", 1_795_230_001_000_000, true),
            ("1795230001.25", 1_795_230_001_250_000, false),
            ("1795230001.000", 1_795_230_001_000_000, false),
            ("1795230001250", 1_795_230_001_250_000, false),
        ] {
            assert_eq!(dates.read(text), Some((at, is_whole)), "{text}");
        }
        for text in [
            "",
            "-",
            "31/Feb/2026:03:00:01 +0000",
            "21/Nov/2026:25:00:01 +0000",
            "-5",
            "0.005",
            "5",
            "99999999",
            "NaN",
        ] {
            assert_eq!(dates.read(text), None, "{text}");
        }
    }
}
