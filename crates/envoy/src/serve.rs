//! The service: its parts, its listeners, its servers, and shutdown.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, extract::Request};
use tokio::{net::TcpListener, task::JoinSet};
use tonic::service::Routes;
use tonic_health::{
    ServingStatus,
    pb::health_server::{Health, HealthServer},
    server::{HealthReporter, health_reporter},
};
use tower_ratelimit::{
    LocalStore,
    observe::{MetricsObserver, TopKeys},
    rules::RulesLayer,
};
use tracing::info;

pub use crate::settings::{DEFAULT_DEADLINE, Failure, Settings};
use crate::{
    check_route,
    decide::RateLimits,
    http_routes,
    limit_source::{DescriptorSource, shares_route},
    limiters_by_period::Counters,
    protobuf_messages::DESCRIPTORS,
    reservation_service::{self, ReservationKey, ReservationService},
    rlqs::{self, RateLimitQuotaService},
    rls, xds,
};
#[cfg(unix)]
use tower_ratelimit_service::connections::listen_unix;
pub use tower_ratelimit_service::{OperatorSettings, ServeError, StoreSettings};
use tower_ratelimit_service::{
    admin::{Admin, AdminListener, LiveSources},
    connections::{
        self, ConnectionLimits, MAX_CONNECTIONS, RequestBody, call_routes, listen, serve_routes,
    },
    decision_counts::DecisionCounts,
    errors::{counted, fault},
    forward_auth,
    metrics::Metrics,
    otel_spans::{Caller, observed},
    rule_file_polling::{Watch, reload_on_change},
    rules_source::{self, Descriptors, Source, warn_of},
    shutdown::{self, Draining, Signals, Stop},
    store::{StateFile, Store, save_at_end, save_each_minute},
    tls::{self, Tls},
};

/// Serves until the process gets a signal to stop, then completes active requests. Operators follow it in the log, by
/// events of `tracing`.
///
/// SIGTERM and SIGINT stop the service, a second one at once. SIGHUP reads the rules and the certificates again, and
/// connects to Redis anew.
///
/// # Errors
///
/// When a file, an address or a setting is wrong.
pub async fn serve(settings: Settings) -> Result<(), ServeError> {
    let mut parts = Parts::new(settings)?;
    let watch = parts.watch.take();
    let mut signals = Signals::new().map_err(|error| fault("signals", &error))?;
    // Tasks end with this function.
    let mut tasks = JoinSet::new();
    tokio::select! {
        () = parts.follow_control_plane(&mut tasks) => {}
        () = signals.end() => return Ok(()),
    }
    let listeners = Listeners::bind(&parts.settings).await?;
    let rules = parts.limits.rules();
    info!(
        "serving {} by gRPC on {}, by HTTP on {}",
        counted(rules.map_or(0, |rules| rules.len()), "limit"),
        listeners.grpc.1,
        listeners.http.1
    );
    if let Some(admin) = &listeners.admin {
        info!("operators are served on {}", admin.address);
    }
    let state = StateFile::new(parts.settings.store.state.as_deref(), &parts.store);
    let servers = Servers::start(&parts, listeners).await;
    let reload = || parts.reload();
    let lifetime = shutdown::run(signals, reload, servers.end(parts.settings.drain));
    tokio::select! {
        () = tls::watch_during(lifetime, || parts.reload_certificates()) => {}
        () = reload_on_change(watch, reload) => {}
        () = parts.upkeep() => {}
        () = save_each_minute(state.as_ref()) => {}
    }
    save_at_end(state.as_ref()).await;
    Ok(())
}

/// The parts that handle requests.
struct Parts {
    settings: Settings,
    limits: RateLimits,
    metrics: Metrics,
    tls: Option<Tls>,
    reservations: ReservationService,
    /// The quota service, if it is on.
    quotas: Option<RateLimitQuotaService>,
    /// Started before the files are read, so that no change is missed.
    watch: Option<Watch>,
    /// The rules of `/v1/auth`.
    auth: Option<RulesLayer>,
    source: Source,
    descriptors: DescriptorSource,
    store: Store,
    counts: Arc<DecisionCounts>,
    /// The client of the control plane, until it runs.
    client: Option<xds::Client>,
}

