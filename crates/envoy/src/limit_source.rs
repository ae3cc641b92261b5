//! The source of the limits of descriptors: files, or a control plane; and what operators see of these limits.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use axum::{
    Router,
    extract::{Query, State},
    routing::get,
};
use serde_json::json;
use tokio::sync::watch;
use tower_ratelimit::{decision::Op, rules::RulesError};
use tracing::{error, info, warn};

use crate::{
    decide::RateLimits,
    lyft::{Limit, Rules},
    protobuf_messages::{DiscoveryResponse, Entry},
    reference_statistics::COUNTS,
    rlqs::Shares,
    settings::Settings,
    xds::{self, Connected},
};
use tower_ratelimit_service::{
    admin::{Answer, Fields, bad, not_found, ok, unavailable},
    decision_counts::Totals,
    errors::{ServeError, counted},
    metrics_text::{MetricsText, label_text},
    rules_source::{
        BoxFuture, ControlPlaneState, Count, DescriptorLimit, Descriptors, Reloaded, Source,
        warn_of,
    },
};

/// The limits of descriptors in force, and where they come from. Clones share them.
#[derive(Clone)]
pub(crate) struct DescriptorSource(Arc<Inner>);

struct Inner {
    settings: Settings,
    /// The files that were named at the start; other paths are directories.
    files_once: Vec<PathBuf>,
    limits: RateLimits,
    /// The connection to the control plane, if the settings have one.
    connected: Connected,
    /// The version of the control plane's newest accepted set; `None` before the first, and of files.
    version: watch::Sender<Option<String>>,
}

/// The most names of removed limits in a line of the log.
const MAX_NAMES: usize = 20;

/// The line for the log about limits of descriptors that are removed, if there are any.
fn removal(before: &Rules, after: &Rules) -> Option<String> {
    let names = |rules: &Rules| rules.limits().map(|(name, _)| name).collect();
    let (before, after): (BTreeSet<String>, BTreeSet<String>) = (names(before), names(after));
    let removed: Vec<&str> = before.difference(&after).map(String::as_str).collect();
    let listed = removed[..removed.len().min(MAX_NAMES)].join(", ");
    let more = removed.len().saturating_sub(MAX_NAMES);
    let count = counted(removed.len(), "limit");
    match (removed.len(), more) {
        (0, _) => None,
        (_, 0) => Some(format!("{count} removed: {listed}")),
        _ => Some(format!("{count} removed: {listed} and {more} more")),
    }
}

impl DescriptorSource {
    /// A source of limits that are in force already.
    pub(crate) fn new(settings: Settings, limits: RateLimits) -> Self {
        let files = settings.rules.iter().filter(|path| path.is_file());
        Self(Arc::new(Inner {
            files_once: files.cloned().collect(),
            settings,
            limits,
            connected: Connected::default(),
            version: watch::Sender::default(),
        }))
    }

    /// The client of the control plane, if there is one.
    ///
    /// # Errors
    ///
    /// When its settings are wrong.
    pub(crate) fn client(&self) -> Result<Option<xds::Client>, ServeError> {
        let plane = self.0.settings.control_plane().cloned();
        let client = plane.map(|plane| xds::Client::new(plane, self.0.connected.clone()));
        client.transpose()
    }

    /// The version of the control plane's newest set, which changes with each set that is accepted.
    pub(crate) fn version(&self) -> watch::Receiver<Option<String>> {
        self.0.version.subscribe()
    }

    /// Puts a set into force. After a fault the old limits stay. The log has each fault once, however often its set comes.
    ///
    /// # Errors
    ///
    /// The faults of the set, on one line.
    pub(crate) fn accept_set(&self, source: &Source, set: DiscoveryResponse) -> Result<(), String> {
        let version = set.version_info.clone();
        let rules = match xds::rules(set, &self.0.settings.rules_builder()) {
            Ok(rules) => rules,
            Err(fault) => {
                let line = xds::fault_line(&fault);
                if source.refuse(fault.to_string()) {
                    error!("version {version:?} of the control plane's limits is rejected: {line}");
                }
                return Err(line);
            }
        };
        source.accept(|| {
            // A control plane sends its set again after each connection.
            let is_new = !self.is_in_force(&rules);
            if is_new {
                warn_of(rules.warnings());
                let limits = counted(rules.len(), "limit");
                info!("version {version:?} of the control plane's limits is in force: {limits}");
                self.replace(rules);
            }
            is_new
        });
        // After the set is done, for all that wait for the version.
        self.0.version.send_replace(Some(version));
        Ok(())
    }

