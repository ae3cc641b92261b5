//! The common and the combined log format of Apache and nginx.

use std::borrow::Cow;

use crate::{
    log_entry::{Entry, LoggedPart, address},
    timestamps::Dates,
};

/// `203.0.113.7 - alice [21/Nov/2026:03:00:01 +0000] "GET / HTTP/1.1" 200 5 "-" "curl" "-"`. The
/// referer and the user agent are optional, and nginx may add `X-Forwarded-For`. The client may stand behind other words,
/// such as syslog's prefix or the virtual host.
pub(crate) fn entry<'a>(line: &'a str, dates: &mut Dates) -> Result<Entry<'a>, &'static str> {
    line.find(' ').ok_or("it has no fields")?;
    // A client can send any user, with brackets too: the time is directly before the request.
    let (head, _) = line.split_once("] \"").ok_or("it has no time")?;
    let (names, time) = head.rsplit_once('[').ok_or("it has no time")?;
    let rest = &line[head.len()..];
    let (at, is_whole) = dates.date(time).ok_or("its time is invalid")?;
    let (client, user) = client_and_user(names.trim());
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
        let forwarded = forwarded.map(|(value, _)| value);
        entry.forwarded_for = forwarded
            .filter(|value| is_forwarded(value))
            .and_then(known);
    }
    Ok(entry)
}

/// The client and the user of `client ident user`, which may stand behind other words. The client is the first address
/// before an ident of `-`, as nearly all are: what a client sends as its user comes later. Otherwise it is the first
/// address, or the first word.
fn client_and_user(names: &str) -> (&str, &str) {
    let (mut first, mut list, mut start) = (None, None, 0);
    for word in names.split(' ') {
        let (at, end) = (start, start + word.len());
        start = end + 1;
        if address(word).is_none() {
            list = None;
            continue;
        }
        // A list of addresses has a space after each comma.
        let client = (list.unwrap_or(at), end);
        list = word.ends_with(',').then_some(client.0);
        let behind = names.get(start..).unwrap_or_default();
        if behind == "-" || behind.starts_with("- ") {
            first = Some(client);
            break;
        }
        first.get_or_insert(client);
    }
    let first_word = names.find(' ').unwrap_or(names.len());
    let (begin, end) = first.unwrap_or((0, first_word));
    let behind = names[end..].trim_start();
    let user = behind.split_once(' ').map_or("-", |(_, user)| user);
    (&names[begin..end], user)
}

/// Whether a field without a name is `X-Forwarded-For`: the last of its values, by the nearest proxy, is an address.
fn is_forwarded(value: &str) -> bool {
    let last = value.rsplit(',').next();
    last.is_some_and(|last| address(last.trim()).is_some())
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

/// The byte of two hexadecimal digits.
pub(crate) fn hex(high: u8, low: u8) -> Option<u8> {
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
    fn the_client_is_found_behind_other_words() {
        let rest = "[21/Nov/2026:03:00:01 +0000] \"GET / HTTP/1.1\" 200 5";
        for (names, client, user) in [
            ("203.0.113.7 - alice", "203.0.113.7", "alice"),
            (
                "Nov 21 03:00:01 web1 nginx: 203.0.113.7 - -",
                "203.0.113.7",
                "",
            ),
            (
                "Nov 21 03:00:01 10.0.0.5 nginx[12]: 203.0.113.7 - -",
                "203.0.113.7",
                "",
            ),
            (
                "<134>1 2026-11-21T03:00:01Z web1 nginx 12 - - 2001:db8::1 - alice",
                "2001:db8::1",
                "alice",
            ),
            ("shop.example:443 203.0.113.7 - eve", "203.0.113.7", "eve"),
            ("10.0.0.1:443 203.0.113.7 - eve", "203.0.113.7", "eve"),
            // A user is any text.
            (
                "203.0.113.7 - x 6.6.6.6 - y",
                "203.0.113.7",
                "x 6.6.6.6 - y",
            ),
            ("203.0.113.7 ident alice", "203.0.113.7", "alice"),
            (
                "203.0.113.7, 10.0.0.1 - alice",
                "203.0.113.7, 10.0.0.1",
                "alice",
            ),
            (
                "\"203.0.113.7, 10.0.0.1\" - alice",
                "\"203.0.113.7, 10.0.0.1\"",
                "alice",
            ),
            ("host.example - alice", "host.example", "alice"),
        ] {
            let line = format!("{names} {rest}");
            let entry = entry(&line, &mut Dates::new()).expect("an entry");
            assert_eq!(entry.client.as_deref(), Some(client), "{names}");
            assert_eq!(entry.user.as_deref().unwrap_or_default(), user, "{names}");
        }
    }

    #[test]
    fn a_third_field_is_forwarded_for_if_it_ends_with_an_address() {
        let forwarded = |third: &str| {
            let line = format!(
                "10.0.0.1 - - [21/Nov/2026:03:00:01 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\" \"{third}\""
            );
            let entry = entry(&line, &mut Dates::new()).expect("an entry");
            entry.forwarded_for.map(Cow::into_owned)
        };
        for list in [
            "203.0.113.7",
            "junk, 203.0.113.7",
            "6.6.6.6, [2001:db8::1]:80",
        ] {
            assert_eq!(forwarded(list).as_deref(), Some(list));
        }
        for other in ["-", "0.005", "f3a1c2", "203.0.113.7, junk", "TLSv1.3"] {
            assert_eq!(forwarded(other), None, "{other}");
        }
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
