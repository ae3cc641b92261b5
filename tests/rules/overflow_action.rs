//! `action: overflow`: denies nobody, marks what it would deny, and holds no other rule back.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response, request::Parts};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{
    Decision, Key,
    clock::ManualClock,
    observe::Event,
    rules::{Format, Rules, RulesLayer, RulesOutcome},
};

use crate::{layer::store, overflow_action_model, request_builders::explain};

const FIELD: &str = "x-ratelimit-overflow";

/// A service under rules that answers with the marks of the request.
struct Marked {
    layer: RulesLayer,
    clock: ManualClock,
}

/// The status, the marks, and the response.
type Answer = (u16, String, Response<String>);

fn parts(path: &str, headers: &[(&str, &str)]) -> Parts {
    let peer: SocketAddr = "203.0.113.7:4000".parse().expect("an address");
    let request = headers.iter().fold(
        Request::get(path).extension(peer),
        |request, (name, value)| request.header(*name, *value),
    );
    request.body(()).expect("a request").into_parts().0
}

impl Marked {
    fn yaml(text: &str) -> Self {
        let clock = ManualClock::new();
        let rules = Rules::builder()
            .store(store(&clock))
            .parse(text, Format::Yaml);
        let layer = RulesLayer::new(rules.unwrap_or_else(|error| panic!("{error}")));
        Self { layer, clock }
    }

    async fn answer(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let request = Request::from_parts(parts(path, headers), String::new());
        let service = self
            .layer
            .layer(service_fn(async |request: Request<String>| {
                let marks = request.headers().get_all(FIELD).iter();
                let marks: Vec<&str> = marks.filter_map(|mark| mark.to_str().ok()).collect();
                let mut response = Response::new(marks.join("|"));
                if request.uri().path() == "/fails" {
                    *response.status_mut() = http::StatusCode::UNAUTHORIZED;
                }
                Ok::<_, Infallible>(response)
            }));
        let Ok(response) = service.oneshot(request).await;
        let marks = response.body().clone();
        (response.status().as_u16(), marks, response)
    }

    /// The status and the marks of a request to `/`.
    async fn get(&self, headers: &[(&str, &str)]) -> (u16, String) {
        let (status, marks, _) = self.answer("/", headers).await;
        (status, marks)
    }

    fn left(&self, rule: &str, key: &Key) -> Option<u64> {
        let limiter = self.layer.handle().rules().limiter_of(rule);
        let peek = limiter.expect("a limit").peek(key, 1);
        testkit::now(peek.into_future())
            .expect("an answer")
            .remaining()
    }
}

fn marks(text: &str) -> (u16, String) {
    (200, text.to_owned())
}

