//! Keys as texts that an operator types, and back.

use std::{fmt::Write as _, net::IpAddr};

use ipnet::IpNet;

use super::{Key, value::KeyKind};

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
    use crate::key::IpPrefix;

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
}
