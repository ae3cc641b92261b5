use std::net::IpAddr;

use super::entry::{Entry, host, is_port};

/// An address, with or without a port.
pub(super) fn address(value: &[u8]) -> Entry {
    host(value).into()
}

/// An address and a port, the IPv6 one without brackets (`2001:db8::1:46532`), as CloudFront
/// writes it.
pub(super) fn viewer_address(value: &[u8]) -> Entry {
    cut_port(value).into()
}

fn cut_port(value: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(value.trim_ascii()).ok()?;
    let (address, port) = text.rsplit_once(':')?;
    is_port(port).then(|| address.parse().ok())?
}
