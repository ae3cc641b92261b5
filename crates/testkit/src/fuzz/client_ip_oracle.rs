//! Requests through proxies, and the meaning of their headers, worked out the slow and obvious way.

use std::{
    net::{IpAddr, SocketAddr},
    sync::LazyLock,
};

use http::{HeaderName, HeaderValue, Request, request::Parts};
use tower_ratelimit::{ClientAddress, ClientIp, Key, KeyExtractor};

pub const PEER: &str = "10.0.0.1";

/// The proxy that `PEER` got the request from.
pub const INNER: &str = "10.0.0.2";

/// Trusts `PEER` and `INNER`, as [`is_trusted`] does.
pub fn behind_proxies() -> ClientIp {
    static MADE: LazyLock<ClientIp> =
        LazyLock::new(|| ClientIp::behind(["10.0.0.0/8", "2001:db8:ffff::/48"]));
    MADE.clone()
}

pub fn is_trusted(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] == 10,
        IpAddr::V6(v6) => v6.segments()[..3] == [0x2001, 0xdb8, 0xffff],
    }
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The lines of a header that a client sends, as far as HTTP lets it.
pub fn lines(data: &[u8]) -> Vec<HeaderValue> {
    let lines = data.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
        .collect()
}

/// Appends an entry as a proxy does: to the last line, if there is one, or on a line of its own.
pub fn append(lines: &mut Vec<HeaderValue>, entry: &[u8], to_last: bool) {
    let value = match lines.pop() {
        Some(last) if to_last => [last.as_bytes(), b", ", entry].concat(),
        last => {
            lines.extend(last);
            entry.to_vec()
        }
    };
    lines.push(HeaderValue::from_bytes(&value).unwrap());
}

pub fn request(peer: &str, name: &'static str, lines: &[HeaderValue]) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.extensions.insert(SocketAddr::new(ip(peer), 4000));
    let name = HeaderName::from_static(name);
    for line in lines {
        parts.headers.append(&name, line.clone());
    }
    parts
}

/// The address that is found, and that the key agrees with.
pub fn resolve(client_ip: &ClientIp, parts: &Parts) -> ClientAddress {
    let found = client_ip.resolve(parts).unwrap();
    assert!(found.entries() <= ClientIp::MAX_ENTRIES);
    assert_eq!(client_ip.extract(parts), Ok(Key::from(found.ip())));
    found
}

/// Where going from proxy to proxy ends. `entries` are from the right, `None` for what is no
/// address; `proxy` selects who is trusted, by address and by the number of proxies before it.
pub fn walk(entries: &[Option<IpAddr>], proxy: impl Fn(IpAddr, usize) -> bool) -> IpAddr {
    let mut at = ip(PEER);
    for (number, entry) in entries.iter().enumerate().take(ClientIp::MAX_ENTRIES) {
        if !proxy(at, number) {
            break;
        }
        match entry {
            Some(address) => at = *address,
            None => break,
        }
    }
    at
}

/// An address with or without a port, by the standard library's parsers where they agree with what
/// proxies write.
pub fn host(bytes: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(bytes).ok()?.trim_matches([' ', '\t']);
    let address = match text.parse::<IpAddr>() {
        Ok(address) => address,
        Err(_) => with_port(text).or_else(|| with_port(&format!("{text}:0")))?,
    };
    Some(address.to_canonical())
}

/// `v4:port` or `[v6]:port`, without a zone.
pub fn with_port(text: &str) -> Option<IpAddr> {
    let (_, port) = text.rsplit_once(':')?;
    if text.contains('%') || port.len() > 5 {
        return None;
    }
    Some(text.parse::<SocketAddr>().ok()?.ip())
}
