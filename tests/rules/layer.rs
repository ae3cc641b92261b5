//! The layer: what it charges, together or not at all, and what it answers.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, StatusCode};
use testkit::{now, wall_clock_jumps::BothClocks};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{
    Key, LocalStore,
    clock::ManualClock,
    observe::Event,
    rules::{Format, Rules, RulesLayer},
};

/// A service under rules, with a clock that stands still.
pub(crate) struct Ruled {
    pub(crate) layer: RulesLayer,
    pub(crate) clock: ManualClock,
    /// The status of the service inside.
    status: Arc<AtomicU16>,
}

pub(crate) fn store(clock: &ManualClock) -> LocalStore {
    let store = LocalStore::builder().clock(clock.clone());
    store.build().expect("a store")
}

impl Ruled {
    pub(crate) fn yaml(text: &str) -> Self {
        let clock = ManualClock::new();
        let builder = Rules::builder().store(store(&clock));
        let rules = builder.parse(text, Format::Yaml).expect("rules");
        Self::new(RulesLayer::new(rules), clock)
    }

    pub(crate) fn new(layer: RulesLayer, clock: ManualClock) -> Self {
        Self {
            layer,
            clock,
            status: Arc::new(AtomicU16::new(200)),
        }
    }

    fn answers(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    pub(crate) async fn send(&self, line: &str, headers: &[(&str, &str)]) -> Response<String> {
        let (method, uri) = line.split_once(' ').expect("a method and a path");
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let peer: SocketAddr = "203.0.113.7:4000".parse().expect("an address");
        let request = request.extension(peer).body(String::new());
        let status = Arc::clone(&self.status);
        let service = self.layer.layer(service_fn(move |_: Request<String>| {
            let status = Arc::clone(&status);
            async move {
                let mut response = Response::new(String::new());
                *response.status_mut() =
                    StatusCode::from_u16(status.load(Ordering::Relaxed)).expect("a status");
                Ok::<_, std::convert::Infallible>(response)
            }
        }));
        let Ok(response) = service.oneshot(request.expect("a request")).await;
        response
    }

    pub(crate) async fn get(&self, path: &str) -> u16 {
        self.send(&format!("GET {path}"), &[])
            .await
            .status()
            .as_u16()
    }

    /// The units that are left of a rule's quota for everybody.
    fn left(&self, rule: &str) -> Option<u64> {
        let limiter = self.layer.handle().rules().limiter_of(rule)?;
        let peeked = now(limiter.peek(&Key::global(), 0).into_future());
        peeked.expect("an answer").remaining()
    }

    /// How many of `count` requests pass.
    pub(crate) async fn passed(&self, count: usize, path: &str) -> usize {
        let mut passed = 0;
        for _ in 0..count {
            passed += usize::from(self.get(path).await == 200);
        }
        passed
    }
}

#[tokio::test]
async fn all_matching_limits_are_charged_or_none() {
    let ruled = Ruled::yaml(
        "rules:
  - {name: export, match: {path: /export}, quota: 2/minute}
  - {name: all, key: global, quota: 5/minute}",
    );
    assert_eq!(ruled.passed(10, "/export").await, 2);
    // The eight that were denied took nothing from all.
    assert_eq!(ruled.passed(10, "/other").await, 3);
}

#[tokio::test]
async fn allow_deny_and_stop_end_the_list() {
    let ruled = Ruled::yaml(
        "rules:
  - {name: all, quota: 1/minute}
  - {name: health, match: {path: /healthz}, action: allow}
  - {name: scanners, match: {path: /wp-admin}, action: deny}
  - {name: one, match: {path: /one}, quota: 100/minute, stop: true}
  - {name: last, match: {path: /one}, action: deny}",
    );
    assert_eq!(ruled.passed(3, "/healthz").await, 3);
    assert_eq!(ruled.get("/wp-admin").await, 403);
    assert_eq!(ruled.get("/one").await, 200);
    assert_eq!(ruled.get("/one").await, 429);
}

#[tokio::test]
async fn a_missing_key_is_shared_rejected_or_skipped() {
    let rule = |treatment: &str| {
        format!(
            "rules: [{{name: a, key: {{header: x-key}}, quota: 1/minute, on_missing_key: {treatment}}}]"
        )
    };
    let shared = Ruled::yaml(&rule("share"));
    assert_eq!(shared.passed(3, "/").await, 1);
    let rejecting = Ruled::yaml(&rule("reject"));
    assert_eq!(rejecting.get("/").await, 400);
    let skipping = Ruled::yaml(&rule("skip"));
    assert_eq!(skipping.passed(3, "/").await, 3);
}

#[tokio::test]
async fn each_rule_has_a_cost_of_its_own() {
    let units = "  - {name: units, key: global, quota: 100/day fixed_window,
     cost: {default: 2, method: {POST: 5}, header: {name: x-cost, max: 9}}}";
    let others = "
  - {name: three, key: global, quota: 100/day fixed_window, cost: 3}
  - {name: requests, key: global, quota: 100/day fixed_window}";
    for (rules, of_others) in [(units, &[][..]), (&format!("{units}{others}"), &[3, 1])] {
        let ruled = Ruled::yaml(&format!("rules:\n{rules}"));
        let all_left = || {
            let names = ["units", "three", "requests"].iter();
            names.filter_map(|name| ruled.left(name)).collect()
        };
        for (line, cost, of_units) in [
            ("GET /", None, 2),
            ("POST /", None, 5),
            ("POST /", Some("7"), 7),
            ("GET /", Some("8"), 8),
            ("POST /", Some("4"), 5),
            ("GET /", Some("1000"), 9),
        ] {
            let before: Vec<u64> = all_left();
            let headers = cost.map(|cost| ("x-cost", cost));
            assert_eq!(ruled.send(line, headers.as_slice()).await.status(), 200);
            let charged = before
                .iter()
                .zip(all_left())
                .map(|(before, left)| before - left);
            let expected = [&[of_units], of_others].concat();
            assert_eq!(charged.collect::<Vec<_>>(), expected, "{line} {cost:?}");
        }
    }
}

