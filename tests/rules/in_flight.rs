//! `in_flight`: permits before quotas, held until the response's body ends.

use std::fs;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{
    clock::ManualClock,
    concurrency::{ConcurrencyBody, RequestPermits},
    rate_limit::SpendBody,
    rules::{Format, HoldingRulesLayer, Rules, RulesBuilder, RulesLayer},
};

use crate::layer::store;

type Held = Response<ConcurrencyBody<SpendBody<Full<bytes::Bytes>>>>;

fn builder() -> RulesBuilder {
    Rules::builder()
        .store(store(&ManualClock::new()))
        .accept_in_flight(true)
}

fn layer(text: &str) -> HoldingRulesLayer {
    let rules = builder().parse(text, Format::Yaml).expect("rules");
    RulesLayer::new(rules).holding()
}

async fn send(layer: &HoldingRulesLayer, path: &str, headers: &[(&str, &str)]) -> Held {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let inner = service_fn(async |_: Request<()>| {
        Ok::<_, std::convert::Infallible>(Response::new(Full::from("hello")))
    });
    let request = request.body(()).expect("a request");
    let answer = layer.layer(inner).oneshot(request).await;
    answer.expect("it never fails")
}

async fn status(layer: &HoldingRulesLayer, path: &str) -> u16 {
    send(layer, path, &[]).await.status().as_u16()
}

#[tokio::test]
async fn permit_is_held_until_the_body_is_dropped() {
    let layer = layer("rules: [{name: api, key: global, in_flight: 2}]");
    let first = send(&layer, "/", &[]).await;
    let second = send(&layer, "/", &[]).await;
    let third = send(&layer, "/", &[]).await;
    assert_eq!(third.status(), StatusCode::TOO_MANY_REQUESTS);
    let policy = r#""api.in_flight";q=2;qu="concurrent-requests""#;
    assert_eq!(third.headers()["ratelimit-policy"], policy);
    assert!(!third.headers().contains_key("retry-after"));
    drop(first);
    let fourth = send(&layer, "/", &[]).await;
    assert_eq!(fourth.status(), 200);
    // The denied response holds nothing.
    assert_eq!(status(&layer, "/").await, 429);
    drop((second, third, fourth));
    assert_eq!(status(&layer, "/").await, 200);
}

