//! The control plane, by several variables.

use tower_ratelimit_envoy::xds::ControlPlane;

use super::variables::Variables;

/// The control plane; `None` if the limits come from files.
pub(super) fn control_plane(variables: &Variables) -> Result<Option<ControlPlane>, String> {
    match variables.text("CONFIG_TYPE") {
        None | Some("FILE") => return Ok(None),
        Some("GRPC_XDS_SOTW") => {}
        Some(other) => {
            return Err(format!(
                "CONFIG_TYPE={other} is not supported, only FILE and GRPC_XDS_SOTW"
            ));
        }
    }
    let url = variables.text("CONFIG_GRPC_XDS_SERVER_URL");
    let url = url.unwrap_or("localhost:18000");
    let address = url.strip_prefix("dns:///").unwrap_or(url);
    let is_tls = variables.truth("CONFIG_GRPC_XDS_SERVER_USE_TLS")?;
    let scheme = if is_tls { "https" } else { "http" };
    let mut plane = ControlPlane::new(&format!("{scheme}://{address}"))
        .map_err(|_| {
            format!(
                "CONFIG_GRPC_XDS_SERVER_URL={url}: an address has a host and a port, such as envoy-gateway:18001"
            )
        })?;
    read_pauses(variables, &mut plane)?;
    if is_tls {
        plane.xds_ca = variables.path("CONFIG_GRPC_XDS_SERVER_TLS_CACERT");
        let (cert, key) = (
            "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
            "CONFIG_GRPC_XDS_CLIENT_TLS_KEY",
        );
        (plane.xds_cert, plane.xds_key) = variables.certificate(cert, key)?;
        let name = variables.text("CONFIG_GRPC_XDS_SERVER_TLS_SAN");
        plane.xds_server_name = name.map(str::to_owned);
    }
    if let Some(id) = variables.text("CONFIG_GRPC_XDS_NODE_ID") {
        plane.xds_node = id.to_owned();
    }
    let metadata = pairs(variables, "CONFIG_GRPC_XDS_NODE_METADATA", '=')?;
    plane.node_metadata = metadata.into_iter().collect();
    plane.headers = pairs(variables, "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", ':')?;
    // 0 is the default, as in the reference.
    let bytes = variables.parsed("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "a number of bytes")?;
    let bytes = bytes.filter(|bytes| *bytes > 0);
    plane.xds_max_message_bytes = bytes.unwrap_or(plane.xds_max_message_bytes);
    plane.xds_force_start = variables.truth("FORCE_START_WITHOUT_INITIAL_CONFIG")?;
    plane.ready_needs_domain = variables.truth("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED")?;
    Ok(Some(plane))
}

/// Sets the pauses between attempts.
fn read_pauses(variables: &Variables, plane: &mut ControlPlane) -> Result<(), String> {
    for (name, time) in [
        (
            "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
            &mut plane.connect_retry,
        ),
        (
            "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
            &mut plane.initial_backoff,
        ),
        ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", &mut plane.max_backoff),
    ] {
        *time = variables.time(name)?.unwrap_or(*time);
        if time.is_zero() {
            return Err(format!("{name} is more than 0"));
        }
    }
    Ok(())
}

/// Pairs with commas between them.
fn pairs(
    variables: &Variables,
    name: &str,
    separator: char,
) -> Result<Vec<(String, String)>, String> {
    let text = variables.text(name).unwrap_or_default();
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let (key, value) = pair.split_once(separator).ok_or_else(|| {
            format!("{name}={text} has no {separator:?} between a name and its value")
        })?;
        Ok((key.trim().to_owned(), value.trim().to_owned()))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Uri;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<ControlPlane>, String> {
        let mut all = vec![("CONFIG_TYPE", "GRPC_XDS_SOTW")];
        all.extend(pairs);
        control_plane(&Variables::from(&*all))
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let plane = read(&[]).expect("settings").expect("a control plane");
        assert_eq!(plane.xds, Some(Uri::from_static("http://localhost:18000")));
        assert_eq!(plane.xds_node, "default");
        assert!(plane.xds_ca.is_none() && !plane.xds_force_start && !plane.ready_needs_domain);
        let times = [
            plane.connect_retry,
            plane.initial_backoff,
            plane.max_backoff,
        ];
        assert_eq!(times.map(|time| time.as_secs()), [3, 10, 60]);
        assert_eq!(plane.xds_max_message_bytes, 4 << 20);
    }

    #[test]
    fn address_of_a_control_plane_has_a_host_and_a_port() {
        for address in ["gateway", "http://gateway:18000", ":18000"] {
            let error = read(&[("CONFIG_GRPC_XDS_SERVER_URL", address)]).expect_err("no address");
            assert!(error.contains("such as envoy-gateway:18001"), "{error}");
        }
    }

    #[test]
    fn variables_are_read() {
        let plane = read(&[
            ("CONFIG_GRPC_XDS_SERVER_URL", "dns:///gateway:18001"),
            ("CONFIG_GRPC_XDS_NODE_ID", "test"),
            ("CONFIG_GRPC_XDS_NODE_METADATA", "zone=a,rack=b=c"),
            (
                "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
                "authorization:Bearer x:y,x-tenant:shop",
            ),
            ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "1s"),
            ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "500ms"),
            ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "2m"),
            ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "100"),
            ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
            ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true"),
            ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
            ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
            ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "plane"),
        ]);
        let plane = plane.expect("settings").expect("a control plane");
        assert_eq!(plane.xds, Some(Uri::from_static("https://gateway:18001")));
        assert_eq!(plane.xds_node, "test");
        assert_eq!(plane.node_metadata["rack"], "b=c");
        let token = ("authorization".to_owned(), "Bearer x:y".to_owned());
        assert_eq!(plane.headers[0], token);
        assert_eq!(plane.initial_backoff, Duration::from_millis(500));
        assert_eq!(plane.max_backoff, Duration::from_secs(120));
        assert_eq!(plane.xds_max_message_bytes, 100);
        assert!(plane.xds_force_start && plane.ready_needs_domain);
        assert_eq!(plane.xds_server_name.as_deref(), Some("plane"));
        assert_eq!(plane.xds_ca, Some("/certs/ca.crt".into()));
        assert!(plane.xds_cert.is_some() && plane.xds_key.is_some());
    }

    #[test]
    fn faults_name_their_variables() {
        for (pair, word) in [
            (("CONFIG_TYPE", "HTTP"), "only FILE and GRPC_XDS_SOTW"),
            (("CONFIG_GRPC_XDS_NODE_METADATA", "zone"), "'='"),
            (("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "a"), "':'"),
            (("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "0s"), "more than 0"),
            (("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "4MB"), "bytes"),
        ] {
            let error = read(&[pair]).expect_err(pair.0);
            assert!(error.contains(pair.0) && error.contains(word), "{error}");
        }
        let lone = [
            ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
        ];
        let error = read(&lone).expect_err("no key");
        assert!(error.contains("CONFIG_GRPC_XDS_CLIENT_TLS_KEY"), "{error}");
    }
}
