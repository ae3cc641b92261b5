//! The process: listeners, signals, and its end.

use std::{error::Error, fmt, net::SocketAddr, path::PathBuf, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request},
};
use hyper::body::Incoming;
use ipnet::IpNet;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tonic::transport::{
    Server,
    server::{Router as GrpcRouter, TcpIncoming},
};
use tonic_health::{ServingStatus, server::HealthReporter};
use tower_ratelimit::{
    LocalStore, OnFailure, RedisStore, RedisStoreBuilder,
    rules::{Rules as RequestRules, RulesLayer},
};
use tower_service::Service as _;

use crate::{
    auth,
    connections::{self, MAX_CONNECTIONS, PING_TIME, Peer},
    counters::Counters,
    decide::{Modes, RateLimits},
    http::{self, Draining},
    life::{self, Signals},
    lyft::Rules,
    rls,
    tls::{self, Tls, TlsFiles},
};

/// The names under which the health of the gRPC service can be asked.
const HEALTH_NAMES: [&str; 3] = ["", "ratelimit", rls::NAME];

/// How long Redis may take by default: less than the 20 milliseconds that Envoy waits by default.
pub const DEFAULT_DEADLINE: Duration = Duration::from_millis(15);

/// All that a service is told.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Files of Envoy's reference service, and directories of them.
    pub rules: Vec<PathBuf>,
    /// Rule files of this crate, by which `/v1/auth` answers. Defaults to none: there is no such route.
    pub auth_rules: Vec<PathBuf>,
    /// The networks of the proxies that may ask there. Defaults to the loopback ones.
    pub trust: Vec<IpNet>,
    /// Whether a domain may stand in several files. Defaults to false.
    pub merge_domains: bool,
    /// Where the gRPC service listens. Defaults to 127.0.0.1:8081.
    pub grpc: SocketAddr,
    /// Where the HTTP service listens. Defaults to 127.0.0.1:8080.
    pub http: SocketAddr,
    /// By which the gRPC service speaks TLS. Defaults to none: it speaks without.
    pub tls: Option<TlsFiles>,
    /// Whether the HTTP service speaks TLS, too. Defaults to false.
    pub http_tls: bool,
    /// The address of Redis. Defaults to none: this process counts by itself.
    pub redis: Option<String>,
    /// What keys in Redis begin with. Defaults to that of [`RedisStore`].
    pub redis_prefix: Option<String>,
    /// How long Redis may take. Defaults to [`DEFAULT_DEADLINE`].
    pub redis_deadline: Duration,
    /// What decides while Redis does not answer. Defaults to [`OnFailure::local`].
    pub on_failure: OnFailure,
    /// How many counts are kept in this process. Defaults to 262,144.
    pub max_keys: usize,
    /// How long the service goes on after it has said that it is not ready any more. Defaults to 5 seconds.
    pub drain: Duration,
    /// What is the same for all rules.
    pub modes: Modes,
}

impl Settings {
    /// The settings with these rule files and all defaults.
    #[must_use]
    pub fn new(rules: Vec<PathBuf>) -> Self {
        let here = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            rules,
            auth_rules: Vec::new(),
            trust: ["127.0.0.0/8", "::1/128"]
                .iter()
                .flat_map(|network| network.parse())
                .collect(),
            merge_domains: false,
            grpc: here(8081),
            http: here(8080),
            tls: None,
            http_tls: false,
            redis: None,
            redis_prefix: None,
            redis_deadline: DEFAULT_DEADLINE,
            on_failure: OnFailure::local(),
            max_keys: 262_144,
            drain: Duration::from_secs(5),
            modes: Modes::default(),
        }
    }

    fn rules(&self) -> Result<Rules, ServeError> {
        let builder = Rules::builder().merge_domains(self.merge_domains);
        builder
            .read(&self.rules)
            .map_err(|error| fault("the rules cannot be used", &error))
    }

    fn store(&self) -> Result<Store, ServeError> {
        let Some(address) = &self.redis else {
            let store = LocalStore::builder().max_keys(self.max_keys).build();
            return store
                .map(Store::Local)
                .map_err(|error| fault("--max-keys", &error));
        };
        let store = RedisStore::builder().deadline(self.redis_deadline);
        redis(store, self.redis_prefix.as_deref(), address).map(Store::Redis)
    }

    fn auth(&self, store: &Store) -> Result<Option<RulesLayer>, ServeError> {
        if self.auth_rules.is_empty() {
            return Ok(None);
        }
        let builder = match store.clone() {
            Store::Local(store) => RequestRules::builder().store(store),
            Store::Redis(store) => RequestRules::builder().store(store),
        };
        let rules = builder.read_all(&self.auth_rules);
        let rules =
            rules.map_err(|error| fault("the rules of --auth-rules cannot be used", &error))?;
        Ok(Some(RulesLayer::new(rules)))
    }
}

/// The store at this address, whose keys begin with the prefix.
pub(crate) fn redis(
    store: RedisStoreBuilder,
    prefix: Option<&str>,
    address: &str,
) -> Result<RedisStore, ServeError> {
    let store = prefix.into_iter().fold(store, RedisStoreBuilder::prefix);
    store
        .connect(address)
        .map_err(|error| fault("--redis", &error))
}

/// Where everything is counted.
#[derive(Clone)]
enum Store {
    Local(LocalStore),
    Redis(RedisStore),
}

impl Store {
    fn counters(&self, on_failure: OnFailure) -> Counters {
        match self {
            Self::Local(store) => Counters::local(store),
            Self::Redis(store) => Counters::redis(store, on_failure),
        }
    }
}

/// Why a service did not start, or ended.
#[derive(Debug)]
pub struct ServeError(String);

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ServeError {}

