//! The networks by which addresses are grouped to keys.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Key;

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
