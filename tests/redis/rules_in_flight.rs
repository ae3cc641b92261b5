//! `in_flight` of rules that count in Redis: permits of all nodes together.

use std::{convert::Infallible, fs, net::SocketAddr, pin::pin, task::Context, time::Duration};

use http::{Request, Response};
use http_body_util::Full;
use testkit::{child_processes::eventually, needs, servers::Server};
use tokio::task::JoinSet;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::{
    Key, RedisStore,
    concurrency::{ConcurrencyBody, RequestPermits},
    rate_limit::SpendBody,
    rules::{Format, HoldingRulesLayer, Rules, RulesBuilder, RulesLayer},
};

use crate::leases::has_leases;

type Held = Response<ConcurrencyBody<SpendBody<Full<bytes::Bytes>>>>;

/// No server listens there.
const NOWHERE: &str = "redis://127.0.0.1:1";

fn builder(url: &str) -> RulesBuilder {
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    let store = store.connect(url).unwrap();
    Rules::builder().store(store).accept_in_flight(true)
}

/// A node with a connection of its own.
fn node(url: &str, text: &str) -> HoldingRulesLayer {
    let rules = builder(url).parse(text, Format::Yaml).unwrap();
    RulesLayer::new(rules).holding()
}

fn request(path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let peer = SocketAddr::from(([203, 0, 113, 7], 4_000));
    let request = Request::get(path).extension(peer);
    let with = |request: http::request::Builder, (name, value): &(&str, &str)| {
        request.header(*name, *value)
    };
    headers.iter().fold(request, with).body(()).unwrap()
}

async fn respond(_: Request<()>) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

async fn send_with(layer: &HoldingRulesLayer, path: &str, headers: &[(&str, &str)]) -> Held {
    let service = layer.layer(service_fn(respond));
    let Ok(response) = service.oneshot(request(path, headers)).await;
    response
}

async fn send(layer: &HoldingRulesLayer, path: &str) -> Held {
    send_with(layer, path, &[]).await
}

async fn status(layer: &HoldingRulesLayer, path: &str) -> u16 {
    send(layer, path).await.status().as_u16()
}

/// A response that holds its permits.
async fn held(layer: &HoldingRulesLayer, path: &str) -> Held {
    let response = send(layer, path).await;
    assert_eq!(response.status(), 200, "{path}");
    response
}

/// The number of requests in flight of each limit in this process.
fn in_flight(layer: &HoldingRulesLayer) -> Vec<(String, u64)> {
    let counted = layer.handle().in_flight().into_iter();
    counted
        .map(|(policy, count)| (policy.name().to_owned(), count))
        .collect()
}

#[tokio::test]
async fn nodes_share_the_permits_of_a_rule() {
    needs!(redis);
    let server = Server::start().await;
    let text = "rules: [{name: api, in_flight: {max: 3, lease: 1h}}]";
    let nodes = [(); 2].map(|()| node(&server.url(), text));
    let mut responses = Vec::new();
    for at in [0, 1, 0] {
        responses.push(held(&nodes[at], "/").await);
    }
    let denied = send(&nodes[1], "/").await;
    assert_eq!(denied.status(), 429);
    let policy = r#""api.in_flight";q=3;qu="concurrent-requests""#;
    assert_eq!(denied.headers()["ratelimit-policy"], policy);
    assert!(!denied.headers().contains_key("retry-after"));
    has_leases(&server, 3).await;
    assert_eq!(in_flight(&nodes[0]), [("api.in_flight".to_owned(), 2)]);
    let client = Key::parse("ip:203.0.113.7").unwrap();
    let of_key = nodes[1].handle().in_flight_of("api", &client).unwrap();
    assert_eq!((of_key.0.limit(), of_key.1), (3, 1));
    assert!(nodes[1].handle().in_flight_of("web", &client).is_none());

    responses.remove(0);
    eventually("the permit of the other node", async || {
        let response = send(&nodes[1], "/").await;
        (response.status() == 200).then_some(response)
    })
    .await;
    drop(responses);
    has_leases(&server, 0).await;
}

