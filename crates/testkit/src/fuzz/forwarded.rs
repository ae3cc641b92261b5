//! `Forwarded`, RFC 7239.

use std::net::IpAddr;

use http::HeaderValue;
use tower_ratelimit::ClientIp;

use super::client_ip_oracle::{
    INNER, PEER, append, behind_proxies, ip, is_trusted, lines, request, resolve, walk, with_port,
};

const HEADER: &str = "forwarded";

/// A client, as a proxy writes it, and its address.
const CLIENTS: [(&str, &str); 5] = [
    ("203.0.113.7", "203.0.113.7"),
    ("\"203.0.113.7:4711\"", "203.0.113.7"),
    ("\"[::ffff:203.0.113.7]\"", "203.0.113.7"),
    ("\"[2001:db8::7]\"", "2001:db8::7"),
    ("\"[2001:db8::7]:_x\"", "2001:db8::7"),
];

/// The first byte chooses what the proxies write, up to the first line break stands what the client
/// sends as `Host`, which the first proxy quotes, and the rest are lines that the client sends.
pub fn check(data: &[u8]) {
    let (choice, rest) = data.split_first().unwrap_or((&0, &[]));
    let mut parts = rest.splitn(2, |byte| *byte == b'\n');
    let host = parts.next().unwrap_or_default();
    let sent = lines(parts.next().unwrap_or_default());
    what_is_sent_chooses_nothing(*choice, host, &sent);
    all_of_it_is_read_right(&sent);
}

/// Through two proxies, whatever the client sent.
fn what_is_sent_chooses_nothing(choice: u8, host: &[u8], sent: &[HeaderValue]) {
    let (written, client) = CLIENTS[usize::from(choice) % CLIENTS.len()];
    let [inner, peer, client] = [INNER, PEER, client].map(ip);
    let shares_a_line = choice & 0x40 != 0 && !sent.is_empty();

    let mut lines = sent.to_vec();
    let element = element(written, host, choice & 0x20 != 0);
    append(&mut lines, &element, choice & 0x40 != 0);
    append(
        &mut lines,
        format!("for={INNER}").as_bytes(),
        choice & 0x80 != 0,
    );

    let found = resolve(
        &behind_proxies().forwarded(),
        &request(PEER, HEADER, &lines),
    );
    if shares_a_line {
        // A quote that the client opened may have swallowed what the proxies wrote.
        assert!([client, inner, peer].contains(&found.ip()), "{found:?}");
    } else {
        assert_eq!((found.ip(), found.entries()), (client, 2));
    }
}

/// The line that a proxy writes, with the `Host` it was sent.
fn element(client: &str, host: &[u8], host_first: bool) -> Vec<u8> {
    let mut quoted = b"host=\"".to_vec();
    for byte in &host[..host.len().min(200)] {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            b'\t' | b' '..=b'~' | 0x80.. => quoted.push(*byte),
            _ => {}
        }
    }
    quoted.push(b'"');
    let client = format!("for={client}").into_bytes();
    if host_first {
        [quoted, client].join(&b';')
    } else {
        [client, quoted].join(&b';')
    }
}

/// As if a proxy had written all of it.
fn all_of_it_is_read_right(lines: &[HeaderValue]) {
    let mut entries = Vec::new();
    for line in lines {
        match line.as_bytes() {
            long if long.len() > 8_192 => entries.push(None),
            line => entries.extend(split(line, b',').iter().map(|bytes| named(bytes))),
        }
    }
    entries.reverse();

    let parts = request(PEER, HEADER, lines);
    let found = resolve(&behind_proxies().forwarded(), &parts).ip();
    assert_eq!(found, walk(&entries, |address, _| is_trusted(address)));
    for hops in [1, 3, 40] {
        let found = resolve(&ClientIp::hops(hops).forwarded(), &parts).ip();
        assert_eq!(found, walk(&entries, |_, number| number < hops.into()));
    }
}

/// Pieces between separators that are not within quotes.
fn split(bytes: &[u8], separator: u8) -> Vec<Vec<u8>> {
    let mut pieces = vec![Vec::new()];
    let mut quoted = false;
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if byte == separator && !quoted {
            pieces.push(Vec::new());
        } else {
            quoted ^= byte == b'"';
            let last = pieces.last_mut().unwrap();
            last.push(byte);
            if byte == b'\\' && quoted && at + 1 < bytes.len() {
                at += 1;
                last.push(bytes[at]);
            }
        }
        at += 1;
    }
    pieces
}

/// The address in an element's only `for`.
fn named(element: &[u8]) -> Option<IpAddr> {
    let mut nodes = Vec::new();
    for pair in split(element, b';') {
        let pair = pair.trim_ascii();
        if pair.is_empty() {
            continue;
        }
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&pair[..equals], &pair[equals + 1..]);
        let value = if is_token(value) {
            value.to_vec()
        } else {
            unquoted(value)?
        };
        if !is_token(name) {
            return None;
        }
        if name.eq_ignore_ascii_case(b"for") {
            nodes.push(value);
        }
    }
    match nodes.as_slice() {
        [node] => address(str::from_utf8(node).ok()?),
        _ => None,
    }
}

fn is_token(bytes: &[u8]) -> bool {
    let separators = b"\"(),/:;<=>?@[\\]{}";
    let allowed = |byte: &u8| byte.is_ascii_graphic() && !separators.contains(byte);
    !bytes.is_empty() && bytes.iter().all(allowed)
}

fn unquoted(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut rest = bytes.strip_prefix(b"\"")?;
    let mut text = Vec::new();
    loop {
        match rest {
            b"\"" => return Some(text),
            [b'\\', byte, after @ ..] => {
                text.push(*byte);
                rest = after;
            }
            [b'"' | b'\\', ..] | [] => return None,
            [byte, after @ ..] => {
                text.push(*byte);
                rest = after;
            }
        }
    }
}

/// `v4` or `[v6]`, with or without a port, which may be obfuscated.
fn address(node: &str) -> Option<IpAddr> {
    let plain = match node.rsplit_once(":_") {
        Some((host, name)) if is_name(name) => format!("{host}:0"),
        _ if node.ends_with(']') || !node.contains(':') => format!("{node}:0"),
        _ => node.to_owned(),
    };
    with_port(&plain).map(|address| address.to_canonical())
}

fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c);
    !text.is_empty() && text.chars().all(allowed)
}
