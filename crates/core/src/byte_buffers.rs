//! Bytes one after another: a buffer that stays on the stack while it is short, and numbers and texts in files, little-endian.

use bytes::Bytes;

/// Bytes one after another: on the stack, and on the heap if there are more than `N`.
pub(crate) struct SmallBytes<const N: usize> {
    short: [u8; N],
    len: usize,
    /// All of them, if they do not fit into `short`.
    long: Vec<u8>,
}

impl<const N: usize> SmallBytes<N> {
    pub(crate) const fn new() -> Self {
        Self {
            short: [0; N],
            len: 0,
            long: Vec::new(),
        }
    }

    /// Whether they are on the heap.
    #[inline]
    const fn is_long(&self) -> bool {
        !self.long.is_empty()
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        if self.is_long() {
            self.long.len()
        } else {
            self.len
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if !self.is_long() {
            let end = self.len + bytes.len();
            if let Some(room) = self.short.get_mut(self.len..end) {
                room.copy_from_slice(bytes);
                self.len = end;
                return;
            }
            self.long.extend_from_slice(&self.short[..self.len]);
        }
        self.long.extend_from_slice(bytes);
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        if self.is_long() {
            &self.long
        } else {
            &self.short[..self.len]
        }
    }

    /// The bytes, to be shared; short ones move to the heap, too.
    pub(crate) fn into_shared(self) -> Bytes {
        if self.is_long() {
            Bytes::from(self.long)
        } else {
            Bytes::from_owner(self)
        }
    }
}

impl<const N: usize> AsRef<[u8]> for SmallBytes<N> {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

pub(crate) fn push_u64(to: &mut Vec<u8>, number: u64) {
    to.extend_from_slice(&number.to_le_bytes());
}

pub(crate) fn push_u32(to: &mut Vec<u8>, number: u32) {
    to.extend_from_slice(&number.to_le_bytes());
}

/// Writes the length, at most 2^32 − 1, and the bytes.
pub(crate) fn push_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    push_u32(to, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    to.extend_from_slice(bytes);
}

/// Removes a number from the front; `None` if there are too few bytes. So do the functions below.
pub(crate) fn take_u64(from: &mut &[u8]) -> Option<u64> {
    let (number, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u64::from_le_bytes(*number))
}

pub(crate) fn take_u32(from: &mut &[u8]) -> Option<u32> {
    let (number, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u32::from_le_bytes(*number))
}

pub(crate) fn take_u8(from: &mut &[u8]) -> Option<u8> {
    let (number, rest) = from.split_first()?;
    *from = rest;
    Some(*number)
}

/// Removes bytes that [`push_bytes`] wrote.
pub(crate) fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_u32(from)?).ok()?;
    let (bytes, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::SmallBytes;

    #[test]
    fn bytes_stay_in_order_wherever_they_are() {
        let pieces = [b"ab".as_slice(), b"", b"cde", b"f", b"ghijk"];
        for many in 0..=pieces.len() {
            let mut joined = SmallBytes::<6>::new();
            pieces[..many].iter().for_each(|piece| joined.push(piece));
            assert_eq!(joined.as_bytes(), pieces[..many].concat());
            assert_eq!(joined.len(), joined.as_bytes().len());
            assert_eq!(joined.is_long(), joined.len() > 6);
            assert_eq!(joined.into_shared(), pieces[..many].concat());
        }
        let mut joined = SmallBytes::<6>::new();
        joined.push(b"longer than six");
        assert_eq!(joined.as_bytes(), b"longer than six");
    }
}
