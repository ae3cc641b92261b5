//! Settings by the environment of the reference, and their faults.

use super::*;

fn read(pairs: &[(&str, &str)]) -> Result<Settings, String> {
    settings(&Variables::from(pairs))
}

#[test]
fn defaults_are_those_of_the_reference() {
    let settings = read(&[]).expect("settings");
    let rules = PathBuf::from("/srv/runtime_data/current/config");
    assert_eq!(settings.rules, [rules]);
    assert_eq!(settings.grpc.to_string(), "0.0.0.0:8081");
    assert_eq!(settings.http.to_string(), "0.0.0.0:8080");
    assert!(settings.watch && !settings.merge_domains);
    assert_eq!(settings.files, FilesOf::All { dot_files: true });
    assert_eq!(settings.store.redis, None);
    assert_eq!(settings.grpc_max_age, Duration::from_secs(86_400));
    assert_eq!(
        settings.operators.admin,
        Some(([127, 0, 0, 1], 6070).into())
    );
}

/// The reference's compose file sets variables of all sources and stores.
#[test]
fn environment_of_the_compose_file_is_accepted() {
    let settings = read(&[
        ("USE_STATSD", "false"),
        ("LOG_LEVEL", "debug"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", "redis:6379"),
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("CONFIG_TYPE", "FILE"),
        ("CONFIG_GRPC_XDS_NODE_ID", "test-node-id"),
        (
            "CONFIG_GRPC_XDS_SERVER_URL",
            "ratelimit-xds-config-server:18000",
        ),
        ("MEMCACHE_HOST_PORT", "memcached:11211"),
        ("DEBUG_PORT", "6071"),
    ])
    .expect("settings");
    assert_eq!(
        settings.operators.admin,
        Some(([127, 0, 0, 1], 6071).into())
    );
    let off = read(&[("DEBUG_PORT", "off")]).expect("settings");
    assert_eq!(off.operators.admin, None);
}

#[test]
fn faults_name_the_variable_of_an_option() {
    let fault = in_variables("--admin: 127.0.0.1:6070: in use".to_owned());
    assert_eq!(fault, "DEBUG_PORT: 127.0.0.1:6070: in use");
    let fault = in_variables("--redis:\nno address".to_owned());
    assert_eq!(fault, "REDIS_URL:\nno address");
    assert_eq!(in_variables("no rules".to_owned()), "no rules");
}

#[test]
fn variables_are_read() {
    let settings = read(&[
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_APPDIRECTORY", "rules"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("GRPC_HOST", "localhost"),
        ("GRPC_PORT", "1"),
        ("HOST", "::1"),
        ("PORT", "2"),
        ("GRPC_UDS", "/run/rl.sock"),
        ("GRPC_MAX_CONNECTION_AGE", "30m"),
        ("MERGE_DOMAIN_CONFIG", "T"),
        ("CACHE_KEY_PREFIX", "rl"),
        ("REDIS_TIMEOUT", "150ms"),
        ("TOWER_RATELIMIT_REDIS_SHARDING_PROXY", "true"),
        ("NEAR_LIMIT_RATIO", "0.5"),
        ("SHADOW_MODE", "1"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LIMIT_LIMIT_HEADER", "X-Limit"),
        ("USE_STATSD", "false"),
        ("BACKEND_TYPE", "redis"),
        ("CONFIG_TYPE", ""),
        ("USE_PROMETHEUS", "true"),
        ("PROMETHEUS_ADDR", ":19001"),
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", "/tls/cert.pem"),
        ("GRPC_SERVER_TLS_KEY", "/tls/key.pem"),
        ("GRPC_CLIENT_TLS_CACERT", "/tls/ca.pem"),
    ])
    .expect("settings");
    assert_eq!(settings.rules, [PathBuf::from("/data/ratelimit/rules")]);
    assert_eq!(settings.files, FilesOf::All { dot_files: false });
    assert_eq!(settings.grpc.to_string(), "127.0.0.1:1");
    assert_eq!(settings.http.to_string(), "[::1]:2");
    assert_eq!(settings.grpc_uds, Some("/run/rl.sock".into()));
    assert_eq!(settings.grpc_max_age, Duration::from_secs(1_800));
    assert_eq!(
        settings.store.redis_deadline,
        Some(Duration::from_millis(150))
    );
    assert_eq!(settings.store.redis_prefix.as_deref(), Some("rl"));
    assert!(settings.store.redis_sharding_proxy);
    assert!(settings.merge_domains);
    let prometheus = settings.prometheus.expect("a listener");
    assert_eq!(
        prometheus,
        (([0, 0, 0, 0], 19_001).into(), "/metrics".to_owned())
    );
    let tls = settings.tls.expect("TLS");
    assert_eq!(tls.tls_cert, PathBuf::from("/tls/cert.pem"));
    assert_eq!(tls.tls_client_ca, Some("/tls/ca.pem".into()));
    let modes = format!("{:?}", settings.modes);
    for expected in ["shadow: true", "near_limit: 0.5", "\"x-limit\"", "Envoy"] {
        assert!(modes.contains(expected), "{expected}: {modes}");
    }
}

#[test]
fn the_log_is_that_of_the_reference() {
    let read = |pairs: &[(&str, &str)]| log(&Variables::from(pairs));
    let info = Level::from(LevelFilter::INFO);
    assert_eq!(read(&[]), Ok((Format::Text, info.clone())));
    let log = read(&[("LOG_FORMAT", "json"), ("LOG_LEVEL", "WARN")]);
    assert_eq!(log, Ok((Format::Json, LevelFilter::WARN.into())));
    assert_eq!(read(&[("LOG_FORMAT", "JSON")]), Ok((Format::Json, info)));
    let log = read(&[("LOG_LEVEL", "fatal")]);
    assert_eq!(log, Ok((Format::Text, LevelFilter::ERROR.into())));
    for pair in [("LOG_FORMAT", "xml"), ("LOG_LEVEL", "loud")] {
        let error = read(&[pair]).expect_err(pair.0);
        assert!(error.contains(pair.0), "{error}");
    }
}

#[test]
fn other_stores_and_sources_are_refused() {
    for (pair, word) in [
        (("BACKEND_TYPE", "memcache"), "only redis"),
        (("CONFIG_TYPE", "HTTP"), "only FILE"),
        (("DEBUG_PORT", "x"), "a port or off"),
        (("GRPC_SERVER_USE_TLS", "true"), "GRPC_SERVER_TLS_CERT"),
        (("GRPC_CLIENT_TLS_SAN", "x"), "authority"),
        (("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "1"), "verified"),
        (("REDIS_TIMEOUT", "-1s"), "REDIS_TIMEOUT"),
        (("SHADOW_MODE", "yes"), "SHADOW_MODE"),
        (("PORT", "99999"), "PORT"),
        (("HOST", "example.org"), "HOST"),
        (("NEAR_LIMIT_RATIO", "most"), "NEAR_LIMIT_RATIO"),
        (("REDIS_TIMEOUT", "soon"), "REDIS_TIMEOUT"),
    ] {
        let error = read(&[pair]).expect_err(pair.0);
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn listener_of_metrics_is_that_of_the_variables() {
    let read = |pairs: &[(&str, &str)]| prometheus(&Variables::from(pairs));
    assert_eq!(read(&[("PROMETHEUS_ADDR", ":1")]), Ok(None));
    let on = ("USE_PROMETHEUS", "true");
    let expected = (([0, 0, 0, 0], 9_090).into(), "/metrics".to_owned());
    assert_eq!(read(&[on]), Ok(Some(expected)));
    let path = read(&[on, ("PROMETHEUS_PATH", "/stats")]).expect("a listener");
    assert_eq!(path.expect("a path").1, "/stats");
    for pair in [("PROMETHEUS_ADDR", "x"), ("PROMETHEUS_PATH", "/{x}")] {
        let error = read(&[on, pair]).expect_err(pair.0);
        assert!(error.contains(pair.0), "{error}");
    }
}

#[test]
fn zero_and_false_are_those_of_the_reference() {
    let settings = read(&[
        ("REDIS_URL", "/run/redis.sock"),
        ("REDIS_TIMEOUT", "0"),
        ("GRPC_MAX_CONNECTION_AGE", "0"),
        ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "false"),
        ("CACHE_KEY_PREFIX", "my app:"),
    ])
    .expect("settings");
    assert_eq!(settings.store.redis_deadline, Some(LONGEST_DEADLINE));
    assert_eq!(settings.grpc_max_age, Duration::ZERO);
    assert_eq!(settings.store.redis_prefix.as_deref(), Some("my%20app:"));
    assert!(!settings.store.ready_needs_store);
    for (text, seconds) in [("2h", 3_600.0), ("1.5s", 1.5), ("1m30s", 90.0)] {
        let settings = read(&[("REDIS_TIMEOUT", text)]).expect("settings");
        assert_eq!(
            settings.store.redis_deadline,
            Some(Duration::from_secs_f64(seconds))
        );
    }
}

#[test]
fn readiness_may_need_redis() {
    let check = ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true");
    let settings = read(&[check, ("REDIS_URL", "/run/redis.sock")]).expect("settings");
    assert!(settings.store.ready_needs_store);
    assert!(!read(&[check]).expect("settings").store.ready_needs_store);
}