impl Parts {
    /// Reads all files.
    ///
    /// # Errors
    ///
    /// When a file or a setting is wrong.
    fn new(settings: Settings) -> Result<Self, ServeError> {
        let has_files = !(settings.rules.is_empty() && settings.auth_rules.is_empty());
        if settings.control_plane().is_some() && has_files {
            let text = "limits come from files or from a control plane, and not from both";
            return Err(ServeError(text.to_owned()));
        }
        let watch = settings.watch.then(|| Watch::new(settings.watched()));
        let rules = settings.read_rules();
        let rules = rules.map_err(|error| fault("the rules cannot be used", &error))?;
        let store = store(&settings)?;
        let counters = Counters::within(&store, settings.on_failure.policy());
        let limits = RateLimits::new(counters, settings.modes.clone());
        let counts = Arc::new(DecisionCounts::new(settings.operators.admin.is_some()));
        let auth = auth(&settings, &store, (limits.top(), &counts))?;
        let handle = auth.as_ref().map(RulesLayer::handle);
        if let Some(rules) = rules {
            warn_of(rules.warnings());
            limits.set_rules(rules);
        }
        if let Some(handle) = &handle {
            warn_of(handle.rules().warnings());
        }
        let tls = settings.tls.clone().map(Tls::new).transpose()?;
        let descriptors = DescriptorSource::new(settings.clone(), limits.clone());
        let client = descriptors.client()?;
        let source = Source::new(rules_source::Parts {
            store: store.clone(),
            requests: handle,
            requests_name: "the rules of /v1/auth",
            follows_responses: false,
            descriptors: settings
                .has_limits()
                .then(|| Arc::new(descriptors.clone()) as Arc<dyn Descriptors>),
            top: Arc::clone(limits.top()),
            reload_others: None,
        });
        let needs_store = settings.store.ready_needs_store;
        Ok(Self {
            reservations: reservation_service::service(limits.clone(), reservation_key(&settings)?),
            quotas: quotas(&settings, &limits, &store),
            settings,
            limits,
            metrics: Metrics::new(source.clone(), needs_store),
            tls,
            watch,
            auth,
            source,
            descriptors,
            store,
            counts,
            client,
        })
    }

    /// Starts to follow the control plane, if there is one. If the service needs limits to start, waits for the first.
    async fn follow_control_plane(&mut self, tasks: &mut JoinSet<()>) {
        let Some((client, plane)) = self.client.take().zip(self.settings.control_plane()) else {
            return;
        };
        let (source, descriptors) = (self.source.clone(), self.descriptors.clone());
        let accept = Arc::new(move |set| descriptors.accept_set(&source, set));
        tasks.spawn(client.run(accept));
        if plane.xds_force_start {
            return;
        }
        info!(
            "waiting for the limits of the control plane {}",
            plane.address()
        );
        let mut version = self.descriptors.version();
        drop(version.wait_for(Option::is_some).await);
    }

    /// Reads the rules and the certificates again, and connects to Redis anew.
    fn reload(&self) {
        self.source.reload();
        self.store.reconnect();
        self.reload_certificates();
    }

    fn reload_certificates(&self) {
        if let Some(tls) = &self.tls {
            tls.reload();
        }
    }

    /// The HTTP routes.
    fn router(&self, draining: Draining) -> Router {
        let limits = self.limits.clone();
        let handle = self.auth.as_ref().map(RulesLayer::handle);
        let store = self
            .settings
            .store
            .ready_needs_store
            .then(|| self.store.clone());
        let (settings, known) = (self.settings.clone(), limits.clone());
        let is_ready = move || {
            let has_store = || store.as_ref().is_none_or(Store::is_up);
            !draining.has_begun() && has_required_limits(&settings, &known) && has_store()
        };
        let router = http_routes::router_ready(limits.clone(), is_ready)
            .merge(check_route::router(limits, handle))
            .merge(self.metrics.router("/metrics"));
        match &self.auth {
            Some(rules) => router.merge(forward_auth::router(
                rules,
                self.settings.trust.iter().copied(),
            )),
            None => router,
        }
    }

    /// Runs periodic tasks; never completes.
    async fn upkeep(&self) {
        let decides = self.settings.on_failure_setting;
        self.store.check_at_start(decides).await;
        self.metrics.clone().upkeep().await;
    }

    /// The admin service.
    fn admin(&self, draining: Draining) -> Admin {
        let sources = LiveSources {
            counts: Arc::clone(&self.counts),
            rooms: Arc::new(Vec::new),
            draining,
        };
        let settings = self.settings.operators.clone();
        Admin::new(self.source.clone(), settings, sources)
    }
}

/// The quota service, if it is on.
fn quotas(
    settings: &Settings,
    limits: &RateLimits,
    store: &Store,
) -> Option<RateLimitQuotaService> {
    if !settings.rlqs {
        return None;
    }
    let (limits, of_service) = (limits.clone(), settings.shares.clone());
    Some(match store {
        Store::Local(_) => rlqs::service(limits, of_service),
        Store::Redis(store) => {
            rlqs::shared_service(limits, of_service, (store, settings.on_failure.policy()))
        }
    })
}

