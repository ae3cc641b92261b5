//! Texts of keys, for people and operators, and the networks of addresses.

use std::{
    fmt::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
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

/// How addresses are grouped into keys: by the first bits of the address.
///
/// One client owns a whole IPv6 network, 2^64 addresses or more; counted one by one they are an
/// unlimited supply of fresh keys. The default is /32 for IPv4, every address for itself, and /64
/// for IPv6. IPv4-mapped IPv6 addresses (`::ffff:203.0.113.7`) are unwrapped first, or all IPv4
/// clients would share one IPv6 group (CVE-2026-30827).
///
/// ```
/// use std::net::IpAddr;
/// use tower_ratelimit::{Key, key::IpPrefix};
///
/// let one: IpAddr = "2001:db8::1".parse()?;
/// let neighbour: IpAddr = "2001:db8::ffff".parse()?;
/// assert_eq!(IpPrefix::new().key(one), IpPrefix::new().key(neighbour));
/// // The same, and what `PeerIp` makes.
/// assert_eq!(Key::from(one), Key::from(neighbour));
///
/// let each = IpPrefix::new().v6(128);
/// assert_ne!(each.key(one), each.key(neighbour));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct IpPrefix {
    v4: u8,
    v6: u8,
    nat64: bool,
}

/// 64:ff9b::/96, RFC 6052.
const NAT64: u128 = 0x0064_ff9b << 96;

/// 64:ff9b:1::/48, RFC 8215: the network from which operators choose the prefixes of their own translators.
const LOCAL_NAT64: u128 = 0x0064_ff9b_0001 << 80;

/// The last bits of an address. With a prefix of 64 bits or fewer they are 0 (RFC 6052, section 2.2); with one of 96
/// they are the end of an IPv4 address, and no host has one that ends with .0.0.0.
const SUFFIX: u128 = 0xff_ffff;

impl IpPrefix {
    /// The default: /32 for IPv4, /64 for IPv6, and no NAT64.
    pub const fn new() -> Self {
        Self {
            v4: 32,
            v6: 64,
            nat64: false,
        }
    }

    /// Groups IPv4 addresses by their first `bits` bits; more than 32 count as 32. With 0 all IPv4 clients
    /// share one key.
    pub const fn v4(mut self, bits: u8) -> Self {
        self.v4 = if bits > 32 { 32 } else { bits };
        self
    }

    /// Groups IPv6 addresses by their first `bits` bits; more than 128 count as 128. Providers usually
    /// give a customer a /64 to a /48: with more bits than 64 each customer has many keys, with fewer than
    /// 48 several customers share one.
    pub const fn v6(mut self, bits: u8) -> Self {
        self.v6 = if bits > 128 { 128 } else { bits };
        self
    }

    /// Whether addresses in 64:ff9b::/96, and in any /96 of the local 64:ff9b:1::/48, count as the IPv4 addresses in
    /// their last 32 bits, for servers behind a translator from IPv4 to IPv6: all its clients are in one /64.
    /// Defaults to no.
    ///
    /// A translator may also use a shorter prefix of 64:ff9b:1::/48. An address does not contain the length
    /// of its prefix, and so not the place of the IPv4 address: such addresses stay IPv6, and [`v6`](Self::v6) with 104 bits
    /// separates them.
    pub const fn unwrap_nat64(mut self, unwrap: bool) -> Self {
        self.nat64 = unwrap;
        self
    }

    /// The key of the group that `address` belongs to, as the extractors with this prefix make it: for
    /// handlers that peek at a client's limit or reset it.
    #[inline]
    pub fn key(&self, address: IpAddr) -> Key {
        let (network, bits) = self.network(address);
        Key::network(network, bits)
    }

    /// The network that `address` belongs to: its first address and its prefix length.
    #[inline]
    pub fn network(&self, address: IpAddr) -> (IpAddr, u8) {
        match self.unwrap(address) {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(u32::from(32 - self.v4)).unwrap_or(0);
                (Ipv4Addr::from_bits(v4.to_bits() & mask).into(), self.v4)
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(u32::from(128 - self.v6)).unwrap_or(0);
                (Ipv6Addr::from_bits(v6.to_bits() & mask).into(), self.v6)
            }
        }
    }

    #[inline]
    fn unwrap(&self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V6(v6) if self.nat64 && is_translated(v6.to_bits()) => {
                Ipv4Addr::from_bits(v6.to_bits() as u32).into()
            }
            canonical => canonical,
        }
    }
}

/// Whether the last 32 bits are the address of a client of a translator.
fn is_translated(bits: u128) -> bool {
    let is_local = bits >> 80 == LOCAL_NAT64 >> 80 && bits & SUFFIX != 0;
    bits >> 32 == NAT64 >> 32 || is_local
}

impl Default for IpPrefix {
    fn default() -> Self {
        Self::new()
    }
}

/// The key that [`PeerIp`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.PeerIp.html) makes of the address: IPv6 grouped by /64, see
/// [`IpPrefix`]. `IpPrefix::new().v6(128).key(address)` is the key of an IPv6 address alone.
impl From<IpAddr> for Key {
    fn from(address: IpAddr) -> Self {
        IpPrefix::new().key(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
