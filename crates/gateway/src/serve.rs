//! The process: the rules in force, listeners, and shutdown.
//!
//! A request passes checks of size and number first. Then the gateway finds its client and applies the rules, and
//! forwards what is allowed. Metrics, probes and operators have listeners of their own: all paths of the main
//! listener belong to the upstream.

use std::{future::pending, sync::Arc, time::Duration};

use axum::Router;
use http::Request;
use tokio::{
    net::TcpListener,
    task::{JoinHandle, JoinSet},
};
use tower_ratelimit::{
    observe::{MetricsObserver, TopKeys},
    rules::{HoldingRulesLayer, Rules, RulesLayer},
};
use tracing::info;

use crate::{
    denied_page::{CallOrProblem, DeniedPage, PageFile},
    request_checks::CheckedProxy,
    settings::Settings,
    upstream::TlsToUpstream,
};
use tower_ratelimit_service::{
    OperatorSettings,
    admin::{Admin, AdminListener, LiveSources, Room},
    connections::{
        self, ConnectionLimits, ConnectionSlots, MAX_CONNECTIONS, listen, listen_unless_off,
        serve_routes,
    },
    decision_counts::DecisionCounts,
    errors::{ServeError, counted, fault},
    metrics::Metrics,
    otel_spans::{Caller, observed},
    rule_file_polling::{Watch, reload_on_change},
    rules_source::{self, Source, warn_of},
    shutdown::{self, Draining, Signals, Stop, probes},
    store::{StateFile, Store, save_at_end, save_each_minute},
    tls::{self, Tls},
};

/// The rules in force, as requests and operators use them.
struct Limits {
    layer: HoldingRulesLayer<CallOrProblem>,
    page: Option<DeniedPage>,
    source: Source,
    counts: Arc<DecisionCounts>,
}

impl Limits {
    fn new(settings: &Settings, rules: Rules, page: Option<DeniedPage>, store: Store) -> Self {
        let backend = store.backend();
        let layer = RulesLayer::new(rules).rejection(CallOrProblem);
        let top = Arc::<TopKeys>::default();
        let metrics = MetricsObserver::new().backend(backend);
        let counts = Arc::new(DecisionCounts::new(settings.operators.admin.is_some()));
        // Counting costs as much as deciding, so it is off if no listener serves the counts.
        let of_operators = (Arc::clone(&top), Arc::clone(&counts));
        let layer = match settings.http {
            Some(_) => layer.observer(observed((metrics, of_operators), backend)),
            None => layer.observer(observed(of_operators, backend)),
        };
        let layer = layer.holding();
        let reload_page = page
            .clone()
            .map(|page| -> Box<dyn Fn() + Send + Sync> { Box::new(move || page.reload()) });
        let source = Source::new(rules_source::Parts {
            store,
            requests: Some(layer.handle()),
            requests_name: "the rules",
            follows_responses: true,
            descriptors: None,
            top,
            reload_others: reload_page,
        });
        Self {
            source,
            layer,
            page,
            counts,
        }
    }

    /// Reads the rules again, and connects to Redis anew.
    fn reload(&self) {
        self.source.reload();
        self.source.store().reconnect();
    }

    /// The admin service of the running gateway.
    fn admin(&self, settings: OperatorSettings, running: &Running) -> Admin {
        let proxy = Arc::clone(&running.proxy);
        let connections = Arc::clone(&running.connections);
        let rooms = move || [proxy.rooms(), vec![room(&connections)]].concat();
        let sources = LiveSources {
            counts: Arc::clone(&self.counts),
            rooms: Arc::new(rooms),
            draining: running.draining.clone(),
        };
        Admin::new(self.source.clone(), settings, sources)
    }

    /// The metrics, if a listener serves them.
    fn metrics(&self, settings: &Settings) -> Option<Metrics> {
        let needs_store = settings.store.ready_needs_store;
        let has_listener = settings.http.is_some();
        has_listener.then(|| Metrics::new(self.source.clone(), needs_store))
    }
}

/// TLS of clients and to the upstream.
struct Certificates {
    listener: Option<Tls>,
    upstream: Option<TlsToUpstream>,
}

impl Certificates {
    fn new(settings: &Settings) -> Result<Self, ServeError> {
        Ok(Self {
            listener: settings.tls.clone().map(Tls::new).transpose()?,
            upstream: TlsToUpstream::new(settings)?,
        })
    }

    /// Reads changed files again.
    fn reload(&self) {
        if let Some(tls) = &self.listener {
            tls.reload();
        }
        if let Some(tls) = &self.upstream {
            tls.reload();
        }
    }
}