/// The key of reservations. A shared one is only for processes that share counts: others would refund what they never
/// charged.
fn reservation_key(settings: &Settings) -> Result<ReservationKey, ServeError> {
    let Some(file) = &settings.reservation_key_file else {
        return ReservationKey::random();
    };
    if settings.store.redis.is_none() && settings.store.state.is_none() {
        let text = "--reservation-key-file is for counts that another process continues: add --redis or --state, or \
                    leave it";
        return Err(ServeError(text.to_owned()));
    }
    ReservationKey::read(file)
}

fn serves_limits(settings: &Settings, limits: &RateLimits) -> bool {
    settings.has_limits() && has_required_limits(settings, limits)
}

/// Whether there are the limits that readiness requires. Those of files were read before the service listens.
fn has_required_limits(settings: &Settings, limits: &RateLimits) -> bool {
    let rules = limits.rules();
    !settings.xds.ready_needs_domain || rules.is_some_and(|rules| rules.domains().next().is_some())
}

fn store(settings: &Settings) -> Result<Store, ServeError> {
    if let Some(store) = settings.store.connect(DEFAULT_DEADLINE)? {
        return Ok(Store::Redis(store));
    }
    let store = LocalStore::builder().max_keys(settings.max_keys);
    let store = match &settings.store.state {
        Some(state) => store.restore_or_new(state),
        None => store.build(),
    };
    store
        .map(Store::Local)
        .map_err(|error| fault("--max-keys", &error))
}

fn auth(
    settings: &Settings,
    store: &Store,
    (top, counts): (&Arc<TopKeys>, &Arc<DecisionCounts>),
) -> Result<Option<RulesLayer>, ServeError> {
    if settings.auth_rules.is_empty() {
        return Ok(None);
    }
    let rules = store
        .request_rules()
        .read_all(&settings.auth_rules)
        .map_err(|error| fault("the rules of --auth-rules cannot be used", &error))?;
    let observer = MetricsObserver::new().backend(store.backend());
    let observer = observed(observer, store.backend());
    // Proxies act on the status, which is 200 in a gRPC denial.
    let layer = RulesLayer::new(rules).grpc(false);
    let of_operators = (Arc::clone(top), Arc::clone(counts));
    Ok(Some(layer.observer((observer, of_operators))))
}

/// The names of the gRPC services in the health service.
const HEALTH_NAMES: [&str; 4] = ["", "ratelimit", rls::NAME, reservation_service::NAME];

/// The running servers.
struct Servers {
    running: JoinSet<()>,
    /// Sets the health after each set of the control plane.
    health_task: JoinSet<()>,
    health: HealthReporter,
    draining: Draining,
    stop: Stop,
}

impl Servers {
    /// Serves on all listeners.
    async fn start(parts: &Parts, listeners: Listeners) -> Self {
        let (stop, stopped) = shutdown::stop();
        let (health, health_service) = health_reporter();
        let mut version = parts.descriptors.version();
        let has_limits = serves_limits(&parts.settings, &parts.limits);
        set_health(&health, has_limits, ServingStatus::Serving).await;
        let (settings, limits) = (parts.settings.clone(), parts.limits.clone());
        let (mut health_task, followed) = (JoinSet::new(), health.clone());
        health_task.spawn(async move {
            while version.changed().await.is_ok() {
                let has_limits = serves_limits(&settings, &limits);
                set_health(&followed, has_limits, ServingStatus::Serving).await;
            }
        });
        let draining = Draining::default();
        let mut running = JoinSet::new();

        let routes = parts.router(draining.clone());
        let answer = move |request: Request<RequestBody>, peer| {
            // The routes that decide have no parameters, so the path is the route.
            let caller = Caller::of(request.headers(), Some(request.uri().path()));
            caller.within(call_routes(routes.clone(), request, peer))
        };
        let tls = parts.tls.clone().filter(|_| parts.settings.http_tls);
        let (listener, _) = listeners.http;
        let limits = (ConnectionLimits::http(MAX_CONNECTIONS), None);
        let until = stopped.clone();
        running.spawn(connections::serve(listener, tls, limits, answer, until));

        let (tls, until) = (parts.tls.clone(), stopped.clone());
        let limits = ConnectionLimits::grpc(parts.settings.grpc_max_age);
        let limits = limits.with_shares(parts.quotas.is_some());
        let routes = services(parts, health_service);
        match listeners.grpc.0 {
            GrpcListener::Tcp(grpc) => {
                running.spawn(serve_routes(grpc, tls, limits, routes, until))
            }
            // The file system's permissions guard a Unix socket.
            #[cfg(unix)]
            GrpcListener::Unix(grpc) => {
                running.spawn(serve_routes(grpc, None, limits, routes, until))
            }
        };
        if let Some(quotas) = &parts.quotas {
            // Streams of reports have no end of their own.
            let (shares, stopped) = (quotas.0.clone(), stopped.stopped.clone());
            running.spawn(async move {
                shutdown::wait(stopped).await;
                shares.end_streams();
            });
        }
        if let (Some(listener), Some((_, path))) =
            (listeners.prometheus, &parts.settings.prometheus)
        {
            let (routes, until) = (parts.metrics.router(path), stopped.clone());
            let limits = ConnectionLimits::http(MAX_CONNECTIONS);
            running.spawn(serve_routes(listener, None, limits, routes, until));
        }
        if let Some(listener) = listeners.admin {
            let shares = parts.quotas.as_ref().map(|quotas| quotas.0.clone());
            let (admin, more) = (parts.admin(draining.clone()), shares_route(shares));
            running.spawn(admin.serve(listener, more, stopped));
        }
        Self {
            running,
            health_task,
            health,
            draining,
            stop,
        }
    }