#[tokio::test]
async fn tiers_share_the_counter() {
    let ruled = Ruled::yaml(
        "rules:
  - name: api
    tier:
      header: x-plan
      default: free
      quotas: {free: 2/minute sliding_log, pro: 10/minute sliding_log, staff: unlimited}",
    );
    let pro = [("x-plan", "pro")];
    for _ in 0..5 {
        assert_eq!(ruled.send("GET /", &pro).await.status(), 200);
    }
    assert_eq!(
        ruled.send("GET /", &[("x-plan", "staff")]).await.status(),
        200
    );
    assert_eq!(
        ruled.send("GET /", &[("x-plan", "gold")]).await.status(),
        429
    );
    assert_eq!(ruled.send("GET /", &pro).await.status(), 200);
}

#[tokio::test]
async fn responses_that_do_not_count_are_refunded_rule_by_rule() {
    let ruled = Ruled::yaml(
        "rules:
  - {name: login, quota: 2/minute, count_if: {status: 401}}
  - {name: all, key: global, quota: 5/minute}",
    );
    assert_eq!(ruled.passed(4, "/").await, 4);
    ruled.answers(401);
    assert_eq!(ruled.get("/").await, 401);
    // `all` kept the four, and `login` gave them back.
    assert_eq!(ruled.get("/").await, 429);
    ruled.clock.advance(Duration::from_secs(12));
    assert_eq!(ruled.get("/").await, 401);
}

#[tokio::test]
async fn a_rule_alone_is_refunded_too() {
    let ruled = Ruled::yaml("rules: [{name: login, quota: 2/minute, count_if: {status: 4xx}}]");
    assert_eq!(ruled.passed(9, "/").await, 9);
    ruled.answers(401);
    let statuses = [
        ruled.get("/").await,
        ruled.get("/").await,
        ruled.get("/").await,
    ];
    assert_eq!(statuses, [401, 401, 429]);
}

#[tokio::test]
async fn a_denial_blocks_the_key_of_its_rule_alone() {
    let ruled = Ruled::yaml(
        "rules:
  - {name: login, match: {path: /login}, quota: 2/minute, block_for: 15m}
  - {name: all, quota: 100/minute, block_for: 1h}",
    );
    assert_eq!(ruled.passed(3, "/login").await, 2);
    ruled.clock.advance(Duration::from_secs(14 * 60));
    assert_eq!(ruled.get("/login").await, 429);
    assert_eq!(ruled.get("/").await, 200);
    ruled.clock.advance(Duration::from_secs(61));
    assert_eq!(ruled.get("/login").await, 200);
}

