//! Hosts as requests name them, and their patterns.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr as _,
};

/// A host as `Host` and `:authority` name it, without its port. Names are equal in any case.
///
/// Parsing is stricter than RFC 3986 (section 3.2.2) where servers disagree: it refuses percent signs, commas, and
/// names whose last label is a number.
#[allow(
    clippy::exhaustive_enums,
    reason = "RFC 3986 has no further kind that servers agree about"
)]
#[derive(Debug, Clone, Copy, Eq)]
pub enum Host<'h> {
    /// A name without a dot at its end, or an IPv4 address.
    Name(&'h str),
    /// An IPv6 address, which is in brackets in the text.
    Ipv6(Ipv6Addr),
}

impl<'h> Host<'h> {
    /// Parses `host` or `host:port`; `None` if the text is neither.
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

/// The name or IPv4 address without a dot at its end, if all servers agree about it.
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

/// Whether URL parsers read a host with this last label as an IPv4 address, such as `127.1` or `0x7f000001` (URL
/// standard, "ends in a number").
fn is_number(label: &str) -> bool {
    let prefix = label.get(..2).unwrap_or_default();
    let (digits, radix) = if prefix.eq_ignore_ascii_case("0x") {
        (&label[2..], 16)
    } else {
        (label, 10)
    };
    digits.chars().all(|digit| digit.is_digit(radix))
}

/// A pattern of hosts: a host, or `*.` and a name, which matches all names below that one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// A name in lower case, without a dot at either end.
    Name {
        name: Box<str>,
        /// Whether the pattern matches the names below it and not the name itself.
        below: bool,
    },
    Ipv6(Ipv6Addr),
}

impl HostPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// A message for a text that no host matches.
    pub fn new(text: &str) -> Result<Self, String> {
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let after_brackets = name.rfind(']').map_or(0, |end| end + 1);
        match Host::parse(name.as_bytes()).filter(|_| name == name.trim()) {
            Some(_) if name[after_brackets..].contains(':') => Err(format!(
                "{text:?} has a port; hosts are compared without, so leave it out"
            )),
            Some(Host::Name(name)) => Ok(Self(Kind::Name {
                name: name.to_ascii_lowercase().into(),
                below,
            })),
            Some(Host::Ipv6(address)) if !below => Ok(Self(Kind::Ipv6(address))),
            _ => Err(format!(
                "{text:?} is no host; accepted are one such as \"api.example.com\", \
                 \"*.example.com\" and \"[2001:db8::1]\", other letters than ASCII's as \"xn--…\""
            )),
        }
    }

    /// Whether a host matches.
    pub fn matches(&self, host: Host<'_>) -> bool {
        let (name, below, host) = match (&self.0, host) {
            (Kind::Name { name, below }, Host::Name(host)) => (name, *below, host),
            (Kind::Ipv6(address), Host::Ipv6(host)) => return *address == host,
            (Kind::Name { .. }, Host::Ipv6(_)) | (Kind::Ipv6(_), Host::Name(_)) => return false,
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
        let message = HostPattern::new("[::1]:80").expect_err("a port");
        assert!(message.contains("has a port"), "{message}");
        let pattern = HostPattern::new("[0:0::1]").expect("an address");
        assert!(pattern.matches(read("[::1]:80").expect("a host")));
    }
}