    /// Puts limits into force. Overrides of units end.
    fn replace(&self, rules: Rules) {
        let limits = &self.0.limits;
        if let Some(removed) = limits.rules().and_then(|before| removal(&before, &rules)) {
            warn!("{removed}");
        }
        limits.set_rules(rules);
        limits.override_by(|overrides| overrides.requests.clear());
    }

    /// Whether the limits in force are of the same resources, in any order: control planes in Go have none.
    fn is_in_force(&self, rules: &Rules) -> bool {
        let current = self.0.limits.rules();
        current.is_some_and(|current| {
            let of_current: BTreeSet<_> = current.files().collect();
            of_current == rules.files().collect()
        })
    }
}

impl Descriptors for DescriptorSource {
    fn number(&self) -> Option<usize> {
        self.0.limits.rules().map(|rules| rules.len())
    }

    fn limits(&self) -> Vec<(String, DescriptorLimit)> {
        let rules = self.0.limits.rules();
        let limits = rules.iter().flat_map(|rules| rules.limits());
        let shown = |limit: &Limit| DescriptorLimit {
            place: limit.span.short(),
            requests: limit.requests,
            capacity: limit.capacity(),
            window: limit.unit.map(|unit| {
                let times = limit.unit_multiplier.unwrap_or(1);
                unit.seconds() * u64::from(times)
            }),
            algorithm: limit.quota_of_its_own.map(|quota| quota.to_string()),
            shadow: limit.shadow,
        };
        limits.map(|(name, limit)| (name, shown(limit))).collect()
    }

    fn files(&self) -> Vec<(String, String)> {
        let rules = self.0.limits.rules();
        let files = rules.iter().flat_map(|rules| rules.files());
        files
            .map(|(file, sha256)| (file.to_owned(), sha256.to_owned()))
            .collect()
    }

    fn totals(&self) -> Vec<(String, Totals)> {
        let all = self.0.limits.statistics().all().into_iter();
        all.map(|(name, numbers)| {
            let [requests, denied, near, _, passed_anyway, _]: [u64; COUNTS.len()] = numbers;
            let totals = Totals {
                requests,
                denied,
                passed_anyway,
                near,
                least_left: None,
            };
            (name.to_string(), totals)
        })
        .collect()
    }

    /// Under the names and labels that the reference's statistics have in Prometheus, so that its dashboards work.
    fn write_metrics(&self, text: &mut MetricsText) {
        if self.0.limits.rules().is_none() {
            return;
        }
        let mut sums = BTreeMap::new();
        for (name, counts) in self.0.limits.statistics().all() {
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

    fn set_enabled(&self, name: Option<&str>, enabled: bool) {
        self.0.limits.override_by(|overrides| match name {
            None => overrides.all_off = !enabled,
            Some(name) if enabled => _ = overrides.off.remove(name),
            Some(name) => _ = overrides.off.insert(name.to_owned()),
        });
    }

    fn set_units(&self, name: &str, units: Option<u32>) {
        self.0.limits.override_by(|overrides| match units {
            Some(units) => _ = overrides.requests.insert(name.to_owned(), units),
            None => _ = overrides.requests.remove(name),
        });
    }

    fn reload(&self) -> Option<Reloaded> {
        if let Some(path) = self.0.files_once.iter().find(|path| path.is_dir()) {
            let path = path.display();
            let fault = format!("{path}: a directory, where a file was at the start");
            return Some(Err(RulesError::unreadable(fault)));
        }
        let rules = match self.0.settings.read_rules() {
            Ok(rules) => rules?,
            Err(error) => return Some(Err(error)),
        };
        warn_of(rules.warnings());
        let line = format!("read the rules again: {}", counted(rules.len(), "limit"));
        self.replace(rules);
        Some(Ok(line))
    }

    fn check(&self, text: String) -> Result<Vec<String>, String> {
        let rules = { self.0.settings.rules_builder().parse([("rules", text)]) }
            .map_err(|error| error.to_string())?;
        Ok(rules.warnings().iter().map(ToString::to_string).collect())
    }

    fn operate<'a>(
        &'a self,
        name: &'a str,
        descriptor: &'a str,
        operation: Op,
    ) -> BoxFuture<'a, Result<Option<Count>, String>> {
        Box::pin(async move {
            let count = self.0.limits.operate(name, entries(descriptor), operation);
            count.await.map_err(|error| error.to_string())
        })
    }

