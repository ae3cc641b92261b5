//! The normal form of paths: one spelling for all that mean the same.

use std::borrow::Cow;

/// The path as it is compared with patterns. What is sent on is not touched.
///
/// Unreserved characters that are percent-encoded are decoded, other bytes beyond ASCII are encoded,
/// the digits of what stays encoded are in upper case; empty segments and one slash at the end are
/// left out, and `.` and `..` are resolved. `%2F` stays, since it separates nothing; a `%` that
/// encodes nothing is `%25`. The normal form of a normal form is itself.
pub(in crate::rules) fn normalized(path: &str) -> Cow<'_, str> {
    if !path.starts_with('/') {
        return Cow::Borrowed(path);
    }
    if is_normal(path) {
        return Cow::Borrowed(path);
    }
    let decoded = decoded(path.as_bytes());
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let mut normal = String::with_capacity(decoded.len());
    for segment in segments {
        normal.push('/');
        normal.push_str(segment);
    }
    if normal.is_empty() {
        normal.push('/');
    }
    Cow::Owned(normal)
}

/// Whether there is nothing to do, as for nearly every request: no percent sign, nothing beyond
/// ASCII, no empty or dotted segment, no slash at the end.
fn is_normal(path: &str) -> bool {
    let mut after_slash = false;
    for byte in path.as_bytes() {
        match byte {
            b'%' | 0x80.. => return false,
            b'/' | b'.' if after_slash => return false,
            b'/' => after_slash = true,
            _ => after_slash = false,
        }
    }
    !after_slash || path.len() == 1
}

fn decoded(path: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut decoded = String::with_capacity(path.len());
    let encode = |decoded: &mut String, byte: u8| {
        decoded.push('%');
        decoded.push(DIGITS[usize::from(byte >> 4)].into());
        decoded.push(DIGITS[usize::from(byte & 15)].into());
    };
    let mut rest = path;
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    let byte = high << 4 | low;
                    if is_unreserved(byte) {
                        decoded.push(byte.into());
                    } else {
                        encode(&mut decoded, byte);
                    }
                }
                _ => encode(&mut decoded, b'%'),
            },
            (b'%', _) => encode(&mut decoded, b'%'),
            (byte, _) if *byte >= 0x80 => encode(&mut decoded, *byte),
            (byte, _) => decoded.push((*byte).into()),
        }
    }
    decoded
}

/// RFC 3986, section 2.3.
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}
