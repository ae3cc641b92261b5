//! Values in the lines of a field: a gateway may add its own to those of the server behind it.

use std::{borrow::Cow, cmp::Reverse};

use http::{HeaderMap, HeaderName};

/// The least of the remaining units, with the values at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeastRemaining<R> {
    pub(super) units: u64,
    /// The reset at the same place; the longest one if that is unknown.
    pub(super) reset: R,
    /// The index among the values.
    pub(super) place: usize,
}

/// Finds the least of the remaining units; of equals the one with the longest reset.
///
/// Values without a number are skipped. `resets` has an item for each value, `None` for one that cannot be
/// read. The places are unknown if there are more of the one than of the other.
pub(super) fn least<'a, R: Ord + Copy>(
    remaining: impl Iterator<Item = &'a str> + Clone,
    resets: impl Iterator<Item = Option<R>> + Clone,
) -> Option<LeastRemaining<R>> {
    let longest = resets.clone().flatten().max()?;
    let has_places = remaining.clone().count() == resets.clone().count();
    let own = resets.filter(|_| has_places).chain(std::iter::repeat(None));
    let all = remaining.zip(own).enumerate();
    let all = all.filter_map(|(place, (units, reset))| {
        Some(LeastRemaining {
            units: rounded_down(units)?,
            reset: reset.unwrap_or(longest),
            place,
        })
    });
    all.min_by_key(|least| (least.units, Reverse(least.reset)))
}

/// The most bytes of one field, all its lines together.
const LONGEST_FIELD: usize = 8_192;

/// The lines of a field joined; `None` if it is missing, too long or not text.
pub(super) fn joined<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<Cow<'h, str>> {
    let mut lines = headers.get_all(name).iter();
    let mut text = Cow::Borrowed(lines.next()?.to_str().ok()?);
    for line in lines {
        if text.len() + line.len() > LONGEST_FIELD {
            return None;
        }
        let text = text.to_mut();
        text.push_str(", ");
        text.push_str(line.to_str().ok()?);
    }
    (text.len() <= LONGEST_FIELD).then_some(text)
}

/// The only line of a field; `None` for several.
pub(super) fn only_line<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?.to_str().ok()?.trim_ascii();
    (lines.next().is_none() && line.len() <= LONGEST_FIELD).then_some(line)
}

/// The values of an older field, whose lines were joined: texts between commas. The comma of a date separates
/// nothing.
pub(super) fn values(text: &str) -> impl Iterator<Item = &str> + Clone {
    let mut rest = Some(text);
    let values = std::iter::from_fn(move || {
        let text = rest?;
        let mut commas = text.match_indices(',').map(|(at, _)| at);
        let end = match commas.next() {
            Some(at) if is_weekday(text[..at].trim_ascii()) => commas.next(),
            first => first,
        };
        rest = end.map(|at| &text[at + 1..]);
        Some(text[..end.unwrap_or(text.len())].trim_ascii())
    });
    // RFC 9110 §5.6.1: empty values are ignored.
    values.filter(|value| !value.is_empty())
}

/// Whether the text is a day of the week: `Tue`, or `Tuesday` in the form of RFC 850.
fn is_weekday(text: &str) -> bool {
    const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

    let is_word = text.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_word && DAYS.iter().any(|day| text.starts_with(day))
}

/// A number, whose fraction does not count: half a unit is none.
pub(super) fn rounded_down(text: &str) -> Option<u64> {
    let (number, fraction) = text.split_once('.').unwrap_or((text, "0"));
    parse_digits(fraction)?;
    parse_digits(number)
}

/// A number of digits only; saturating.
pub(super) fn parse_digits(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}
