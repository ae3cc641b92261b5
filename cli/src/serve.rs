//! `serve`: Envoy's rate limit service.

mod control_plane;
mod quotas;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use ipnet::IpNet;
use tower_ratelimit_server::{
    HeaderSet, OnFailure,
    decide::Modes,
    serve::{self, Settings},
};

use self::{control_plane::Xds, quotas::Rlqs};
use crate::{
    common_options::{Drain, Files, Operators, Redis, Tls, address, time},
    runtime::run,
    service_log::Log,
};

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Rule files of Envoy's rate limit service, or directories of *.yaml, *.yml and *.json.
    #[arg(
        required_unless_present_any = ["auth_rules", "xds"],
        env = "TOWER_RATELIMIT_RULES",
        value_delimiter = ','
    )]
    rules: Vec<PathBuf>,
    /// Rule files of tower-ratelimit, as for `check`: /v1/auth decides by them for nginx, Caddy and
    /// Traefik.
    #[arg(
        long,
        help_heading = "Rules",
        value_name = "FILES",
        value_delimiter = ',',
        env = "TOWER_RATELIMIT_AUTH_RULES"
    )]
    auth_rules: Vec<PathBuf>,
    /// The networks of the proxies that may use /v1/auth.
    #[arg(
        long,
        help_heading = "Rules",
        value_name = "CIDR",
        value_delimiter = ',',
        default_value = "127.0.0.0/8,::1/128",
        env = "TOWER_RATELIMIT_TRUST"
    )]
    trust: Vec<IpNet>,
    /// Allows a domain in several files.
    #[arg(long, help_heading = "Rules", env = "TOWER_RATELIMIT_MERGE_DOMAINS")]
    merge_domains: bool,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    xds: Xds,
    #[command(flatten)]
    rlqs: Rlqs,
    /// The address of the gRPC service.
    #[arg(
        long,
        help_heading = "Listeners",
        value_name = "ADDRESS",
        value_parser = address,
        default_value = "127.0.0.1:8081",
        env = "TOWER_RATELIMIT_GRPC"
    )]
    grpc: SocketAddr,
    /// A Unix socket for the gRPC service, which replaces --grpc.
    #[arg(
        long,
        help_heading = "Listeners",
        value_name = "PATH",
        env = "TOWER_RATELIMIT_GRPC_UDS"
    )]
    grpc_uds: Option<PathBuf>,
    /// The maximum age of a gRPC connection, plus or minus a tenth; its caller then connects again.
    /// 0 is none.
    #[arg(long, help_heading = "Listeners", value_name = "TIME", default_value = "24h", value_parser = time, env = "TOWER_RATELIMIT_GRPC_MAX_AGE")]
    grpc_max_age: Duration,
    /// The address of the HTTP service: /v1/check, /v1/auth, /json, /metrics, and the probes
    /// /healthz and /readyz.
    #[arg(
        long,
        help_heading = "Listeners",
        value_name = "ADDRESS",
        value_parser = address,
        default_value = "127.0.0.1:8080",
        env = "TOWER_RATELIMIT_HTTP"
    )]
    http: SocketAddr,
    #[command(flatten)]
    operators: Operators,
    #[command(flatten)]
    tls: Tls,
    /// Uses TLS for HTTP as well.
    #[arg(
        long,
        help_heading = "TLS",
        requires = "tls_cert",
        env = "TOWER_RATELIMIT_HTTP_TLS"
    )]
    http_tls: bool,
    #[command(flatten)]
    redis: Redis,
    /// The policy while Redis does not respond.
    #[arg(
        long,
        help_heading = "Counts",
        value_name = "HOW",
        default_value = "local",
        env = "TOWER_RATELIMIT_ON_FAILURE"
    )]
    on_failure: Failure,
    /// The number of keys to count without Redis; a new key then evicts the one that has used the
    /// least.
    #[arg(
        long,
        help_heading = "Counts",
        value_name = "COUNT",
        default_value_t = 262_144,
        env = "TOWER_RATELIMIT_MAX_KEYS"
    )]
    max_keys: usize,
    /// A file with a secret of at least 32 characters, the same for all instances that count together:
    /// each then accepts the reservations of all, also after a restart. Only with --redis or --state.
    /// Default: each process accepts its own.
    #[arg(
        long,
        help_heading = "Counts",
        value_name = "FILE",
        env = "TOWER_RATELIMIT_RESERVATION_KEY_FILE"
    )]
    reservation_key_file: Option<PathBuf>,
    #[command(flatten)]
    drain: Drain,
    /// Header fields that Envoy adds to its responses: retry-after, draft11, legacy, envoy.
    /// Default: none.
    #[arg(
        long,
        help_heading = "Answers to Envoy",
        value_name = "SETS",
        value_delimiter = ',',
        env = "TOWER_RATELIMIT_RLS_HEADERS"
    )]
    rls_headers: Vec<HeaderSet>,
    /// The body of Envoy's response to a denied client.
    #[arg(
        long,
        help_heading = "Answers to Envoy",
        value_name = "BODY",
        default_value = "empty",
        env = "TOWER_RATELIMIT_RLS_BODY"
    )]
    rls_body: DeniedBody,
    /// Lets all requests pass; their statuses still report exceeded limits.
    #[arg(
        long,
        help_heading = "Answers to Envoy",
        env = "TOWER_RATELIMIT_SHADOW"
    )]
    shadow: bool,
    /// Denies a request only when all of its limits are exceeded, as if each had `quota_mode`.
    #[arg(long, help_heading = "Answers to Envoy", env = "TOWER_RATELIMIT_QUOTA")]
    quota: bool,
    /// The requests that are charged.
    #[arg(
        long,
        help_heading = "Answers to Envoy",
        value_name = "WHICH",
        default_value = "always",
        env = "TOWER_RATELIMIT_CHARGE"
    )]
    charge: Charged,
    /// Adds dynamic metadata to responses: the request, and the `metadata` of the descriptors that
    /// passed.
    #[arg(
        long,
        help_heading = "Answers to Envoy",
        env = "TOWER_RATELIMIT_METADATA"
    )]
    metadata: bool,
    #[command(flatten)]
    log: Log,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Failure {
    /// This process counts alone.
    Local,
    /// All requests pass.
    Allow,
    /// No decision: failure_mode_deny of Envoy applies.
    Deny,
}

