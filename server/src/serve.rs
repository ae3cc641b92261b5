//! The process: listeners, signals, and its end.

use std::{error::Error, fmt, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request},
};
use hyper::body::Incoming;
use ipnet::IpNet;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tonic::transport::Server;
use tonic_health::{ServingStatus, server::HealthReporter};
use tower_ratelimit::{
    LocalStore, OnFailure, RedisStore, RedisStoreBuilder,
    observe::{MetricsObserver, TopKeys},
    rules::{Format, RulesLayer},
};
use tower_service::Service as _;

use crate::{
    admin::{self, Admin, Say},
    auth, check,
    connections::{self, MAX_CONNECTIONS, PING_TIME, Peer},
    decide::{Modes, RateLimits},
    grpc::{GrpcListener, jittered},
    http::{self, Draining},
    life::{self, Signals},
    lyft::Rules,
    metrics::Metrics,
    reflection, rls,
    source::Source,
    store::Store,
    telemetry::{Caller, observed},
    tls::{self, Tls, TlsFiles},
    watch::Watch,
};

/// The names under which the health of the gRPC service can be asked.
const HEALTH_NAMES: [&str; 3] = ["", "ratelimit", rls::NAME];

/// How long Redis may take by default: less than the 20 milliseconds that Envoy waits by default.
pub const DEFAULT_DEADLINE: Duration = Duration::from_millis(15);

