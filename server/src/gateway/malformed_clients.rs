//! Warning about a trusted proxy that writes no address into the client field: its clients then share one limit.

use std::sync::atomic::{AtomicBool, Ordering};

use http::request::Parts;
use tower_ratelimit::{ClientIp, key::AddressOrigin};
use tracing::warn;

/// Whether the warning has been logged.
#[derive(Default)]
pub(super) struct MalformedClients(AtomicBool);

impl MalformedClients {
    /// Checks a request of a trusted proxy.
    pub(super) fn check(&self, client_ip: &ClientIp, parts: &Parts) {
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
            "the trusted proxy {proxy} wrote no address into {field}: such requests count as its own; this is logged once"
        );
    }
}
