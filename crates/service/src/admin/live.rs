//! The live page: limits as they act, by the second, and the stream that it shows.
//!
//! One sampler reads the counts each second, whoever watches. An event is made while somebody watches, once for all.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, LazyLock},
    time::{Duration, SystemTime},
};

use axum::{
    body::{Body, Bytes},
    extract::{Query, State},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, watch},
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_stream::wrappers::ReceiverStream;
use tower_ratelimit::{observe::TopKey, store::StoreStats};

use super::{
    Admin, Fields, fault,
    live_state::{Histories, History, MAX_VIEWERS, Sampled, Second},
    ok, seconds,
};
use crate::{
    decision_counts::{DecisionCounts, Totals},
    errors::shortened,
    rules_source::{Descriptors, Source},
    store::Store,
};

const STYLE: &str = concat!(
    include_str!("page/common.css"),
    include_str!("page/live.css")
);
const SCRIPT: &str = concat!(include_str!("page/pen.js"), include_str!("page/live.js"));

/// The page, and its policy: nothing runs but this style and this script.
static PAGE: LazyLock<(String, HeaderValue)> = LazyLock::new(|| {
    let html = include_str!("page/live.html");
    let html = html.replace("{{style}}", STYLE);
    let html = html.replace("{{script}}", SCRIPT);
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
        hash(SCRIPT),
        hash(STYLE)
    );
    let policy = HeaderValue::try_from(policy);
    (
        html,
        policy.unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'")),
    )
});

/// `GET /`.
pub(super) async fn page() -> Response {
    let (html, policy) = &*PAGE;
    let value = HeaderValue::from_static;
    let fields: [(HeaderName, HeaderValue); 5] = [
        (CONTENT_TYPE, value("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, policy.clone()),
        (X_CONTENT_TYPE_OPTIONS, value("nosniff")),
        (REFERRER_POLICY, value("no-referrer")),
        (CACHE_CONTROL, value("no-store")),
    ];
    (fields, html.as_str()).into_response()
}

/// The source expression of an inline part.
fn hash(part: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(part)))
}

/// The interval of the samples.
const SECOND: Duration = Duration::from_secs(1);

impl Admin {
    /// Samples each second; never completes.
    pub(super) async fn sample(&self) -> Infallible {
        let mut ticks = interval(SECOND);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            self.sample_once();
        }
    }

    fn sample_once(&self) {
        let live = &self.0.live;
        let totals = totals(&self.0.source, &live.sources.counts);
        let mut sampled = live.sampled();
        sampled.histories.sample(totals);
        if let Store::Redis(store) = self.0.source.store() {
            sampled.sample_store(store.stats());
        }
        drop(sampled);
        if live.sources.draining.has_begun() {
            live.events.send_replace(Bytes::new());
        } else if live.has_viewers() {
            live.events.send_replace(self.event(false));
        }
    }

    fn event(&self, has_history: bool) -> Bytes {
        format!("data: {}\n\n", self.snapshot(has_history)).into()
    }
}

/// The totals of all limits in force: those of requests, and those of descriptors from their statistics.
fn totals(source: &Source, counts: &DecisionCounts) -> HashMap<String, Totals> {
    let policies = source.policies();
    counts.retain(|name| policies.contains_key(name));
    let mut totals: HashMap<_, _> = counts.read().into_iter().collect();
    totals.extend(
        source
            .descriptors()
            .into_iter()
            .flat_map(Descriptors::totals),
    );
    totals
}

/// The most limits of an event.
const MAX_LIMITS: usize = 50;

/// The most denied keys of an event.
const MAX_KEYS: usize = 20;

/// The longest name of a limit or key in an event, in bytes. Names come from files, and from clients.
const MAX_NAME: usize = 200;

impl Admin {
    /// The state now. With `has_history`, each limit has its last five minutes.
    fn snapshot(&self, has_history: bool) -> Value {
        let live = &self.0.live;
        let sampled = live.sampled();
        let Sampled {
            histories,
            degraded_now,
            store: [earlier, _],
            ..
        } = &*sampled;
        let limits: Vec<Value> = { histories.ranked(MAX_LIMITS).into_iter() }
            .map(|(name, history)| limit(name, histories, history, has_history))
            .collect();
        let store = store(self.0.source.store(), *degraded_now, earlier);
        drop(sampled);
        let rooms = (live.sources.rooms)().into_iter();
        let rooms =
            rooms.map(|room| json!({"name": room.name, "used": room.used, "most": room.most}));
        json!({
            "at": seconds(SystemTime::now()),
            "version": env!("CARGO_PKG_VERSION"),
            "uptime": live.started_at.elapsed().as_secs(),
            "rules": self.rules_state(),
            "store": store,
            "rooms": rooms.collect::<Vec<_>>(),
            "limits": limits,
            "keys": self.top_keys(),
            "keys_are_shown": self.reveals_keys(),
        })
    }