    fn control_plane(&self) -> Option<ControlPlaneState> {
        let plane = self.0.settings.control_plane()?;
        Some(ControlPlaneState {
            address: plane.address().to_owned(),
            is_connected: self.0.connected.load(Relaxed),
            version: self.0.version.borrow().clone().unwrap_or_default(),
        })
    }
}

/// Parses `user=eve,path=/`. A value has no comma. `/v1/top` lists this text as a key with the prefix `str:`.
pub(crate) fn entries(text: &str) -> Vec<Entry> {
    let text = text.strip_prefix("str:").unwrap_or(text);
    let entries = text.split(',').map(|entry| {
        let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
        let [key, value] = [key, value].map(str::to_owned);
        Entry { key, value }
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::{Rules, removal};

    #[test]
    fn removed_limits_are_named_in_the_log() {
        let rules = |keys: &[&str]| {
            let limits = keys.iter().map(|key| {
                format!("{{key: {key}, rate_limit: {{unit: hour, requests_per_unit: 2}}}}")
            });
            let limits = limits.collect::<Vec<_>>().join(", ");
            let text = format!("domain: shop\ndescriptors: [{limits}]");
            Rules::builder().parse([("rules", text)]).unwrap()
        };
        let before = rules(&["a", "b", "c"]);
        assert_eq!(removal(&before, &rules(&["c", "d", "b", "a"])), None);
        let removed = removal(&before, &rules(&["b"])).unwrap();
        assert_eq!(removed, "2 limits removed: shop.a, shop.c");
    }
}

/// The route, with the shares of the quota service if it is on.
pub(crate) fn shares_route(shares: Option<Shares>) -> Router {
    Router::new()
        .route("/v1/shares", get(show_shares))
        .with_state(shares)
}

/// `GET /v1/shares?domain=&bucket=`.
async fn show_shares(State(shares): State<Option<Shares>>, Query(fields): Query<Fields>) -> Answer {
    let Some(shares) = shares else {
        return Err(not_found(
            "there are no shares: the service runs without --rlqs",
        ));
    };
    let [domain, bucket] = ["domain", "bucket"].map(|name| fields.get(name).map(String::as_str));
    let (Some(domain), Some(bucket)) = (domain, bucket) else {
        return Err(bad("domain and bucket are needed"));
    };
    let mut pairs = BTreeMap::new();
    for entry in entries(bucket) {
        if pairs.contains_key(&entry.key) {
            return Err(bad(format!("bucket has the key {:?} twice", entry.key)));
        }
        pairs.insert(entry.key, entry.value);
    }
    let clients = shares.clients_of_bucket(domain, &pairs).await;
    let Some(clients) = clients.map_err(|error| unavailable(&error))? else {
        let text =
            format!("the domain {domain:?} has no limit with shares for the bucket {bucket:?}");
        return Err(not_found(text));
    };
    Ok(ok(
        &json!({"domain": domain, "bucket": bucket, "clients": clients}),
    ))
}

#[cfg(test)]
mod operator_tests {
    //! Responses of the admin service.

    use std::net::SocketAddr;

    use axum::{
        Router,
        body::{Body, to_bytes},
        extract::{ConnectInfo, Request},
    };
    use http::header::{CONTENT_TYPE, HOST};
    use serde_json::{Value, json};
    use tower::Service as _;
    use tower_ratelimit::LocalStore;

    use super::*;
    use crate::{decide::Modes, limiters_by_period::Counters, rlqs::Shares};
    use tower_ratelimit_service::{
        OperatorSettings,
        admin::{Admin, LiveSources},
        decision_counts::DecisionCounts,
        rules_source::Parts,
        shutdown::Draining,
        store::Store,
    };

    /// These limits, as operators use them.
    pub(super) fn source_of(limits: &RateLimits, store: LocalStore) -> Source {
        let descriptors = DescriptorSource::new(Settings::new(Vec::new()), limits.clone());
        let descriptors: Arc<dyn Descriptors> = Arc::new(descriptors);
        Source::new(Parts {
            store: Store::Local(store),
            requests: None,
            requests_name: "the rules of /v1/auth",
            follows_responses: false,
            descriptors: Some(descriptors),
            top: Arc::clone(limits.top()),
            reload_others: None,
        })
    }

    const RULES: &str = "domain: 'svc:a'
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: user, value: vip, rate_limit: {unit: year, requests_per_unit: 9}}
";

    fn rules(text: &str) -> Rules {
        let rules = Rules::builder().parse([("rules.yaml", text)]);
        rules.expect("rules")
    }

    struct Operator {
        limits: RateLimits,
        router: Router,
    }

    impl Operator {
        fn new() -> Self {
            Self::with_shares(|_| None)
        }

        fn with_shares(shares: impl FnOnce(&RateLimits) -> Option<Shares>) -> Self {
            let store = LocalStore::new();
            let limits = RateLimits::new(Counters::local(&store), Modes::default());
            limits.set_rules(rules(RULES));
            let source = source_of(&limits, store);
            let sources = LiveSources {
                counts: Arc::new(DecisionCounts::new(true)),
                rooms: Arc::new(Vec::new),
                draining: Draining::default(),
            };
            let admin = Admin::new(source, OperatorSettings::default(), sources);
            let more = shares_route(shares(&limits));
            let router = admin.router(SocketAddr::from(([127, 0, 0, 1], 1)), None, more);
            Self { limits, router }
        }

        /// The status and the body of the response.
        async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
            let request = Request::builder().method(method).uri(path);
            let request = request
                .header(HOST, "127.0.0.1:1")
                .header(CONTENT_TYPE, "application/json");
            let peer = SocketAddr::from(([127, 0, 0, 1], 2));
            let request = request
                .extension(ConnectInfo(peer))
                .body(Body::from(body.to_string()));
            let answer = self
                .router
                .clone()
                .call(request.expect("a request"))
                .await
                .unwrap_or_else(|never| match never {});
            let status = answer.status().as_u16();
            let body = to_bytes(answer.into_body(), usize::MAX).await;
            let body = serde_json::from_slice(&body.expect("a body"));
            (status, body.unwrap_or_default())
        }

        /// The status, and the units used.
        async fn hit(&self, rule: &str, key: &str) -> (u16, Option<u64>) {
            let body = json!({"rule": rule, "key": key});
            let (status, response) = self.call("POST", "/v1/keys/hit", body).await;
            (status, response["limits"][0]["used"].as_u64())
        }
    }

    /// A wrong name must not reset the count of another rule.
    #[tokio::test]
    async fn rule_of_a_key_is_the_one_that_was_named() {
        let operator = Operator::new();
        for (number, name) in ["svc_a.user", "svc_a", "svc:a"].into_iter().enumerate() {
            let (status, used) = operator.hit(name, "user=eve").await;
            assert_eq!((status, used), (200, Some(number as u64 + 1)), "{name}");
        }
        for (name, key) in [
            ("svc_a.usr", "user=eve"),
            ("svc_a.user_vip", "user=eve"),
            ("svc_a.user", "user=vip"),
            ("svc_a.user.more", "user=eve"),
            ("svc", "user=eve"),
            ("", "user=eve"),
            ("svc_a", "none=eve"),
        ] {
            assert_eq!(operator.hit(name, key).await, (404, None), "{name} {key}");
        }
        assert_eq!(
            operator.hit("svc_a.user_vip", "user=vip").await,
            (200, Some(1))
        );
    }

    #[tokio::test]
    async fn keys_are_there_while_limits_are_off() {
        let operator = Operator::new();
        let quota = json!({"requests_per_unit": 5});
        operator
            .call("PUT", "/v1/rules/svc_a.user/quota", quota)
            .await;
        for off in [
            json!({"enabled": false}),
            json!({"enabled": false, "rule": "svc_a.user"}),
        ] {
            assert_eq!(operator.call("PUT", "/v1/enabled", off).await.0, 200);
        }
        assert_eq!(operator.hit("svc_a.user", "user=eve").await, (200, Some(1)));
        let path = "/v1/keys?rule=svc_a.user&key=user=eve";
        let (_, response) = operator.call("GET", path, Value::Null).await;
        assert_eq!(
            response["limits"][0]["remaining"], 4,
            "of the quota in force"
        );
    }

    #[tokio::test]
    async fn removed_rule_that_is_off_is_switched_on() {
        let operator = Operator::new();
        let switch = |enabled: bool| json!({"enabled": enabled, "rule": "svc_a.user"});
        assert_eq!(
            operator.call("PUT", "/v1/enabled", switch(false)).await.0,
            200
        );
        operator
            .limits
            .set_rules(rules(&RULES.replace("user", "account")));
        let (status, response) = operator.call("PUT", "/v1/enabled", switch(true)).await;
        assert_eq!((status, &response["off"]), (200, &json!([])));
        for enabled in [true, false] {
            let (status, _) = operator.call("PUT", "/v1/enabled", switch(enabled)).await;
            assert_eq!(status, 404, "it is neither off nor there");
        }
    }

    #[tokio::test]
    async fn shares_are_those_of_the_quota_service() {
        let off = Operator::new();
        let path = "/v1/shares?domain=svc:a&bucket=user=eve";
        let (status, body) = off.call("GET", path, Value::Null).await;
        assert_eq!(status, 404);
        assert!(body["error"].as_str().expect("a text").contains("--rlqs"));

        let on = Operator::with_shares(|limits| {
            let service =
                crate::rlqs::service(limits.clone(), crate::rlqs::RlqsSettings::default());
            Some(service.0)
        });
        let (status, body) = on.call("GET", path, Value::Null).await;
        assert_eq!(status, 200);
        let none = json!({"domain": "svc:a", "bucket": "user=eve", "clients": []});
        assert_eq!(body, none);
        for (query, expected, text) in [
            ("bucket=user=eve", 400, "domain and bucket are needed"),
            ("domain=svc:a", 400, "domain and bucket are needed"),
            (
                "domain=svc:a&bucket=user=eve,user=bob",
                400,
                "bucket has the key \"user\" twice",
            ),
            (
                "domain=svc:a&bucket=path=x",
                404,
                "the domain \"svc:a\" has no limit with shares for the bucket \"path=x\"",
            ),
        ] {
            let path = format!("/v1/shares?{query}");
            let (status, body) = on.call("GET", &path, Value::Null).await;
            assert_eq!((status, body["error"].as_str()), (expected, Some(text)));
        }
    }
}