    /// Reports not ready, and drains for this time; then stops, and completes active requests. False on timeout.
    async fn end(mut self, drain: Duration) -> bool {
        self.draining.begin();
        self.health_task.shutdown().await;
        set_health(&self.health, true, ServingStatus::NotServing).await;
        let all = async { while self.running.join_next().await.is_some() {} };
        shutdown::drain(drain, &self.stop, all).await
    }
}

/// The gRPC services.
fn services(parts: &Parts, health: HealthServer<impl Health>) -> Router {
    // For tools such as grpcurl; older ones call version 1alpha.
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    const VALID: &str = "the committed descriptors are valid";
    let services = Routes::new(health)
        .add_service(reflection().build_v1().expect(VALID))
        .add_service(reflection().build_v1alpha().expect(VALID))
        .add_service(rls::service(parts.limits.clone()))
        .add_service(parts.reservations.clone());
    let services = match &parts.quotas {
        Some(quotas) => services.add_service(quotas.clone()),
        None => services,
    };
    services.prepare().into_axum_router()
}

/// Sets the health of the process and of the gRPC service, which serves only if there are limits.
async fn set_health(health: &HealthReporter, has_limits: bool, status: ServingStatus) {
    for name in HEALTH_NAMES {
        let status = if has_limits || name.is_empty() {
            status
        } else {
            ServingStatus::NotServing
        };
        health.set_service_status(name, status).await;
    }
}

/// All of the service's listeners.
struct Listeners {
    /// With its address for the log.
    grpc: (GrpcListener, String),
    /// With the bound address.
    http: (TcpListener, SocketAddr),
    /// The further one for metrics, if there is one.
    prometheus: Option<TcpListener>,
    /// The admin service's, unless it is off.
    admin: Option<AdminListener>,
}

impl Listeners {
    /// # Errors
    ///
    /// When an address is in use, or is none of this machine's.
    async fn bind(settings: &Settings) -> Result<Self, ServeError> {
        Ok(Self {
            grpc: GrpcListener::listen(settings).await?,
            http: listen(settings.http, "--http").await?,
            prometheus: match &settings.prometheus {
                Some((address, _)) => Some(listen(*address, "PROMETHEUS_ADDR").await?.0),
                None => None,
            },
            admin: AdminListener::listen(&settings.operators).await?,
        })
    }
}

/// The listener of gRPC: TCP, or a Unix socket.
enum GrpcListener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(tokio::net::UnixListener),
}

impl GrpcListener {
    async fn listen(settings: &Settings) -> Result<(Self, String), ServeError> {
        let Some(path) = &settings.grpc_uds else {
            let (listener, address) = listen(settings.grpc, "--grpc").await?;
            return Ok((Self::Tcp(listener), address.to_string()));
        };
        let fault = |error: io::Error| {
            let text = format!("--grpc-uds: {}: {error}", path.display());
            ServeError(text)
        };
        #[cfg(unix)]
        {
            let listener = listen_unix(path).await.map_err(fault)?;
            Ok((Self::Unix(listener), path.display().to_string()))
        }
        #[cfg(not(unix))]
        Err(fault(io::ErrorKind::Unsupported.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn change_before_the_first_look_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rules.yaml");
        fs::write(&file, "domain: a").expect("written");
        let mut settings = Settings::new(vec![file.clone()]);
        settings.watch = true;
        let mut parts = Parts::new(settings).expect("parts");
        fs::write(&file, "domain: longer").expect("written");
        let mut watch = parts.watch.take().expect("a watch");
        let noticed = timeout(Duration::from_secs(60), watch.changed()).await;
        assert!(noticed.is_ok());
    }
}
