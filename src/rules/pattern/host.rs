//! Hosts: how requests name them, and patterns of them.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr as _,
};

use http::{header, request::Parts};

/// A host as `Host` and `:authority` have it, without its port. Names are equal in any case.
///
/// Parsing is stricter than RFC 3986 (section 3.2.2) where servers disagree about what they read: a
/// percent sign, a comma or a label that is a number stands in no host of a request.
#[allow(clippy::exhaustive_enums, reason = "no user sees it")]
#[derive(Debug, Clone, Copy, Eq)]
pub enum Host<'h> {
    /// A name without its last dot, or an IPv4 address.
    Name(&'h str),
    /// An address that stood in brackets.
    Ipv6(Ipv6Addr),
}

impl<'h> Host<'h> {
    /// Reads `host` or `host:port`; `None` if it is neither.
    #[must_use]
    pub fn parse(text: &'h [u8]) -> Option<Self> {
        let text = str::from_utf8(text.trim_ascii()).ok()?;
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']')?;
                (Self::Ipv6(Ipv6Addr::from_str(address).ok()?), port)
            }
            None => {
                let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
                (Self::Name(readable_name(name)?), port)
            }
        };
        let digits = port.strip_prefix(':').unwrap_or(port);
        let is_port = port.is_empty() || port.starts_with(':');
        (is_port && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(host)
    }
}

impl PartialEq for Host<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(one), Self::Name(other)) => one.eq_ignore_ascii_case(other),
            (Self::Ipv6(one), Self::Ipv6(other)) => one == other,
            (Self::Name(_), Self::Ipv6(_)) | (Self::Ipv6(_), Self::Name(_)) => false,
        }
    }
}

/// A name or an IPv4 address without its last dot, if all servers read the same.
fn readable_name(name: &str) -> Option<&str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        let mut bytes = label.bytes();
        !label.is_empty()
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~'))
    };
    let is_readable = name.split('.').all(is_label)
        && (!is_number(name.rsplit('.').next()?) || Ipv4Addr::from_str(name).is_ok());
    is_readable.then_some(name)
}

/// Whether servers that parse URLs read a host with this last label as an IPv4 address, be it `127.1`
/// or `0x7f000001` (URL standard, "ends in a number").
fn is_number(label: &str) -> bool {
    let prefix = label.get(..2).unwrap_or_default();
    let (digits, radix) = match prefix.eq_ignore_ascii_case("0x") {
        true => (&label[2..], 16),
        false => (label, 10),
    };
    digits.chars().all(|digit| digit.is_digit(radix))
}

/// A host that a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::rules) enum NamedHost<'r> {
    /// An empty field, which is nobody's host.
    Empty,
    Known(Host<'r>),
    /// No host, of which servers may make any.
    Unreadable,
}

/// The hosts that a request names: `:authority` and each line of `Host`. Some servers go by the one,
/// some by the other.
pub(in crate::rules) fn hosts(parts: &Parts) -> impl Iterator<Item = NamedHost<'_>> {
    let authority = parts.uri.authority();
    let authority = authority.map(|authority| authority.as_str().as_bytes());
    let lines = parts.headers.get_all(header::HOST).iter();
    let lines = lines.map(|line| line.as_bytes().trim_ascii());
    authority.into_iter().chain(lines).map(|text| match text {
        [] => NamedHost::Empty,
        text => Host::parse(text).map_or(NamedHost::Unreadable, NamedHost::Known),
    })
}

