//! Numbers and bytes one after another in files and receipts, little-endian.

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