    fn rules_state(&self) -> Value {
        let source = &self.0.source;
        let loads = source.loads();
        let (all_on, off) = source.switches();
        json!({
            "number": source.rules(),
            "loaded_at": Some(seconds(loads.loaded_at)).filter(|seconds| *seconds > 0),
            "fault": loads.fault,
            "enabled": all_on,
            "switched_off": off,
        })
    }

    fn top_keys(&self) -> Vec<Value> {
        let top = self.0.source.top().report(MAX_KEYS);
        let one = |key: &TopKey| {
            json!({
                "limit": shortened(key.policy(), MAX_NAME),
                "key": shortened(&self.named(key.key(), &key.key().to_text()), MAX_NAME),
                "denied": key.count(),
                "error": key.error(),
                "passed_anyway": key.passed_anyway(),
            })
        };
        top.keys().iter().map(one).collect()
    }
}

fn limit(name: &str, histories: &Histories, history: &History, has_history: bool) -> Value {
    let minute = histories.minute(history);
    let now = histories.seconds(history).next_back().unwrap_or_default();
    let mut limit = json!({
        "name": shortened(name, MAX_NAME),
        "now": counts(now),
        "minute": counts(minute),
        "least_left": history.least_left().map(|thousandths| f64::from(thousandths) / 1_000.0),
    });
    if has_history {
        let of = |count: fn(Second) -> u32| -> Vec<u32> {
            histories.seconds(history).map(count).collect()
        };
        limit["history"] = json!({
            "requests": of(|second| second.requests),
            "denied": of(|second| second.denied),
            "passed_anyway": of(|second| second.passed_anyway),
        });
    }
    limit
}

fn counts(second: Second) -> Value {
    json!({
        "requests": second.requests,
        "denied": second.denied,
        "passed_anyway": second.passed_anyway,
        "near": second.near,
    })
}

fn store(store: &Store, degraded_now: u64, earlier: &StoreStats) -> Value {
    let mut state = json!({"backend": store.backend(), "up": store.is_up()});
    if let Store::Redis(redis) = store {
        let stats = redis.stats();
        let time = |percent| Some(stats.call_time(percent, earlier)?.as_secs_f64());
        state["breaker_open"] = redis.health().is_down().into();
        state["decisions_without_it"] = degraded_now.into();
        state["call_seconds"] = json!({"p50": time(50), "p99": time(99)});
    }
    state
}

/// The interval of comments while there is no event.
const COMMENT_TIME: Duration = Duration::from_secs(15);

/// The time after which a viewer that found no room may come again, in seconds.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("5");

/// `GET /v1/live`; with `?once` one event, as JSON.
pub(super) async fn live(State(admin): State<Admin>, Query(fields): Query<Fields>) -> Response {
    if fields.contains_key("once") {
        return ok(&admin.snapshot(true));
    }
    let live = &admin.0.live;
    let Ok(permit) = Arc::clone(&live.viewers).try_acquire_owned() else {
        let text = format!("{MAX_VIEWERS} viewers are served at a time");
        let mut answer = fault(StatusCode::SERVICE_UNAVAILABLE, text);
        answer.headers_mut().insert(RETRY_AFTER, RETRY_SECONDS);
        return answer;
    };
    let (to, body) = mpsc::channel(1);
    let events = live.events.subscribe();
    tokio::spawn(feed(admin.event(true), events, to, permit));
    let fields = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-store"),
    ];
    (fields, Body::from_stream(ReceiverStream::new(body))).into_response()
}

/// Sends events until the viewer leaves or the process stops. A viewer that reads slowly gets the newest only.
async fn feed(
    first: Bytes,
    mut events: watch::Receiver<Bytes>,
    to: mpsc::Sender<Result<Bytes, Infallible>>,
    _permit: OwnedSemaphorePermit,
) {
    let mut next = first;
    while to.send(Ok(next)).await.is_ok() {
        next = tokio::select! {
            changed = events.changed() => match changed {
                Ok(()) => events.borrow_and_update().clone(),
                Err(_) => return,
            },
            () = sleep(COMMENT_TIME) => Bytes::from_static(b": no news\n\n"),
            () = to.closed() => return,
        };
        if next.is_empty() {
            return;
        }
    }
}
