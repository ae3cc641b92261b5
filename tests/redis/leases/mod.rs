//! A limit on concurrency that several nodes share through Redis.

mod lifetimes;
mod long_and_short_responses;
mod redis_failures;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::{Request, Response};
use testkit::{Lines, Probe, child_processes::eventually, field, get, needs};
use tokio::task::JoinSet;
use tower::{Layer, Service, ServiceExt};
use tower_ratelimit::{
    Concurrency, ConcurrencyLayer, ConfigErrorKind, Global, Key, PeerIp, Priority, RedisStore,
    concurrency::{ConcurrencyBody, ConcurrencyLimit, ResponseFuture, SharedConcurrency},
    key::key_fn,
    observe::Event,
    reject::ProblemJson,
};

use crate::servers::{Server, Setup};

type Layered = ConcurrencyLayer;
type Node = ConcurrencyLimit<Probe>;
type Answer = Response<ConcurrencyBody<String>>;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3_600);

/// Long enough for a busy machine to renew it in time.
const MODERATE: Duration = Duration::from_secs(3);

/// Short enough for a test to wait for its end.
const SHORT: Duration = Duration::from_millis(300);

/// A connection of its own to the server. A busy machine must not look like a failing server.
fn store(url: &str) -> RedisStore {
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    store.connect(url).unwrap()
}

fn at_most(limit: u64, url: &str, lease: Duration) -> SharedConcurrency {
    SharedConcurrency::new(&store(url), Concurrency::max(limit)).lease(lease)
}

fn layered(shared: SharedConcurrency) -> Layered {
    ConcurrencyLayer::new(shared, Global)
}

/// A node with a connection of its own.
fn node(limit: u64, server: &Server, lease: Duration) -> Node {
    layered(at_most(limit, &server.url(), lease)).layer(Probe::default())
}

async fn send<S, B>(service: &S) -> Response<B>
where
    S: Service<Request<String>, Response = Response<B>> + Clone,
    S::Error: std::fmt::Debug,
{
    let request = get("/").body(String::new()).unwrap();
    service.clone().oneshot(request).await.unwrap()
}

/// A response that holds a permit until it is dropped.
async fn held(node: &Node) -> Answer {
    let response = send(node).await;
    assert_eq!(response.status(), 200);
    response
}

/// Waits until a request passes.
async fn passed(node: &Node) -> Answer {
    eventually("a permit", async || {
        let response = send(node).await;
        (response.status() == 200).then_some(response)
    })
    .await
}

/// When each lease of all subjects ends, by its name: what the server has, in microseconds.
async fn leases(server: &Server) -> BTreeMap<Vec<u8>, u64> {
    let keys: Vec<String> = server.send(["KEYS", "*.leases:*"]).await.unwrap();
    let mut ends = BTreeMap::new();
    for key in keys {
        let value: Option<Vec<u8>> = server.send(["GET", &key]).await.unwrap();
        let entries = value.map_or(Vec::new(), |value| value[13..].to_vec());
        for entry in entries.chunks(15) {
            let (name, end) = entry.split_at(8);
            let end = end.iter().fold(0, |end, byte| end << 8 | u64::from(*byte));
            ends.insert(name.to_vec(), end);
        }
    }
    ends
}

/// Waits until these leases end later than any of them could without a renewal.
async fn renewed(server: &Server, names: &[Vec<u8>], lease: Duration) {
    let before = leases(server).await;
    let latest = names.iter().filter_map(|name| before.get(name)).max();
    let goal = latest.unwrap() + u64::try_from(lease.as_micros()).unwrap();
    eventually("renewed leases", async || {
        let now = leases(server).await;
        let is_renewed = |name| now.get(name).is_some_and(|end| *end > goal);
        names.iter().all(is_renewed).then_some(())
    })
    .await;
}

/// Waits until all leases are renewed, `count` of them.
async fn all_renewed(server: &Server, count: usize, lease: Duration) {
    let names: Vec<_> = leases(server).await.into_keys().collect();
    assert_eq!(names.len(), count);
    renewed(server, &names, lease).await;
}

pub(crate) async fn has_leases(server: &Server, count: usize) {
    eventually(&format!("{count} leases"), async || {
        (leases(server).await.len() == count).then_some(())
    })
    .await;
}

/// Waits until there is nothing left in the server.
async fn is_empty(server: &Server) {
    eventually("an empty server", async || {
        (server.send::<u64>(["DBSIZE"]).await.unwrap() == 0).then_some(())
    })
    .await;
}

