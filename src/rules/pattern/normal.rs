//! The normal form of paths, one spelling for all that mean the same, and how else a path is read.

use std::borrow::Cow;

/// A path that was sent, as servers may read it.
#[derive(Debug)]
pub(in crate::rules) struct SentPath<'r> {
    sent: &'r str,
    /// Where servers may read it differently, which is rare.
    odd: Option<Box<OddPath>>,
}

/// A path that is not in its normal form, or of which servers may decode more than that.
#[derive(Debug)]
struct OddPath {
    normal: String,
    /// As a server reads it that leaves segments as they are, where that is something else.
    unresolved: Option<String>,
    /// Whether all servers read the same after all.
    is_plain: bool,
}

impl<'r> SentPath<'r> {
    #[inline]
    pub(in crate::rules) fn new(sent: &'r str) -> Self {
        let odd = (!is_plain(sent)).then(|| OddPath::new(sent));
        Self { sent, odd }
    }

    /// As a server reads it that resolves it.
    #[inline]
    pub(in crate::rules) fn normal(&self) -> &str {
        self.odd.as_ref().map_or(self.sent, |odd| &odd.normal)
    }

    /// As a server reads it that leaves segments as they are, where that is something else.
    #[inline]
    pub(in crate::rules) fn unresolved(&self) -> Option<&str> {
        self.odd.as_ref()?.unresolved.as_deref()
    }

    /// Whether all servers read the same.
    #[inline]
    pub(in crate::rules) fn is_plain(&self) -> bool {
        self.odd.as_ref().is_none_or(|odd| odd.is_plain)
    }

    /// Whether it was sent in its normal form.
    pub(in crate::rules) fn is_normal(&self) -> bool {
        self.odd.as_ref().is_none_or(|odd| odd.normal == self.sent)
    }
}

impl OddPath {
    #[cold]
    fn new(sent: &str) -> Box<Self> {
        let decoded = decoded(sent.as_bytes());
        let normal = resolved(&decoded);
        Box::new(Self {
            is_plain: normal == sent && has_one_meaning(sent),
            unresolved: (decoded != normal).then_some(decoded),
            normal,
        })
    }
}

/// The path as it is compared with patterns. What is sent on is not touched.
///
/// Unreserved characters that are percent-encoded are decoded, other bytes beyond ASCII are encoded,
/// the digits of what stays encoded are in upper case; empty segments and one slash at the end are
/// left out, and `.` and `..` are resolved. `%2F` stays, since it separates nothing; a `%` that
/// encodes nothing is `%25`. The normal form of a normal form is itself.
pub(in crate::rules) fn normalized(path: &str) -> Cow<'_, str> {
    let odd = SentPath::new(path).odd;
    odd.map_or(Cow::Borrowed(path), |odd| Cow::Owned(odd.normal))
}

/// Whether there is nothing to do, as for nearly every request: no percent sign, nothing beyond
/// ASCII, no empty or dotted segment, no slash at the end, and nothing that some servers cut at. Nor
/// for `*`, which is no path.
fn is_plain(path: &str) -> bool {
    if !path.starts_with('/') {
        return true;
    }
    let mut after_slash = false;
    for byte in path.as_bytes() {
        match byte {
            b'%' | b';' | b'\\' | 0x80.. => return false,
            b'/' | b'.' if after_slash => return false,
            b'/' => after_slash = true,
            _ => after_slash = false,
        }
    }
    !after_slash || path.len() == 1
}

/// Whether servers that decode more than others, or cut off parameters of segments, read the same
/// segments in a part of a normal form.
pub(in crate::rules) fn has_one_meaning(normal: &str) -> bool {
    let separates = |byte: u8| b"/\\;%?#".contains(&byte) || byte.is_ascii_control();
    let mut encoded = normal.split('%').skip(1).map(str::as_bytes);
    !normal.contains([';', '\\']) && !encoded.any(|text| escaped(text).is_some_and(separates))
}

fn resolved(decoded: &str) -> String {
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
    normal
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
        match first {
            b'%' => match escaped(after) {
                Some(byte) => {
                    rest = &after[2..];
                    if is_unreserved(byte) {
                        decoded.push(byte.into());
                    } else {
                        encode(&mut decoded, byte);
                    }
                }
                None => encode(&mut decoded, b'%'),
            },
            0x80.. => encode(&mut decoded, *first),
            byte => decoded.push((*byte).into()),
        }
    }
    decoded
}

/// The byte that two digits after a percent sign stand for.
fn escaped(after: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let value = digit(*after.first()?)? << 4 | digit(*after.get(1)?)?;
    u8::try_from(value).ok()
}

/// RFC 3986, section 2.3.
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}
