//! The normal form of paths, one spelling for all that mean the same, and how else a path is read.

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
        let text = normal_text(sent, is_spelled_out);
        let normal = resolved(&text);
        let others = other_readings(&text, &normal);
        Box::new(Self { normal, others })
    }
}

/// A pattern's path as it is compared, or what it would have to be.
///
/// Unreserved characters that are percent-encoded are decoded, those that no path has as they are
/// (RFC 3986, section 3.3) are encoded, the digits of what stays encoded are in upper case; empty
/// segments and one slash at the end are left out, and `.` and `..` are resolved. `%2F` stays, since
/// it separates nothing; a `%` that encodes nothing is `%25`. The normal form of a normal form is
/// itself.
pub(in crate::rules) fn normalized(pattern: &str) -> String {
    let is_kept = |byte: u8| is_spelled_out(byte) || matches!(byte, b'{' | b'}');
    resolved(&normal_text(pattern, is_kept))
}

/// The kinds of bytes of a path that was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteKind {
    Plain,
    Slash,
    Dot,
    /// What servers read differently, or what no path has as it is.
    Odd,
}

const fn kind(byte: u8) -> ByteKind {
    match byte {
        b'/' => ByteKind::Slash,
        b'.' => ByteKind::Dot,
        b';' | b'\\' => ByteKind::Odd,
        byte if is_spelled_out(byte) => ByteKind::Plain,
        _ => ByteKind::Odd,
    }
}

/// The kind of each byte.
static KINDS: [ByteKind; 256] = {
    let mut kinds = [ByteKind::Odd; 256];
    let mut byte = 0;
    while byte < 256 {
        kinds[byte] = kind(byte as u8);
        byte += 1;
    }
    kinds
};

/// Whether there is nothing to do, as for nearly every request: no percent sign, nothing that a path
/// does not have as it is, no empty or dotted segment, no slash at the end, and nothing that some
/// servers cut at. Nor for `*`, which is no path. An authority alone has an empty one, which servers
/// read as `/`.
fn is_plain(path: &str) -> bool {
    if !path.starts_with('/') {
        return !path.is_empty();
    }
    let mut after_slash = false;
    for byte in path.as_bytes() {
        match KINDS[usize::from(*byte)] {
            ByteKind::Plain => after_slash = false,
            ByteKind::Slash | ByteKind::Dot if after_slash => return false,
            ByteKind::Slash => after_slash = true,
            ByteKind::Dot => {}
            ByteKind::Odd => return false,
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

/// A path with the unreserved characters decoded, and those bytes encoded that are not kept.
fn normal_text(path: &str, is_kept: impl Fn(u8) -> bool) -> String {
    let mut text = String::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'%' => match escaped(after) {
                Some(byte) => {
                    rest = &after[2..];
                    match is_unreserved(byte) {
                        true => text.push(byte.into()),
                        false => encode(&mut text, byte),
                    }
                }
                None => encode(&mut text, b'%'),
            },
            byte if is_kept(*byte) => text.push((*byte).into()),
            byte => encode(&mut text, *byte),
        }
    }
    text
}

fn encode(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

    text.push('%');
    text.push(DIGITS[usize::from(byte >> 4)].into());
    text.push(DIGITS[usize::from(byte & 15)].into());
}

/// How often servers in a row decode a path.
const MOST_DECODINGS: usize = 2;

/// The readings of servers that leave segments as they are, cut parameters off before or after they
/// decode, decode all, take backslashes for slashes, or do several of these: those first that do
/// least.
fn other_readings(text: &str, normal: &str) -> Vec<String> {
    let mut readings = Vec::new();
    let mut add = |spelled: String| {
        let resolved = resolved(&spelled);
        for reading in [spelled, resolved] {
            if reading != normal && !readings.contains(&reading) {
                readings.push(reading);
            }
        }
    };
    add(text.to_owned());
    if !text.contains(['%', ';', '\\']) {
        return readings;
    }
    let mut texts = vec![text.as_bytes().to_vec()];
    push_new(&mut texts, without_parameters(text.as_bytes()));
    for read in &texts {
        add(String::from_utf8_lossy(read).replace('\\', "/"));
    }
    for _ in 0..MOST_DECODINGS {
        let mut decoded = Vec::new();
        for read in &texts {
            let text = decoded_once(read);
            let cut = without_parameters(&text);
            push_new(&mut decoded, text);
            push_new(&mut decoded, cut);
        }
        texts = decoded;
        texts.iter().for_each(|text| add(spelled(text)));
    }
    readings
}

fn push_new(texts: &mut Vec<Vec<u8>>, text: Vec<u8>) {
    if !texts.contains(&text) {
        texts.push(text);
    }
}

/// The path without parameters of segments, such as `;jsessionid=1` (RFC 3986, section 3.3), and
/// without all that follows a `?` or `#` that was decoded too early.
fn without_parameters(path: &[u8]) -> Vec<u8> {
    let mut cut = Vec::with_capacity(path.len());
    let mut is_parameter = false;
    let ends = |byte: &&u8| !matches!(byte, b'?' | b'#' | 0);
    for byte in path.iter().take_while(ends) {
        match byte {
            b'/' | b'\\' => is_parameter = false,
            b';' => is_parameter = true,
            _ => {}
        }
        if !is_parameter {
            cut.push(*byte);
        }
    }
    cut
}

/// All that is encoded decoded, once; also `%u0061`, which is Microsoft's.
fn decoded_once(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            decoded.push(*first);
        } else if let Some(byte) = escaped(after) {
            decoded.push(byte);
            rest = &after[2..];
        } else if let Some(sign) = escaped_as_utf16(after) {
            decoded.extend(sign.encode_utf8(&mut [0; 4]).bytes());
            rest = &after[5..];
        } else {
            decoded.push(b'%');
        }
    }
    decoded
}

/// A path that was decoded, as patterns spell it.
fn spelled(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path {
        match byte {
            b'\\' => text.push('/'),
            byte if is_spelled_out(*byte) => text.push((*byte).into()),
            byte => encode(&mut text, *byte),
        }
    }
    text
}

/// The character of `u` and four digits after a percent sign.
fn escaped_as_utf16(after: &[u8]) -> Option<char> {
    let (first, digits) = after.split_first()?;
    let (high, low) = (escaped(digits)?, escaped(digits.get(2..)?)?);
    let code = u32::from(high) << 8 | u32::from(low);
    char::from_u32(code).filter(|_| matches!(first, b'u' | b'U'))
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

/// Whether paths have it as it is: RFC 3986, section 3.3, and the backslash, which some servers take
/// for a slash.
const fn is_spelled_out(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(
            byte,
            b'!' | b'$' | b'&'..=b',' | b'/' | b':' | b';' | b'=' | b'@' | b'\\'
        )
}
