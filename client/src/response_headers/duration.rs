//! Lengths of time with a fraction, or with units.

use std::time::Duration;

use super::parse_digits;

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
