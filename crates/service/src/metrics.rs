//! Metrics, for Prometheus.
//!
//! The library's observer and [`events`](crate::events) count events through the `metrics` facade. The state of the
//! service (limits, health, reloads) is read at each scrape, so that no series outlives its rule.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt::{Display, Write as _},
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{Router, extract::State, routing::get};
use http::header::CONTENT_TYPE;
use metrics::{KeyName, Recorder as _, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tower_ratelimit::observe::MetricsObserver;

use crate::{
    connections::{ConnectionCounts, ConnectionSlots},
    events::{
        GATEWAY_DURATION, GATEWAY_REQUESTS, GATEWAY_SECONDS, REFUSED_WAITS, RESERVATIONS,
        RLQS_ASSIGNMENTS, RLQS_BUCKETS, RLQS_REFUSED, RLQS_REPORTS, RLQS_REQUESTS, RLQS_STREAMS,
        RLS_DURATION, RLS_REQUESTS, UPSTREAM_ERRORS,
    },
    reference_statistics::COUNTS,
    rules_source::Source,
    store::Store,
};

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
pub(crate) struct Metrics {
    inner: Arc<Inner>,
    /// The connections of a gateway's clients.
    connections: Option<Arc<ConnectionSlots>>,
}

struct Inner {
    recorder: &'static PrometheusHandle,
    source: Source,
    store: Store,
}

impl Metrics {
    /// The metrics of this process. Installs the recorder if there is none.
    pub(crate) fn new(source: Source, store: Store) -> Self {
        let recorder = recorder();
        let inner = Inner {
            recorder,
            source,
            store,
        };
        Self {
            inner: Arc::new(inner),
            connections: None,
        }
    }

    /// Adds the connections of a gateway's clients.
    pub(crate) fn with_connections(mut self, connections: Arc<ConnectionSlots>) -> Self {
        self.connections = Some(connections);
        self
    }

    /// The route `GET /metrics`.
    pub(crate) fn router(&self) -> Router {
        self.router_at("/metrics")
    }

    /// The route at another path.
    pub(crate) fn router_at(&self, path: &str) -> Router {
        let content = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
        let text = async move |State(metrics): State<Self>| (content, metrics.text());
        Router::new()
            .route(path, get(text))
            .with_state(self.clone())
    }

    /// Runs periodic tasks; never completes. Bounds the memory of histograms without scrapes, and checks Redis while
    /// it is not known to respond, or if readiness depends on it, since there may be no requests.
    pub(crate) async fn upkeep(self) {
        let Inner {
            recorder,
            source,
            store,
        } = &*self.inner;
        let mut ticks = tokio::time::interval(UPKEEP);
        loop {
            ticks.tick().await;
            recorder.run_upkeep();
            if let Store::Redis(redis) = store
                && (!store.is_up() || source.settings().store.ready_needs_store)
            {
                // The store's health has the result.
                drop(redis.check().await);
            }
        }
    }

    fn text(&self) -> String {
        let Inner {
            recorder,
            source,
            store,
        } = &*self.inner;
        if let Store::Local(store) = store {
            MetricsObserver::new().record_table(store.tracked_keys(), store.evictions());
        }
        let mut text = Text::default();
        let mut build = text.gauge("ratelimit_build_info", "Always 1; the version is a label.");
        build.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        loads(&mut text, source);
        limits(&mut text, source);
        health(&mut text, store);
        statistics(&mut text, source);
        if let Some(slots) = &self.connections {
            connections(&mut text, slots.counts());
        }
        text.append(&recorder.render());
        text.into_string()
    }
}

fn loads(text: &mut Text, source: &Source) {
    let loads = source.loads();
    let mut counts = text.counter("ratelimit_config_loads_total", "How often rules were read.");
    counts.sample(&[("result", "success")], loads.accepted);
    counts.sample(&[("result", "failure")], loads.refused);
    if let Some(is_connected) = source.is_connected() {
        let help = "1 while the control plane is connected, else 0; its last limits stay in force.";
        text.gauge("ratelimit_config_connected", help)
            .sample(&[], u8::from(is_connected));
    }
    let successful = u8::from(loads.fault.is_none());
    text.gauge(
        "ratelimit_config_last_load_successful",
        "1, or 0 while the files have a fault and the rules before them stay in force.",
    )
    .sample(&[], successful);
    text.gauge(
        "ratelimit_config_last_load_timestamp_seconds",
        "When rules were last put into force.",
    )
    .sample(&[], seconds(loads.loaded_at));
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

fn limits(text: &mut Text, source: &Source) {
    text.gauge("ratelimit_rules", "Rules in force.")
        .sample(&[], source.rules());
    let mut family = text.gauge("ratelimit_limit", "Units that a policy allows at once.");
    for (policy, limit) in source.policies() {
        family.sample(&[("policy", &policy)], limit);
    }
    if let Some(auth) = source.auth() {
        let help = "Requests in flight in this process, by the policy of the rule's in_flight.";
        let mut family = text.gauge("ratelimit_in_flight", help);
        for (policy, count) in auth.in_flight() {
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

/// Under the names and labels that the reference's statistics have in Prometheus, so that its dashboards work.
fn statistics(text: &mut Text, source: &Source) {
    if source.limits().rules().is_none() {
        return;
    }
    let mut sums = BTreeMap::new();
    for (name, counts) in source.limits().statistics().all() {
        let sums = sums.entry(name.labels()).or_insert([0; COUNTS.len()]);
        let counts = sums.iter_mut().zip(counts);
        counts.for_each(|(sum, count)| *sum += count);
    }
    // All families have the same labels.
    let limits: Vec<_> = sums
        .into_iter()
        .map(|(labels, counts)| {
            let labels = labels
                .iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(name, value)| (*name, value.as_str()));
            (label_text(labels), counts)
        })
        .collect();
    for (at, (name, help)) in COUNTS.iter().enumerate() {
        let name = format!("ratelimit_service_rate_limit_{name}");
        let mut family = text.counter(&name, help);
        for (labels, counts) in &limits {
            family.labelled(labels, counts[at]);
        }
    }
}

fn connections(text: &mut Text, counts: ConnectionCounts) {
    let help = "Connections of clients: busy ones have a request or a WebSocket.";
    let mut open = text.gauge("ratelimit_gateway_connections", help);
    open.sample(&[("state", "busy")], counts.busy);
    open.sample(&[("state", "idle")], counts.idle);
    let help = "Connections that were closed because their client had its most, or as idle ones for the room of others.";
    let mut closed = text.counter("ratelimit_gateway_connections_closed_total", help);
    closed.sample(&[("reason", "client")], counts.refused);
    closed.sample(&[("reason", "room")], counts.evicted);
}

fn health(text: &mut Text, store: &Store) {
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

/// A text of metric families.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

/// A family that takes samples.
#[derive(Debug)]
pub(crate) struct Family<'t> {
    text: &'t mut String,
    name: &'t str,
}

impl Text {
    pub(crate) fn gauge<'t>(&'t mut self, name: &'t str, help: &str) -> Family<'t> {
        self.family(name, "gauge", help)
    }

    pub(crate) fn counter<'t>(&'t mut self, name: &'t str, help: &str) -> Family<'t> {
        self.family(name, "counter", help)
    }

    fn family<'t>(&'t mut self, name: &'t str, kind: &str, help: &str) -> Family<'t> {
        let text = &mut self.0;
        // Writing to a string never fails.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Family { text, name }
    }

    pub(crate) fn append(&mut self, other: &str) {
        self.0.push_str(other);
    }

    fn into_string(self) -> String {
        self.0
    }
}

impl Family<'_> {
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.labelled(&label_text(labels.iter().copied()), value);
    }

    /// A sample with prepared [`labels`].
    fn labelled(&mut self, labels: &str, value: impl Display) {
        let _ = writeln!(self.text, "{}{labels} {value}", self.name);
    }
}

/// Labels as they are written after a name: `{backend="local"}`.
fn label_text<'l>(labels: impl Iterator<Item = (&'l str, &'l str)>) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let before = if text.is_empty() { '{' } else { ',' };
        let _ = write!(text, "{before}{name}=\"");
        for c in value.chars() {
            match c {
                '\\' => text.push_str(r"\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                c => text.push(c),
            }
        }
        text.push('"');
    }
    if !text.is_empty() {
        text.push('}');
    }
    text
}

#[cfg(test)]
mod text_tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        let mut text = Text::default();
        let mut family = text.gauge("limit", "Units.");
        family.sample(&[("policy", "a\"b\\c\nd"), ("backend", "local")], 7);
        family.sample(&[], 0.5);
        let expected = "# HELP limit Units.\n# TYPE limit gauge\n\
        limit{policy=\"a\\\"b\\\\c\\nd\",backend=\"local\"} 7\nlimit 0.5\n";
        assert_eq!(text.into_string(), expected);
    }
}
