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

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use clap::Args;
use http::{Uri, uri::Authority};

pub use self::resources::rules;
pub(crate) use self::{client::Client, connection::Connected, resources::fault_line};
use tower_ratelimit_service::options::defaults;

/// A control plane, and how to reach it. Its limits replace rule files.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Control plane")]
#[non_exhaustive]
pub struct ControlPlane {
    /// Takes the limits from the control plane at this URL, such as http://10.0.0.7:18000 or
    /// https://envoy-gateway:18001, and not from files.
    #[arg(long, value_name = "URL", value_parser = url)]
    pub xds: Option<Uri>,
    /// The name under which the control plane knows this service.
    #[arg(long, value_name = "ID", default_value = "default")]
    pub xds_node: String,
    /// Authorities of the control plane, in PEM. Default: those of the system. These files are read
    /// for each connection.
    #[arg(long, value_name = "FILE", requires = "xds")]
    pub xds_ca: Option<PathBuf>,
    /// The certificate that this service presents to the control plane, in PEM.
    #[arg(long, value_name = "FILE", requires = "xds_key")]
    pub xds_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "xds_cert")]
    pub xds_key: Option<PathBuf>,
    /// The name in the control plane's certificate. Default: the host of the URL.
    #[arg(long, value_name = "NAME", requires = "xds")]
    pub xds_server_name: Option<String>,
    /// The most bytes of a set of limits.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    pub xds_max_message_bytes: usize,
    /// Starts without limits; until they arrive, decisions are unavailable. Default: nothing
    /// listens until then.
    #[arg(long, requires = "xds")]
    pub xds_force_start: bool,
    /// Further facts about this service. Defaults to none.
    #[arg(skip)]
    pub node_metadata: BTreeMap<String, String>,
    /// Header fields of the call. Defaults to none.
    #[arg(skip)]
    pub headers: Vec<(String, String)>,
    /// The pause before the second attempt after a stream has ended; it doubles with each failure. Defaults to
    /// 10 seconds.
    #[arg(skip = Duration::from_secs(10))]
    pub initial_backoff: Duration,
    /// The longest pause between attempts. Defaults to 60 seconds.
    #[arg(skip = Duration::from_secs(60))]
    pub max_backoff: Duration,
    /// The pause between attempts until the control plane has been reached once. Defaults to 3 seconds.
    #[arg(skip = Duration::from_secs(3))]
    pub connect_retry: Duration,
    /// The interval of pings, which detect a connection that no longer exists. A control plane that finds them too
    /// many gets one in 310 seconds. Defaults to 30 seconds.
    #[arg(skip = Duration::from_secs(30))]
    pub ping_interval: Duration,
    /// Whether the service is ready only while there is a domain. Defaults to false.
    #[arg(skip)]
    pub ready_needs_domain: bool,
}

/// The URL of a control plane.
fn url(text: &str) -> Result<Uri, String> {
    let url = Uri::try_from(text).ok().filter(|url| {
        let authority = url
            .authority()
            .filter(|authority| !authority.as_str().contains('@'));
        let is_known = matches!(url.scheme_str(), Some("http" | "https"));
        let has_port = authority.and_then(Authority::port_u16).is_some();
        let has_host = url.host().is_some_and(|host| !host.is_empty());
        is_known && has_host && has_port && url.path() == "/" && url.query().is_none()
    });
    url.ok_or_else(|| "a control plane is such as http://10.0.0.7:18000".to_owned())
}

impl ControlPlane {
    /// The control plane at this URL, with all defaults.
    ///
    /// # Errors
    ///
    /// When the URL is none such as `http://10.0.0.7:18000`.
    pub fn new(text: &str) -> Result<Self, String> {
        Ok(Self {
            xds: Some(url(text)?),
            ..defaults(&[])
        })
    }

    /// The host and the port.
    pub(crate) fn address(&self) -> &str {
        let authority = self.xds.as_ref().and_then(Uri::authority);
        authority.map_or("", Authority::as_str)
    }

    /// The host.
    fn host(&self) -> &str {
        let host = self.xds.as_ref().and_then(Uri::host).unwrap_or_default();
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

#[cfg(test)]
mod url_tests {
    use super::*;

    #[test]
    fn urls_have_a_scheme_and_a_port() {
        for right in [
            "https://envoy-gateway:18001/",
            "http://[::1]:18000",
            "http://127.0.0.1:1",
        ] {
            assert!(url(right).is_ok(), "{right}");
        }
        for wrong in [
            "",
            "envoy-gateway:18001",
            "http://envoy-gateway",
            "http://envoy-gateway:",
            "http://:18001",
            "http://a b:1",
            "grpc://envoy-gateway:18001",
            "http://eve@envoy-gateway:18001",
            "http://envoy-gateway:18001/limits",
            "http://envoy-gateway:18001?a",
            "http://envoy-gateway:x",
        ] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
    }
}
