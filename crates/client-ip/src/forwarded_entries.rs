//! Entries of the headers in which proxies name the client: `X-Forwarded-For` and its like, headers with one address,
//! and `Forwarded` of RFC 7239.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) const MAX_ENTRIES: usize = 32;

/// An entry of the header: a proxy's report about the host before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderEntry {
    /// The address of the one before, with IPv4-mapped IPv6 unwrapped.
    Address(IpAddr),
    /// A hidden address: `unknown`, or an obfuscated name.
    Hidden,
    /// Nothing that can be read.
    Malformed,
}

impl From<Option<IpAddr>> for HeaderEntry {
    fn from(address: Option<IpAddr>) -> Self {
        address.map_or(Self::Malformed, |ip| Self::Address(ip.to_canonical()))
    }
}

/// `v4`, `v4:port`, `v6`, `[v6]` or `[v6]:port`, with white space around it.
///
/// The standard library's parser takes neither zone ids nor leading zeros in IPv4, which some read
/// as octal.
fn host(bytes: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(bytes.trim_ascii()).ok()?;
    if text.starts_with('[') {
        let (v6, port) = bracketed(text)?;
        return port.is_none_or(is_port).then_some(v6.into());
    }
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let (v4, port) = text.split_once(':')?;
    let v4: Ipv4Addr = v4.parse().ok()?;
    is_port(port).then_some(v4.into())
}

/// `[v6]` or `[v6]:port`; the port is not parsed.
fn bracketed(text: &str) -> Option<(Ipv6Addr, Option<&str>)> {
    let (v6, port) = text.strip_prefix('[')?.split_once(']')?;
    let port = match port {
        "" => None,
        port => Some(port.strip_prefix(':')?),
    };
    Some((v6.parse().ok()?, port))
}

/// Digits only: the standard library also takes a sign.
fn is_port(text: &str) -> bool {
    (1..=5).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse::<u16>().is_ok()
}

pub(super) fn address(value: &[u8]) -> HeaderEntry {
    host(value).into()
}

/// An address and a port, the IPv6 one without brackets (`2001:db8::1:46532`), as CloudFront
/// writes it.
pub(super) fn viewer_address(value: &[u8]) -> HeaderEntry {
    cut_port(value).into()
}

fn cut_port(value: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(value.trim_ascii()).ok()?;
    let (address, port) = text.rsplit_once(':')?;
    is_port(port).then(|| address.parse().ok())?
}

/// The entries of one line, from the right.
///
/// They are split off one by one: entries to the left of the last one requested are not read.
pub(super) fn list_entries(line: &[u8]) -> impl Iterator<Item = HeaderEntry> {
    line.rsplit(|byte| *byte == b',')
        .map(|entry| host(entry).into())
}

/// A longer line is a fault. Servers in front of us take no more than this by default: nginx 8 KiB,
/// Apache 8,190 bytes.
const MAX_LINE: usize = 8 * 1024;

/// A longest address with a port has 53 bytes.
const MAX_NODE: usize = 64;

/// One more than are read, to know whether there are more.
const KEPT: usize = MAX_ENTRIES + 1;

/// The entries of one line, from the right.
pub(super) fn forwarded_entries(line: &[u8]) -> impl Iterator<Item = HeaderEntry> {
    Elements::new(line).map(|bytes| element(bytes.trim_ascii()).unwrap_or(HeaderEntry::Malformed))
}

/// The elements of one line, from the right, at most `KEPT`.
struct Elements<'l> {
    line: &'l [u8],
    /// Where the last `KEPT` elements start: the one of number n at n % KEPT.
    starts: [u16; KEPT],
    count: usize,
    left: usize,
}

impl<'l> Elements<'l> {
    fn new(line: &'l [u8]) -> Self {
        let mut elements = Self {
            // An empty line has one empty element, which is a fault.
            line: if line.len() > MAX_LINE { b"" } else { line },
            starts: [0; KEPT],
            count: 1,
            left: 1,
        };
        // The search has to begin on the left, since only there is it known to be outside a quote. So a quote
        // that a client leaves open swallows what our proxy appended to the same line, up to its end,
        // and is a fault. It cannot be turned into more: the odd quote makes all of the proxy's quotes
        // change sides, so that the last one stays open, unless the proxy wrote an escaped one; then
        // that one's backslash is left outside the quotes, and its element is a fault, to the right of
        // all that the client wrote.
        let mut at = 0;
        while let Some(skipped) = elements.line[at..]
            .iter()
            .position(|byte| matches!(byte, b',' | b'"'))
        {
            at += skipped + 1;
            if elements.line[at - 1] == b',' {
                elements.starts[elements.count % KEPT] = at as u16;
                elements.count += 1;
            } else if let Some((content, _)) = quoted(&elements.line[at..]) {
                at += content.len() + 1;
            } else {
                break;
            }
        }
        elements.left = elements.count.min(KEPT);
        elements
    }
}