#[tokio::test]
async fn shadows_deny_nothing_and_keep_nobody_from_being_charged() {
    let ruled = Ruled::yaml(
        "rules:
  - {name: watched, quota: 1/minute, mode: shadow}
  - {name: all, quota: 3/minute}",
    );
    let received = Arc::new(Mutex::new(Vec::new()));
    let recorder = Arc::clone(&received);
    let layer = ruled.layer.clone().observer(move |event: &Event<'_>| {
        if let Event::Decided(decided) = event {
            let name = decided.decision().binding().name().to_owned();
            let denied = decided.decision().is_denied();
            recorder
                .lock()
                .expect("a list")
                .push((name, decided.is_shadow(), denied));
        }
    });
    let ruled = Ruled::new(layer, ruled.clock);
    let response = ruled.send("GET /", &[]).await;
    let policies = response.headers()["ratelimit-policy"]
        .to_str()
        .expect("a text");
    assert!(
        policies.starts_with("\"all\"") && !policies.contains("watched"),
        "{policies}"
    );
    assert_eq!(ruled.passed(5, "/").await, 2);
    let received = received.lock().expect("a list");
    let reported = |name: &str, shadow, denied| {
        let is_it = |event: &&(String, bool, bool)| **event == (name.to_owned(), shadow, denied);
        received.iter().filter(is_it).count()
    };
    assert_eq!(
        (
            reported("watched", true, false),
            reported("watched", true, true)
        ),
        (1, 5)
    );
    assert_eq!(
        (reported("all", false, false), reported("all", false, true)),
        (3, 3)
    );
}