/// Requests come from both nodes at the same time. None of them ends before all are decided.
#[tokio::test]
async fn many_requests_of_two_nodes_get_exactly_the_permits() {
    needs!(redis);
    let server = Server::start().await;
    let text = "rules: [{name: api, in_flight: {max: 10, lease: 1h}}]";
    let nodes = [(); 2].map(|()| node(&server.url(), text));
    for _ in 0..2 {
        let mut requests = JoinSet::new();
        for layer in nodes.iter().cycle().take(100) {
            let layer = layer.clone();
            requests.spawn(async move { send(&layer, "/").await });
        }
        let responses = requests.join_all().await;
        let passed = responses.iter().filter(|sent| sent.status() == 200);
        assert_eq!(passed.count(), 10);
        drop(responses);
        has_leases(&server, 0).await;
    }
}

#[tokio::test]
async fn several_rules_grant_all_permits_or_none() {
    needs!(redis);
    let server = Server::start().await;
    let text = "rules: [{name: a, key: global, in_flight: {max: 2, lease: 1h}},\n\
                {name: b, match: {path: /b}, key: global, in_flight: {max: 1, lease: 1h}}]";
    let layer = node(&server.url(), text);
    let first = held(&layer, "/b").await;
    let denied = send(&layer, "/b").await;
    let policy = denied.headers()["ratelimit-policy"].to_str().unwrap();
    assert!(policy.starts_with("\"b.in_flight\""), "{policy}");
    // The denied request has released its permit of the first rule.
    let other = held(&layer, "/").await;
    assert_eq!(status(&layer, "/").await, 429);
    drop((first, other, denied));
    has_leases(&server, 0).await;
}

#[tokio::test]
async fn request_that_a_quota_denies_holds_no_permit_and_the_other_way_round() {
    needs!(redis);
    let server = Server::start().await;
    let text = "rules: [{name: a, key: global, in_flight: {max: 1, lease: 1h}, quota: 2/day fixed_window}]";
    let layer = node(&server.url(), text);
    let first = held(&layer, "/").await;
    for _ in 0..3 {
        assert_eq!(status(&layer, "/").await, 429);
    }
    drop(first);
    // Denials by the permit have charged nothing.
    drop(held(&layer, "/").await);
    let denied = send(&layer, "/").await;
    assert_eq!(denied.status(), 429);
    assert!(denied.headers().contains_key("retry-after"));
    has_leases(&server, 0).await;
    assert_eq!(in_flight(&layer), [("a.in_flight".to_owned(), 0)]);
}

#[tokio::test]
async fn shadow_denies_nothing_and_a_missing_key_is_treated_as_for_quotas() {
    needs!(redis);
    let server = Server::start().await;
    let text = "rules: [{name: s, key: global, in_flight: 1, mode: shadow},\n\
                {name: h, match: {path: /h}, key: {header: x-user}, on_missing_key: reject, in_flight: 1},\n\
                {name: k, match: {path: /k}, key: {header: x-user}, on_missing_key: skip, in_flight: 1}]";
    let layer = node(&server.url(), text);
    let both = (held(&layer, "/k").await, held(&layer, "/k").await);
    assert_eq!(status(&layer, "/h").await, 400);
    drop(both);
    has_leases(&server, 0).await;
}

#[tokio::test]
async fn tiers_of_a_key_count_together_up_to_the_number_of_each() {
    needs!(redis);
    let server = Server::start().await;
    let text = "rules: [{name: a, key: {header: x-user}, tier: {header: x-plan, default: free, \
                quotas: {free: 100/s, pro: unlimited}}, in_flight: {max: 1, tiers: {pro: 2}}}]";
    let layer = node(&server.url(), text);
    let free = [("x-user", "eve")];
    let pro = [("x-user", "eve"), ("x-plan", "pro")];
    let one = send_with(&layer, "/", &free).await;
    assert_eq!(send_with(&layer, "/", &free).await.status(), 429);
    let two = send_with(&layer, "/", &pro).await;
    assert_eq!(
        (one.status(), two.status()),
        (200.try_into().unwrap(), 200.try_into().unwrap())
    );
    assert_eq!(send_with(&layer, "/", &pro).await.status(), 429);
}

