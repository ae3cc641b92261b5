//! Limits from a control plane: the client of `envoy.service.discovery.v3`, for state-of-the-world sets of
//! `ratelimit.config.ratelimit.v3.RateLimitConfig`.
//!
//! A set is whole: limits that it lacks no longer exist, and a set with a fault changes nothing. The control plane gets
//! the faults of a set that is rejected, each with the name of the resource and the path in it.

mod client;
mod connection;
mod resources;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

pub use self::resources::rules;
pub(crate) use self::{client::Client, connection::Connected, resources::fault_line};
use tower_ratelimit_service::tls::ClientTls;

/// A control plane, and how to reach it. Its limits replace rule files.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ControlPlane {
    /// Host and port, such as `envoy-gateway:18001`.
    pub address: String,
    /// Defaults to none: no TLS. The files are read for each connection.
    pub tls: Option<ClientTls>,
    /// The name under which the control plane knows this service. Defaults to `default`.
    pub node_id: String,
    /// Further facts about this service. Defaults to none.
    pub node_metadata: BTreeMap<String, String>,
    /// Header fields of the call. Defaults to none.
    pub headers: Vec<(String, String)>,
    /// The pause before the second attempt after a stream has ended; it doubles with each failure. Defaults to
    /// 10 seconds.
    pub initial_backoff: Duration,
    /// The longest pause between attempts. Defaults to 60 seconds.
    pub max_backoff: Duration,
    /// The pause between attempts until the control plane has been reached once. Defaults to 3 seconds.
    pub connect_retry: Duration,
    /// The interval of pings, which detect a connection that no longer exists. A control plane that finds them too
    /// many gets one in 310 seconds. Defaults to 30 seconds.
    pub ping_interval: Duration,
    /// The most bytes of a response. Defaults to 4 MiB.
    pub max_message_bytes: usize,
    /// Whether the service starts without limits. Its decisions are unavailable until the first ones arrive. Defaults
    /// to false: nothing listens until then.
    pub starts_without_limits: bool,
    /// Whether the service is ready only while there is a domain. Defaults to false.
    pub ready_needs_domain: bool,
}

impl ControlPlane {
    /// The control plane at this host and port, with all defaults.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            tls: None,
            node_id: "default".to_owned(),
            node_metadata: BTreeMap::new(),
            headers: Vec::new(),
            initial_backoff: Duration::from_secs(10),
            max_backoff: Duration::from_secs(60),
            connect_retry: Duration::from_secs(3),
            ping_interval: Duration::from_secs(30),
            max_message_bytes: 4 << 20,
            starts_without_limits: false,
            ready_needs_domain: false,
        }
    }

    /// The address without its port.
    fn host(&self) -> &str {
        let (host, _) = self.address.rsplit_once(':').unwrap_or((&self.address, ""));
        host.trim_start_matches('[').trim_end_matches(']')
    }
}
