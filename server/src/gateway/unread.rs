//! Fields in which a trusted proxy writes what is no address: all its clients are one.

use std::sync::atomic::{AtomicBool, Ordering};

use http::request::Parts;
use tower_ratelimit::{ClientIp, key::AddressOrigin};
use tracing::warn;

/// Whether such a field was met. The log says so once.
#[derive(Default)]
pub(super) struct UnreadClients(AtomicBool);

impl UnreadClients {
    /// Looks at a request of a trusted proxy.
    pub(super) fn look(&self, client_ip: &ClientIp, parts: &Parts) {
        if self.0.load(Ordering::Relaxed) {
            return;
        }
        let Ok(client) = client_ip.resolve(parts) else {
            return;
        };
        if client.origin() != AddressOrigin::Malformed || self.0.swap(true, Ordering::Relaxed) {
            return;
        }
        let (proxy, field) = (client.ip(), client_ip.header_name());
        warn!(
            "the trusted proxy {proxy} wrote into {field} what is no address: such requests count as its own; this is logged once"
        );
    }
}
