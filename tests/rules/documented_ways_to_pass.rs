//! The ways in which a request passes, and what each charges: the table of the page of rules, cell by cell.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, OnceLock},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use testkit::now;
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{
    Key, LocalStore,
    clock::{Clock, Timestamp},
    concurrency::ConcurrencyBody,
    observe::Event,
    rate_limit::SpendBody,
    rules::{Format, HoldingRulesLayer, Rules, RulesHandle, RulesLayer},
};

/// Behind the rule of the way: one that counts tokens, and one that counts requests.
const OTHERS: &str = "
  - name: tokens
    key: global
    spend: {read: auto, reserve: 100}
    quota: {rate: 10000/day, counts: tokens, algorithm: fixed_window}
  - {name: requests, key: global, in_flight: 9, quota: 100/day fixed_window}
";

/// The clock of the runtime, far from the end of a day.
#[derive(Clone)]
struct Paused(Instant);

impl Clock for Paused {
    fn now(&self) -> Timestamp {
        let passed = self.0.elapsed().as_micros();
        Timestamp::from_micros(1_000_000 + passed as u64)
    }
}

/// The units that a request takes of a rule's quota; `None` for a rule without one.
type Taken = Option<u64>;

struct Way {
    name: &'static str,
    rule: &'static str,
    /// The requests before.
    before: usize,
    /// The units of its own rule.
    own: Taken,
    requests: u64,
    tokens: u64,
    /// While the response passes.
    permits: u64,
}

const WAYS: [Way; 13] = [
    way(
        "a limit has room",
        "quota: 5/day fixed_window",
        0,
        Some(1),
        [1, 1_000, 1],
    ),
    way(
        "`action: overflow` has room",
        "action: overflow, quota: 5/day fixed_window",
        0,
        Some(1),
        [1, 1_000, 1],
    ),
    way(
        "`action: overflow` denies",
        "action: overflow, quota: 1/day fixed_window",
        1,
        Some(0),
        [1, 1_000, 1],
    ),
    way(
        "`mode: shadow` has room",
        "mode: shadow, quota: 5/day fixed_window",
        0,
        Some(1),
        [1, 1_000, 1],
    ),
    way(
        "`mode: shadow` denies",
        "mode: shadow, quota: 1/day fixed_window",
        1,
        Some(0),
        [1, 1_000, 1],
    ),
    // The unit of the next minute.
    way(
        "`wait`",
        "wait: 2m, quota: 1/minute sliding_log",
        1,
        Some(0),
        [1, 1_000, 1],
    ),
    way(
        "`count_if` does not count",
        "count_if: {status: [401]}, quota: 5/day fixed_window",
        0,
        Some(0),
        [1, 1_000, 1],
    ),
    way(
        "no key, `on_missing_key: skip`",
        "key: {header: x-none}, on_missing_key: skip, quota: 5/day fixed_window",
        0,
        Some(0),
        [1, 1_000, 1],
    ),
    way(
        "`quota: unlimited`",
        "quota: unlimited",
        0,
        None,
        [1, 1_000, 1],
    ),
    way(
        "switched off",
        "quota: 1/day fixed_window",
        1,
        Some(0),
        [1, 1_000, 1],
    ),
    way("`action: allow`", "action: allow", 0, None, [0, 0, 0]),
    way(
        "`stop`",
        "stop: true, quota: 5/day fixed_window",
        0,
        Some(1),
        [0, 0, 0],
    ),
    way(
        "`replaces`",
        "replaces: requests, quota: 5/day fixed_window",
        0,
        Some(1),
        [0, 1_000, 0],
    ),
];

const fn way(
    name: &'static str,
    rule: &'static str,
    before: usize,
    own: Taken,
    [requests, tokens, permits]: [u64; 3],
) -> Way {
    Way {
        name,
        rule,
        before,
        own,
        requests,
        tokens,
        permits,
    }
}

impl Way {
    fn layer(&self) -> HoldingRulesLayer {
        self.rules_layer().holding()
    }

    fn rules_layer(&self) -> RulesLayer {
        let key = if self.rule.contains("key:") || self.rule.contains("allow") {
            ""
        } else {
            "key: global, "
        };
        let text = format!("rules:\n  - {{name: way, {key}{}}}{OTHERS}", self.rule);
        let clock = Paused(Instant::now());
        let store = LocalStore::builder().clock(clock.clone()).build();
        let rules = Rules::builder()
            .store(store.expect("a store"))
            .clock(clock)
            .accept_in_flight(true)
            .accept_spend(true)
            .parse(&text, Format::Yaml);
        RulesLayer::new(rules.unwrap_or_else(|error| panic!("{}: {error}", self.name)))
    }
}

/// The units left of the rule's quota.
fn left(layer: &HoldingRulesLayer, rule: &str) -> Option<u64> {
    let limiter = layer.handle().rules().limiter_of(rule)?;
    let peek = limiter.peek(&Key::global(), 1).into_future();
    now(peek).expect("an answer").remaining()
}

type Answer = Response<ConcurrencyBody<SpendBody<Full<Bytes>>>>;