#[cfg(test)]
mod metrics_tests {
    //! Series as Prometheus reads them.

    use std::collections::HashSet;

    use tower_ratelimit::LocalStore;

    use super::{operator_tests::source_of, *};
    use crate::{
        decide::Modes,
        limiters_by_period::Counters,
        protobuf_messages::{RateLimitDescriptor, RateLimitOverride, RateLimitRequest, Unit},
    };
    use tower_ratelimit_service::metrics::Metrics;

    const RULES: &str = "domain: rl
descriptors:
  - {key: a, value: b, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: v, value: 'a:b', rate_limit: {unit: year, requests_per_unit: 7}}
  - {key: v, value: a_b, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: free, rate_limit: {unlimited: true}}
  - key: bucket
    rate_limit: {unit: minute, requests_per_unit: 100, algorithm: token_bucket, burst: 20}
  - key: one
    descriptors:
      - {key: b.c, rate_limit: {unit: year, requests_per_unit: 10}}
      - key: b
        descriptors:
          - {key: c, rate_limit: {unit: year, requests_per_unit: 10}}
          - key: c
            value: d
            descriptors: [{key: e, rate_limit: {unit: year, requests_per_unit: 10}}]
";

    async fn call(limits: &RateLimits, entries: &[(&str, &str)], limit: Option<u32>) {
        let entries = entries.iter().map(|(key, value)| Entry {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        });
        let limit = limit.map(|requests_per_unit| RateLimitOverride {
            requests_per_unit,
            unit: Unit::Year.into(),
            unit_multiplier: None,
        });
        let request = RateLimitRequest {
            domain: "rl".to_owned(),
            descriptors: vec![RateLimitDescriptor {
                entries: entries.collect(),
                limit,
                ..RateLimitDescriptor::default()
            }],
            hits_addend: 0,
        };
        limits.decide(&request).await.expect("a decision");
    }