/// Sends requests to all nodes at the same time, and has all permits come back.
async fn is_exact(server: &Server) {
    let nodes = [node(10, server, LONG), node(10, server, LONG)];
    for _ in 0..2 {
        let mut requests = JoinSet::new();
        for node in &nodes {
            for _ in 0..100 {
                let node = node.clone();
                requests.spawn(async move { send(&node).await });
            }
        }
        let responses = requests.join_all().await;
        let passed = responses.iter().filter(|each| each.status() == 200).count();
        let denied = responses.iter().filter(|each| each.status() == 429).count();
        assert_eq!((passed, denied), (10, 190));
        assert_eq!(leases(server).await.len(), 10);

        drop(responses);
        is_empty(server).await;
    }
}

#[tokio::test]
async fn two_hundred_at_once_on_two_nodes_get_exactly_the_limit() {
    needs!(redis);
    is_exact(&Server::start().await).await;
}

#[tokio::test]
async fn the_same_on_valkey() {
    needs!(valkey);
    is_exact(&Setup::valkey().start().await).await;
}

#[tokio::test]
async fn a_user_needs_no_more_permissions_than_for_rates() {
    needs!(redis);
    let rule = "limiter on >sesame resetkeys ~rl:* -@all +evalsha +script|load +get +set +time";
    let server = Setup::redis().user(rule).start().await;
    let url = format!("redis://limiter:sesame@127.0.0.1:{}", server.port());
    let node = layered(at_most(1, &url, LONG)).layer(Probe::default());
    let first = held(&node).await;
    assert_eq!(send(&node).await.status(), 429);
    drop(first);
    passed(&node).await;
}