impl Failure {
    fn policy(self) -> OnFailure {
        match self {
            Self::Local => OnFailure::local(),
            Self::Allow => OnFailure::allow(),
            Self::Deny => OnFailure::deny(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DeniedBody {
    /// An empty body, as from Envoy's reference service.
    Empty,
    /// A problem document. Envoy sends it to gRPC clients as their message.
    Problem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Charged {
    /// All: each descriptor counts independently of the others, as in Envoy's reference service.
    Always,
    /// Only those that pass.
    Admitted,
}

/// Serves until a signal stops it.
///
/// # Errors
///
/// Wrong arguments or files.
pub(crate) fn serve(serve: Serve) -> Result<(), String> {
    let (log, settings) = settings(serve);
    log.begin();
    run(serve::serve(settings))
}

fn settings(serve: Serve) -> (Log, Settings) {
    let mut settings = Settings::new(serve.rules);
    settings.auth_rules = serve.auth_rules;
    (settings.xds, settings.rlqs) = (serve.xds.control_plane(), serve.rlqs.settings());
    settings.trust = serve.trust;
    (settings.merge_domains, settings.watch) = (serve.merge_domains, serve.files.watch);
    settings.grpc = serve.grpc;
    settings.grpc_uds = serve.grpc_uds;
    settings.grpc_max_age = serve.grpc_max_age;
    settings.http = serve.http;
    let operators = serve.operators;
    settings.admin = operators.admin.0;
    settings.admin_token_file = operators.admin_token_file;
    settings.admin_hosts = operators.admin_host;
    (settings.reveal_keys, settings.admin_page) = (operators.reveal_keys, operators.admin_page.0);
    settings.tls = serve.tls.files();
    settings.http_tls = serve.http_tls;
    settings.redis_tls = serve.redis.tls();
    settings.redis = serve.redis.redis;
    settings.redis_password_file = serve.redis.redis_password_file;
    settings.ready_needs_store = serve.redis.ready_needs_store;
    settings.redis_prefix = serve.redis.redis_prefix;
    settings.redis_sharding_proxy = serve.redis.redis_sharding_proxy;
    if let Some(deadline) = serve.redis.redis_deadline {
        settings.redis_deadline = deadline;
    }
    settings.on_failure = serve.on_failure.policy();
    (settings.max_keys, settings.state) = (serve.max_keys, serve.redis.state);
    settings.reservation_key_file = serve.reservation_key_file;
    settings.drain = serve.drain.drain;
    settings.modes = Modes::default()
        .shadow(serve.shadow)
        .quota(serve.quota)
        .metadata(serve.metadata)
        .charge_admitted(serve.charge == Charged::Admitted)
        .headers(serve.rls_headers)
        .problem_body(serve.rls_body == DeniedBody::Problem);
    (serve.log, settings)
}
