use std::{mem, ops::Range};

use bytes::Bytes;
use http::HeaderValue;

use super::number;

/// Enough for one quota with an ordinary name, and for every number of the response.
const INLINE_LEN: usize = 128;

/// The text of all fields of one response, written one after another.
///
/// It stays on the stack until it is complete, and then a lone field is copied. Several move to
/// the heap in one piece, of which each is a slice: one allocation, however many fields.
pub(super) struct Scratch {
    text: Buffer,
    fields: usize,
    /// The last number that was written out, and where: several fields say the same wait.
    last: (u64, Range<usize>),
}

enum Buffer {
    Inline(Inline),
    Heap(Vec<u8>),
}

#[derive(Clone, Copy)]
struct Inline {
    bytes: [u8; INLINE_LEN],
    len: usize,
}

/// The text of one field.
pub(super) enum Text {
    Fixed(&'static str),
    Written(Range<usize>),
}

impl Scratch {
    #[inline]
    pub(super) const fn new() -> Self {
        let text = Buffer::Inline(Inline {
            bytes: [0; INLINE_LEN],
            len: 0,
        });
        Self {
            text,
            fields: 0,
            last: (0, 0..0),
        }
    }

    pub(super) const fn len(&self) -> usize {
        match &self.text {
            Buffer::Inline(inline) => inline.len,
            Buffer::Heap(bytes) => bytes.len(),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, text: &[u8]) {
        match &mut self.text {
            Buffer::Inline(inline) => {
                if !inline.push(text) {
                    self.text = Buffer::Heap([inline.text(), text].concat());
                }
            }
            Buffer::Heap(bytes) => bytes.extend_from_slice(text),
        }
    }

    #[inline]
    pub(super) fn push_number(&mut self, number: u64) {
        match number::short(number) {
            Some(text) => self.push(text.as_bytes()),
            None => self.push_digits(number),
        }
    }

    fn push_digits(&mut self, number: u64) {
        let start = self.len();
        number::digits(number, |digits| self.push(digits));
        self.last = (number, start..self.len());
    }

    /// What was written from `start` on, as a field.
    #[inline]
    pub(super) fn field_since(&mut self, start: usize) -> Text {
        self.fields += 1;
        Text::Written(start..self.len())
    }

    /// Writes a field that is a number, unless it has its text already.
    #[inline]
    pub(super) fn number(&mut self, number: u64) -> Text {
        if let Some(text) = number::short(number) {
            return Text::Fixed(text);
        }
        if self.last.0 != number {
            self.push_digits(number);
        }
        self.fields += 1;
        Text::Written(self.last.1.clone())
    }

    /// The finished text, to cut the fields from.
    #[inline]
    pub(super) fn finish(&mut self) -> Finished<'_> {
        match &mut self.text {
            Buffer::Inline(inline) if self.fields > 1 => {
                Finished::Shared(Bytes::from_owner(*inline))
            }
            Buffer::Inline(inline) => Finished::Lone(inline.text()),
            Buffer::Heap(bytes) => Finished::Shared(Bytes::from(mem::take(bytes))),
        }
    }
}

impl Inline {
    /// Whether there was room.
    #[inline]
    fn push(&mut self, text: &[u8]) -> bool {
        let end = self.len + text.len();
        let Some(room) = self.bytes.get_mut(self.len..end) else {
            return false;
        };
        room.copy_from_slice(text);
        self.len = end;
        true
    }

    #[inline]
    fn text(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl AsRef<[u8]> for Inline {
    fn as_ref(&self) -> &[u8] {
        self.text()
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
            (Text::Fixed(text), _) => return HeaderValue::from_static(text),
            (Text::Written(range), Self::Lone(text)) => HeaderValue::from_bytes(&text[range]),
            (Text::Written(range), Self::Shared(text)) => {
                HeaderValue::from_maybe_shared(text.slice(range))
            }
        };
        value.expect("only printable ASCII was written")
    }
}
