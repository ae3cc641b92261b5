//! Metrics, for Prometheus.
//!
//! The library's observer and the services count events through the `metrics` facade. The state of the
//! service (limits, health, reloads) is read at each scrape, so that no series outlives its rule.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, UNIX_EPOCH},
};

use axum::{Router, extract::State, routing::get};
use http::header::CONTENT_TYPE;
use metrics::{KeyName, Recorder as _, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tower_ratelimit::observe::MetricsObserver;

use crate::{
    connections::{ConnectionCounts, ConnectionSlots},
    metrics_text::MetricsText,
    rules_source::{Descriptors, Source},
    store::Store,
};

// The names of what the services count: a process has one recorder, and so one list.
pub const RLS_REQUESTS: &str = "ratelimit_rls_requests_total";
pub const RLS_DURATION: &str = "ratelimit_rls_duration_seconds";
pub const RESERVATIONS: &str = "ratelimit_rls_reservations_total";
pub const RLQS_STREAMS: &str = "ratelimit_rlqs_streams";
pub const RLQS_BUCKETS: &str = "ratelimit_rlqs_buckets";
pub const RLQS_REPORTS: &str = "ratelimit_rlqs_reports_total";
pub const RLQS_REQUESTS: &str = "ratelimit_rlqs_requests_total";
pub const RLQS_ASSIGNMENTS: &str = "ratelimit_rlqs_assignments_total";
pub const RLQS_REFUSED: &str = "ratelimit_rlqs_refused_total";
pub const GATEWAY_REQUESTS: &str = "ratelimit_gateway_requests_total";
pub const GATEWAY_DURATION: &str = "ratelimit_gateway_duration_seconds";
pub const REFUSED_WAITS: &str = "ratelimit_gateway_body_waits_refused_total";
pub const UPSTREAM_ERRORS: &str = "ratelimit_gateway_upstream_errors_total";

/// Upper bounds of the histogram, in seconds: from a denial to a slow upstream.
pub(crate) const GATEWAY_SECONDS: [f64; 14] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0,
];

/// Upper bounds of the histograms, in seconds: from a decision in this process to a store that hangs.
const SECONDS: [f64; 13] = [
    0.000_01, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.02, 0.05, 0.25,
    1.0,
];

/// How often the samples of histograms are moved into their buckets: until then each takes memory.
const UPKEEP: Duration = Duration::from_secs(1);

/// The counters that events increment, with their help texts.
const COUNTERS: [(&str, &str); 16] = [
    (
        "ratelimit_requests_total",
        "Requests that rules decided, by result.",
    ),
    ("ratelimit_denials_total", "Requests that a policy denied."),
    (
        "ratelimit_near_limit_total",
        "Decisions that left a fifth of the limit or less.",
    ),
    ("ratelimit_cost_total", "Units that were charged."),
    ("ratelimit_degraded_total", "Decisions without the store."),
    (
        "ratelimit_backend_errors_total",
        "Requests that could not be decided.",
    ),
    (
        "ratelimit_evictions_total",
        "Counts that a full table evicted.",
    ),
    (RLS_REQUESTS, "Calls of ShouldRateLimit, by result."),
    (RESERVATIONS, "Calls of Reserve and Commit, by result."),
    (RLQS_REPORTS, "Reports of quota buckets."),
    (
        RLQS_REQUESTS,
        "Requests that clients decided by their shares, as reported, by result.",
    ),
    (
        RLQS_ASSIGNMENTS,
        "Actions on quota buckets: share, units, allow, deny, abandon.",
    ),
    (
        RLQS_REFUSED,
        "Quota buckets without a share and streams that ended, by reason.",
    ),
    (
        GATEWAY_REQUESTS,
        "Requests to the gateway, by the class of their status.",
    ),
    (
        REFUSED_WAITS,
        "Requests of a client that had too many others which waited for their bodies.",
    ),
    (
        UPSTREAM_ERRORS,
        "Requests to the gateway without a response of the upstream, by cause.",
    ),
];