impl<'l> Iterator for Elements<'l> {
    type Item = &'l [u8];

    fn next(&mut self) -> Option<&'l [u8]> {
        self.left = self.left.checked_sub(1)?;
        self.count -= 1;
        let (before, element) = self.line.split_at(self.starts[self.count % KEPT].into());
        self.line = before.strip_suffix(b",").unwrap_or(before);
        Some(element)
    }
}

/// The entry that an element's `for` names. `None` if the element is faulty or has none, or two.
fn element(mut rest: &[u8]) -> Option<HeaderEntry> {
    let mut found = None;
    while !rest.is_empty() {
        // Pairs may be empty, as in `for=192.0.2.1;`.
        if rest[0] != b';' {
            let (name, value, after) = pair(rest)?;
            if name.eq_ignore_ascii_case(b"for") && found.replace(value.node()).is_some() {
                return None;
            }
            rest = after.trim_ascii_start();
        }
        rest = match rest {
            [] => rest,
            [b';', after @ ..] => after.trim_ascii_start(),
            _ => return None,
        };
    }
    found
}

/// A parameter's name and value, and what follows.
fn pair(bytes: &[u8]) -> Option<(&[u8], Value<'_>, &[u8])> {
    let (name, rest) = token(bytes)?;
    let rest = rest.strip_prefix(b"=")?;
    if let Some(rest) = rest.strip_prefix(b"\"") {
        let (content, rest) = quoted(rest)?;
        return Some((name, Value::Quoted(content), rest));
    }
    let (value, rest) = token(rest)?;
    Some((name, Value::Token(value), rest))
}

enum Value<'l> {
    Token(&'l [u8]),
    /// Without the quotes, with the escapes.
    Quoted(&'l [u8]),
}

impl Value<'_> {
    fn node(&self) -> HeaderEntry {
        let mut buffer = [0; MAX_NODE];
        let bytes = match *self {
            Self::Quoted(content) if content.contains(&b'\\') => unescape(content, &mut buffer),
            Self::Token(bytes) | Self::Quoted(bytes) => Some(bytes),
        };
        let text = bytes.and_then(|bytes| str::from_utf8(bytes).ok());
        text.and_then(node).unwrap_or(HeaderEntry::Malformed)
    }
}

/// A non-empty token and what follows it.
fn token(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let end = bytes.iter().position(|byte| !is_token(byte));
    match bytes.split_at(end.unwrap_or(bytes.len())) {
        ([], _) => None,
        found => Some(found),
    }
}

/// The text before the closing quote, and the text after it.
fn quoted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut escaped = false;
    let end = bytes.iter().position(|byte| {
        let closes = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        closes
    })?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// `None` if it is too long for an address.
fn unescape<'b>(content: &[u8], buffer: &'b mut [u8; MAX_NODE]) -> Option<&'b [u8]> {
    let mut len = 0;
    let mut bytes = content.iter();
    while let Some(mut byte) = bytes.next() {
        if *byte == b'\\' {
            byte = bytes.next()?;
        }
        *buffer.get_mut(len)? = *byte;
        len += 1;
    }
    Some(&buffer[..len])
}

/// `v4`, `[v6]`, `unknown` or `_name`, each with or without `:port` or `:_name`.
fn node(text: &str) -> Option<HeaderEntry> {
    if text.starts_with('[') {
        let (v6, port) = bracketed(text)?;
        return port
            .is_none_or(is_node_port)
            .then_some(Some(v6.into()).into());
    }
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    if !port.is_none_or(is_node_port) {
        return None;
    }
    if name.eq_ignore_ascii_case("unknown") || is_obfuscated(name) {
        return Some(HeaderEntry::Hidden);
    }
    Some(name.parse::<Ipv4Addr>().ok().map(Into::into).into())
}

fn is_node_port(text: &str) -> bool {
    is_port(text) || is_obfuscated(text)
}

fn is_obfuscated(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.strip_prefix('_')
        .is_some_and(|name| !name.is_empty() && name.bytes().all(allowed))
}
