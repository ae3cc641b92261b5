//! Times of log lines.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::time;

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

/// Reads times; the second of the line before is the likeliest one.
#[derive(Debug)]
pub(super) struct Dates {
    last: Option<(String, u64)>,
    /// Tomorrow, in microseconds: clocks of servers may be fast, but not by more.
    tomorrow: u64,
}

/// Microseconds since 1970, and whether they are of a whole second.
pub(super) type Instant = (u64, bool);

impl Dates {
    pub(super) fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since.map_or(0, |since| since.as_secs() * SECOND);
        Self {
            last: None,
            tomorrow: now + DAY,
        }
    }

    pub(super) const fn is_to_come(&self, at: u64) -> bool {
        at > self.tomorrow
    }

    /// `21/Nov/2026:03:00:01 +0000`, a time of RFC 3339, or a number of seconds, milliseconds,
    /// microseconds or nanoseconds since 1970, told by its size.
    pub(super) fn read(&mut self, text: &str) -> Option<Instant> {
        if let Ok(number) = text.parse() {
            return from_integer(number);
        }
        match text.parse() {
            Ok(number) => from_number(number),
            Err(_) => self.date(text),
        }
    }

    /// The same without numbers.
    pub(super) fn date(&mut self, text: &str) -> Option<Instant> {
        let (text, fraction) = split_fraction(text);
        let known = self.last.as_ref().filter(|(last, _)| *last == text);
        let second = match known {
            Some((_, second)) => *second,
            None => {
                let second = clf(&text).or_else(|| rfc3339(&text))?;
                self.last = Some((text.into_owned(), second));
                second
            }
        };
        Some((second * SECOND + fraction.unwrap_or(0), fraction.is_none()))
    }
}

/// The time of a text that a person wrote, in microseconds since 1970.
pub(in crate::replay) fn instant(text: &str) -> Option<u64> {
    Dates::new().date(text).map(|(at, _)| at)
}

/// The time without the fraction of its second, and that in microseconds.
fn split_fraction(text: &str) -> (std::borrow::Cow<'_, str>, Option<u64>) {
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

/// A number with a fraction, even one of nothing: the server knows parts of seconds.
pub(super) fn from_number(number: f64) -> Option<Instant> {
    Some(((number * unit(number)?).round() as u64, false))
}

/// An integer, of which only one of seconds is of a whole second.
pub(super) fn from_integer(number: i128) -> Option<Instant> {
    let unit = unit(number as f64)?;
    Some(((number as f64 * unit).round() as u64, unit == 1e6))
}

/// The microseconds that a time is a number of, told by its size.
fn unit(number: f64) -> Option<f64> {
    match number {
        _ if !(0.0..1e19).contains(&number) => None,
        _ if number < 1e11 => Some(1e6),
        _ if number < 1e14 => Some(1e3),
        _ if number < 1e17 => Some(1.0),
        _ => Some(1e-3),
    }
}

/// `21/Nov/2026:03:00:01 +0000` as seconds since 1970.
fn clf(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (date, rest) = text.split_once(':')?;
    let mut parts = date.split('/');
    let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let (clock, zone) = rest.split_once(' ')?;
    let (sign, zone) = (zone.get(..1)?, zone.get(1..)?);
    let zone = format!("{sign}{}:{}", zone.get(..2)?, zone.get(2..)?);
    rfc3339(&format!("{year}-{month:02}-{day}T{clock}{zone}"))
}

fn rfc3339(text: &str) -> Option<u64> {
    Some(time::parse(text).ok()?.as_micros() / SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "NaN",
        ] {
            assert_eq!(dates.read(text), None, "{text}");
        }
    }
}
