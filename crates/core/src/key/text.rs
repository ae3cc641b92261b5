//! Texts of keys, for people and operators.

use std::{
    fmt::{self, Write as _},
    net::IpAddr,
};

use ipnet::IpNet;

use super::{Key, KeyKind};

/// A key's content, readable, as `Display` and `Debug`. Made by [`Key::reveal`].
///
/// The text is for people: no code parses it, and its format may change. [`Key::to_text`] has a text
/// that can be parsed.
#[derive(Clone, Copy)]
pub struct Revealed<'k>(&'k [u8]);

impl Key {
    /// The content, for logs that may show whom a request was counted for; `Debug` shows none of
    /// it.
    ///
    /// An address is written as such, or as a network where addresses are grouped; text in quotes,
    /// with control characters escaped, so that no client can start a line of its own; bytes in
    /// hexadecimal; of a digest the first eight bytes, which is enough to recognise it.
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tower_ratelimit::Key;
    ///
    /// let [v4, v6] = ["203.0.113.7", "2001:db8::1"].map(|text| text.parse::<IpAddr>().unwrap());
    /// assert_eq!(Key::from(v4).reveal().to_string(), "203.0.113.7");
    /// assert_eq!(Key::from(v6).reveal().to_string(), "2001:db8::/64");
    ///
    /// let key = Key::tuple([Key::from("/login"), Key::digest(b"k-123")]);
    /// assert_eq!(key.reveal().to_string(), r#"("/login", digest:8f860ac30f5b54c4)"#);
    /// ```
    pub fn reveal(&self) -> Revealed<'_> {
        Revealed(self.as_bytes())
    }
}

impl fmt::Display for Revealed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((tag, content)) = self.0.split_first() else {
            return Ok(());
        };
        match KeyKind::named(*tag) {
            None => f.write_str("unknown"),
            Some((KeyKind::Global | KeyKind::Anonymous, name)) => f.write_str(name),
            Some((KeyKind::Ip, _)) => network(content, f),
            Some((KeyKind::Str, _)) => write!(f, "{:?}", String::from_utf8_lossy(content)),
            Some((KeyKind::Bytes, _)) => hexadecimal(content, f),
            Some((KeyKind::U64, _)) => number(content, f),
            Some((KeyKind::Tuple, _)) => tuple(content, f),
            Some((KeyKind::Digest, name)) => {
                write!(f, "{name}:")?;
                hexadecimal(content.get(..8).unwrap_or(content), f)
            }
        }
    }
}

/// Equal to `Display`: a caller of [`Key::reveal`] wants the content.
impl fmt::Debug for Revealed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A prefix length and an address.
fn network(content: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some((bits, octets)) = content.split_first() else {
        return Ok(());
    };
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    let Ok(address) = v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)) else {
        return Ok(());
    };
    write!(f, "{address}")?;
    if usize::from(*bits) < 8 * octets.len() {
        write!(f, "/{bits}")?;
    }
    Ok(())
}

fn number(content: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match content.try_into() {
        Ok(bytes) => write!(f, "{}", u64::from_be_bytes(bytes)),
        Err(_) => Ok(()),
    }
}

fn hexadecimal(content: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    content.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Keys, each after its length in two bytes.
fn tuple(mut content: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut separator = "(";
    while let Some((len, rest)) = content.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes(*len)).min(rest.len());
        let (part, rest) = rest.split_at(len);
        write!(f, "{separator}{}", Revealed(part))?;
        (separator, content) = (", ", rest);
    }
    f.write_str(if separator == "(" { "()" } else { ")" })
}