#[tokio::test]
async fn a_request_that_only_overflow_denies_passes_with_a_mark() {
    let ruled =
        Marked::yaml("rules: [{name: fast, key: global, quota: 2/minute, action: overflow}]");
    for expected in ["", "", "fast", "fast"] {
        assert_eq!(ruled.get(&[]).await, marks(expected));
    }
    let (_, _, response) = ruled.answer("/", &[]).await;
    let headers = response.headers();
    assert_eq!(headers["ratelimit"], r#""fast";r=0;t=30"#);
    assert!(!headers.contains_key("retry-after"));
    ruled.clock.advance(Duration::from_secs(30));
    assert_eq!(ruled.get(&[]).await, marks(""));
    assert_eq!(ruled.get(&[]).await, marks("fast"));
}

const TWO: &str = "rules:
  - {name: fast, key: global, quota: 2/day, action: overflow}
  - {name: each, key: {header: x-user}, quota: 3/day}
";

#[tokio::test]
async fn others_are_charged_as_if_it_were_not_there() {
    let ruled = Marked::yaml(TWO);
    let ann = [("x-user", "ann")];
    assert_eq!(ruled.get(&ann).await, marks(""));
    assert_eq!(ruled.get(&ann).await, marks(""));
    assert_eq!(ruled.get(&ann).await, marks("fast"));
    assert_eq!(ruled.left("each", &Key::from("ann")), Some(0));
    let (status, _, response) = ruled.answer("/", &ann).await;
    assert_eq!(status, 429, "a denial of another rule is a denial");
    let fields = response.headers();
    // The wait is that of the rule that denies.
    assert_eq!(fields["retry-after"], "28800");
    assert!(
        response.body().contains(r#""violated-policies":["each"]"#),
        "{}",
        response.body()
    );
    // The response to a marked request has the numbers of both.
    let (status, marked, response) = ruled.answer("/", &[("x-user", "bob")]).await;
    assert_eq!((status, &*marked), (200, "fast"));
    let fields = &response.headers()["ratelimit"];
    let fields = fields.to_str().expect("text");
    assert!(
        fields.starts_with(r#""fast";r=0;t=43200, "each";r=2;"#),
        "{fields}"
    );
    assert!(!response.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn a_request_that_another_rule_denies_takes_nothing() {
    let ruled = Marked::yaml(
        "rules:
  - {name: fast, key: global, quota: 5/day, action: overflow}
  - {name: each, key: {header: x-user}, quota: 1/day}
",
    );
    let ann = [("x-user", "ann")];
    assert_eq!(ruled.get(&ann).await.0, 200);
    for _ in 0..4 {
        assert_eq!(ruled.get(&ann).await.0, 429);
    }
    assert_eq!(ruled.left("fast", &Key::global()), Some(4));
}

#[tokio::test]
async fn each_rule_that_overflows_is_a_line() {
    let ruled = Marked::yaml(
        "rules:
  - {name: first, key: global, quota: 2/day, action: overflow}
  - {name: all, key: global, quota: 5/day}
  - {name: second, key: global, quota: 1/day, action: overflow}
  - {name: third, key: global, quota: 9/day, action: overflow}
",
    );
    for expected in ["", "second", "first|second", "first|second", "first|second"] {
        assert_eq!(ruled.get(&[]).await, marks(expected));
    }
    assert_eq!(ruled.get(&[]).await.0, 429);
    assert_eq!(ruled.left("third", &Key::global()), Some(4));
    let ruled = Marked::yaml(
        "rules:
  - {name: first, key: global, quota: 1/day, action: overflow}
  - {name: second, key: global, quota: 1/day, action: overflow}
",
    );
    assert_eq!(ruled.get(&[]).await, marks(""));
    assert_eq!(ruled.get(&[]).await, marks("first|second"));
}

#[tokio::test]
async fn marks_of_clients_are_removed() {
    let forged = [
        (FIELD, "mine"),
        (FIELD, "again"),
        ("X_RateLimit_Overflow", "mine"),
    ];
    let ruled = Marked::yaml(
        "rules: [{name: fast, match: {path: /fast}, key: global, quota: 1/day, action: overflow}]",
    );
    let request = |path: &'static str| async {
        let layer = &ruled.layer;
        let service = layer.layer(service_fn(async |request: Request<()>| {
            Ok::<_, Infallible>(Response::new(format!("{:?}", request.headers())))
        }));
        let request = Request::from_parts(parts(path, &forged), ());
        let Ok(response) = service.oneshot(request).await;
        response.into_body()
    };
    // Where no rule applies, where one allows, and where it overflows.
    assert_eq!(request("/").await, "{}");
    assert_eq!(request("/fast").await, "{}");
    assert_eq!(
        request("/fast").await,
        r#"{"x-ratelimit-overflow": "fast"}"#
    );
    // Without such a rule the header is the application's own.
    let plain = Marked::yaml("rules: [{name: all, key: global, quota: 9/day}]");
    assert_eq!(plain.get(&forged).await, marks("mine|again"));
}

#[tokio::test]
async fn shadow_wins() {
    let ruled = Marked::yaml(
        "rules:
  - {name: fast, key: global, quota: 1/day, action: overflow, mode: shadow}
  - {name: all, key: global, quota: 3/day}
",
    );
    for _ in 0..3 {
        assert_eq!(ruled.get(&[]).await, marks(""));
    }
    assert_eq!(ruled.get(&[]).await.0, 429);
}

#[tokio::test]
async fn requests_without_a_key_and_blocked_ones_are_rejected() {
    let ruled = Marked::yaml(
        "rules:
  - {name: each, key: {header: x-user}, on_missing_key: reject, quota: 1/day, action: overflow}
  - {name: all, key: global, quota: 99/day}
",
    );
    let ann = [("x-user", "ann")];
    assert_eq!(ruled.get(&[]).await.0, 400);
    assert_eq!(ruled.get(&ann).await, marks(""));
    assert_eq!(ruled.get(&ann).await, marks("each"));
    let limiter = ruled
        .layer
        .handle()
        .rules()
        .limiter_of("each")
        .expect("a limit");
    let block = limiter
        .block(&Key::from("ann"), Duration::from_secs(60))
        .await;
    assert!(block.expect("an answer").is_blocked());
    assert_eq!(ruled.get(&ann).await.0, 429);
    // A blocked key of another rule is a denial, too.
    let all = ruled
        .layer
        .handle()
        .rules()
        .limiter_of("all")
        .expect("a limit");
    let block = all.block(&Key::global(), Duration::from_secs(60)).await;
    assert!(block.expect("an answer").is_blocked());
    let (status, _, response) = ruled.answer("/", &[("x-user", "bob")]).await;
    assert_eq!(status, 429);
    assert_eq!(response.headers()["retry-after"], "60");
}

#[tokio::test]
async fn a_shed_request_overflows_and_costs_are_each_rule_s_own() {
    let ruled = Marked::yaml(
        "rules:
  - {name: fast, key: global, quota: 10/day, cost: 3, priority: {share: 50}, action: overflow}
  - {name: all, key: global, quota: 4/day}
",
    );
    assert_eq!(ruled.get(&[]).await, marks(""));
    // Five of ten are for this class, so that three more do not fit.
    for _ in 0..3 {
        assert_eq!(ruled.get(&[]).await, marks("fast"));
    }
    assert_eq!(ruled.get(&[]).await.0, 429);
    assert_eq!(ruled.left("fast", &Key::global()), Some(7));
}

#[tokio::test]
async fn responses_settle_what_was_charged_and_nothing_else() {
    let ruled = Marked::yaml(
        "rules:
  - {name: fast, key: global, quota: 1/day fixed_window, count_if: {status: [401]}, action: overflow}
  - {name: fails, key: global, quota: 5/day fixed_window, count_if: {status: [401]}}
",
    );
    let left = || {
        (
            ruled.left("fast", &Key::global()),
            ruled.left("fails", &Key::global()),
        )
    };
    assert_eq!(ruled.get(&[]).await, marks(""));
    assert_eq!(left(), (Some(1), Some(5)), "refunded");
    assert_eq!(ruled.answer("/fails", &[]).await.0, 401);
    assert_eq!(left(), (Some(0), Some(4)));
    // The first rule charges nothing from here on, and gets nothing back.
    assert_eq!(ruled.get(&[]).await, marks("fast"));
    assert_eq!(left(), (Some(0), Some(5 - 1)));
    assert_eq!(ruled.answer("/fails", &[]).await.1, "fast");
    assert_eq!(left(), (Some(0), Some(3)));
}

/// Each rule's units as `count_if` left them: those of a rule that charged nothing, or refunded, are no cost.
#[cfg(feature = "metrics")]
#[test]
fn costs_are_those_that_each_rule_kept() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    use tower_ratelimit::observe::MetricsObserver;

    let mut ruled = Marked::yaml(
        "rules:
  - {name: fast, key: global, quota: 1/day fixed_window, action: overflow}
  - {name: fails, key: global, quota: 5/day fixed_window, count_if: {status: [401]}}
  - {name: day, key: global, quota: 50/day fixed_window}
",
    );
    ruled.layer = ruled.layer.observer(MetricsObserver::new());
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        for path in ["/", "/", "/fails"] {
            testkit::now(ruled.answer(path, &[]));
        }
    });
    let left = |rule| ruled.left(rule, &Key::global());
    assert_eq!(["fast", "fails", "day"].map(left), [0, 4, 47].map(Some));
    let metrics = snapshotter.snapshot().into_vec().into_iter();
    let costs = metrics.filter(|(key, ..)| key.key().name() == "ratelimit_cost_total");
    let mut costs: Vec<_> = costs
        .filter_map(|(key, _, _, value)| {
            let policy = key.key().labels().next()?.value().to_owned();
            matches!(value, DebugValue::Counter(_)).then_some((policy, value))
        })
        .collect();
    costs.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [("day", 3), ("fails", 1), ("fast", 1)];
    let expected = expected.map(|(rule, units)| (rule.to_owned(), DebugValue::Counter(units)));
    assert_eq!(costs, expected);
}

#[tokio::test]
async fn a_blocking_rule_beside_it_blocks_as_ever() {
    let ruled = Marked::yaml(
        "rules:
  - {name: fast, key: global, quota: 1/minute, action: overflow}
  - {name: login, key: global, quota: 2/minute, block_for: 1h}
",
    );
    for expected in ["", "fast"] {
        assert_eq!(ruled.get(&[]).await, marks(expected));
    }
    assert_eq!(ruled.get(&[]).await.0, 429);
    ruled.clock.advance(Duration::from_secs(120));
    let (status, _, response) = ruled.answer("/", &[]).await;
    assert_eq!(status, 429);
    assert_eq!(response.headers()["retry-after"], "3480");
    ruled.clock.advance(Duration::from_secs(3_600));
    assert_eq!(ruled.get(&[]).await, marks(""));
}

#[tokio::test]
async fn a_rule_that_waits_waits_without_it() {
    let ruled = Marked::yaml(
        "rules:
  - {name: fast, key: global, quota: 1/day, action: overflow}
  - {name: slow, key: global, quota: 1/minute, wait: 1s}
",
    );
    assert_eq!(ruled.get(&[]).await, marks(""));
    // The turn of `slow` cannot come in time: its wait counts, not the day of the other one.
    let (status, _, response) = ruled.answer("/", &[]).await;
    assert_eq!(status, 429);
    assert_eq!(response.headers()["retry-after"], "60");
    ruled.clock.advance(Duration::from_secs(60));
    assert_eq!(ruled.get(&[]).await, marks("fast"));
}

#[tokio::test]
async fn observers_and_handlers_see_the_overflow() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let recorder = Arc::clone(&received);
    let ruled = Marked::yaml(TWO);
    let layer = ruled.layer.clone().observer(move |event: &Event<'_>| {
        recorder.lock().expect("a list").push(match event {
            Event::Decided(decided) => format!("decided {}", decided.decision().is_allowed()),
            Event::Overflowed(decided) => {
                let denied = decided
                    .decision()
                    .quotas()
                    .filter(|quota| quota.is_denied());
                let denied: Vec<String> = denied.map(|quota| quota.name().to_owned()).collect();
                let binding = decided.key().reveal().to_string();
                format!("overflowed by {denied:?} for {binding}")
            }
            other => format!("{other:?}"),
        });
    });
    let service = layer.layer(service_fn(async |request: Request<String>| {
        let decision = request.extensions().get::<Decision>();
        let seen = decision.map(|decision| (decision.is_denied(), decision.charged()));
        Ok::<_, Infallible>(Response::new(format!("{seen:?}")))
    }));
    let mut bodies = Vec::new();
    for _ in 0..3 {
        let request = Request::from_parts(parts("/", &[("x-user", "ann")]), String::new());
        let Ok(response) = service.clone().oneshot(request).await;
        bodies.push(response.into_body());
    }
    assert_eq!(bodies, ["None", "None", "Some((false, 1))"]);
    let expected = [
        "decided true",
        "decided true",
        r#"overflowed by ["fast"] for global"#,
    ];
    assert_eq!(*received.lock().expect("a list"), expected);
}

