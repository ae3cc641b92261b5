//! Entries of `X-Forwarded-For` and of headers with one address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How many entries of a header are read at most.
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
pub(super) fn host(bytes: &[u8]) -> Option<IpAddr> {
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
pub(super) fn bracketed(text: &str) -> Option<(Ipv6Addr, Option<&str>)> {
    let (v6, port) = text.strip_prefix('[')?.split_once(']')?;
    let port = match port {
        "" => None,
        port => Some(port.strip_prefix(':')?),
    };
    Some((v6.parse().ok()?, port))
}

/// Digits only: the standard library also takes a sign.
pub(super) fn is_port(text: &str) -> bool {
    (1..=5).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse::<u16>().is_ok()
}

/// An address, with or without a port.
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
pub(super) fn entries(line: &[u8]) -> impl Iterator<Item = HeaderEntry> {
    line.rsplit(|byte| *byte == b',')
        .map(|entry| host(entry).into())
}