impl Key {
    /// The key as a text from which [`parse`](Self::parse) makes it again. It shows the content, as
    /// [`reveal`](Self::reveal) does.
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tower_ratelimit::Key;
    ///
    /// let address: IpAddr = "2001:db8::1".parse()?;
    /// assert_eq!(Key::from(address).to_text(), "ip:2001:db8::/64");
    /// assert_eq!(Key::from("alice").to_text(), "str:alice");
    /// assert_eq!(Key::parse("str:alice"), Some(Key::from("alice")));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn to_text(&self) -> String {
        let (tag, content) = self.as_bytes().split_first().unwrap_or((&0, &[]));
        let Some((kind, name)) = KeyKind::named(*tag) else {
            return String::new();
        };
        match kind {
            KeyKind::Global | KeyKind::Anonymous => name.to_owned(),
            // A single address is one of IPv4: IPv6 is grouped unless a prefix is given.
            KeyKind::Ip if content.len() == 17 && content[0] == 128 => {
                format!("ip:{}/128", self.reveal())
            }
            KeyKind::Ip | KeyKind::U64 => format!("{name}:{}", self.reveal()),
            KeyKind::Str => format!("str:{}", String::from_utf8_lossy(content)),
            _ => content.iter().fold(format!("{name}:"), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            }),
        }
    }

    /// Writes a text that no other key has, if there is a short one: `ip:203.0.113.7`,
    /// `ip:2001:db8::/64`, `str:alice`. Part of it may be written even if there is none.
    #[doc(hidden)]
    pub fn write_readable(&self, text: &mut String) -> Option<()> {
        let (tag, content) = self.as_bytes().split_first()?;
        let (kind, name) = KeyKind::named(*tag)?;
        text.push_str(name);
        match (kind, content) {
            (KeyKind::Str, _) => {
                text.push(':');
                text.push_str(str::from_utf8(content).ok()?);
            }
            (_, []) => {}
            (KeyKind::Ip | KeyKind::U64, _) => write!(text, ":{}", self.reveal()).ok()?,
            _ => return None,
        }
        Some(())
    }

    /// The key that a text represents; `None` if it represents none.
    ///
    /// | text | key |
    /// |---|---|
    /// | `ip:203.0.113.7`, `ip:2001:db8::1`, `ip:2001:db8::/56` | an address, IPv6 by its /64 unless a prefix is given |
    /// | `str:alice` | a text, such as a header's value |
    /// | `u64:7` | a number |
    /// | `digest:…` | a digest, in 64 hexadecimal digits |
    /// | `bytes:…`, `tuple:…` | bytes, and several keys as one, in hexadecimal as [`to_text`](Self::to_text) has them |
    /// | `global`, `anonymous` | the key of all requests, and the one of all without a key |
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "global" => return Some(Self::global()),
            "anonymous" => return Some(Self::anonymous()),
            _ => {}
        }
        let (kind, content) = text.split_once(':')?;
        match kind {
            "ip" => ip(content),
            "str" => Some(Self::from(content)),
            "u64" => content.parse().ok().map(|number: u64| Self::from(number)),
            "bytes" => Some(Self::bytes(&bytes(content)?)),
            "tuple" => Some(Self::encode(KeyKind::Tuple, &bytes(content)?)),
            "digest" => {
                let digest = bytes(content).filter(|digest| digest.len() == 32)?;
                Some(Self::from_digest(&digest))
            }
            _ => None,
        }
    }
}

fn ip(text: &str) -> Option<Key> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(Key::from(address));
    }
    let network: IpNet = text.parse().ok()?;
    Some(Key::network(network.trunc().addr(), network.prefix_len()))
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |digits: &[u8]| match digits {
        [high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
        }
        _ => None,
    };
    digits.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ip_prefix::IpPrefix;

    #[test]
    fn each_key_is_made_again_from_its_text() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        for key in [
            Key::global(),
            Key::anonymous(),
            Key::from(address("203.0.113.7")),
            Key::from(address("2001:db8::1")),
            IpPrefix::new().v6(128).key(address("2001:db8::1")),
            IpPrefix::new().v6(56).key(address("2001:db8::1")),
            IpPrefix::new().v4(24).key(address("203.0.113.7")),
            Key::from(""),
            Key::from("al:ice\nß"),
            Key::from(u64::MAX),
            Key::bytes(&[0, 255]),
            Key::digest(b"secret"),
            Key::tuple([Key::from("a"), Key::from(7)]),
            Key::from("x".repeat(300)),
        ] {
            let text = key.to_text();
            assert_eq!(Key::parse(&text), Some(key), "{text}");
        }
    }

    #[test]
    fn texts_of_operators_are_understood() {
        let ip = |text: &str| Key::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(Key::parse("ip:2001:db8::1"), Some(ip("2001:db8::2")));
        assert_eq!(Key::parse("ip:2001:db8::1/64"), Some(ip("2001:db8::2")));
        assert_eq!(Key::parse("ip:203.0.113.7/32"), Some(ip("203.0.113.7")));
        for text in [
            "",
            "alice",
            "ip:",
            "ip:alice",
            "u64:-1",
            "digest:00",
            "bytes:0",
            "bytes:+1",
            "x:y",
        ] {
            assert_eq!(Key::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_texts_that_no_other_key_has_are_those_in_stores() {
        let v6 = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
        let v4 = IpAddr::from([203, 0, 113, 0]);
        for (key, expected) in [
            (Key::global(), Some("global")),
            (Key::anonymous(), Some("anonymous")),
            (Key::from(v4), Some("ip:203.0.113.0")),
            (Key::network(v4, 24), Some("ip:203.0.113.0/24")),
            (Key::from(v6), Some("ip:2001:db8::/64")),
            (Key::network(v6, 128), Some("ip:2001:db8::1")),
            (Key::from("al:ice"), Some("str:al:ice")),
            (Key::from(""), Some("str:")),
            (Key::from(7), Some("u64:7")),
            (Key::bytes(b""), Some("bytes")),
            (Key::bytes(b"7"), None),
            (Key::tuple([]), Some("tuple")),
            (Key::tuple([Key::from("a")]), None),
            (Key::digest(b"k-123"), None),
        ] {
            let mut text = String::new();
            let readable = key.write_readable(&mut text).map(|()| &*text);
            assert_eq!(readable, expected, "{key:?}");
        }
    }
}