#[tokio::test]
async fn responses_report_what_remains_for_all_nodes() {
    needs!(redis);
    let server = Server::start().await;
    let [one, other] = [node(3, &server, LONG), node(3, &server, LONG)];
    let first = held(&one).await;
    assert_eq!(field(&first, "ratelimit"), Some(r#""concurrency";r=2"#));
    let second = held(&other).await;
    assert_eq!(field(&second, "ratelimit"), Some(r#""concurrency";r=1"#));
    let policy = field(&second, "ratelimit-policy");
    assert_eq!(
        policy,
        Some(r#""concurrency";q=3;qu="concurrent-requests""#)
    );
    let third = held(&one).await;
    assert_eq!(field(&third, "ratelimit"), Some(r#""concurrency";r=0"#));
    let denied = send(&other).await;
    assert_eq!(field(&denied, "ratelimit"), Some(r#""concurrency";r=0"#));
    assert_eq!(field(&denied, "retry-after"), None);
}

#[tokio::test]
async fn keys_limits_and_prefixes_of_different_names_share_nothing() {
    needs!(redis);
    let server = Server::start().await;
    let by_path = key_fn(|parts| Key::from(parts.uri.path()));
    let layer = ConcurrencyLayer::new(at_most(1, &server.url(), LONG), by_path);
    let node = layer.layer(Probe::default());
    let to = async |path: &str| {
        let request = get(path).body(String::new()).unwrap();
        node.clone().oneshot(request).await.unwrap()
    };
    let _held = [to("/a").await, to("/b").await];
    assert_eq!(to("/a").await.status(), 429);
    assert_eq!(layer.in_flight(&Key::from("/a")), 1);
    assert_eq!(layer.tracked_keys(), 2);

    let shared = at_most(1, &server.url(), LONG);
    let prefixed = RedisStore::builder().prefix("other").deadline(LONG);
    let prefixed = prefixed.connect(&server.url()).unwrap();
    let others = [
        shared.clone(),
        shared.clone().name("other"),
        SharedConcurrency::new(&prefixed, Concurrency::max(1)),
    ];
    let others = others.map(|other| layered(other).layer(Probe::default()));
    let mut all = Vec::new();
    for other in &others {
        all.push(held(other).await);
    }
    let again = layered(shared.name("concurrency")).layer(Probe::default());
    assert_eq!(send(&again).await.status(), 429);
    assert_eq!(leases(&server).await.len(), 5);
}

#[tokio::test]
async fn node_that_holds_all_permits_denies_without_a_call() {
    needs!(redis);
    let server = Server::start().await;
    let [one, other] = [node(2, &server, LONG), node(2, &server, LONG)];
    let _held = [held(&one).await, held(&one).await];
    let requested = server.command_count("evalsha").await;
    for _ in 0..5 {
        assert_eq!(send(&one).await.status(), 429);
    }
    assert_eq!(server.command_count("evalsha").await, requested);
    assert_eq!(send(&other).await.status(), 429);
    assert_eq!(server.command_count("evalsha").await, requested + 1);
}

#[tokio::test]
async fn a_shadow_counts_what_passes_and_touches_nothing() {
    needs!(redis);
    let server = Server::start().await;
    let lines = Lines::default();
    let seen = lines.clone();
    let layer = layered(at_most(1, &server.url(), LONG))
        .shadow(true)
        .observer(move |event: &Event<'_>| {
            let Event::Decided(decided) = event else {
                panic!("{event:?}")
            };
            seen.push(format!("{:?}", decided.decision().outcome()));
        });
    let node = layer.layer(Probe::default());
    let responses = [held(&node).await, held(&node).await, held(&node).await];
    assert!(responses.iter().all(|each| each.headers().is_empty()));
    assert_eq!(lines.take(), ["Allowed", "Denied", "Denied"]);
    assert_eq!(leases(&server).await.len(), 1);
    drop(responses);
    is_empty(&server).await;
}

#[tokio::test]
async fn requests_without_a_key_and_skipped_ones_do_not_reach_redis() {
    needs!(redis);
    let server = Server::start().await;
    let shared = at_most(1, &server.url(), LONG);
    let skipping = layered(shared.clone()).skip(|_| true);
    let skipping = skipping.layer(Probe::default());
    let responses = [held(&skipping).await, held(&skipping).await];
    assert!(responses.iter().all(|each| each.headers().is_empty()));

    let keyless = ConcurrencyLayer::new(shared, PeerIp).layer(Probe::default());
    assert_eq!(send(&keyless).await.status(), 500);
    assert_eq!(server.command_count("evalsha").await, 0);
}

#[test]
fn an_invalid_limit_is_refused_before_any_call() {
    let store = RedisStore::connect("redis://127.0.0.1:1").unwrap();
    let shared = SharedConcurrency::new(&store, Concurrency::max(1));
    let refused = |shared: SharedConcurrency| {
        let kind = shared.check().unwrap_err().kind();
        let layer = ConcurrencyLayer::try_new(shared, Global);
        assert_eq!(layer.unwrap_err().kind(), kind);
        kind
    };
    let zero = SharedConcurrency::new(&store, Concurrency::max(0));
    assert_eq!(refused(zero), ConfigErrorKind::Limit);
    for lease in [Duration::ZERO, Duration::from_millis(99), 25 * LONG] {
        let lease = shared.clone().lease(lease);
        assert_eq!(refused(lease), ConfigErrorKind::Lease);
    }
    for name in ["", "a b", "ö", &"x".repeat(65)] {
        assert_eq!(refused(shared.clone().name(name)), ConfigErrorKind::Name);
    }
    assert!(
        shared
            .clone()
            .lease(24 * LONG)
            .name("a.b-c_D")
            .check()
            .is_ok()
    );
    let odd = SharedConcurrency::new(&store, Concurrency::max(1).named("a b{c}"));
    assert!(odd.check().is_ok());
}

#[test]
fn public_types_have_the_auto_traits_that_servers_need() {
    fn send_sync_clone<T: Send + Sync + Clone + 'static>() {}
    fn send<T: Send>() {}
    send_sync_clone::<SharedConcurrency>();
    send_sync_clone::<Layered>();
    send_sync_clone::<Node>();
    send::<ResponseFuture<Probe, String, ProblemJson>>();
}

/// A place that a request has left is free for the next one of the same node, though Redis learns of
/// both at once.
#[tokio::test]
async fn requests_one_after_another_never_meet() {
    needs!(redis);
    let server = Server::start().await;
    let node = node(1, &server, LONG);
    for _ in 0..300 {
        drop(held(&node).await);
    }
}

/// As a cluster's client sends it when its connection breaks.
#[tokio::test]
async fn a_lease_that_is_requested_twice_is_one() {
    needs!(redis);
    let server = Server::start().await;
    let script = include_str!("../../../crates/concurrency/src/permit_leases.lua");
    let request = async || -> Vec<i64> {
        let words = ["EVAL", script, "1", "rl:v1:test.leases:a", "1", "60000000"];
        let words = words
            .into_iter()
            .chain(["a", "8 bytes.", "a", "8 bytes.", "a", "another."]);
        server.send(words).await.unwrap()
    };
    assert_eq!(request().await, [0, 0, -1]);
    assert_eq!(request().await, [0, 0, -1]);
    assert_eq!(leases(&server).await.len(), 1);
}