#[tokio::test]
async fn denial_by_a_permit_charges_no_quota() {
    let layer = layer("rules: [{name: api, key: global, quota: 2/day, in_flight: 1}]");
    let first = send(&layer, "/", &[]).await;
    for _ in 0..5 {
        assert_eq!(status(&layer, "/").await, 429);
    }
    drop(first);
    assert_eq!(status(&layer, "/").await, 200);
    let by_quota = send(&layer, "/", &[]).await;
    assert_eq!(by_quota.status(), 429);
    assert!(by_quota.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn denial_by_a_quota_holds_no_permit() {
    let text = "rules: [{name: a, key: global, in_flight: 1},\n\
                {name: b, match: {path: /b}, key: global, quota: 1/day}]";
    let layer = layer(text);
    assert_eq!(status(&layer, "/b").await, 200);
    let denied = send(&layer, "/b", &[]).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(status(&layer, "/").await, 200);
}

#[tokio::test]
async fn several_rules_give_all_permits_or_none() {
    let text = "rules: [{name: a, key: global, in_flight: 2},\n\
                {name: b, match: {path: /b}, key: global, in_flight: 1}]";
    let layer = layer(text);
    let b = send(&layer, "/b", &[]).await;
    let denied = send(&layer, "/b", &[]).await;
    assert_eq!(denied.status(), 429);
    let other = send(&layer, "/", &[]).await;
    assert_eq!(other.status(), 200);
    drop((b, other, denied));
}

#[tokio::test]
async fn shadow_denies_nothing_and_takes_no_other_permit() {
    let text = "rules: [{name: s, key: global, in_flight: 1, mode: shadow},\n\
                {name: h, key: global, in_flight: 3}]";
    let layer = layer(text);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(send(&layer, "/", &[]).await);
    }
    assert!(held.iter().all(|response| response.status() == 200));
    assert_eq!(status(&layer, "/").await, 429);
}

#[tokio::test]
async fn tier_has_its_own_most_and_keys_are_separate() {
    let text = "rules: [{name: a, key: {header: x-user}, tier: {header: x-plan, default: free, \
                quotas: {free: 100/s, pro: unlimited}}, in_flight: {max: 1, tiers: {pro: 2}}}]";
    let layer = layer(text);
    let free = [("x-user", "eve")];
    let pro = [("x-user", "ann"), ("x-plan", "pro")];
    let _eve = send(&layer, "/", &free).await;
    assert_eq!(send(&layer, "/", &free).await.status(), 429);
    let _ann = (send(&layer, "/", &pro).await, send(&layer, "/", &pro).await);
    assert_eq!(_ann.1.status(), 200);
    assert_eq!(send(&layer, "/", &pro).await.status(), 429);
}

#[tokio::test]
async fn missing_key_is_treated_as_for_quotas() {
    let rule = |treatment: &str| {
        layer(&format!(
            "rules: [{{name: a, key: {{header: x-user}}, on_missing_key: {treatment}, in_flight: 1}}]"
        ))
    };
    let (reject, skip) = (rule("reject"), rule("skip"));
    assert_eq!(status(&reject, "/").await, 400);
    let held = (send(&skip, "/", &[]).await, send(&skip, "/", &[]).await);
    assert_eq!(held.1.status(), 200);
}

#[tokio::test]
async fn permits_survive_a_reload() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("rules.yaml");
    let write = |most: u32| {
        let text = format!("rules: [{{name: a, key: global, in_flight: {most}}}]");
        fs::write(&file, text).expect("a file");
    };
    write(3);
    let rules = builder().read(&file).expect("rules");
    let layer = RulesLayer::new(rules).holding();
    let mut held = vec![send(&layer, "/", &[]).await, send(&layer, "/", &[]).await];
    write(1);
    layer.handle().reload().expect("rules");
    assert_eq!(status(&layer, "/").await, 429);
    held.pop();
    assert_eq!(status(&layer, "/").await, 429);
    held.pop();
    assert_eq!(status(&layer, "/").await, 200);
}

#[test]
fn file_with_it_is_refused_unless_permits_are_held() {
    let text = "rules: [{name: a, quota: 1/s, in_flight: 20}]";
    let error = Rules::builder().parse(text, Format::Yaml).unwrap_err();
    assert_eq!(error.problems()[0].code(), "R02");
    let message = error.problems()[0].message();
    assert!(message.contains("RulesLayer::holding"), "{message}");
}

#[test]
#[should_panic = "use `RulesLayer::holding`"]
fn layer_that_holds_no_permits_refuses_such_rules() {
    let rules = builder().parse("rules: [{name: a, in_flight: 1}]", Format::Yaml);
    let layer = RulesLayer::new(rules.expect("rules"));
    let _ = layer.handle();
}

#[test]
fn reload_that_adds_it_is_refused_by_a_layer_that_holds_no_permits() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("rules.yaml");
    fs::write(&file, "rules: [{name: a, quota: 1/s}]").expect("a file");
    let handle = RulesLayer::new(builder().read(&file).expect("rules")).handle();
    fs::write(&file, "rules: [{name: a, quota: 1/s, in_flight: 1}]").expect("a file");
    let error = handle.reload().unwrap_err();
    assert!(error.to_string().contains("RulesLayer::holding"), "{error}");
}