/// All that a service is told.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Files of Envoy's reference service, and directories of them. Without any, there are no limits of descriptors:
    /// every answer about them is that they are unavailable.
    pub rules: Vec<PathBuf>,
    /// Rule files of this crate, by which `/v1/auth` answers. Defaults to none: there is no such route.
    pub auth_rules: Vec<PathBuf>,
    /// The networks of the proxies that may ask there. Defaults to the loopback ones.
    pub trust: Vec<IpNet>,
    /// Whether a domain may stand in several files. Defaults to false.
    pub merge_domains: bool,
    /// Whether the files are read again when they change. Defaults to false: only when the process is told to.
    pub watch: bool,
    /// Where the gRPC service listens. Defaults to 127.0.0.1:8081.
    pub grpc: SocketAddr,
    /// A socket in the file system on which the gRPC service listens in place of that address. Defaults to none.
    pub grpc_uds: Option<PathBuf>,
    /// How old a connection of gRPC may become, a tenth more or less; callers then make a new one, which may lead to
    /// another instance. Defaults to 24 hours.
    pub grpc_max_age: Duration,
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
    /// Where the admin service listens: on a loopback address, unless there is a token. Defaults to none: there is
    /// no such service.
    pub admin: Option<SocketAddr>,
    /// The file with the token that the admin service asks for, of at least 32 characters. Defaults to none.
    pub admin_token_file: Option<PathBuf>,
    /// The hosts by which the admin service may be asked, beside its address. Defaults to none.
    pub admin_hosts: Vec<String>,
    /// Whether the admin service and the log show keys, which are addresses and the like. Defaults to false: they
    /// show digests.
    pub reveal_keys: bool,
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
            watch: false,
            grpc: here(8081),
            grpc_uds: None,
            grpc_max_age: Duration::from_secs(24 * 60 * 60),
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
            admin: None,
            admin_token_file: None,
            admin_hosts: Vec::new(),
            reveal_keys: false,
        }
    }

    /// The limits of descriptors; `None` without files of them.
    pub(crate) fn rules(&self) -> Result<Option<Rules>, ServeError> {
        if self.rules.is_empty() {
            return Ok(None);
        }
        let builder = Rules::builder().merge_domains(self.merge_domains);
        let rules = builder.read(&self.rules);
        rules
            .map(Some)
            .map_err(|error| fault("the rules cannot be used", &error))
    }

    async fn grpc_listener(&self) -> Result<GrpcListener, ServeError> {
        let Some(path) = &self.grpc_uds else {
            let listener = GrpcListener::bind(self.grpc).await;
            return listener.map_err(|error| ServeError(format!("--grpc: {}: {error}", self.grpc)));
        };
        let listener = GrpcListener::bind_unix(path).await;
        listener.map_err(|error| ServeError(format!("--grpc-uds: {}: {error}", path.display())))
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

    /// The warnings of a text as one of the files of `rules`, or its faults.
    pub(crate) fn check_limits(&self, text: String) -> Result<Vec<String>, String> {
        let builder = Rules::builder().merge_domains(self.merge_domains);
        let rules = builder.parse([("rules", text)]);
        let rules = rules.map_err(|error| error.to_string())?;
        Ok(rules.warnings().iter().map(ToString::to_string).collect())
    }

    /// The same for one of the files of `auth_rules`.
    pub(crate) fn check_requests(
        &self,
        text: String,
        format: Format,
        store: &Store,
    ) -> Result<Vec<String>, String> {
        let rules = store.request_rules().parse(text, format);
        let rules = rules.map_err(|error| error.to_string())?;
        Ok(rules.warnings().iter().map(ToString::to_string).collect())
    }

    /// A place for the admin service, if there is to be one, and its token.
    pub(crate) async fn admin(&self) -> Result<Option<(TcpListener, Option<String>)>, ServeError> {
        let Some(address) = self.admin else {
            return Ok(None);
        };
        let token = self.admin_token_file.as_deref().map(admin::read_token);
        let token = token.transpose();
        let token = token.map_err(|text| ServeError(format!("--admin-token-file: {text}")))?;
        if token.is_none() && !address.ip().is_loopback() {
            let text = format!(
                "--admin: {address} can be reached by others: give it an --admin-token-file, or a loopback address"
            );
            return Err(ServeError(text));
        }
        let listener = listen_unless_off(address, "--admin").await?;
        Ok(Some((listener, token)))
    }

    fn auth(&self, store: &Store, top: &Arc<TopKeys>) -> Result<Option<RulesLayer>, ServeError> {
        if self.auth_rules.is_empty() {
            return Ok(None);
        }
        let rules = store.request_rules().read_all(&self.auth_rules);
        let rules =
            rules.map_err(|error| fault("the rules of --auth-rules cannot be used", &error))?;
        let observer = MetricsObserver::new().backend(store.backend());
        let observer = observed(observer, store.backend());
        let observers = (observer, Arc::clone(top));
        // Proxies go by the status, which is 200 in gRPC.
        let layer = RulesLayer::new(rules).grpc(false);
        Ok(Some(layer.observer(observers)))
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
    let limits = RateLimits::new(store.counters(settings.on_failure), settings.modes.clone());
    let auth = settings.auth(&store, limits.top())?;
    let say: Say = Arc::new(say);
    let of_auth = auth.iter().map(|auth| auth.handle().rules());
    let of_auth = of_auth.flat_map(|rules| rules.warnings().to_vec());
    let warnings = rules.iter().flat_map(Rules::warnings);
    warnings
        .map(ToString::to_string)
        .chain(of_auth.map(|warning| warning.to_string()))
        .for_each(|line| say(line));
    let tls = settings.tls.clone().map(Tls::new).transpose()?;
    let grpc = settings.grpc_listener().await?;
    let http = listen(settings.http, "--http").await?;
    let http_address = http.local_addr().unwrap_or(settings.http);
    let admin = settings.admin().await?;
    let signals = Signals::new().map_err(|error| fault("signals", &error))?;
    say(format!(
        "serving {} limits by gRPC on {}, by HTTP on {}",
        rules.as_ref().map_or(0, Rules::len),
        grpc.shown(),
        http_address
    ));
    if let Some(rules) = rules {
        limits.set_rules(rules);
    }
    let handle = auth.as_ref().map(RulesLayer::handle);
    let of_auth = "the rules of /v1/auth";
    let source = Source::new(settings.clone(), limits.clone(), handle.clone(), of_auth);
    let metrics = Metrics::new(source.clone(), store.clone());
    let mut router = check::router(limits.clone(), handle).merge(metrics.router());
    if let Some(rules) = &auth {
        router = router.merge(auth::router(rules, settings.trust.iter().copied()));
    }
    let services = Server::builder()
        .max_connection_age(jittered(settings.grpc_max_age))
        .http2_keepalive_interval(Some(PING_TIME));
    let grpc = (services, grpc, tls.clone());
    let http = (http, tls.clone().filter(|_| settings.http_tls), router);
    let mut running = Running::start(&limits, grpc, http).await;
    if let Some((listener, token)) = admin {
        let address = listener.local_addr().unwrap_or(settings.http);
        say(format!("operators are served on {address}"));
        let admin = Admin::new(source.clone(), store, Arc::clone(&say));
        running.admin(listener, admin.router(address, token));
    }
    let reload = || {
        source.reload().into_iter().for_each(|line| say(line));
        if let Some(tls) = &tls {
            tls.reload(&*say);
        }
    };
    let life = life::live(signals, &*say, &reload, running.end(settings.drain));
    tokio::select! {
        () = tls::watch_during(life, tls.as_ref(), &*say) => {}
        () = watch_files(&settings, &reload) => {}
        () = metrics.upkeep() => {}
    }
    Ok(())
}

pub(crate) async fn listen(address: SocketAddr, flag: &str) -> Result<TcpListener, ServeError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| ServeError(format!("{flag}: {address}: {error}")))
}

