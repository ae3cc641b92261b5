//! The settings of the quota service.

use std::time::Duration;

use http::HeaderName;

/// The settings of the service that assigns shares of limits.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RlqsSettings {
    /// How long a share lasts without a further message, in whole seconds, at least 10. Envoy reports every 5 seconds,
    /// and each report renews it. Defaults to 15 seconds.
    pub ttl: Duration,
    /// How long a bucket without requests is kept. Defaults to 5 minutes.
    pub idle: Duration,
    /// Whether requests pass in buckets that get no share: beyond a maximum, or with pairs that fit too many orders.
    /// Defaults to false: they are denied.
    pub excess_passes: bool,
    /// The header of streams with the client's name, which its next stream has, too. Envoy sends it by
    /// `initial_metadata`. Defaults to none: a client is the address of its connection, which a server of your own puts
    /// into the extension `axum::extract::ConnectInfo`.
    pub client_header: Option<HeaderName>,
}

impl Default for RlqsSettings {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(15),
            idle: Duration::from_secs(300),
            excess_passes: false,
            client_header: None,
        }
    }
}