#[tokio::test]
async fn a_check_for_another_process_reports_the_rules() {
    let ruled = Marked::yaml(TWO);
    let handle = ruled.layer.handle();
    let check = async |dry_run| {
        let parts = parts("/", &[("x-user", "ann")]);
        let (outcome, decision) = handle
            .check(&parts, None, dry_run)
            .await
            .expect("an answer");
        (outcome, decision.expect("a decision").is_denied())
    };
    assert_eq!(check(false).await, (RulesOutcome::Limited, false));
    assert_eq!(check(false).await, (RulesOutcome::Limited, false));
    let overflowed = || RulesOutcome::Overflowed(vec!["fast".to_owned()]);
    assert_eq!(check(true).await, (overflowed(), false));
    assert_eq!(check(false).await, (overflowed(), false));
    assert_eq!(check(true).await, (RulesOutcome::Limited, true));
    let alone = Marked::yaml("rules: [{name: fast, key: global, quota: 1/day, action: overflow}]");
    let handle = alone.layer.handle();
    for (expected, denied) in [(RulesOutcome::Limited, false), (overflowed(), true)] {
        let (outcome, decision) = handle
            .check(&parts("/", &[]), None, false)
            .await
            .expect("an answer");
        assert_eq!(
            (outcome, decision.expect("a decision").is_denied()),
            (expected, denied)
        );
    }
}

