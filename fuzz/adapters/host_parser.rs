//! Hosts, as rule files read them.

use tower_ratelimit_rulefile::pattern::Host;

/// The host in its normal form, if it is one.
pub(crate) fn parse(text: &[u8]) -> Option<String> {
    Some(match Host::parse(text)? {
        Host::Name(name) => name.to_ascii_lowercase(),
        Host::Ipv6(address) => format!("[{address}]"),
    })
}