/// The same for a service that can be had or not.
pub(crate) async fn listen_unless_off(
    address: SocketAddr,
    flag: &str,
) -> Result<TcpListener, ServeError> {
    let listener = listen(address, flag).await;
    listener.map_err(|ServeError(text)| ServeError(format!("{text}; say another address, or off")))
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
        (mut services, grpc, grpc_tls): (Server, GrpcListener, Option<Tls>),
        (http, http_tls, more): (TcpListener, Option<Tls>, Router),
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let draining = Draining::default();
        let (health, health_service) = tonic_health::server::health_reporter();
        let has_limits = limits.rules().is_some();
        set_health(&health, has_limits, ServingStatus::Serving).await;
        let mut servers = JoinSet::new();
        let router = match has_limits {
            true => http::router(limits.clone(), draining.clone()),
            false => http::router_without_limits(limits.clone(), draining.clone()),
        };
        let router = router.merge(more);
        let answer = move |request: Request<Incoming>, peer: Peer| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer.address));
            // The routes that decide have no parameters: their paths are themselves.
            let caller = Caller::of(request.headers(), Some(request.uri().path()));
            let answer = caller.within(router.clone().call(request));
            async { answer.await.unwrap_or_else(|never| match never {}) }
        };
        servers.spawn(connections::serve(
            http,
            http_tls,
            MAX_CONNECTIONS,
            answer,
            stopped.clone(),
        ));
        let services = services
            .add_service(health_service)
            .add_service(reflection::service())
            .add_service(reflection::alpha_service())
            .add_service(rls::service(limits.clone()));
        let until = life::wait(stopped);
        servers.spawn(async move { drop(grpc.serve(grpc_tls, services, until).await) });
        Self {
            servers,
            health,
            draining,
            stop,
        }
    }

    /// Serves operators, until the others end.
    fn admin(&mut self, listener: TcpListener, router: Router) {
        let stopped = self.stop.subscribe();
        self.servers.spawn(admin::serve(listener, router, stopped));
    }

    /// Says that the service is not ready, and goes on for as long as callers may need to notice; then takes no
    /// more requests, and waits for those under way.
    async fn end(mut self, drain: Duration) {
        self.draining.begin();
        set_health(&self.health, true, ServingStatus::NotServing).await;
        let all = async { while self.servers.join_next().await.is_some() {} };
        life::drain(drain, &self.stop, all).await;
    }
}

/// Tells the health of the process, and of the service of limits, which never serves where there are none.
async fn set_health(health: &HealthReporter, has_limits: bool, status: ServingStatus) {
    for name in HEALTH_NAMES {
        let status = match has_limits || name.is_empty() {
            true => status,
            false => ServingStatus::NotServing,
        };
        health.set_service_status(name, status).await;
    }
}

/// Calls `reload` whenever the files have changed, for ever, if that is asked for.
async fn watch_files(settings: &Settings, reload: impl Fn()) {
    if !settings.watch {
        return std::future::pending().await;
    }
    let mut watch = Watch::new([&settings.rules[..], &settings.auth_rules].concat());
    loop {
        watch.changed().await;
        reload();
    }
}