    /// The series and their values; fails if a series occurs twice.
    async fn series() -> Vec<(String, String)> {
        let store = LocalStore::new();
        let limits = RateLimits::new(Counters::local(&store), Modes::default());
        let rules = Rules::builder().parse([("rules.yaml", RULES)]);
        limits.set_rules(rules.expect("rules"));
        for (entries, limit) in [
            (&[("a", "b")][..], None),
            (&[("a", "b")], Some(3)),
            (&[("one", ""), ("b.c", "")], None),
            (&[("one", ""), ("b", ""), ("c", "")], None),
            (&[("one", ""), ("b", ""), ("c", "d"), ("e", "")], None),
        ] {
            call(&limits, entries, limit).await;
        }
        let source = source_of(&limits, store);
        source.set_enabled(Some("all"), false);
        let text = Metrics::new(source, false).text();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series: Vec<_> = lines
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(series, value)| (series.to_owned(), value.to_owned()))
            .collect();
        let mut known = HashSet::new();
        for (series, _) in &series {
            assert!(known.insert(series), "{series} stands twice in {text}");
        }
        series
    }

    fn value<'s>(series: &'s [(String, String)], name: &str) -> Option<&'s str> {
        let found = series.iter().find(|(series, _)| series == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Prometheus rejects a text with a duplicate.
    #[tokio::test]
    async fn no_series_stands_twice() {
        let series = series().await;
        let hits = |labels: &str| {
            let name = format!("ratelimit_service_rate_limit_total_hits{{domain=\"rl\",{labels}}}");
            value(&series, &name)
        };
        assert_eq!(hits(r#"key1="a_b""#), Some("2"), "also of an override");
        assert_eq!(hits(r#"key1="one",key2="b.c""#), Some("1"));
        assert_eq!(hits(r#"key1="one",key2="b",key3="c""#), Some("1"));
        assert_eq!(hits(r#"key1="one",key2="b",key3="c_d.e""#), Some("1"));
        let enabled = value(&series, r#"ratelimit_enabled{rule="all"}"#);
        assert_eq!(enabled, Some("0"), "a rule of that name is off");
    }

    #[tokio::test]
    async fn limits_are_what_passes_at_once() {
        let series = series().await;
        let limit =
            |policy: &str| value(&series, &format!("ratelimit_limit{{policy=\"{policy}\"}}"));
        assert_eq!(limit("rl.a_b"), Some("10"));
        assert_eq!(
            limit("rl.v_a_b"),
            Some("5"),
            "the lesser of two of one name"
        );
        assert_eq!(limit("rl.bucket"), Some("20"));
        assert_eq!(limit("rl.free"), None, "it is unlimited");
    }
}