#[test]
fn an_explanation_names_it() {
    let rules = Rules::builder().parse(TWO, Format::Yaml).expect("rules");
    let explained = explain(&rules, "GET /", &[("x-user", "ann")]);
    let overflows = explained
        .rules()
        .iter()
        .map(|rule| rule.limit().expect("a limit").overflows);
    assert_eq!(overflows.collect::<Vec<_>>(), [true, false]);
    assert_eq!(*explained.outcome(), RulesOutcome::Limited);
}

#[test]
fn fields_of_denials_are_faults() {
    for field in ["block_for: 1m", "wait: 1s"] {
        let text = format!("rules: [{{name: a, quota: 1/day, action: overflow, {field}}}]");
        let error = Rules::builder()
            .parse(&text, Format::Yaml)
            .expect_err("a fault");
        let problem = &error.problems()[0];
        assert_eq!(problem.code(), "R02");
        let (name, _) = field.split_once(':').expect("a field");
        let expected = format!(
            "`{name}` is of no use in a rule of the action `overflow`, which denies no request; accepted are name, match, key, quota, "
        );
        assert!(
            problem.message().starts_with(&expected),
            "{}",
            problem.message()
        );
        assert!(
            !problem.message()[expected.len()..].contains(name),
            "{}",
            problem.message()
        );
    }
    let unknown = "rules: [{name: a, quota: 1/day, action: overflows}]";
    let error = Rules::builder()
        .parse(unknown, Format::Yaml)
        .expect_err("a fault");
    let message = error.problems()[0].message();
    assert!(
        message.contains(r#""limit", "overflow", "allow" or "deny""#),
        "{message}"
    );
    assert!(message.contains(r#""overflows""#), "{message}");
}

#[test]
fn a_cost_that_never_fits_always_overflows() {
    let text = "rules: [{name: a, quota: 10/second, cost: 11, action: overflow}]";
    let rules = Rules::builder().parse(text, Format::Yaml).expect("rules");
    let warning = rules.warnings()[0].message();
    assert!(warning.contains("always overflows"), "{warning}");
}

#[test]
fn random_limits_in_a_store_decide_as_the_model() {
    for seed in 0..200 {
        let store = store(&ManualClock::new());
        testkit::now(overflow_action_model::run(seed, 60, store, true));
    }
}
