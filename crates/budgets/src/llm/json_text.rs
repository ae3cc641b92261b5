//! The text of a JSON string, decoded as it comes, up to a bound.

use memchr::memchr2;

/// The most bytes that are kept: a model's name.
pub(super) const MAX_TEXT: usize = 128;

/// The string that begins here, if it ends in these bytes and has no escape, and the bytes behind its quote.
pub(super) fn whole_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = end_of_text(bytes)?;
    let (text, rest) = (bytes.get(..end)?, bytes.get(end + 1..)?);
    (bytes[end] == b'"').then_some((text, rest))
}

/// The place of the first quote or backslash. Most strings are short: a search by vectors would take longer to begin
/// than to end, so that the first bytes are searched by words.
fn end_of_text(bytes: &[u8]) -> Option<usize> {
    const WORDS: usize = 4;
    const BYTE: u64 = u64::MAX / 0xff;
    // The lowest set bit is that of the first byte which is 0.
    let zeros = |word: u64| word.wrapping_sub(BYTE) & !word & (BYTE << 7);
    let mut at = 0;
    for _ in 0..WORDS {
        let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk) else {
            break;
        };
        let word = u64::from_le_bytes(*word);
        let of = |byte: u8| zeros(word ^ (BYTE * u64::from(byte)));
        let ends = of(b'"') | of(b'\\');
        if ends != 0 {
            return Some(at + (ends.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    Some(at + memchr2(b'"', b'\\', bytes.get(at..)?)?)
}

/// A string that is being read. It survives a split at any byte.
#[derive(Debug)]
pub(super) struct JsonText {
    kept: [u8; MAX_TEXT],
    /// The bytes of the whole decoded string.
    length: u64,
    escape: Escape,
    /// The first half of a pair of surrogates.
    high: u16,
}

#[derive(Debug, Clone, Copy)]
enum Escape {
    None,
    Started,
    /// Within the digits of `\u`.
    Digits {
        left: u8,
        value: u16,
    },
}

impl JsonText {
    pub(super) const fn new() -> Self {
        Self {
            kept: [0; MAX_TEXT],
            length: 0,
            escape: Escape::None,
            high: 0,
        }
    }

    pub(super) const fn start(&mut self) {
        self.length = 0;
        self.escape = Escape::None;
        self.high = 0;
    }

    /// The bytes of the string after decoding.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// The string, if all of it was kept.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        let length = usize::try_from(self.length).ok()?;
        self.kept.get(..length)
    }

    /// Reads up to the quote that ends the string. Returns the rest behind the quote, or `None` without one.
    pub(super) fn read<'b>(&mut self, mut bytes: &'b [u8], keeps: bool) -> Option<&'b [u8]> {
        loop {
            match self.escape {
                Escape::None => {
                    let end = memchr2(b'"', b'\\', bytes);
                    let plain = end.map_or(bytes, |end| &bytes[..end]);
                    if !plain.is_empty() {
                        self.high = 0;
                        self.push(plain, keeps);
                    }
                    let end = end?;
                    let byte = bytes[end];
                    bytes = &bytes[end + 1..];
                    if byte == b'"' {
                        return Some(bytes);
                    }
                    self.escape = Escape::Started;
                }
                Escape::Started => {
                    let (byte, rest) = bytes.split_first()?;
                    bytes = rest;
                    self.escape = Escape::None;
                    self.unescape(*byte, keeps);
                }
                Escape::Digits { left, value } => {
                    let (byte, rest) = bytes.split_first()?;
                    bytes = rest;
                    let digit = char::from(*byte).to_digit(16).unwrap_or(0) as u16;
                    let value = value << 4 | digit;
                    if left > 1 {
                        let left = left - 1;
                        self.escape = Escape::Digits { left, value };
                    } else {
                        self.escape = Escape::None;
                        self.push_unit(value, keeps);
                    }
                }
            }
        }
    }

    fn unescape(&mut self, byte: u8, keeps: bool) {
        let decoded = match byte {
            b'u' => {
                self.escape = Escape::Digits { left: 4, value: 0 };
                return;
            }
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            other => other,
        };
        self.high = 0;
        self.push(&[decoded], keeps);
    }

    /// Adds a unit of UTF-16. A half that has no other half is no character, and adds nothing.
    fn push_unit(&mut self, unit: u16, keeps: bool) {
        let high = std::mem::take(&mut self.high);
        if (0xd800..0xdc00).contains(&unit) {
            self.high = unit;
            return;
        }
        let pair = [high, unit];
        let units = if high == 0 { &pair[1..] } else { &pair[..] };
        for decoded in char::decode_utf16(units.iter().copied()).flatten() {
            self.push(decoded.encode_utf8(&mut [0; 4]).as_bytes(), keeps);
        }
    }

    fn push(&mut self, bytes: &[u8], keeps: bool) {
        if keeps && let Ok(start) = usize::try_from(self.length) {
            let end = start.saturating_add(bytes.len());
            if let Some(room) = self.kept.get_mut(start..end) {
                room.copy_from_slice(bytes);
            }
        }
        self.length = self.length.saturating_add(bytes.len() as u64);
    }
}
