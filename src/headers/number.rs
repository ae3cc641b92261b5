//! Whole numbers as the text of a field, and back.

use std::sync::LazyLock;

use http::HeaderValue;

/// RFC 9651 Integers have at most 15 digits; one more, and the whole field means nothing.
pub(super) const LARGEST: u64 = 999_999_999_999_999;

/// The digits of [`LARGEST`].
pub(super) const MOST_DIGITS: usize = 15;

/// Numbers below this are written from a table.
const GROUP: usize = 1_000;

/// `000001002…999`
const DIGITS: &str = match str::from_utf8(&DIGIT_BYTES) {
    Ok(digits) => digits,
    Err(_) => panic!("digits are ASCII"),
};

const DIGIT_BYTES: [u8; 3 * GROUP] = {
    let mut bytes = [b'0'; 3 * GROUP];
    let mut n = 0;
    while n < GROUP {
        bytes[3 * n] += (n / 100) as u8;
        bytes[3 * n + 1] += (n / 10 % 10) as u8;
        bytes[3 * n + 2] += (n % 10) as u8;
        n += 1;
    }
    bytes
};

/// A number of at most three digits, which needs no memory of its own.
#[inline]
pub(super) fn short(number: u64) -> Option<&'static str> {
    let n = usize::try_from(number).ok().filter(|n| *n < GROUP)?;
    let zeros = usize::from(n < 100) + usize::from(n < 10);
    Some(&DIGITS[3 * n + zeros..3 * n + 3])
}

/// Calls `write` with the digits of `number`, or of [`LARGEST`] if that is less.
#[inline]
pub(super) fn digits<R>(number: u64, write: impl FnOnce(&[u8]) -> R) -> R {
    let mut rest = number.min(LARGEST);
    let mut text = [0; MOST_DIGITS];
    let mut start = MOST_DIGITS;
    while rest >= GROUP as u64 {
        let group = 3 * (rest % GROUP as u64) as usize;
        rest /= GROUP as u64;
        start -= 3;
        text[start..start + 3].copy_from_slice(&DIGITS.as_bytes()[group..group + 3]);
    }
    let first = short(rest).unwrap_or_default().as_bytes();
    start -= first.len();
    text[start..start + first.len()].copy_from_slice(first);
    write(&text[start..])
}

/// `number` as a field of its own.
#[inline]
pub(super) fn header_value(number: u64) -> HeaderValue {
    match short_value(number) {
        Some(value) => value.clone(),
        None => HeaderValue::from(number.min(LARGEST)),
    }
}

/// A number of at most three digits as a field. All are made once, because each is checked for characters
/// that are not allowed in a field.
#[inline]
pub(super) fn short_value(number: u64) -> Option<&'static HeaderValue> {
    static VALUES: LazyLock<Box<[HeaderValue]>> = LazyLock::new(|| {
        let numbers = (0..).map_while(short);
        numbers.map(HeaderValue::from_static).collect()
    });
    VALUES.get(usize::try_from(number).ok()?)
}

/// The number in a field, without its fraction; `None` for several lines, and for any other text.
pub(super) fn parse<'a>(lines: impl IntoIterator<Item = &'a HeaderValue>) -> Option<u64> {
    let mut lines = lines.into_iter();
    let text = lines.next()?.to_str().ok()?;
    let (number, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = lines.next().is_none() && is_digits(number) && is_digits(fraction);
    is_number.then(|| number.parse().ok()).flatten()
}

/// Whether the text has digits and nothing else. `u64::from_str` would also take a sign.
fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
