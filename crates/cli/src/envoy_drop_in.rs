//! `envoy`: `serve` configured by the environment variables of Envoy's reference service.

mod control_plane;
mod ignored_variables;
mod redis_address;
mod variables;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use tower_ratelimit_envoy::{
    HeaderSet,
    decide::{ChargedRequests, Modes},
    serve::{self, Failure, Settings},
};
use tower_ratelimit_service::{FilesOf, TlsFiles, options};
use tracing_subscriber::filter::LevelFilter;

use self::{
    control_plane::control_plane, ignored_variables::without_meaning, variables::Variables,
};
use crate::service_log::{self, Format, Level, run};

/// The longest deadline of Redis. Envoy's own deadline comes with each call.
const LONGEST_DEADLINE: Duration = Duration::from_secs(60 * 60);

/// Serves until a signal stops it.
///
/// # Errors
///
/// Wrong variables or files.
pub(crate) fn envoy() -> Result<(), String> {
    let variables = Variables::of_process();
    let settings = settings(&variables)?;
    let (format, level) = log(&variables)?;
    service_log::begin(format, level);
    let set = without_meaning(&variables, settings.xds.xds.is_some());
    if !set.is_empty() {
        tracing::warn!("without a meaning here: {}", set.join(", "));
    }
    if settings.store.redis.is_none() {
        tracing::info!("no REDIS_URL: this process counts by itself");
    }
    run(serve::serve(settings)).map_err(in_variables)
}

/// Replaces the option in an error by the variable that sets it.
fn in_variables(fault: String) -> String {
    let names = [
        ("--grpc-uds:", "GRPC_UDS:"),
        ("--grpc:", "GRPC_PORT:"),
        ("--http:", "PORT:"),
        ("--admin:", "DEBUG_PORT:"),
        ("--redis:", "REDIS_URL:"),
    ];
    for (option, variable) in names {
        if let Some(rest) = fault.strip_prefix(option) {
            return format!("{variable}{rest}");
        }
    }
    fault
}

/// The address of the admin service: the port of the reference's debug listener, on a loopback
/// address only, since operators change limits.
fn operators(variables: &Variables) -> Result<Option<SocketAddr>, String> {
    if variables.text("DEBUG_PORT") == Some("off") {
        return Ok(None);
    }
    let port = variables.parsed("DEBUG_PORT", "a port or off")?;
    Ok(Some(SocketAddr::from((
        [127, 0, 0, 1],
        port.unwrap_or(6070),
    ))))
}

fn settings(variables: &Variables) -> Result<Settings, String> {
    refuse(variables)?;
    let xds = control_plane(variables)?;
    let files = if xds.is_some() {
        Vec::new()
    } else {
        vec![rules(variables)]
    };
    let mut settings = Settings::new(files);
    settings.watch = xds.is_none();
    settings.xds = xds.unwrap_or(settings.xds);
    let ignores = variables.truth("RUNTIME_IGNOREDOTFILES")?;
    settings.files = FilesOf::All {
        dot_files: !ignores,
    };
    settings.merge_domains = variables.truth("MERGE_DOMAIN_CONFIG")?;
    settings.grpc = address(variables, "GRPC_HOST", "GRPC_PORT", 8081)?;
    settings.grpc_uds = variables.path("GRPC_UDS");
    settings.tls = tls(variables)?;
    settings.http = address(variables, "HOST", "PORT", 8080)?;
    settings.prometheus = prometheus(variables)?;
    settings.operators.admin = operators(variables)?;
    settings.grpc_max_age = variables
        .time("GRPC_MAX_CONNECTION_AGE")?
        .unwrap_or(settings.grpc_max_age);
    let store = &mut settings.store;
    store.redis = redis_address::address(variables)?;
    redis_address::set_certificates(variables, store)?;
    store.redis_prefix = redis_address::key_prefix(variables)?;
    // The reference needs no such setting, so the variable is that of the other commands.
    store.redis_sharding_proxy = variables.truth("TOWER_RATELIMIT_REDIS_SHARDING_PROXY")?;
    store.redis_deadline = Some(redis_deadline(variables)?);
    store.ready_needs_store =
        store.redis.is_some() && variables.truth("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION")?;
    // As in the reference, Envoy decides.
    settings.on_failure = Failure::Deny;
    settings.on_failure_setting = "failure_mode_deny of Envoy";
    settings.modes = modes(variables)?;
    Ok(settings)
}

/// The deadline of Redis. As in the reference, 0 is none.
fn redis_deadline(variables: &Variables) -> Result<Duration, String> {
    let timeout = variables.time("REDIS_TIMEOUT")?;
    let timeout = timeout.unwrap_or(Duration::from_secs(10));
    Ok(if timeout.is_zero() {
        LONGEST_DEADLINE
    } else {
        timeout.min(LONGEST_DEADLINE)
    })
}

