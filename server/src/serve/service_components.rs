//! The parts of the service, made from its settings before it listens.

use std::sync::Arc;

use axum::Router;
use tokio::task::JoinSet;
use tower_ratelimit::{
    LocalStore,
    observe::{MetricsObserver, TopKeys},
    rules::RulesLayer,
};
use tracing::info;

use crate::{
    admin::{Admin, LiveSources},
    check_route,
    decide::RateLimits,
    decide_and_serve_errors::{ServeError, fault},
    decision_counts::DecisionCounts,
    forward_auth,
    http_routes::{self, Draining},
    metrics::Metrics,
    reservations::{self, ReservationKey, ReservationService},
    rlqs::{self, RateLimitQuotaService},
    rules_source::{Source, warn_of},
    settings::Settings,
    state_file::{self, StateFile},
    store::{RedisOptions, Store},
    telemetry::observed,
    tls::Tls,
    watch::Watch,
    xds,
};

/// The parts that handle requests.
pub(super) struct Parts {
    pub(super) settings: Settings,
    pub(super) limits: RateLimits,
    pub(super) metrics: Metrics,
    pub(super) tls: Option<Tls>,
    pub(super) reservations: ReservationService,
    /// The quota service, if it is on.
    pub(super) quotas: Option<RateLimitQuotaService>,
    /// Started before the files are read, so that no change is missed.
    pub(super) watch: Option<Watch>,
    /// The rules of `/v1/auth`.
    auth: Option<RulesLayer>,
    source: Source,
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
    pub(super) fn new(settings: Settings) -> Result<Self, ServeError> {
        check_source(&settings)?;
        let watch = Watch::new(&settings);
        let rules = settings.rules()?;
        let store = store(&settings)?;
        let counters = store.counters(settings.on_failure);
        let limits = RateLimits::new(counters, settings.modes.clone());
        let counts = Arc::new(DecisionCounts::new(settings.admin.is_some()));
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
        let source = Source::new(
            settings.clone(),
            limits.clone(),
            handle,
            "the rules of /v1/auth",
        );
        let client = source.client()?;
        Ok(Self {
            reservations: reservations::service(limits.clone(), reservation_key(&settings)?),
            quotas: quotas(&settings, &limits, &store),
            settings,
            limits,
            metrics: Metrics::new(source.clone(), store.clone()),
            tls,
            watch,
            auth,
            source,
            store,
            counts,
            client,
        })
    }

    /// Starts to follow the control plane, if there is one. If the service needs limits to start, waits for the first.
    pub(super) async fn follow_control_plane(&mut self, tasks: &mut JoinSet<()>) {
        let Some((client, plane)) = self.client.take().zip(self.settings.xds.as_ref()) else {
            return;
        };
        let source = self.source.clone();
        tasks.spawn(client.run(move |set| source.accept_set(set)));
        if plane.starts_without_limits {
            return;
        }
        info!(
            "waiting for the limits of the control plane {}",
            plane.address
        );
        self.source.more_sets(0).await;
    }

    /// Whether the gRPC service has the limits that its health requires.
    pub(super) fn serves_limits(&self) -> bool {
        serves_limits(&self.settings, &self.limits)
    }