pub(crate) fn fault(place: &str, error: &dyn Error) -> ServeError {
    let mut text = format!("{place}:\n{error}");
    if let Some(source) = error.source() {
        text += &format!(": {source}");
    }
    ServeError(text)
}

/// Serves until the process is told to end, and then until the last request is answered. `say` is told what a
/// reader of the log wants to know.
///
/// SIGTERM and SIGINT end the service, a second of either at once; SIGHUP reads the rules and the
/// certificates again.
///
/// # Errors
///
/// When a file, an address or a setting is wrong.
pub async fn serve(
    settings: Settings,
    say: impl Fn(String) + Send + Sync + 'static,
) -> Result<(), ServeError> {
    let rules = settings.rules()?;
    let store = settings.store()?;
    let auth = settings.auth(&store)?;
    let of_auth = auth.iter().map(|auth| auth.handle().rules());
    let of_auth = of_auth.flat_map(|rules| rules.warnings().to_vec());
    let warnings = rules.warnings().iter().map(ToString::to_string);
    warnings
        .chain(of_auth.map(|warning| warning.to_string()))
        .for_each(&say);
    let limits = RateLimits::new(store.counters(settings.on_failure), settings.modes.clone());
    let tls = settings.tls.clone().map(Tls::new).transpose()?;
    let grpc = listen(settings.grpc, "--grpc").await?;
    let http = listen(settings.http, "--http").await?;
    let address = |listener: &TcpListener| listener.local_addr().unwrap_or(settings.grpc);
    let signals = Signals::new().map_err(|error| fault("signals", &error))?;
    say(format!(
        "serving {} limits by gRPC on {}, by HTTP on {}",
        rules.len(),
        address(&grpc),
        address(&http)
    ));
    limits.set_rules(rules);
    let router = auth
        .as_ref()
        .map(|rules| auth::router(rules, settings.trust.iter().copied()));
    let grpc = (grpc, tls.clone());
    let http = (http, tls.clone().filter(|_| settings.http_tls));
    let running = Running::start(&limits, grpc, http, router.unwrap_or_default()).await;
    let reload = || reload(&settings, &limits, auth.as_ref(), tls.as_ref(), &say);
    let life = life::live(signals, &say, reload, running.end(settings.drain));
    tls::watch_during(life, tls.as_ref(), &say).await;
    Ok(())
}

/// Reads all files again. One that has a fault leaves the rules of its kind as they were.
fn reload(
    settings: &Settings,
    limits: &RateLimits,
    auth: Option<&RulesLayer>,
    tls: Option<&Tls>,
    say: &dyn Fn(String),
) {
    if let Some(tls) = tls {
        tls.reload(say);
    }
    match settings.rules() {
        Ok(rules) => {
            say(format!("read the rules again: {} limits", rules.len()));
            limits.set_rules(rules);
        }
        Err(error) => say(format!("the rules stay as they were: {error}")),
    }
    match auth.map(|auth| auth.handle().reload()) {
        Some(Ok(changes)) => say(format!("read the rules of /v1/auth again:\n{changes}")),
        Some(Err(error)) => say(format!("the rules of /v1/auth stay as they were:\n{error}")),
        None => {}
    }
}

pub(crate) async fn listen(address: SocketAddr, flag: &str) -> Result<TcpListener, ServeError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| ServeError(format!("{flag}: {address}: {error}")))
}

/// The servers.
struct Running {
    servers: JoinSet<()>,
    health: HealthReporter,
    draining: Draining,
    stop: watch::Sender<bool>,
}

impl Running {
    async fn start(
        limits: &RateLimits,
        (grpc, grpc_tls): (TcpListener, Option<Tls>),
        (http, http_tls): (TcpListener, Option<Tls>),
        auth: Router,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let draining = Draining::default();
        let (health, health_service) = tonic_health::server::health_reporter();
        set_health(&health, ServingStatus::Serving).await;
        let mut servers = JoinSet::new();
        let router = http::router(limits.clone(), draining.clone()).merge(auth);
        let answer = move |request: Request<Incoming>, peer: Peer| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer.address));
            let answer = router.clone().call(request);
            async { answer.await.unwrap_or_else(|never| match never {}) }
        };
        servers.spawn(connections::serve(
            http,
            http_tls,
            MAX_CONNECTIONS,
            answer,
            stopped.clone(),
        ));
        let server = Server::builder()
            .http2_keepalive_interval(Some(PING_TIME))
            .add_service(health_service)
            .add_service(rls::service(limits.clone()));
        servers.spawn(serve_grpc(server, grpc, grpc_tls, life::wait(stopped)));
        Self {
            servers,
            health,
            draining,
            stop,
        }
    }

    /// Says that the service is not ready, and goes on for as long as callers may need to notice; then takes no
    /// more requests, and waits for those under way.
    async fn end(mut self, drain: Duration) {
        self.draining.begin();
        set_health(&self.health, ServingStatus::NotServing).await;
        let all = async { while self.servers.join_next().await.is_some() {} };
        life::drain(drain, &self.stop, all).await;
    }
}

async fn serve_grpc(
    server: GrpcRouter,
    listener: TcpListener,
    tls: Option<Tls>,
    until: impl Future<Output = ()>,
) {
    drop(match tls {
        Some(tls) => {
            let incoming = tls::incoming(listener, tls);
            server.serve_with_incoming_shutdown(incoming, until).await
        }
        None => {
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            server.serve_with_incoming_shutdown(incoming, until).await
        }
    });
}

async fn set_health(health: &HealthReporter, status: ServingStatus) {
    for name in HEALTH_NAMES {
        health.set_service_status(name, status).await;
    }
}