/// The format and the level of the log, in the reference's names.
fn log(variables: &Variables) -> Result<(Format, Level), String> {
    let lower = |name: &str| variables.text(name).map(str::to_ascii_lowercase);
    let format = match lower("LOG_FORMAT").as_deref() {
        None | Some("text") => Format::Text,
        Some("json") => Format::Json,
        Some(other) => return Err(format!("LOG_FORMAT={other} is neither text nor json")),
    };
    let level = match lower("LOG_LEVEL").as_deref() {
        None => LevelFilter::INFO,
        Some("trace") => LevelFilter::TRACE,
        Some("debug") => LevelFilter::DEBUG,
        Some("info") => LevelFilter::INFO,
        Some("warn" | "warning") => LevelFilter::WARN,
        Some("error" | "fatal" | "panic") => LevelFilter::ERROR,
        Some(other) => return Err(format!("LOG_LEVEL={other} is no level such as warn")),
    };
    Ok((format, level.into()))
}

/// Rejects variables of missing features that change decisions or access.
fn refuse(variables: &Variables) -> Result<(), String> {
    if variables.text("GRPC_CLIENT_TLS_SAN").is_some() {
        return Err(
            "GRPC_CLIENT_TLS_SAN is not supported: any certificate of the authority is accepted"
                .to_owned(),
        );
    }
    if variables.truth("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION")? {
        return Err(
            "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true is not supported: names are always verified"
                .to_owned(),
        );
    }
    match variables.text("BACKEND_TYPE") {
        None | Some("redis") => Ok(()),
        Some(other) => Err(format!("BACKEND_TYPE={other} is not supported, only redis")),
    }
}

/// The listener of metrics, and its path.
fn prometheus(variables: &Variables) -> Result<Option<(SocketAddr, String)>, String> {
    if !variables.truth("USE_PROMETHEUS")? {
        return Ok(None);
    }
    let address = variables.text("PROMETHEUS_ADDR").unwrap_or(":9090");
    let address =
        options::address(address).map_err(|error| format!("PROMETHEUS_ADDR={address}: {error}"))?;
    let path = variables.text("PROMETHEUS_PATH").unwrap_or("/metrics");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
    if !path.starts_with('/') || !path.bytes().all(is_plain) {
        return Err(format!(
            "PROMETHEUS_PATH={path} is no path such as /metrics"
        ));
    }
    Ok(Some((address, path.to_owned())))
}

/// The TLS files of gRPC, if it uses TLS.
fn tls(variables: &Variables) -> Result<Option<TlsFiles>, String> {
    if !variables.truth("GRPC_SERVER_USE_TLS")? {
        return Ok(None);
    }
    let file = |name: &str| {
        let file = variables.text(name);
        file.ok_or_else(|| format!("GRPC_SERVER_USE_TLS needs {name}"))
    };
    let mut files = TlsFiles::new(file("GRPC_SERVER_TLS_CERT")?, file("GRPC_SERVER_TLS_KEY")?);
    files.tls_client_ca = variables.path("GRPC_CLIENT_TLS_CACERT");
    files.names = [
        "GRPC_SERVER_TLS_CERT",
        "GRPC_SERVER_TLS_KEY",
        "GRPC_CLIENT_TLS_CACERT",
    ];
    Ok(Some(files))
}

/// The directory of the rule files.
fn rules(variables: &Variables) -> PathBuf {
    let part = |name: &str, default| variables.text(name).unwrap_or(default).to_owned();
    PathBuf::from(part("RUNTIME_ROOT", "/srv/runtime_data/current"))
        .join(part("RUNTIME_SUBDIRECTORY", ""))
        .join(part("RUNTIME_APPDIRECTORY", "config"))
}

fn address(
    variables: &Variables,
    host: &str,
    port: &str,
    default: u16,
) -> Result<SocketAddr, String> {
    let ip = match variables.text(host) {
        None => IpAddr::from([0, 0, 0, 0]),
        Some("localhost") => IpAddr::from([127, 0, 0, 1]),
        Some(text) => text
            .parse()
            .map_err(|_| format!("{host}={text} is no address"))?,
    };
    let port = variables.parsed(port, "a port")?.unwrap_or(default);
    Ok(SocketAddr::from((ip, port)))
}

fn modes(variables: &Variables) -> Result<Modes, String> {
    let mut modes = Modes::default();
    modes.shadow = variables.truth("SHADOW_MODE")?;
    modes.quota = variables.truth("QUOTA_MODE")?;
    modes.metadata = variables.truth("RESPONSE_DYNAMIC_METADATA")?;
    if variables.truth("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT")? {
        modes.charge = ChargedRequests::Admitted;
    }
    let names = [
        "LIMIT_LIMIT_HEADER",
        "LIMIT_REMAINING_HEADER",
        "LIMIT_RESET_HEADER",
    ];
    for (name, variable) in modes.header_names.iter_mut().zip(names) {
        if let Some(other) = variables.text(variable) {
            *name = other.to_ascii_lowercase();
        }
    }
    let near_limit = variables.parsed("NEAR_LIMIT_RATIO", "a number")?;
    modes.near_limit = near_limit.unwrap_or(modes.near_limit);
    if variables.truth("LIMIT_RESPONSE_HEADERS_ENABLED")? {
        modes.rls_headers = vec![HeaderSet::Envoy];
    }
    Ok(modes)
}

#[cfg(test)]
mod tests;