/// Serves until the process gets a signal to stop, then completes active requests. Operators follow it in the log, by
/// events of `tracing`.
///
/// SIGTERM and SIGINT stop the gateway, a second one at once. SIGHUP reads the rules and the certificates again, and
/// connects to Redis anew.
///
/// # Errors
///
/// When a file, an address or a setting is wrong.
pub async fn serve(settings: Settings) -> Result<(), ServeError> {
    // Before the files are read, so that no change is missed.
    let watch = settings.watch.then(|| Watch::new(settings.watched()));
    let (rules, store) = settings.rules()?;
    warn_of(rules.warnings());
    let certificates = Certificates::new(&settings)?;
    let page = settings.denied_page.clone().map(PageFile);
    let page = page.map(DeniedPage::new).transpose()?;
    let (listener, address) = listen(settings.listen, "--listen").await?;
    let operators = AdminListener::listen(&settings.operators).await?;
    let http = match settings.http {
        Some(address) => Some(listen_unless_off(address, "--http").await?),
        None => None,
    };
    let signals = Signals::new().map_err(|error| fault("signals", &error))?;
    let of_http = http
        .as_ref()
        .map(|(_, at)| format!("; metrics and probes are on {at}"));
    let of_operators = operators.as_ref();
    let of_operators = of_operators.map(|at| format!("; operators are served on {}", at.address));
    info!(
        "limiting {} by {}, on {address}{}{}",
        settings.upstream,
        counted(rules.len(), "rule"),
        of_http.unwrap_or_default(),
        of_operators.unwrap_or_default(),
    );
    let limits = Limits::new(&settings, rules, page, store);
    let store = limits.source.store();
    let state = StateFile::new(settings.store.state.as_deref(), store);
    // The recorder has to be installed before anything is counted.
    let metrics = limits.metrics(&settings);
    let running = Running::start(&settings, &limits, listener, &certificates)?;
    let connections = Arc::clone(&running.connections);
    let metrics = metrics.map(|metrics| metrics.with_connections(connections));
    let admin = limits.admin(settings.operators.clone(), &running);
    // The counters of the running server exist before the metrics are served.
    let (side_stop, stopped) = shutdown::stop();
    let mut side_servers = JoinSet::new();
    if let (Some((listener, _)), Some(metrics)) = (http, &metrics) {
        let draining = running.draining.clone();
        let needed = settings.store.ready_needs_store.then(|| store.clone());
        let probes =
            probes(move || !draining.has_begun() && needed.as_ref().is_none_or(Store::is_up));
        let routes = metrics.router("/metrics").merge(probes);
        let limits = ConnectionLimits::http(MAX_CONNECTIONS);
        let until = stopped.clone();
        side_servers.spawn(serve_routes(listener, None, limits, routes, until));
    }
    if let Some(listener) = operators {
        side_servers.spawn(admin.serve(listener, Router::new(), stopped));
    }
    let reload = || {
        limits.reload();
        certificates.reload();
    };
    let end = running.end(settings.drain, (side_servers, side_stop));
    let lifetime = shutdown::run(signals, reload, end);
    tokio::select! {
        () = tls::watch_during(lifetime, || certificates.reload()) => {}
        () = reload_on_change(watch, reload) => {}
        () = upkeep(metrics, store, state.as_ref()) => {}
    }
    save_at_end(state.as_ref()).await;
    Ok(())
}

/// Runs periodic tasks; never completes.
async fn upkeep(metrics: Option<Metrics>, store: &Store, state: Option<&StateFile>) {
    store.check_at_start("store.on_failure of the rules").await;
    let metrics = async {
        match metrics {
            Some(metrics) => metrics.upkeep().await,
            None => pending().await,
        }
    };
    tokio::join!(metrics, save_each_minute(state));
}

/// The running server.
struct Running {
    server: JoinHandle<()>,
    proxy: Arc<CheckedProxy>,
    connections: Arc<ConnectionSlots>,
    draining: Draining,
    stop: Stop,
}

/// The connections of clients, and the most of them.
fn room(connections: &ConnectionSlots) -> Room {
    let counts = connections.counts();
    Room {
        name: "connections",
        used: counts.busy + counts.idle,
        most: connections.most(),
    }
}

impl Running {
    fn start(
        settings: &Settings,
        limits: &Limits,
        listener: TcpListener,
        certificates: &Certificates,
    ) -> Result<Self, ServeError> {
        let draining = Draining::default();
        let (stop, until) = shutdown::stop();
        let stopped = until.stopped.clone();
        let proxy = Arc::new(CheckedProxy::new(
            settings,
            (&limits.layer, limits.page.as_ref()),
            certificates.upstream.as_ref(),
            draining.clone(),
            stopped,
        )?);
        let connections = proxy.connections(settings);
        let limits = ConnectionLimits::http(connections.most());
        let answer = {
            let proxy = Arc::clone(&proxy);
            move |request, peer| {
                let proxy = Arc::clone(&proxy);
                let caller = Caller::of(Request::headers(&request), None);
                caller.within(async move { proxy.answer(request, peer).await })
            }
        };
        Ok(Self {
            server: tokio::spawn(connections::serve(
                listener,
                certificates.listener.clone(),
                (limits, Some(Arc::clone(&connections))),
                answer,
                until,
            )),
            proxy,
            connections,
            draining,
            stop,
        })
    }

    /// Announces the end on each connection for the drain time. Then accepts no more requests, and waits for active
    /// requests and tunnels. The side servers stop last, since their probes report the state. False on timeout.
    async fn end(
        self,
        drain: Duration,
        (mut side_servers, side_stop): (JoinSet<()>, Stop),
    ) -> bool {
        self.draining.begin();
        let all = async {
            drop(self.server.await);
            self.proxy.all_answered().await;
            side_stop.now();
            while side_servers.join_next().await.is_some() {}
        };
        shutdown::drain(drain, &self.stop, all).await
    }
}