/// The gauges that events set, with their help texts.
const GAUGES: [(&str, &str); 2] = [
    (RLQS_STREAMS, "Open streams of quota reports."),
    (RLQS_BUCKETS, "Quota buckets with a share."),
];

/// The histograms of seconds, with their help texts.
const HISTOGRAMS: [(&str, &str); 4] = [
    (
        "ratelimit_check_duration_seconds",
        "The limiter's own time.",
    ),
    (
        "ratelimit_wait_seconds",
        "The waiting time of requests that waited.",
    ),
    (
        RLS_DURATION,
        "The time from a call of ShouldRateLimit to its response.",
    ),
    (
        GATEWAY_DURATION,
        "The time from the header of a request to the header of its response.",
    ),
];

/// The recorder of this process. If the program has installed another one, that one receives all events, and this one
/// none.
fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let of_gateway = Matcher::Full(GATEWAY_DURATION.to_owned());
        let builder = PrometheusBuilder::new()
            .set_buckets(&SECONDS)
            .and_then(|builder| builder.set_buckets_for_metric(of_gateway, &GATEWAY_SECONDS));
        let recorder = match builder {
            Ok(builder) => builder.build_recorder(),
            Err(_) => unreachable!("there are bounds"),
        };
        for (name, help) in COUNTERS {
            recorder.describe_counter(KeyName::from(name), None, help.into());
        }
        for (name, help) in GAUGES {
            recorder.describe_gauge(KeyName::from(name), None, help.into());
        }
        for (name, help) in HISTOGRAMS {
            recorder.describe_histogram(KeyName::from(name), Some(Unit::Seconds), help.into());
        }
        let handle = recorder.handle();
        drop(metrics::set_global_recorder(recorder));
        handle
    })
}

/// The sources of `/metrics`.
#[derive(Clone)]
pub struct Metrics {
    recorder: &'static PrometheusHandle,
    source: Source,
    /// The connections of a gateway's clients.
    connections: Option<Arc<ConnectionSlots>>,
    /// Whether the process is ready only while Redis responds.
    ready_needs_store: bool,
}

impl Metrics {
    /// The metrics of this process. Installs the recorder if there is none.
    pub fn new(source: Source, ready_needs_store: bool) -> Self {
        Self {
            recorder: recorder(),
            source,
            connections: None,
            ready_needs_store,
        }
    }

    /// Adds the connections of a gateway's clients.
    #[must_use]
    pub fn with_connections(mut self, connections: Arc<ConnectionSlots>) -> Self {
        self.connections = Some(connections);
        self
    }

    /// The route `GET` at this path.
    pub fn router(&self, path: &str) -> Router {
        let content = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
        let text = async move |State(metrics): State<Self>| (content, metrics.text());
        Router::new()
            .route(path, get(text))
            .with_state(self.clone())
    }

    /// Runs periodic tasks; never completes. Bounds the memory of histograms without scrapes, and checks Redis while
    /// it is not known to respond, or if readiness depends on it, since there may be no requests.
    pub async fn upkeep(self) {
        let Self {
            recorder,
            source,
            ready_needs_store,
            ..
        } = &self;
        let store = source.store();
        let mut ticks = tokio::time::interval(UPKEEP);
        loop {
            ticks.tick().await;
            recorder.run_upkeep();
            if let Store::Redis(redis) = store
                && (!store.is_up() || *ready_needs_store)
            {
                // The store's health has the result.
                drop(redis.check().await);
            }
        }
    }