/// It uses 1,000 tokens.
fn response_body() -> Full<Bytes> {
    let body = r#"{"model":"m","usage":{"prompt_tokens":600,"completion_tokens":400}}"#;
    Full::from(body)
}

async fn respond(layer: &HoldingRulesLayer, name: &str, body: Full<Bytes>) -> Answer {
    let inner = service_fn(move |_: Request<()>| {
        let response = Response::builder().header("content-type", "application/json");
        let response = response.body(body.clone());
        async { Ok::<_, Infallible>(response.expect("a response")) }
    });
    let answer = layer.layer(inner).oneshot(Request::new(())).await;
    let answer = answer.expect("it never fails");
    assert_eq!(answer.status(), 200, "{name}");
    answer
}

/// Sends a request and reads its response. Returns the permits that its rules hold meanwhile.
async fn send(layer: &HoldingRulesLayer, name: &str) -> u64 {
    let answer = respond(layer, name, response_body()).await;
    let held = layer.handle().in_flight()[0].1;
    answer.into_body().collect().await.expect("the body passes");
    held
}

#[tokio::test(start_paused = true)]
async fn each_way_to_pass_charges_what_the_page_says() {
    for way in &WAYS {
        let layer = way.layer();
        for _ in 0..way.before {
            send(&layer, way.name).await;
        }
        let handle = layer.handle();
        if way.name == "switched off" {
            handle.set_enabled(Some("way"), false);
        }
        let rules = ["way", "requests", "tokens"];
        let before = rules.map(|rule| left(&layer, rule));
        let permits = send(&layer, way.name).await;
        let after = rules.map(|rule| left(&layer, rule));
        let [own, requests, tokens] = [0, 1, 2].map(|at| Some(before[at]? - after[at]?));
        assert_eq!(own, way.own, "{}: its own rule", way.name);
        assert_eq!(requests, Some(way.requests), "{}: requests", way.name);
        assert_eq!(tokens, Some(way.tokens), "{}: tokens", way.name);
        assert_eq!(permits, way.permits, "{}: permits", way.name);
        assert_eq!(
            handle.in_flight()[0].1,
            0,
            "{}: permits at the end",
            way.name
        );
    }
}

/// A client whose permit is free again has paid for what it got.
#[tokio::test(start_paused = true)]
async fn charges_are_settled_before_permits_are_given_back() {
    #[derive(Debug, Clone, Copy)]
    enum End {
        Read,
        ReadUntilItIsOver,
        Dropped,
        Empty,
    }
    for end in [End::Read, End::ReadUntilItIsOver, End::Dropped, End::Empty] {
        let held = Arc::new(Mutex::new(Vec::new()));
        let handle = Arc::new(OnceLock::<RulesHandle>::new());
        let (at_correction, of_layer) = (Arc::clone(&held), Arc::clone(&handle));
        let layer = WAYS[0].rules_layer().observer(move |event: &Event<'_>| {
            if let (Event::Corrected(_), Some(handle)) = (event, of_layer.get()) {
                at_correction
                    .lock()
                    .expect("a list")
                    .push(handle.in_flight()[0].1);
            }
        });
        let layer = layer.holding();
        handle.set(layer.handle()).expect("once");
        let body = match end {
            End::Empty => Full::default(),
            _ => response_body(),
        };
        let mut body = respond(&layer, "an end", body).await.into_body();
        match end {
            End::Read => drop(body.collect().await.expect("the body passes")),
            End::ReadUntilItIsOver => drop(body.frame().await),
            End::Dropped => drop(body),
            End::Empty => {}
        }
        assert_eq!(*held.lock().expect("a list"), [1], "{end:?}");
        assert_eq!(layer.handle().in_flight()[0].1, 0, "{end:?}");
    }
}

#[test]
fn page_has_each_way_to_pass() {
    let page = include_str!("../../crates/rules/docs/rules.md");
    for way in &WAYS {
        let [requests, tokens, permits] = [way.requests, way.tokens, way.permits]
            .map(|taken| if taken > 0 { "yes" } else { "no" });
        let own = match way.own {
            None => "–",
            _ if way.name == "`wait`" => "yes",
            Some(0) => "no",
            Some(_) => "yes",
        };
        let row = format!(
            "| {} | {own} | {requests} | {tokens} | {permits} |",
            way.name
        );
        assert!(page.contains(&row), "{row}");
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn request_that_passes_because_the_store_fails_is_charged_nothing() {
    let absent = tower_ratelimit::RedisStore::connect("redis://127.0.0.1:1");
    let text = format!("store: {{on_failure: allow}}\nrules:{OTHERS}");
    let rules = Rules::builder()
        .store(absent.expect("an address"))
        .accept_in_flight(true)
        .accept_spend(true)
        .parse(&text, Format::Yaml);
    let layer = RulesLayer::new(rules.expect("rules")).holding();
    // More than the quota holds, and its debt.
    for _ in 0..30 {
        assert_eq!(send(&layer, "the store fails").await, 0);
    }
}