#[tokio::test]
async fn a_shadow_is_refunded_by_the_response() {
    let ruled =
        Ruled::yaml("rules: [{name: w, quota: 1/minute, mode: shadow, count_if: {status: 500}}]");
    let denials = Arc::new(AtomicU16::new(0));
    let counted = Arc::clone(&denials);
    let layer = ruled.layer.clone().observer(move |event: &Event<'_>| {
        if let Event::Decided(decided) = event {
            counted.fetch_add(u16::from(decided.decision().is_denied()), Ordering::Relaxed);
        }
    });
    let ruled = Ruled::new(layer, ruled.clock);
    assert_eq!(ruled.passed(3, "/").await, 3);
    assert_eq!(denials.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn schedules_follow_the_clock_of_the_store() {
    let ruled = Ruled::yaml(
        "rules:
  - name: night
    schedule: [{time: {from: '01:00', to: '06:00'}, quota: 5/minute}]
    quota: 1/minute",
    );
    // The manual clock starts at some time of day: find both sides of the window.
    let mut most = [0; 2];
    for _ in 0..24 {
        let passed = ruled.passed(6, "/").await;
        assert!(passed == 1 || passed == 5, "{passed}");
        most[usize::from(passed == 5)] += 1;
        ruled.clock.advance(Duration::from_secs(3_600));
    }
    assert_eq!(most, [19, 5]);
}

#[tokio::test]
async fn times_of_day_are_those_of_the_wall() {
    let clock = BothClocks::at(1_767_225_600);
    let store = LocalStore::builder().clock(clock.clone());
    let builder = Rules::builder().store(store.build().expect("a store"));
    let text = "rules:
  - name: night
    match: {time: {from: '20:00', to: '22:00'}}
    action: deny";
    let rules = builder.parse(text, Format::Yaml).expect("rules");
    let ruled = Ruled::new(RulesLayer::new(rules), clock.monotone.clone());
    for (hours, status) in [
        (0, 200),
        (20, 403),
        (-20, 200),
        (-4, 403),
        (25, 403),
        (1, 200),
    ] {
        clock.step(hours);
        assert_eq!(
            ruled.get("/").await,
            status,
            "{hours} h, at {}",
            clock.wall_now()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_only_if_every_rule_that_denies_it_has_wait() {
    // The clock of the test runtime.
    let rules = |second: &str| {
        let text = format!(
            "rules:
  - {{name: patient, quota: 1/second burst 1, wait: 5s}}
  - {{name: other, key: global, quota: {second}}}"
        );
        let builder = Rules::builder().clock(tower_ratelimit::clock::TokioClock::new());
        builder.parse(text, Format::Yaml).expect("rules")
    };
    let ruled = Ruled::new(RulesLayer::new(rules("100/second")), ManualClock::new());
    assert_eq!(ruled.passed(3, "/").await, 3);
    let ruled = Ruled::new(
        RulesLayer::new(rules("1/second burst 1")),
        ManualClock::new(),
    );
    assert_eq!(ruled.passed(3, "/").await, 1);
}

#[tokio::test]
async fn headers_are_those_of_the_file() {
    let ruled = Ruled::yaml(
        "defaults: {headers: [x_ratelimit]}
rules:
  - {name: api, quota: [10/second, {name: day, rate: 100/day}]}
  - {name: login, match: {path: /login}, quota: 1/minute, headers: [ietf_draft11]}",
    );
    let response = ruled.send("GET /", &[]).await;
    assert!(response.headers().contains_key("x-ratelimit-limit"));
    assert!(!response.headers().contains_key("ratelimit"));
    let denied = [
        ruled.send("GET /login", &[]).await,
        ruled.send("GET /login", &[]).await,
    ];
    assert_eq!(denied[1].status(), 429);
    assert!(denied[1].headers().contains_key("retry-after"));
}

/// Whichever of them denies.
#[tokio::test]
async fn fields_are_those_of_the_first_rule_that_is_not_in_the_shadow() {
    let rule = |name: &str, headers: &str, more: &str| {
        format!("\n  - {{name: {name}, key: global, headers: [{headers}]{more}}}")
    };
    let (x, draft) = ("x_ratelimit", "ietf_draft11");
    let (two, one) = (", quota: 2/day", ", quota: 1/day");
    let shadow = ", quota: 1/day, mode: shadow";
    for (rules, first) in [
        ([("a", x, two), ("b", draft, one)], x),
        ([("a", x, one), ("b", draft, two)], x),
        ([("a", draft, two), ("b", x, one)], draft),
        ([("a", draft, one), ("b", x, two)], draft),
        ([("a", x, shadow), ("b", draft, one)], draft),
        ([("a", draft, one), ("b", x, shadow)], draft),
    ] {
        let list = rules.map(|(name, headers, more)| rule(name, headers, more));
        let ruled = Ruled::yaml(&format!("rules:{}", list.concat()));
        for status in [200, 429] {
            let response = ruled.send("GET /", &[]).await;
            let has = |field| response.headers().contains_key(field);
            let shown = (has("x-ratelimit-limit"), has("ratelimit"));
            let expected = (first == x, first == draft);
            assert_eq!(response.status(), status, "{rules:?}");
            assert_eq!(shown, expected, "{rules:?}, {status}");
        }
    }
}

#[tokio::test]
async fn parameter_of_a_route_is_a_key() {
    use axum::{Router, body::Body, routing::get};

    let text = "rules: [{name: a, match: {route: \"/api/users/{id}/items/{*rest}\"}, \
                key: {path_param: id}, quota: 1/day}]";
    let rules = Rules::builder().parse(text, Format::Yaml).expect("rules");
    let users = Router::new().route("/items/{*rest}", get(async || "ok"));
    let users = users.layer(RulesLayer::new(rules));
    let app = Router::new().nest("/api/users/{id}", users);
    let mut statuses = Vec::new();
    for path in [
        "/api/users/1/items/a",
        "/api/users/1/items/b/c",
        "/api/users/%31/items/a",
        "/api/users/2/items/a",
    ] {
        let peer: SocketAddr = "203.0.113.7:4000".parse().expect("an address");
        let request = Request::get(path).extension(peer).body(Body::empty());
        let response = app.clone().oneshot(request.expect("a request")).await;
        statuses.push(response.expect("a response").status().as_u16());
    }
    assert_eq!(statuses, [200, 429, 429, 200]);
    let lacking = text.replace("path_param: id", "path_param: user");
    let error = Rules::builder()
        .parse(&lacking, Format::Yaml)
        .expect_err("no parameter");
    assert!(error.to_string().contains("not every route"), "{error}");
}
