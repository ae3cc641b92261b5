//! The common and the combined log format of Apache and nginx.

use std::borrow::Cow;

use super::{
    super::entry::{Entry, LoggedPart},
    date::Dates,
};

/// `203.0.113.7 - alice [21/Nov/2026:03:00:01 +0000] "GET / HTTP/1.1" 200 5 "-" "curl" "-"`. The
/// referer and the user agent are optional, and nginx may add `X-Forwarded-For`.
pub(super) fn entry<'a>(line: &'a str, dates: &mut Dates) -> Result<Entry<'a>, &'static str> {
    let (client, rest) = line.split_once(' ').ok_or("it has no fields")?;
    // A client can send any user, with brackets too: the time is directly before the request.
    let (head, _) = rest.split_once("] \"").ok_or("it has no time")?;
    let (names, time) = head.rsplit_once('[').ok_or("it has no time")?;
    let rest = &rest[head.len()..];
    let (at, is_whole) = dates.date(time).ok_or("its time is invalid")?;
    let user = names.trim().split_once(' ').map_or("-", |(_, user)| user);
    let (request, rest) = quoted(rest).ok_or("it has no request")?;
    let mut words = rest.trim_start().split(' ');
    let status = words.next().and_then(|status| status.parse().ok());
    let mut entry = Entry {
        at,
        is_whole,
        client: known(client),
        user: known(user),
        has_user: true,
        status: status.ok_or("it has no status")?,
        ..Entry::default()
    };
    // Invalid requests have neither method nor path.
    if let Some((method, uri)) = request.split_once(' ') {
        entry.method = known(method);
        entry.uri = known(uri.split(' ').next().unwrap_or(uri));
    }
    if let Some((referer, rest)) = quoted(rest) {
        entry.referer = LoggedPart::field(unescaped(referer));
        let agent = quoted(rest);
        entry.user_agent = agent.map_or(LoggedPart::Unknown, |(agent, _)| {
            LoggedPart::field(unescaped(agent))
        });
        let forwarded = agent.and_then(|(_, rest)| quoted(rest));
        entry.forwarded_for = forwarded.and_then(|(value, _)| known(value));
    }
    Ok(entry)
}

/// The value, unless it is `-` for an absent one.
fn known(text: &str) -> Option<Cow<'_, str>> {
    (text != "-" && !text.is_empty()).then(|| unescaped(text))
}

/// The text without the escapes that servers write.
fn unescaped(text: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\\', text.as_bytes()).is_none() {
        return text.into();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match (first, behind) {
            (b'\\', [b'x', high, low, behind @ ..]) if hex(*high, *low).is_some() => {
                bytes.extend(hex(*high, *low));
                rest = behind;
            }
            (b'\\', [sign, behind @ ..]) => {
                bytes.push(match sign {
                    b'b' => 0x08,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'v' => 0x0b,
                    sign => *sign,
                });
                rest = behind;
            }
            (other, _) => bytes.push(*other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

/// The text in the next quotes, and the text after them.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let begin = text.find('"')? + 1;
    let bytes = text.as_bytes();
    let mut at = begin;
    loop {
        match bytes.get(at)? {
            b'"' => return Some((&text[begin..at], &text[at + 1..])),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let line = r#"2001:db8::1 - alice smith [21/Nov/2026:03:00:01 +0000] "POST /a?b=\"c HTTP/1.1" 401 5 "-" "cu\\rl" "203.0.113.7, 10.0.0.1""#;
        let entry = entry(line, &mut Dates::new()).expect("an entry");
        assert_eq!(entry.client.as_deref(), Some("2001:db8::1"));
        assert_eq!(entry.user.as_deref(), Some("alice smith"));
        assert_eq!(entry.method.as_deref(), Some("POST"));
        assert_eq!(entry.uri.as_deref(), Some("/a?b=\"c"));
        assert_eq!(entry.path(), Some("/a"));
        assert_eq!((entry.status, entry.is_whole), (401, true));
        assert!(matches!(&entry.user_agent, LoggedPart::Value(agent) if agent == "cu\\rl"));
        assert!(matches!(entry.referer, LoggedPart::Absent));
        assert_eq!(
            entry.forwarded_for.as_deref(),
            Some("203.0.113.7, 10.0.0.1")
        );
    }

    #[test]
    fn escaped_signs_are_what_was_sent() {
        for (written, sent) in [
            (r#"a\"b\\c"#, "a\"b\\c"),
            (r"\x22\xC3\xA9\x5C", "\"é\\"),
            (r"\t\x0", "\tx0"),
            (r"\", "\\"),
            (r"\xff", "\u{fffd}"),
        ] {
            assert_eq!(unescaped(written), sent, "{written}");
        }
    }

    #[test]
    fn a_user_forges_no_time() {
        let line = r#"a - x [20/Nov/2026:03:00:01 +0000]:y [21/Nov/2026:03:00:01 +0000] "GET / HTTP/1.1" 200 5"#;
        let entry = entry(line, &mut Dates::new()).expect("an entry");
        assert_eq!(entry.at, 1_795_230_001_000_000);
        assert_eq!(
            entry.user.as_deref(),
            Some("x [20/Nov/2026:03:00:01 +0000]:y")
        );
    }

    #[test]
    fn invalid_lines_have_a_reason() {
        for (line, why) in [
            ("x", "it has no fields"),
            ("a - - 200", "it has no time"),
            ("a - - [x] \"GET / HTTP/1.1\" 200 1", "its time is invalid"),
            (
                "a - - [21/Nov/2026:03:00:01 +0000] \"GET / HTTP/1.1 200 1",
                "it has no request",
            ),
            (
                "a - - [21/Nov/2026:03:00:01 +0000] \"GET / HTTP/1.1\" - 1",
                "it has no status",
            ),
        ] {
            assert_eq!(entry(line, &mut Dates::new()).err(), Some(why), "{line}");
        }
        let line = r#"a - - [21/Nov/2026:03:00:01 +0000] "\x16\x03" 400 1"#;
        let odd = entry(line, &mut Dates::new()).expect("an attempt all the same");
        assert!(odd.method.is_none() && odd.status == 400);
    }
}
