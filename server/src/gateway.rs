//! The gateway: a proxy that limits requests before it hands them on.
//!
//! A request's size and time are limited first, then its client is found and the rules are asked; what passes goes to
//! the upstream. Metrics, probes and operators have listeners of their own: all paths are the upstream's.

mod answer;
mod beside;
mod download;
mod failures;
mod fields;
mod frames;
mod front;
mod host;
mod progress;
mod proxy;
mod settings;
#[cfg(test)]
mod tests;
mod ticket;
mod unread;
mod upgrade;
mod upload;

use std::{future::pending, sync::Arc, time::Duration};

use http::Request;
use tokio::{net::TcpListener, task::JoinHandle};
use tower_ratelimit::{
    OnFailure,
    observe::MetricsObserver,
    rules::{Rules, RulesLayer},
};
use tracing::info;

pub use self::settings::{Settings, Upstream};
use self::{
    beside::{Beside, ListenersBeside},
    front::Front,
};
use crate::{
    admin::Admin,
    connections::{self, Terms, listen},
    decide::{Modes, RateLimits},
    error::{ServeError, fault},
    http::Draining,
    life::{self, Signals, Stop},
    metrics::Metrics,
    source::{Source, warn_of},
    store::Store,
    telemetry::{Caller, observed},
    tls::{self, Tls},
    watch::{Watch, reload_on_change},
    words::counted,
};

/// The rules in force, as requests and as operators meet them.
struct Limits {
    layer: RulesLayer,
    source: Source,
    store: Store,
}

impl Limits {
    fn new(settings: &Settings, rules: Rules, store: Store) -> Self {
        let backend = store.backend();
        // There are no descriptors to count: it is there for the keys that are denied most often.
        let limits = RateLimits::new(store.counters(OnFailure::local()), Modes::default());
        let (layer, top) = (RulesLayer::new(rules), Arc::clone(limits.top()));
        let metrics = MetricsObserver::new().backend(backend);
        // Counting costs as much as deciding, also where nobody can read the counts.
        let layer = match settings.http {
            Some(_) => layer.observer(observed((metrics, top), backend)),
            None => layer.observer(observed(top, backend)),
        };
        let handle = Some(layer.handle());
        Self {
            source: Source::new(settings.service(), limits, handle, "the rules"),
            layer,
            store,
        }
    }
}

/// Hands requests on until the process is told to end, and then until the last one is answered. Operators read of it in
/// the log, by events of `tracing`.
///
/// SIGTERM and SIGINT end the gateway, a second of either at once; SIGHUP reads the rules and the
/// certificates again.
///
/// # Errors
///
/// When a file, an address or a setting is wrong.
pub async fn serve(settings: Settings) -> Result<(), ServeError> {
    // Before the files are read, so that no change is missed.
    let watch = Watch::new(&settings.service());
    let (rules, store) = settings.rules()?;
    warn_of(rules.warnings());
    let tls = settings.tls.clone().map(Tls::new).transpose()?;
    let (listener, address) = listen(settings.listen, "--listen").await?;
    let listeners = ListenersBeside::new(&settings).await?;
    let signals = Signals::new().map_err(|error| fault("signals", &error))?;
    info!(
        "limiting http://{} by {}, on {address}{listeners}",
        settings.upstream.0,
        counted(rules.len(), "rule"),
    );
    let limits = Limits::new(&settings, rules, store);
    let Limits { source, store, .. } = &limits;
    let draining = Draining::default();
    // Its recorder has to be there before anything is counted.
    let metrics = listeners.http.is_some();
    let metrics = metrics.then(|| Metrics::new(source.clone(), store.clone()));
    let admin = Admin::new(source.clone(), store.clone());
    let running = Running::start(&settings, &limits.layer, (listener, tls.clone()), draining);
    // The counters of the running server are there before anybody reads them.
    let needed = settings.ready_needs_store.then(|| store.clone());
    let metered = metrics.as_ref();
    let beside = Beside::start(listeners, metered, admin, &running.draining, needed);
    let reload = || {
        source.reload();
        if let Some(tls) = &tls {
            tls.reload();
        }
    };
    let end = running.end(settings.drain, beside);
    let life = life::live(signals, reload, end);
    tokio::select! {
        () = tls::watch_during(life, tls.as_ref()) => {}
        () = reload_on_change(watch, reload) => {}
        () = upkeep(metrics, store) => {}
    }
    Ok(())
}

/// Never ends.
async fn upkeep(metrics: Option<Metrics>, store: &Store) {
    store.check_at_start("store.on_failure of the rules").await;
    match metrics {
        Some(metrics) => metrics.upkeep().await,
        None => pending().await,
    }
}

/// The server.
struct Running {
    server: JoinHandle<()>,
    front: Arc<Front>,
    draining: Draining,
    stop: Stop,
}

impl Running {
    fn start(
        settings: &Settings,
        layer: &RulesLayer,
        (listener, tls): (TcpListener, Option<Tls>),
        draining: Draining,
    ) -> Self {
        let (stop, until) = life::stop();
        let stopped = until.stopped.clone();
        let front = Arc::new(Front::new(settings, layer, draining.clone(), stopped));
        let per_client = front.per_client(settings);
        let answer = {
            let front = Arc::clone(&front);
            move |request, peer| {
                let front = Arc::clone(&front);
                let caller = Caller::of(Request::headers(&request), None);
                caller.within(async move { front.answer(request, peer).await })
            }
        };
        Self {
            server: tokio::spawn(connections::serve(
                listener,
                tls,
                (Terms::http(settings.max_connections), per_client),
                answer,
                until,
            )),
            front,
            draining,
            stop,
        }
    }

    /// Gives connections up by a word for as long as callers may need to notice; then takes no more requests, and
    /// waits for those under way, and for tunnels. What is beside ends last: probes tell of all this. False if
    /// they took too long.
    async fn end(self, drain: Duration, beside: Beside) -> bool {
        self.draining.begin();
        let all = async {
            drop(self.server.await);
            self.front.all_answered().await;
            beside.end().await;
        };
        life::drain(drain, &self.stop, all).await
    }
}
