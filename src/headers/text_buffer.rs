//! A buffer for the texts of a response's fields.

use std::{mem, ops::Range};

use bytes::Bytes;
use http::HeaderValue;

use super::number;
use crate::small_bytes::SmallBytes;

/// Enough for one quota with an ordinary name, and for every number of the response.
const INLINE_LEN: usize = 64;

/// The texts of one response's fields, written one after another.
///
/// The buffer is on the stack while it is written. A lone text is copied from it; several move to the
/// heap in one piece and share it: at most one allocation for a response.
pub(super) struct TextBuffer {
    text: SmallBytes<INLINE_LEN>,
    fields: usize,
    /// The last two numbers with a text of their own, and its place: several fields report the same.
    numbers: [(u64, Range<usize>); 2],
}

/// The text of one field, which the finished buffer turns into a value.
pub(super) enum BufferedText {
    Fixed(&'static HeaderValue),
    Written(Range<usize>),
}

impl TextBuffer {
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

    /// Makes the text from `start` on a field.
    #[inline]
    pub(super) fn field_since(&mut self, start: usize) -> BufferedText {
        self.fields += 1;
        BufferedText::Written(start..self.len())
    }

    /// Makes a number a field, and writes it unless its text exists.
    #[inline]
    pub(super) fn number(&mut self, number: u64) -> BufferedText {
        if let Some(value) = number::short_value(number) {
            return BufferedText::Fixed(value);
        }
        self.fields += 1;
        let known = self.numbers.iter().find(|(known, _)| *known == number);
        let place = known.map(|(_, place)| place.clone());
        BufferedText::Written(place.unwrap_or_else(|| self.push_digits(number)))
    }

    /// Finishes the texts.
    #[inline]
    pub(super) fn finish(&mut self) -> FinishedTexts<'_> {
        if self.fields > 1 || self.text.is_long() {
            FinishedTexts::Shared(mem::replace(&mut self.text, SmallBytes::new()).into_shared())
        } else {
            FinishedTexts::Lone(self.text.as_bytes())
        }
    }
}

/// The texts of all fields.
pub(super) enum FinishedTexts<'a> {
    Lone(&'a [u8]),
    Shared(Bytes),
}

impl FinishedTexts<'_> {
    #[inline]
    pub(super) fn value(&self, text: BufferedText) -> HeaderValue {
        let value = match (text, self) {
            (BufferedText::Fixed(value), _) => return value.clone(),
            (BufferedText::Written(range), Self::Lone(text)) => {
                HeaderValue::from_bytes(&text[range])
            }
            (BufferedText::Written(range), Self::Shared(text)) => {
                HeaderValue::from_maybe_shared(text.slice(range))
            }
        };
        value.expect(ASCII)
    }

    /// The last value, which nearly always is the whole text.
    #[inline]
    pub(super) fn into_value(self, text: BufferedText) -> HeaderValue {
        match (text, self) {
            (BufferedText::Written(range), Self::Shared(whole)) if range.len() == whole.len() => {
                HeaderValue::from_maybe_shared(whole).expect(ASCII)
            }
            (text, finished) => finished.value(text),
        }
    }
}

const ASCII: &str = "only printable ASCII was written";
