//! The normal form of paths, and the other ways in which servers read a path.

/// The path of a request, with all ways in which servers may read it.
#[derive(Debug)]
pub struct RequestPath<'r> {
    sent: &'r str,
    /// The readings of a path that servers read in several ways, which is rare.
    ambiguous: Option<Box<Readings>>,
}

/// The ways in which servers may read a path.
#[derive(Debug)]
struct Readings {
    normal: String,
    /// The readings that differ from the normal form, each once.
    others: Vec<String>,
}

impl<'r> RequestPath<'r> {
    /// The path as the client sent it.
    #[inline]
    pub fn new(sent: &'r str) -> Self {
        let ambiguous = (!is_plain(sent)).then(|| Readings::new(sent));
        Self { sent, ambiguous }
    }

    /// Whether all servers read the path alike. It is then in its normal form.
    #[inline]
    pub const fn is_plain(&self) -> bool {
        self.ambiguous.is_none()
    }

    /// The normal form: the reading of a server that decodes and resolves the path as RFC 3986 has it.
    #[inline]
    pub fn normal(&self) -> &str {
        self.ambiguous
            .as_ref()
            .map_or(self.sent, |readings| &readings.normal)
    }

    /// The readings of servers that leave segments as they are, remove parameters of segments, or decode more: each
    /// once, without the normal form.
    #[inline]
    pub fn others(&self) -> &[String] {
        self.ambiguous
            .as_ref()
            .map_or(&[], |readings| &readings.others)
    }

    /// Whether the client sent the normal form.
    pub fn is_normal(&self) -> bool {
        self.ambiguous
            .as_ref()
            .is_none_or(|readings| readings.normal == self.sent)
    }
}

impl Readings {
    #[cold]
    fn new(sent: &str) -> Box<Self> {
        let text = normal_text(sent, is_spelled_out);
        let normal = resolved(&text);
        let others = other_readings(&text, &normal);
        Box::new(Self { normal, others })
    }
}

/// The normal form of a pattern's path.
///
/// It decodes unreserved characters, encodes characters that no path may contain (RFC 3986, section 3.3), writes
/// encoded bytes in upper case, removes empty segments and a slash at the end, and resolves `.` and `..`. `%2F` stays
/// encoded, since it separates no segments; a `%` that encodes nothing becomes `%25`. The function is idempotent.
pub(super) fn normalized(pattern: &str) -> String {
    let is_kept = |byte: u8| is_spelled_out(byte) || matches!(byte, b'{' | b'}');
    resolved(&normal_text(pattern, is_kept))
}

/// Whether the path is in its normal form and has no other reading, as in nearly every request. `*` is no path and
/// needs none. The target of `CONNECT` has an empty path, which servers read as `/`.
#[inline]
fn is_plain(path: &str) -> bool {
    if !path.starts_with('/') {
        return !path.is_empty();
    }
    let mut after_slash = false;
    for byte in path.bytes() {
        match byte {
            b'/' | b'.' if after_slash => return false,
            b';' | b'\\' => return false,
            byte if !is_spelled_out(byte) => return false,
            byte => after_slash = byte == b'/',
        }
    }
    !after_slash || path.len() == 1
}

/// Whether servers that decode more than others, or remove parameters of segments, find the same segments in this part
/// of a normal form.
pub(super) fn has_one_meaning(normal: &str) -> bool {
    let separates = |byte: u8| b"/\\;%?#".contains(&byte) || byte.is_ascii_control();
    let mut encoded = normal.split('%').skip(1).map(str::as_bytes);
    !normal.contains([';', '\\']) && !encoded.any(|text| escaped(text).is_some_and(separates))
}

/// The first character that a pattern encodes although a path may contain it unencoded (RFC 3986, section 3.3). Not a
/// character that means something else when it is decoded, such as `*` in a pattern and `;` in a path.
pub(super) fn needlessly_encoded(pattern: &str) -> Option<char> {
    let encoded = pattern.split('%').skip(1);
    let mut characters = encoded.filter_map(|text| escaped(text.as_bytes()).map(char::from));
    characters.find(|character| "!$&'()+,=:@".contains(*character))
}

/// Removes empty segments and `.`, and resolves `..`.
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

/// Decodes unreserved characters of a path, and encodes the bytes that are not kept.
fn normal_text(path: &str, is_kept: impl Fn(u8) -> bool) -> String {
    let mut text = String::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'%' => match escaped(after) {
                Some(byte) => {
                    rest = &after[2..];
                    if is_unreserved(byte) {
                        text.push(byte.into());
                    } else {
                        encode(&mut text, byte);
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

/// How many servers in a row may each decode a path.
const MOST_DECODINGS: usize = 2;

/// The readings of servers that leave segments as they are, remove parameters before or after they decode, decode
/// everything, read backslashes as slashes, or do several of these. Those that change least come first.
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

/// Removes parameters of segments, such as `;jsessionid=1` (RFC 3986, section 3.3), and everything after a `?` or `#`
/// that a server decoded too early.
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

/// Decodes all encoded bytes once, also `%u0061`, which is Microsoft's.
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
        } else if let Some(character) = escaped_as_utf16(after) {
            decoded.extend(character.encode_utf8(&mut [0; 4]).bytes());
            rest = &after[5..];
        } else {
            decoded.push(b'%');
        }
    }
    decoded
}

/// A decoded path in the spelling of patterns.
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

/// Whether a byte means the same encoded and unencoded (RFC 3986, section 2.3).
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether a path may contain the byte unencoded (RFC 3986, section 3.3). The backslash counts too, since clients send
/// it and some servers read it as a slash.
const fn is_spelled_out(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(
            byte,
            b'!' | b'$' | b'&'..=b',' | b'/' | b':' | b';' | b'=' | b'@' | b'\\'
        )
}
