//! Rule files, and the paths that they are about. The functions of the crate come as arguments, so
//! that this package needs none of its features.

/// Report on an invalid file: code, line, column, and the whole text.
pub struct Refused {
    pub problems: Vec<(String, Option<usize>, Option<usize>)>,
    pub text: String,
}

/// A file is read or refused, never both, with places that exist. The first byte is the format.
pub fn check_file(data: &[u8], read: impl Fn(&str, u8) -> Result<(), Refused>) {
    let Some((format, text)) = data.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    let Err(refused) = read(&text, format % 3) else {
        return;
    };
    assert!(
        (1..=20).contains(&refused.problems.len()),
        "{}",
        refused.text
    );
    let lines = text.matches('\n').count() + 1;
    for (code, line, column) in &refused.problems {
        assert!(code.starts_with('R') && code.len() == 3, "{code}");
        assert_eq!(line.is_some(), column.is_some());
        if let Some(line) = line {
            assert!(
                (1..=lines).contains(line),
                "line {line} of {lines}: {}",
                refused.text
            );
            let length = text.split('\n').nth(line - 1).unwrap_or("").chars().count();
            let column = column.unwrap();
            assert!(
                (1..=length + 1).contains(&column),
                "column {column} of {length}: {}",
                refused.text
            );
        }
    }
    assert!(
        refused
            .text
            .chars()
            .all(|c| c == '\n' || c == '\t' || !c.is_control()),
        "{:?}",
        refused.text
    );
}

/// A path matches the pattern of its normal form, as a slow definition has it, and no other. An
/// `allow` exempts it only where all servers read the same. `fits` checks a rule with this
/// pattern, and whether it is an `allow`.
pub fn check_path(data: &[u8], fits: impl Fn(&str, &str, bool) -> Option<bool>) {
    let matches = |pattern: &str, path: &str| fits(pattern, path, false);
    let allows = |pattern: &str, path: &str| fits(pattern, path, true);
    let path: String = data.iter().copied().map(character).collect();
    let path = format!("/{path}");
    let normal = normal_form(&path);
    assert_eq!(normal_form(&normal), normal, "{path:?}");
    // `None` is a path that no request can have, or whose normal form is no pattern.
    if let Some(matched) = matches(&normal, &path) {
        assert!(matched, "{path:?} does not match {normal:?}");
    }
    let other = format!("{}/x", normal.trim_end_matches('/'));
    // Parts that servers cut off or decode themselves have more readings.
    let has_one_reading = !path.contains(['%', ';', '\\']);
    if let Some(matched) = matches(&other, &path).filter(|_| has_one_reading) {
        assert!(!matched, "{path:?} matches {other:?}");
    }
    // A text with `*` or braces is no literal.
    let is_literal = !normal.contains(['*', '{']);
    if let Some(allowed) = allows(&normal, &path).filter(|_| is_literal) {
        assert_eq!(allowed, path == normal, "{path:?} by {normal:?}");
    }
    if let Some(allowed) = allows("/**", &path) {
        let expected = path == normal && path.split('/').all(reads_alike);
        assert_eq!(allowed, expected, "{path:?} by /**");
    }
    // Every spelling of it is the same.
    let encoded: String = path
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'.' => format!("%{byte:02x}"),
            byte => char::from(byte).to_string(),
        })
        .collect();
    let spelled = [
        encoded,
        path.replace('/', "//"),
        format!("{path}/"),
        format!("/zz/..{path}"),
    ];
    // Characters after a percent sign would be parsed with it.
    if !path.contains('%') {
        for spelling in spelled {
            if let Some(matched) = matches(&normal, &spelling) {
                assert!(matched, "{spelling:?} does not match {normal:?}");
            }
        }
    }
}

/// Whether nothing in a segment of a normal form, wholly decoded, is a sign that a server may cut at.
fn reads_alike(segment: &str) -> bool {
    let (mut rest, mut decoded) = (segment, Vec::new());
    while let Some(first) = rest.bytes().next() {
        let escape = rest.strip_prefix('%').and_then(|rest| rest.get(..2));
        let byte = escape.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(byte.unwrap_or(first));
        let length = if byte.is_some() { 3 } else { 1 };
        rest = rest.get(length..).unwrap_or("");
    }
    !decoded
        .iter()
        .any(|byte| b"/\\;%?#".contains(byte) || byte.is_ascii_control())
}

/// Mostly what paths are made of.
fn character(byte: u8) -> char {
    const FREQUENT: &[u8] = b"//..%%2eEfF6cCaAbxyz0-_~;@";
    match byte {
        0x80.. => char::from(FREQUENT[usize::from(byte) % FREQUENT.len()]),
        b'!'..=b'~' => char::from(byte),
        _ => '/',
    }
}

/// The definition: decode, encode, cut into segments, leave out and resolve.
fn normal_form(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut decoded = String::new();
    let mut at = 0;
    while at < bytes.len() {
        let escape = path.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let value = escape.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match value {
            Some(digits) => {
                let byte = u8::from_str_radix(digits, 16).unwrap();
                let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
                if unreserved {
                    decoded.push(char::from(byte));
                } else {
                    decoded += &format!("%{byte:02X}");
                }
                at += 3;
            }
            None if bytes[at] == b'%' => {
                decoded += "%25";
                at += 1;
            }
            None if b"\"<>[]^`{|}".contains(&bytes[at]) => {
                decoded += &format!("%{:02X}", bytes[at]);
                at += 1;
            }
            None => {
                decoded.push(char::from(bytes[at]));
                at += 1;
            }
        }
    }
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded
        .split('/')
        .filter(|segment| !segment.is_empty() && *segment != ".")
    {
        if segment == ".." {
            segments.pop();
        } else {
            segments.push(segment);
        }
    }
    format!("/{}", segments.join("/"))
}
