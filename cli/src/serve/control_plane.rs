//! The options of the control plane.

use std::path::PathBuf;

use clap::Args;
use tower_ratelimit_server::xds::{ControlPlane, ControlPlaneTls};

#[derive(Debug, Args)]
#[command(next_help_heading = "Control plane")]
pub(super) struct Xds {
    /// Takes the limits from the control plane at this URL, such as http://10.0.0.7:18000 or
    /// https://envoy-gateway:18001, and not from files.
    #[arg(
        long,
        value_name = "URL",
        value_parser = url,
        conflicts_with_all = ["rules", "auth_rules", "watch"],
        env = "TOWER_RATELIMIT_XDS"
    )]
    xds: Option<Url>,
    /// The name under which the control plane knows this service.
    #[arg(
        long,
        value_name = "ID",
        default_value = "default",
        env = "TOWER_RATELIMIT_XDS_NODE"
    )]
    xds_node: String,
    /// Authorities of the control plane, in PEM. Default: those of the system. These files are read
    /// for each connection.
    #[arg(
        long,
        value_name = "FILE",
        requires = "xds",
        env = "TOWER_RATELIMIT_XDS_CA"
    )]
    xds_ca: Option<PathBuf>,
    /// The certificate that this service presents to the control plane, in PEM.
    #[arg(
        long,
        value_name = "FILE",
        requires = "xds_key",
        env = "TOWER_RATELIMIT_XDS_CERT"
    )]
    xds_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[arg(
        long,
        value_name = "FILE",
        requires = "xds_cert",
        env = "TOWER_RATELIMIT_XDS_KEY"
    )]
    xds_key: Option<PathBuf>,
    /// The name in the control plane's certificate. Default: the host of the URL.
    #[arg(
        long,
        value_name = "NAME",
        requires = "xds",
        env = "TOWER_RATELIMIT_XDS_SERVER_NAME"
    )]
    xds_server_name: Option<String>,
    /// The most bytes of a set of limits.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 4 << 20,
        env = "TOWER_RATELIMIT_XDS_MAX_MESSAGE_BYTES"
    )]
    xds_max_message_bytes: usize,
    /// Starts without limits; until they arrive, decisions are unavailable. Default: nothing
    /// listens until then.
    #[arg(long, requires = "xds", env = "TOWER_RATELIMIT_XDS_FORCE_START")]
    xds_force_start: bool,
}

/// The URL of a control plane.
#[derive(Debug, Clone)]
struct Url {
    address: String,
    is_encrypted: bool,
}

fn url(text: &str) -> Result<Url, String> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let address = rest.strip_suffix('/').unwrap_or(rest);
    let port = address
        .rsplit_once(':')
        .map(|(_, port)| port.parse::<u16>());
    let is_encrypted = match scheme {
        "http" => Some(false),
        "https" => Some(true),
        _ => None,
    };
    let is_address = matches!(port, Some(Ok(_))) && !address.contains(['/', '@', '?', '#']);
    is_encrypted
        .filter(|_| is_address)
        .map(|is_encrypted| Url {
            address: address.to_owned(),
            is_encrypted,
        })
        .ok_or_else(|| "a control plane is such as http://10.0.0.7:18000".to_owned())
}

impl Xds {
    pub(super) fn control_plane(self) -> Option<ControlPlane> {
        let Url {
            address,
            is_encrypted,
        } = self.xds?;
        let mut plane = ControlPlane::new(address);
        plane.tls = is_encrypted.then(|| {
            let mut tls = ControlPlaneTls::default();
            tls.authority = self.xds_ca;
            tls.certificate = self.xds_cert.zip(self.xds_key);
            tls.server_name = self.xds_server_name;
            tls
        });
        plane.node_id = self.xds_node;
        plane.max_message_bytes = self.xds_max_message_bytes;
        plane.starts_without_limits = self.xds_force_start;
        Some(plane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_scheme_and_a_port() {
        let parsed = url("https://envoy-gateway:18001/").expect("a URL");
        assert_eq!(parsed.address, "envoy-gateway:18001");
        assert!(parsed.is_encrypted);
        assert!(!url("http://[::1]:18000").expect("a URL").is_encrypted);
        for wrong in [
            "",
            "envoy-gateway:18001",
            "http://envoy-gateway",
            "grpc://envoy-gateway:18001",
            "http://eve@envoy-gateway:18001",
            "http://envoy-gateway:18001/limits",
            "http://envoy-gateway:x",
        ] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
    }
}
