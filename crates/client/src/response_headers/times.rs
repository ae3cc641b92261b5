//! Times in fields: dates of HTTP, those of RFC 3339 that some servers send, and lengths with a fraction or with units.

use std::{
    borrow::Cow,
    time::{Duration, UNIX_EPOCH},
};

use http::{HeaderMap, header::DATE};
use tower_ratelimit::clock::Timestamp;

use super::field_values::{only_line, parse_digits};

const DAY: u64 = 86_400;

/// When the response was sent by its server's clock: its `Date`, or `now` without one.
///
/// A server whose clock is wrong computes its dates by the same clock, so differences are right.
pub(crate) fn sent_at(headers: &HeaderMap, now: Timestamp) -> Timestamp {
    let date = only_line(headers, &DATE).and_then(http);
    date.map_or(now, Timestamp::from_secs)
}

/// The time from `sent` until a second since the epoch; zero if that is past.
pub(super) fn until(second: u64, sent: Timestamp) -> Duration {
    let micros = Timestamp::from_secs(second).as_micros();
    Duration::from_micros(micros.saturating_sub(sent.as_micros()))
}

/// The names of GMT that other servers send.
const NAMES_OF_GMT: [&str; 3] = ["UTC", "+0000", "-0000"];

/// A date in any of the three forms of RFC 9110, as seconds since the epoch.
pub(super) fn http(text: &str) -> Option<u64> {
    let mut names = NAMES_OF_GMT.iter();
    let in_gmt = match names.find_map(|name| text.strip_suffix(name)) {
        Some(date) => Cow::Owned(format!("{date}GMT")),
        None => Cow::Borrowed(text),
    };
    let date = httpdate::parse_http_date(&in_gmt).ok()?;
    let since_epoch = date.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(since_epoch.as_secs())
}

/// `2023-11-14T22:13:50Z`, as seconds since the epoch.
pub(super) fn rfc3339(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = numbers(date.split('-'))?;
    let (time, offset) = time.split_at(time.find(['Z', 'z', '+', '-'])?);
    let time = time.split_once('.').map_or(time, |(whole, _)| whole);
    let [hour, minute, second] = numbers(time.split(':'))?;
    let in_range = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    in_range.then_some(())?;
    let local = days(year, month, day) * DAY + hour * 3_600 + minute * 60 + second;
    match offset.split_at(1) {
        ("Z" | "z", "") => Some(local),
        ("+", offset) => local.checked_sub(of_offset(offset)?),
        ("-", offset) => Some(local + of_offset(offset)?),
        _ => None,
    }
}

fn of_offset(text: &str) -> Option<u64> {
    let [hours, minutes] = numbers(text.split(':'))?;
    (hours < 24 && minutes < 60).then_some(hours * 3_600 + minutes * 60)
}

/// Exactly `N` numbers of at most four digits.
fn numbers<'a, const N: usize>(mut parts: impl Iterator<Item = &'a str>) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = parse_digits(parts.next()?).filter(|number| *number <= 9_999)?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Days since the epoch, in the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> u64 {
    // The year starts in March here: the leap day is its last day.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    let since_year_0 = year * 365 + leap_days + (153 * month + 2) / 5 + day - 1;
    since_year_0 - 719_468
}

/// The longest text that is parsed.
const LONGEST_TEXT: usize = 64;

const NANOS: u128 = 1_000_000_000;

/// `1.5`, in a unit of this many nanoseconds. Digits after the ninth of a fraction are dropped.
pub(super) fn decimal(text: &str, unit: u128) -> Option<Duration> {
    let (number, fraction) = match text.split_once('.') {
        Some((number, fraction)) => (number, parse_digits(fraction).map(|_| fraction)?),
        None => (text, ""),
    };
    let mut digits = fraction.bytes().map(|digit| u128::from(digit - b'0'));
    let billionths = (0..9).fold(0, |sum, _| sum * 10 + digits.next().unwrap_or(0));
    let nanos = u128::from(parse_digits(number)?) * unit + billionths * unit / NANOS;
    let seconds = u64::try_from(nanos / NANOS).unwrap_or(u64::MAX);
    // The remainder is below 10⁹.
    Some(Duration::new(seconds, (nanos % NANOS) as u32))
}

/// Seconds with or without a fraction.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    decimal(text, NANOS)
}

/// Milliseconds with or without a fraction.
pub(super) fn millis(text: &str) -> Option<Duration> {
    decimal(text, NANOS / 1_000)
}

/// `1s`, `6m0s`, `88ms` or `2m59.56s`; a number without a unit counts seconds.
pub(super) fn with_units(text: &str) -> Option<Duration> {
    if text.len() > LONGEST_TEXT {
        return None;
    }
    if let Some(plain) = seconds(text) {
        return Some(plain);
    }
    let (mut rest, mut sum) = (text, Duration::ZERO);
    loop {
        let (number, after) = rest.split_at(rest.find(|of: char| of.is_ascii_alphabetic())?);
        let end = after.find(|of: char| !of.is_ascii_alphabetic());
        let (unit, next) = after.split_at(end.unwrap_or(after.len()));
        sum = sum.saturating_add(decimal(number, nanos_of(unit)?)?);
        if next.is_empty() {
            return Some(sum);
        }
        rest = next;
    }
}

/// A length of time as by [`with_units`], and its precision: a millisecond, or a second without units.
pub(super) fn rounded(text: &str) -> Option<(Duration, Duration)> {
    let precision = match text.parse::<u64>() {
        Ok(_) => Duration::from_secs(1),
        Err(_) => Duration::from_millis(1),
    };
    Some((with_units(text)?, precision))
}

fn nanos_of(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        "us" => NANOS / 1_000_000,
        "ms" => NANOS / 1_000,
        "s" => NANOS,
        "m" => 60 * NANOS,
        "h" => 3_600 * NANOS,
        "d" => 86_400 * NANOS,
        _ => return None,
    })
}
