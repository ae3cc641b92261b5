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
    /// As other servers may read it, each reading once.
    others: Vec<String>,
}

impl<'r> SentPath<'r> {
    #[inline]
    pub(in crate::rules) fn new(sent: &'r str) -> Self {
        let odd = (!is_plain(sent)).then(|| OddPath::new(sent));
        Self { sent, odd }
    }

    /// Whether all servers read the same: there is nothing in it to read differently.
    #[inline]
    pub(in crate::rules) const fn is_plain(&self) -> bool {
        self.odd.is_none()
    }

    /// As a server reads it that resolves it.
    #[inline]
    pub(in crate::rules) fn normal(&self) -> &str {
        self.odd.as_ref().map_or(self.sent, |odd| &odd.normal)
    }

    /// As servers may read it that leave segments as they are, cut off parameters of segments, or
    /// decode more: each reading once, without the normal form.
    #[inline]
    pub(in crate::rules) fn others(&self) -> &[String] {
        self.odd.as_ref().map_or(&[], |odd| &odd.others)
    }

    /// Whether it was sent in its normal form.
    pub(in crate::rules) fn is_normal(&self) -> bool {
        self.odd.as_ref().is_none_or(|odd| odd.normal == self.sent)
    }
}

impl OddPath {
    #[cold]
    fn new(sent: &str) -> Box<Self> {
        let decoded = decoded(sent.as_bytes(), is_unreserved);
        let normal = resolved(&decoded);
        let mut others = Vec::new();
        let mut add = |reading: String| {
            if reading != normal && !others.contains(&reading) {
                others.push(reading);
            }
        };
        add(decoded.clone());
        if decoded.contains(['%', ';', '\\']) {
            let cut = without_parameters(&decoded);
            add(resolved(&fully_decoded(&decoded)));
            add(resolved(&without_parameters(&fully_decoded(&cut))));
            add(resolved(&cut));
        }
        Box::new(Self { normal, others })
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

/// The first sign of a pattern that is encoded, although a path may have it as it is (RFC 3986,
/// section 3.3). Not those that mean something else then, as `*` in a pattern and `;` in a path.
pub(in crate::rules) fn needlessly_encoded(pattern: &str) -> Option<char> {
    let encoded = pattern.split('%').skip(1);
    let mut signs = encoded.filter_map(|text| escaped(text.as_bytes()).map(char::from));
    signs.find(|sign| "!$&'()+,=:@".contains(*sign))
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

/// The path without parameters of segments, such as `;jsessionid=1` (RFC 3986, section 3.3), and
/// without all that follows a `?` or `#` that a server decodes too early.
fn without_parameters(path: &str) -> String {
    let path = path.split(['?', '#', '\0']).next().unwrap_or_default();
    let segments = path.split('/');
    let names = segments.map(|segment| segment.split(';').next().unwrap_or_default());
    names.collect::<Vec<_>>().join("/")
}

/// All of ASCII decoded, as often as servers in a row may do it, with slashes in place of backslashes.
fn fully_decoded(decoded_once: &str) -> String {
    let twice = decoded(decoded_once.as_bytes(), u8::is_ascii);
    let thrice = decoded(twice.as_bytes(), u8::is_ascii);
    thrice.replace('\\', "/")
}

/// The path with those bytes decoded of which the predicate says so, and others beyond ASCII encoded.
fn decoded(path: &[u8], is_decoded: impl Fn(&u8) -> bool) -> String {
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
                    if is_decoded(&byte) {
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
const fn is_unreserved(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}