/// A host, or `*.` and the end of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::rules) enum HostPattern {
    /// A name in lower case, without a dot at either end.
    Name {
        name: Box<str>,
        /// Whether labels stand before it.
        below: bool,
    },
    Ipv6(Ipv6Addr),
}

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// The fault as a text.
    pub(in crate::rules) fn new(text: &str) -> Result<Self, String> {
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let after_brackets = name.rfind(']').map_or(0, |end| end + 1);
        match Host::parse(name.as_bytes()).filter(|_| name == name.trim()) {
            Some(_) if name[after_brackets..].contains(':') => Err(format!(
                "{text:?} has a port; hosts are compared without, so leave it out"
            )),
            Some(Host::Name(name)) => Ok(Self::Name {
                name: name.to_ascii_lowercase().into(),
                below,
            }),
            Some(Host::Ipv6(address)) if !below => Ok(Self::Ipv6(address)),
            _ => Err(format!(
                "{text:?} is no host; accepted are one such as \"api.example.com\", \
                 \"*.example.com\" and \"[2001:db8::1]\", other letters than ASCII's as \"xn--…\""
            )),
        }
    }

    /// Whether a host matches.
    pub(in crate::rules) fn matches(&self, host: Host<'_>) -> bool {
        let (name, below, host) = match (self, host) {
            (Self::Name { name, below }, Host::Name(host)) => (name, *below, host),
            (Self::Ipv6(address), Host::Ipv6(host)) => return *address == host,
            (Self::Name { .. }, Host::Ipv6(_)) | (Self::Ipv6(_), Host::Name(_)) => return false,
        };
        if !below {
            return name.eq_ignore_ascii_case(host);
        }
        let Some(labels) = host.len().checked_sub(name.len() + 1) else {
            return false;
        };
        let end = host.as_bytes().get(labels..).unwrap_or_default();
        labels > 0 && end[0] == b'.' && end[1..].eq_ignore_ascii_case(name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Host<'_>> {
        Host::parse(text.as_bytes())
    }

    #[test]
    fn names_and_addresses_are_read_without_port_and_last_dot() {
        for (text, host) in [
            ("shop.example", "shop.example"),
            ("shop.example.", "shop.example"),
            ("shop.example:80", "shop.example"),
            ("shop.example.:", "shop.example"),
            (" shop.example\t", "shop.example"),
            ("SHOP.example", "SHOP.example"),
            ("under_score", "under_score"),
            ("7up.example", "7up.example"),
            ("1.example", "1.example"),
            ("0xg", "0xg"),
            ("127.0.0.1:8000", "127.0.0.1"),
        ] {
            assert_eq!(read(text), Some(Host::Name(host)), "{text:?}");
        }
        let address = "2001:db8::1".parse().unwrap();
        for text in ["[2001:db8::1]", "[2001:DB8:0::1]:80", "[2001:db8::1]:"] {
            assert_eq!(read(text), Some(Host::Ipv6(address)), "{text:?}");
        }
    }

    #[test]
    fn texts_that_servers_read_differently_are_no_hosts() {
        for text in [
            "",
            ".",
            ":80",
            "a..b",
            ".a",
            "a:80:80",
            "a:80a",
            "a:+80",
            "u@a",
            "a/",
            "a#",
            "a?",
            "a\\b",
            "%61",
            "a,b",
            "a b",
            "a;b",
            "*",
            "a\tb",
            "\u{f6}",
            "[::1",
            "::1",
            "[]",
            "[::1]x",
            "[::1].",
            "[::1]:80:80",
            "[fe80::1%25lo]",
            "[v1.x]",
            "[127.0.0.1]",
            "127.1",
            "1",
            "0x7f000001",
            "a.0X7F",
            "a.0x",
            "1.2.3.4.5",
            "127.0.0.01",
            "256.0.0.1",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
        assert_eq!(Host::parse(b"a\xff"), None);
    }

    #[test]
    fn patterns_are_hosts_without_ports() {
        for text in [
            "a.example:80",
            "[::1]:80",
            "*.a:",
            "::1",
            "%61",
            "*.[::1]",
            "a*",
            " a",
            "",
        ] {
            assert!(HostPattern::new(text).is_err(), "{text:?}");
        }
        let told = HostPattern::new("[::1]:80").expect_err("a port");
        assert!(told.contains("has a port"), "{told}");
        let pattern = HostPattern::new("[0:0::1]").expect("an address");
        assert!(pattern.matches(read("[::1]:80").expect("a host")));
    }
}
