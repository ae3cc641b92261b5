//! The client's address, and where it was found.

use std::net::IpAddr;

use super::header_entry::HeaderEntry;

/// The address of a request's client, found by [`ClientIp::resolve`](super::ClientIp::resolve).
///
/// It is the whole address, not grouped; the key is made from its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress {
    ip: IpAddr,
    origin: AddressOrigin,
    entries: u8,
}

/// Where a [`ClientAddress`] comes from, to find out whether a deployment is set up right: one
/// that is sees [`Client`](Self::Client) behind its proxies and [`Peer`](Self::Peer) in front of
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AddressOrigin {
    /// The connection does not come from a trusted proxy, so its other end is the client. No
    /// header was read.
    Peer,
    /// A trusted proxy wrote it into the header, and it is no trusted proxy itself.
    Client,
    /// Everybody on the way is a trusted proxy, or the header is missing: the farthest of them.
    AllTrusted,
    /// A proxy names the one before it `unknown`, or by an obfuscated name: the address of that
    /// proxy.
    Hidden,
    /// A proxy wrote something that is no address, or a header of one value has several: the
    /// address of that proxy.
    Malformed,
    /// More entries than [`ClientIp::MAX_ENTRIES`](super::ClientIp::MAX_ENTRIES), and all of them
    /// trusted proxies: the last one that was read.
    TooManyEntries,
}

impl ClientAddress {
    /// The peer of the connection, before any header is read.
    pub(super) const fn peer(ip: IpAddr) -> Self {
        Self {
            ip,
            origin: AddressOrigin::Peer,
            entries: 0,
        }
    }

    /// The client's address. IPv4-mapped IPv6 (`::ffff:203.0.113.7`) is unwrapped.
    pub const fn ip(&self) -> IpAddr {
        self.ip
    }

    /// The origin of the address.
    pub const fn origin(&self) -> AddressOrigin {
        self.origin
    }

    /// How many entries of the header were read, from its right end: at most
    /// [`ClientIp::MAX_ENTRIES`](super::ClientIp::MAX_ENTRIES).
    pub const fn entries(&self) -> usize {
        self.entries as usize
    }

    /// Reads one more entry. `None`, with the reason noted, if it has no address.
    pub(super) const fn read(&mut self, entry: HeaderEntry) -> Option<IpAddr> {
        self.entries += 1;
        match entry {
            HeaderEntry::Address(ip) => {
                self.ip = ip;
                return Some(ip);
            }
            HeaderEntry::Hidden => self.origin = AddressOrigin::Hidden,
            HeaderEntry::Malformed => self.origin = AddressOrigin::Malformed,
        }
        None
    }

    pub(super) const fn with_origin(mut self, origin: AddressOrigin) -> Self {
        self.origin = origin;
        self
    }
}
