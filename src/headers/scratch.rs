use std::ops::Range;

use bytes::Bytes;
use http::HeaderValue;

use super::number;

/// Enough for one quota with an ordinary name, and for every number of the response.
const INLINE_LEN: usize = 128;

/// The text of all fields of one response, written one after another.
///
/// It stays on the stack until it is complete and then moves to the heap in one piece, of which
/// each field is a slice: one allocation, however many fields.
pub(super) enum Scratch {
    Inline(Inline),
    Heap(Vec<u8>),
}

pub(super) struct Inline {
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
        Self::Inline(Inline {
            bytes: [0; INLINE_LEN],
            len: 0,
        })
    }

    pub(super) const fn len(&self) -> usize {
        match self {
            Self::Inline(inline) => inline.len,
            Self::Heap(bytes) => bytes.len(),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, text: &[u8]) {
        match self {
            Self::Inline(inline) => {
                if !inline.push(text) {
                    *self = Self::Heap([inline.as_ref(), text].concat());
                }
            }
            Self::Heap(bytes) => bytes.extend_from_slice(text),
        }
    }

    #[inline]
    pub(super) fn push_number(&mut self, number: u64) {
        match number::short(number) {
            Some(text) => self.push(text.as_bytes()),
            None => number::digits(number, |digits| self.push(digits)),
        }
    }

    /// Writes a field that is a number, unless it has its text already.
    #[inline]
    pub(super) fn number(&mut self, number: u64) -> Text {
        if let Some(text) = number::short(number) {
            return Text::Fixed(text);
        }
        let start = self.len();
        self.push_number(number);
        Text::Written(start..self.len())
    }

    /// The finished text, to cut the fields from.
    #[inline]
    pub(super) fn finish(self) -> Finished {
        Finished(match self {
            Self::Inline(Inline { len: 0, .. }) => Bytes::new(),
            Self::Inline(inline) => Bytes::from_owner(inline),
            Self::Heap(bytes) => Bytes::from(bytes),
        })
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
}

impl AsRef<[u8]> for Inline {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

pub(super) struct Finished(Bytes);

impl Finished {
    #[inline]
    pub(super) fn value(&self, text: Text) -> HeaderValue {
        match text {
            Text::Fixed(text) => HeaderValue::from_static(text),
            Text::Written(range) => HeaderValue::from_maybe_shared(self.0.slice(range))
                .expect("only printable ASCII was written"),
        }
    }
}
