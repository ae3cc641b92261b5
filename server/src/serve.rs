//! The process: listeners, signals, and its end.

use std::{error::Error, fmt, io, net::SocketAddr, path::PathBuf, time::Duration};

use axum::Router;
use ipnet::IpNet;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tonic::transport::Server;
use tonic_health::{ServingStatus, server::HealthReporter};
use tower_ratelimit::{
    LocalStore, OnFailure, RedisStore,
    rules::{Rules as RequestRules, RulesLayer},
};

use crate::{
    auth, check,
    counters::Counters,
    decide::{Modes, RateLimits},
    grpc::{GrpcListener, jittered},
    http::{self, Draining},
    lyft::Rules,
    reflection, rls,
    watch::Watch,
};

/// The names under which the health of the gRPC service can be asked.
const HEALTH_NAMES: [&str; 3] = ["", "ratelimit", rls::NAME];

/// How long requests that are under way may take when the service ends.
const LAST_REQUESTS: Duration = Duration::from_secs(20);

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
            watch: false,
            grpc: here(8081),
            grpc_uds: None,
            grpc_max_age: Duration::from_secs(24 * 60 * 60),
            http: here(8080),
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
        let mut store = RedisStore::builder().deadline(self.redis_deadline);
        if let Some(prefix) = &self.redis_prefix {
            store = store.prefix(prefix);
        }
        let store = store
            .connect(address)
            .map_err(|error| fault("--redis", &error))?;
        Ok(Store::Redis(store))
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

fn fault(place: &str, error: &dyn Error) -> ServeError {
    let mut text = format!("{place}:\n{error}");
    if let Some(source) = error.source() {
        text += &format!(": {source}");
    }
    ServeError(text)
}

/// Serves until the process is told to end, and then until the last request is answered. `say` is told what a
/// reader of the log wants to know.
///
/// SIGTERM and SIGINT end the service, a second of either at once; SIGHUP reads the rules again.
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
    let grpc = settings.grpc_listener().await?;
    let http = listen(settings.http, "--http").await?;
    let http_address = http.local_addr().unwrap_or(settings.http);
    let mut signals = Signals::new().map_err(|error| fault("signals", &error))?;
    say(format!(
        "serving {} limits by gRPC on {}, by HTTP on {}",
        rules.len(),
        grpc.shown(),
        http_address
    ));
    limits.set_rules(rules);
    let mut router = check::router(limits.clone(), auth.as_ref().map(RulesLayer::handle));
    if let Some(rules) = &auth {
        router = router.merge(auth::router(rules, settings.trust.iter().copied()));
    }
    let services = Server::builder().max_connection_age(jittered(settings.grpc_max_age));
    let running = Running::start(&limits, (services, grpc), (http, router)).await;
    let paths = [&settings.rules[..], &settings.auth_rules].concat();
    let mut watch = settings.watch.then(|| Watch::new(paths));
    while signals.next_or(&mut watch).await {
        reload(&settings, &limits, auth.as_ref(), &say);
    }
    say("not ready any more".to_owned());
    let end = running.end(settings.drain);
    tokio::select! {
        () = end => say("all requests are answered".to_owned()),
        () = signals.end() => say("told twice to end".to_owned()),
    }
    Ok(())
}

/// Reads all files again. One that has a fault leaves the rules of its kind as they were.
fn reload(
    settings: &Settings,
    limits: &RateLimits,
    auth: Option<&RulesLayer>,
    say: &dyn Fn(String),
) {
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

async fn listen(address: SocketAddr, flag: &str) -> Result<TcpListener, ServeError> {
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
        (mut services, grpc): (Server, GrpcListener),
        (http, more): (TcpListener, Router),
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let draining = Draining::default();
        let (health, health_service) = tonic_health::server::health_reporter();
        set_health(&health, ServingStatus::Serving).await;
        let mut servers = JoinSet::new();
        let router = http::router(limits.clone(), draining.clone()).merge(more);
        let router = router.into_make_service_with_connect_info::<SocketAddr>();
        let until = wait(stopped.clone());
        servers.spawn(async move {
            drop(
                axum::serve(http, router)
                    .with_graceful_shutdown(until)
                    .await,
            );
        });
        let services = services
            .add_service(health_service)
            .add_service(reflection::service())
            .add_service(reflection::alpha_service())
            .add_service(rls::service(limits.clone()));
        servers.spawn(async move { drop(grpc.serve(services, wait(stopped)).await) });
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
        sleep(drain).await;
        self.stop.send_replace(true);
        let all = async { while self.servers.join_next().await.is_some() {} };
        drop(timeout(LAST_REQUESTS, all).await);
    }
}

async fn set_health(health: &HealthReporter, status: ServingStatus) {
    for name in HEALTH_NAMES {
        health.set_service_status(name, status).await;
    }
}

async fn wait(mut stopped: watch::Receiver<bool>) {
    // A sender that is gone ends the process, too.
    drop(stopped.wait_for(|stopped| *stopped).await);
}

impl Signals {
    /// Whether to read the files again, for a signal or a change of them, rather than to end.
    async fn next_or(&mut self, watch: &mut Option<Watch>) -> bool {
        let changed = async {
            match watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            told = self.next() => matches!(told, Told::Reload),
            () = changed => true,
        }
    }
}

/// What the process was told.
enum Told {
    End,
    Reload,
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::End,
            _ = self.interrupt.recv() => Told::End,
            _ = self.hang_up.recv() => Told::Reload,
        }
    }

    async fn end(&mut self) {
        while let Told::Reload = self.next().await {}
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> Told {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Told::End
    }

    async fn end(&mut self) {
        self.next().await;
    }
}