#[tokio::test]
async fn lower_number_of_new_rules_counts_what_runs() {
    needs!(redis);
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    let write = |most: u32| {
        let text = format!("rules: [{{name: a, key: global, in_flight: {most}}}]");
        fs::write(&file, text).unwrap();
    };
    write(3);
    let rules = builder(&server.url()).read(&file).unwrap();
    let layer = RulesLayer::new(rules).holding();
    let mut responses = vec![held(&layer, "/").await, held(&layer, "/").await];
    write(1);
    layer.handle().reload().unwrap();
    for _ in 0..2 {
        assert_eq!(status(&layer, "/").await, 429);
        responses.pop();
    }
    has_leases(&server, 0).await;
    assert_eq!(status(&layer, "/").await, 200);
}

/// The future is dropped before its first poll, after it, and so on until it would be complete.
#[tokio::test]
async fn request_that_is_dropped_at_any_point_holds_no_permit() {
    needs!(redis);
    let server = Server::start().await;
    let text = "rules: [{name: a, key: global, in_flight: {max: 1, lease: 1h}},\n\
                {name: b, key: global, in_flight: {max: 1, lease: 1h}, quota: 1000/s}]";
    let layer = node(&server.url(), text);
    let mut service = layer.layer(service_fn(respond));
    for polls in 0..40 {
        let ready = service.ready().await.unwrap();
        let mut response = pin!(ready.call(request("/", &[])));
        for _ in 0..polls {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            if response.as_mut().poll(&mut cx).is_ready() {
                break;
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }
    has_leases(&server, 0).await;
    let none = [("a.in_flight".to_owned(), 0), ("b.in_flight".to_owned(), 0)];
    assert_eq!(in_flight(&layer), none);
    assert_eq!(status(&layer, "/").await, 200);
}

#[tokio::test]
async fn upgraded_connection_holds_its_permit_after_the_response() {
    needs!(redis);
    let server = Server::start().await;
    let layer = node(
        &server.url(),
        "rules: [{name: a, key: global, in_flight: {max: 1, lease: 1h}}]",
    );
    let (sender, mut kept) = tokio::sync::mpsc::unbounded_channel();
    let inner = service_fn(move |mut request: Request<()>| {
        let permits = request.extensions_mut().remove::<RequestPermits>();
        sender.send(permits).unwrap();
        respond(request)
    });
    let upgrade = request("/", &[("upgrade", "websocket")]);
    drop(layer.layer(inner).oneshot(upgrade).await);
    let permits = kept.recv().await.unwrap();
    assert!(permits.is_some());
    assert_eq!(status(&layer, "/").await, 429);
    drop(permits);
    has_leases(&server, 0).await;
    assert_eq!(status(&layer, "/").await, 200);
}

#[tokio::test]
async fn on_failure_decides_while_redis_does_not() {
    let text = |treatment: &str| {
        format!(
            "store: {{on_failure: {treatment}}}\n\
             rules: [{{name: a, key: global, in_flight: 2}}]"
        )
    };
    // Each node has the whole number by itself.
    for layer in [(); 2].map(|()| node(NOWHERE, &text("local"))) {
        let both = [held(&layer, "/").await, held(&layer, "/").await];
        assert_eq!(status(&layer, "/").await, 429);
        drop(both);
        assert_eq!(status(&layer, "/").await, 200);
    }
    let layer = node(NOWHERE, &text("allow"));
    let mut responses = Vec::new();
    for _ in 0..5 {
        responses.push(held(&layer, "/").await);
    }
    let layer = node(NOWHERE, &text("deny"));
    assert_eq!(status(&layer, "/").await, 503);
    // A shadow denies nothing, even if it fails.
    let layer = node(NOWHERE, &text("deny").replace("2}", "2, mode: shadow}"));
    assert_eq!(status(&layer, "/").await, 200);
}

#[tokio::test]
async fn request_without_such_a_rule_waits_for_no_permit() {
    let text = "store: {on_failure: deny}\n\
                rules: [{name: a, match: {path: /a}, key: global, in_flight: 2},\n\
                {name: d, match: {path: /d}, action: deny}]";
    let layer = node(NOWHERE, text);
    assert_eq!(status(&layer, "/other").await, 200);
    assert_eq!(status(&layer, "/d").await, 403);
    assert_eq!(status(&layer, "/a").await, 503);
}
