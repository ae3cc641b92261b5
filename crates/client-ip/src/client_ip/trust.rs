//! Trusted proxies: networks, or a number of hops.

use std::{net::IpAddr, sync::Arc};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use tower_ratelimit_core::error::{ConfigError, ConfigErrorKind};

/// The proxies that are believed about where a request came from.
#[derive(Debug, Clone)]
pub(super) enum Trust {
    /// Every address in these networks, which are disjoint, sorted, and not IPv4-mapped.
    Networks(Arc<[Ipv4Net]>, Arc<[Ipv6Net]>),
    /// This many proxies in front of us, whatever their addresses.
    Hops(u8),
}

impl Trust {
    pub(super) fn networks<I>(proxies: I) -> Result<Self, ConfigError>
    where
        I: IntoIterator<Item: IntoNetwork>,
    {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for proxy in proxies {
            match unmapped(proxy.into_network()?) {
                IpNet::V4(network) => v4.push(network),
                IpNet::V6(network) => v6.push(network),
            }
        }
        let (v4, v6) = (Ipv4Net::aggregate(&v4), Ipv6Net::aggregate(&v6));
        // Checked together: two halves are all addresses, too.
        let all = v4.iter().copied().map(IpNet::V4);
        let others = v6.iter().copied().map(IpNet::V6);
        if let Some(network) = all.chain(others).find(|network| network.prefix_len() == 0) {
            let message = format!(
                "{network} as a trusted proxy would let every client choose its address; where the proxies \
                 have no known addresses, use `ClientIp::hops`"
            );
            return Err(ConfigError::new(ConfigErrorKind::Proxy, message));
        }
        Ok(Self::Networks(v4.into(), v6.into()))
    }

    /// Whether to believe the one at `address`, which is `hops` proxies away: 0 is the peer.
    pub(super) fn covers(&self, address: IpAddr, hops: usize) -> bool {
        match (self, address) {
            (Self::Hops(count), _) => hops < usize::from(*count),
            (Self::Networks(networks, _), IpAddr::V4(v4)) => {
                let after = networks.partition_point(|network| network.network() <= v4);
                after > 0 && networks[after - 1].contains(&v4)
            }
            (Self::Networks(_, networks), IpAddr::V6(v6)) => {
                let after = networks.partition_point(|network| network.network() <= v6);
                after > 0 && networks[after - 1].contains(&v6)
            }
        }
    }
}

/// IPv4-mapped networks as IPv4 ones: addresses are unwrapped before they are compared.
pub fn unmapped(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else {
        return network;
    };
    let v4 = v6.network().to_ipv4_mapped();
    let bits = v6.prefix_len().checked_sub(96);
    let v4 = v4
        .zip(bits)
        .and_then(|(v4, bits)| Ipv4Net::new(v4, bits).ok());
    v4.map_or(network, IpNet::V4)
}

/// A name for a trusted proxy, or a network of them, in
/// [`ClientIp::behind`](super::ClientIp::behind).
///
/// Texts are addresses (`"10.0.0.1"`) or networks (`"10.0.0.0/8"`), with white space around them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no trusted proxy",
    label = "expected a text such as \"10.0.0.0/8\", an `IpAddr` or an `ipnet::IpNet`"
)]
pub trait IntoNetwork {
    /// The network; a single address is one of /32 or /128.
    ///
    /// # Errors
    ///
    /// When a text is neither an address nor a network.
    fn into_network(self) -> Result<IpNet, ConfigError>;
}

impl IntoNetwork for &str {
    fn into_network(self) -> Result<IpNet, ConfigError> {
        let text = self.trim();
        let address = text.parse::<IpAddr>().map(IpNet::from);
        address.or_else(|_| text.parse()).map_err(|_| {
            let message = format!(
                "the trusted proxy {self:?} is neither an address such as \"10.0.0.1\" nor a \
                 network such as \"10.0.0.0/8\" or \"2001:db8::/32\""
            );
            ConfigError::new(ConfigErrorKind::Proxy, message)
        })
    }
}

impl IntoNetwork for String {
    fn into_network(self) -> Result<IpNet, ConfigError> {
        self.as_str().into_network()
    }
}

impl IntoNetwork for IpAddr {
    fn into_network(self) -> Result<IpNet, ConfigError> {
        Ok(self.into())
    }
}

impl IntoNetwork for IpNet {
    fn into_network(self) -> Result<IpNet, ConfigError> {
        Ok(self)
    }
}

/// The items of a list that is borrowed.
impl<T: IntoNetwork + Clone> IntoNetwork for &T {
    fn into_network(self) -> Result<IpNet, ConfigError> {
        self.clone().into_network()
    }
}