    /// Calls `changed` with [`serves_limits`](Self::serves_limits) after each set of the control plane; never
    /// completes.
    pub(super) fn follow_limits<F: AsyncFn(bool) + Send + 'static>(
        &self,
        changed: F,
    ) -> impl Future<Output = ()> + use<F> {
        let source = self.source.clone();
        async move {
            let mut sets = 0;
            loop {
                sets = source.more_sets(sets).await;
                changed(serves_limits(source.settings(), source.limits())).await;
            }
        }
    }

    /// Reads the rules and the certificates again, and connects to Redis anew.
    pub(super) fn reload(&self) {
        self.source.reload();
        self.store.reconnect();
        self.reload_certificates();
    }

    pub(super) fn reload_certificates(&self) {
        if let Some(tls) = &self.tls {
            tls.reload();
        }
    }

    /// The HTTP routes.
    pub(super) fn router(&self, draining: Draining) -> Router {
        let limits = self.limits.clone();
        let handle = self.auth.as_ref().map(RulesLayer::handle);
        let store = self.settings.ready_needs_store.then(|| self.store.clone());
        let (settings, known) = (self.settings.clone(), limits.clone());
        let is_ready = move || {
            let has_store = || store.as_ref().is_none_or(Store::is_up);
            !draining.has_begun() && has_required_limits(&settings, &known) && has_store()
        };
        let router = http_routes::router_ready(limits.clone(), is_ready)
            .merge(check_route::router(limits, handle))
            .merge(self.metrics.router());
        match &self.auth {
            Some(rules) => router.merge(forward_auth::router(
                rules,
                self.settings.trust.iter().copied(),
            )),
            None => router,
        }
    }

    /// The file of the counts, if there is one.
    pub(super) fn state_file(&self) -> Option<StateFile> {
        StateFile::new(self.settings.state.as_deref(), &self.store)
    }

    /// Runs periodic tasks; never completes.
    pub(super) async fn upkeep(&self) {
        let decides = self.settings.on_failure_setting;
        self.store.check_at_start(decides).await;
        self.metrics.clone().upkeep().await;
    }

    /// The admin service.
    pub(super) fn admin(&self, draining: Draining) -> Admin {
        let sources = LiveSources {
            counts: Arc::clone(&self.counts),
            rooms: Arc::new(Vec::new),
            is_draining: Arc::new(move || draining.has_begun()),
        };
        let shares = self.quotas.as_ref().map(|quotas| quotas.0.clone());
        Admin::new(self.source.clone(), self.store.clone(), sources, shares)
    }
}

/// The quota service, if it is on.
fn quotas(
    settings: &Settings,
    limits: &RateLimits,
    store: &Store,
) -> Option<RateLimitQuotaService> {
    let of_service = settings.rlqs.clone()?;
    let limits = limits.clone();
    Some(match store {
        Store::Local(_) => rlqs::service(limits, of_service),
        Store::Redis(store) => {
            rlqs::shared_service(limits, of_service, (store, settings.on_failure))
        }
    })
}

/// The key of reservations. A shared one is only for processes that share counts: others would refund what they never
/// charged.
fn reservation_key(settings: &Settings) -> Result<ReservationKey, ServeError> {
    let Some(file) = &settings.reservation_key_file else {
        return ReservationKey::random();
    };
    if settings.redis.is_none() && settings.state.is_none() {
        let text = "--reservation-key-file is for counts that another process continues: add --redis or --state, or \
                    leave it";
        return Err(ServeError(text.to_owned()));
    }
    ReservationKey::read(file)
}

/// Checks that limits have one source, and one place.
fn check_source(settings: &Settings) -> Result<(), ServeError> {
    let has_files = !(settings.rules.is_empty() && settings.auth_rules.is_empty());
    if settings.xds.is_some() && has_files {
        let text = "limits come from files or from a control plane, and not from both";
        return Err(ServeError(text.to_owned()));
    }
    Ok(())
}

fn serves_limits(settings: &Settings, limits: &RateLimits) -> bool {
    let has_source = settings.has_limits();
    has_source && has_required_limits(settings, limits)
}

/// Whether there are the limits that readiness requires. Those of files were read before the service listens.
fn has_required_limits(settings: &Settings, limits: &RateLimits) -> bool {
    let needs_domain = settings
        .xds
        .as_ref()
        .is_some_and(|plane| plane.ready_needs_domain);
    let rules = limits.rules();
    !needs_domain || rules.is_some_and(|rules| rules.domains().next().is_some())
}

fn store(settings: &Settings) -> Result<Store, ServeError> {
    state_file::check(settings.state.as_deref(), settings.redis.as_ref())?;
    let Some(address) = &settings.redis else {
        let store = LocalStore::builder().max_keys(settings.max_keys);
        let store = match &settings.state {
            Some(state) => store.restore_or_new(state),
            None => store.build(),
        };
        return store
            .map(Store::Local)
            .map_err(|error| fault("--max-keys", &error));
    };
    let options = RedisOptions {
        deadline: settings.redis_deadline,
        prefix: settings.redis_prefix.as_deref(),
        password: settings.redis_password_file.as_ref(),
        tls: &settings.redis_tls,
        sharding_proxy: settings.redis_sharding_proxy,
    };
    options.connect(address).map(Store::Redis)
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