/// `lease` is of Redis: in this process permits of a crashed node are gone with it.
#[test]
fn lease_without_redis_is_a_warning_and_its_bounds_are_checked() {
    let read = |lease: &str| {
        let text = format!("rules: [{{name: a, in_flight: {{max: 1, lease: {lease}}}}}]");
        builder().parse(text, Format::Yaml)
    };
    let rules = read("30s").expect("rules");
    let [warning] = rules.warnings() else {
        panic!("{:?}", rules.warnings());
    };
    assert_eq!(warning.code(), "W29");
    assert!(
        warning.message().contains("`lease` has no effect"),
        "{warning}"
    );
    for (lease, fragment) in [("999ms", "1s to 24h"), ("25h", "1s to 24h"), ("0s", "zero")] {
        let error = read(lease).unwrap_err();
        assert_eq!(error.problems()[0].code(), "R08", "{lease}");
        assert!(error.to_string().contains(fragment), "{lease}: {error}");
    }
}

#[cfg(feature = "redis")]
#[test]
fn lease_with_redis_is_no_warning() {
    let redis = tower_ratelimit::RedisStore::connect("redis://127.0.0.1:1").expect("a store");
    for lease in ["1s", "24h"] {
        let text = format!("rules: [{{name: a, in_flight: {{max: 1, lease: {lease}}}}}]");
        let rules = builder().store(redis.clone()).parse(text, Format::Yaml);
        assert!(rules.expect("rules").warnings().is_empty(), "{lease}");
    }
}

#[test]
fn faults_have_codes() {
    let codes = |rule: &str| -> Vec<String> {
        let text = format!("rules: [{{name: a, {rule}}}]");
        let read = builder().parse(text, Format::Yaml);
        let problems = match &read {
            Ok(rules) => rules.warnings(),
            Err(error) => error.problems(),
        };
        problems
            .iter()
            .map(|problem| problem.code().to_owned())
            .collect()
    };
    assert!(codes("in_flight: 65535").is_empty());
    assert_eq!(codes("in_flight: 0"), ["R17"]);
    assert_eq!(codes("in_flight: {max: 65536}"), ["R17"]);
    assert_eq!(codes("in_flight: {max: 1, tiers: {a: 1}}"), ["R02"]);
    assert_eq!(codes("in_flight: 1, cost: 2"), ["R02"]);
    assert_eq!(codes("in_flight: 1, action: overflow, quota: 1/s"), ["R02"]);
    assert_eq!(codes("in_flight: 1, action: deny"), ["R02"]);
    assert_eq!(codes("in_flight: 1, key: global"), ["W23"]);
}

#[test]
fn file_of_the_service_s_page_is_read() {
    let page = include_str!("../../crates/gateway/docs/gateway.md");
    let (_, section) = page
        .split_once("## One client that holds everything")
        .expect("the section");
    let (_, text) = section.split_once("```yaml\n").expect("a file");
    let (text, _) = text.split_once("```").expect("its end");
    let rules = builder().parse(text, Format::Yaml);
    assert_eq!(rules.unwrap_or_else(|error| panic!("{error}")).len(), 2);
}

#[tokio::test]
async fn upgraded_connection_holds_the_permit_after_its_response() {
    let layer = layer("rules: [{name: api, key: global, in_flight: 1}]");
    let kept = std::sync::Arc::new(std::sync::Mutex::new(None));
    let keep = std::sync::Arc::clone(&kept);
    let inner = service_fn(move |mut request: Request<()>| {
        let permits = request.extensions_mut().remove::<RequestPermits>();
        *keep.lock().expect("no panic") = permits;
        async { Ok::<_, std::convert::Infallible>(Response::new(Full::<bytes::Bytes>::default())) }
    });
    let service = layer.layer(inner);
    let upgrade = Request::get("/").header("upgrade", "websocket");
    let response = service
        .clone()
        .oneshot(upgrade.body(()).expect("a request"))
        .await;
    drop(response);
    assert_eq!(status(&layer, "/").await, 429);
    *kept.lock().expect("no panic") = None;
    assert_eq!(status(&layer, "/").await, 200);
    // A request without an upgrade has none.
    let plain = Request::get("/").body(()).expect("a request");
    drop(service.oneshot(plain).await);
    assert!(kept.lock().expect("no panic").is_none());
}