    /// The text of a scrape.
    pub fn text(&self) -> String {
        let Self {
            recorder, source, ..
        } = self;
        let store = source.store();
        if let Store::Local(store) = store {
            MetricsObserver::new().record_table(store.tracked_keys(), store.evictions());
        }
        let mut text = MetricsText::default();
        let mut build = text.gauge("ratelimit_build_info", "Always 1; the version is a label.");
        build.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        loads(&mut text, source);
        limits(&mut text, source);
        health(&mut text, store);
        if let Some(descriptors) = source.descriptors() {
            descriptors.write_metrics(&mut text);
        }
        if let Some(slots) = &self.connections {
            connections(&mut text, slots.counts());
        }
        text.append(&recorder.render());
        text.into_string()
    }
}

fn loads(text: &mut MetricsText, source: &Source) {
    let loads = source.loads();
    let mut counts = text.counter("ratelimit_config_loads_total", "How often rules were read.");
    counts.sample(&[("result", "success")], loads.accepted);
    counts.sample(&[("result", "failure")], loads.refused);
    if let Some(plane) = source.descriptors().and_then(Descriptors::control_plane) {
        let help = "1 while the control plane is connected, else 0; its last limits stay in force.";
        text.gauge("ratelimit_config_connected", help)
            .sample(&[], u8::from(plane.is_connected));
    }
    let successful = u8::from(loads.fault.is_none());
    let loaded_at = loads.loaded_at.duration_since(UNIX_EPOCH);
    text.gauge(
        "ratelimit_config_last_load_successful",
        "1, or 0 while the files have a fault and the rules before them stay in force.",
    )
    .sample(&[], successful);
    text.gauge(
        "ratelimit_config_last_load_timestamp_seconds",
        "When rules were last put into force.",
    )
    .sample(&[], loaded_at.unwrap_or_default().as_secs_f64());
}

fn limits(text: &mut MetricsText, source: &Source) {
    text.gauge("ratelimit_rules", "Rules in force.")
        .sample(&[], source.rules());
    let mut family = text.gauge("ratelimit_limit", "Units that a policy allows at once.");
    for (policy, limit) in source.policies() {
        family.sample(&[("policy", &policy)], limit);
    }
    if let Some(requests) = source.requests() {
        let help = "Requests in flight in this process, by the policy of the rule's in_flight.";
        let mut family = text.gauge("ratelimit_in_flight", help);
        for (policy, count) in requests.in_flight() {
            family.sample(&[("policy", policy.name())], count);
        }
    }
    let help = "0 while limits are switched off: all of them, or those of one rule.";
    let mut enabled = text.gauge("ratelimit_enabled", help);
    let (all_on, off) = source.switches();
    // A rule may have the name `all`.
    let (all, off): (Vec<_>, Vec<_>) = off.into_iter().partition(|rule| rule == "all");
    enabled.sample(&[("rule", "all")], u8::from(all_on && all.is_empty()));
    for rule in off {
        enabled.sample(&[("rule", &rule)], 0);
    }
}

fn connections(text: &mut MetricsText, counts: ConnectionCounts) {
    let help = "Connections of clients: busy ones have a request or a WebSocket.";
    let mut open = text.gauge("ratelimit_gateway_connections", help);
    open.sample(&[("state", "busy")], counts.busy);
    open.sample(&[("state", "idle")], counts.idle);
    let help = "Connections that were closed because their client had its most, or as idle ones for the room of others.";
    let mut closed = text.counter("ratelimit_gateway_connections_closed_total", help);
    closed.sample(&[("reason", "client")], counts.refused);
    closed.sample(&[("reason", "room")], counts.evicted);
}

fn health(text: &mut MetricsText, store: &Store) {
    let open = match store {
        Store::Local(_) => false,
        Store::Redis(store) => store.health().is_down(),
    };
    let labels = [("backend", store.backend())];
    text.gauge("ratelimit_store_up", "Whether the store answers.")
        .sample(&labels, u8::from(store.is_up()));
    text.gauge(
        "ratelimit_breaker_open",
        "Whether the circuit to the store is open, after several failures.",
    )
    .sample(&labels, u8::from(open));
}
