//! The text of a response's fields, in one buffer.

use std::{mem, ops::Range};

use bytes::Bytes;
use http::HeaderValue;

use super::number;
use crate::small_bytes::SmallBytes;

/// Enough for one quota with an ordinary name, and for every number of the response.
const INLINE_LEN: usize = 64;

/// The text of all fields of one response, written one after another.
///
/// It stays on the stack until it is complete, and then a lone field is copied. Several move to
/// the heap in one piece, of which each is a slice: one allocation, however many fields.
pub(super) struct FieldText {
    text: SmallBytes<INLINE_LEN>,
    fields: usize,
    /// The last two numbers that were written out, and where: several fields say the same.
    numbers: [(u64, Range<usize>); 2],
}

/// The text of one field.
pub(super) enum Text {
    Fixed(&'static HeaderValue),
    Written(Range<usize>),
}

impl FieldText {
    #[inline]
    pub(super) const fn new() -> Self {
        Self {
            text: SmallBytes::new(),
            fields: 0,
            numbers: [(0, 0..0), (0, 0..0)],
        }
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.text.len()
    }

    #[inline]
    pub(super) fn push(&mut self, text: &[u8]) {
        self.text.push(text);
    }

    #[inline]
    pub(super) fn push_number(&mut self, number: u64) {
        match number::short(number) {
            Some(text) => self.push(text.as_bytes()),
            None => drop(self.push_digits(number)),
        }
    }

    fn push_digits(&mut self, number: u64) -> Range<usize> {
        let start = self.len();
        number::digits(number, |digits| self.push(digits));
        let place = start..self.len();
        self.numbers.swap(0, 1);
        self.numbers[0] = (number, place.clone());
        place
    }

    /// The text from `start` on, as a field.
    #[inline]
    pub(super) fn field_since(&mut self, start: usize) -> Text {
        self.fields += 1;
        Text::Written(start..self.len())
    }

    /// Writes a field that is a number, unless it has its text already.
    #[inline]
    pub(super) fn number(&mut self, number: u64) -> Text {
        if let Some(value) = number::short_value(number) {
            return Text::Fixed(value);
        }
        self.fields += 1;
        let known = self.numbers.iter().find(|(known, _)| *known == number);
        let place = known.map(|(_, place)| place.clone());
        Text::Written(place.unwrap_or_else(|| self.push_digits(number)))
    }

    /// The finished text, to cut the fields from.
    #[inline]
    pub(super) fn finish(&mut self) -> Finished<'_> {
        if self.fields > 1 || self.text.is_long() {
            Finished::Shared(mem::replace(&mut self.text, SmallBytes::new()).into_shared())
        } else {
            Finished::Lone(self.text.as_bytes())
        }
    }
}

pub(super) enum Finished<'a> {
    Lone(&'a [u8]),
    Shared(Bytes),
}

impl Finished<'_> {
    #[inline]
    pub(super) fn value(&self, text: Text) -> HeaderValue {
        let value = match (text, self) {
            (Text::Fixed(value), _) => return value.clone(),
            (Text::Written(range), Self::Lone(text)) => HeaderValue::from_bytes(&text[range]),
            (Text::Written(range), Self::Shared(text)) => {
                HeaderValue::from_maybe_shared(text.slice(range))
            }
        };
        value.expect(ASCII)
    }

    /// The last value that is cut, which nearly always is the whole text.
    #[inline]
    pub(super) fn into_value(self, text: Text) -> HeaderValue {
        match (text, self) {
            (Text::Written(range), Self::Shared(whole)) if range.len() == whole.len() => {
                HeaderValue::from_maybe_shared(whole).expect(ASCII)
            }
            (text, finished) => finished.value(text),
        }
    }
}

const ASCII: &str = "only printable ASCII was written";
