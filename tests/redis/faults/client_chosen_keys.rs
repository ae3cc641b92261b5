//! Keys that clients choose.

use std::collections::HashSet;

use redis::Value;
use testkit::{
    AGE, needs,
    servers::{Cluster, Server},
};
use tower_ratelimit::{Key, OnFailure, Quota, RedisLimiter};

use super::load_through_fault::patient_store;

const LIMIT: u64 = 3;

fn limiter(url: &str, quota: Quota) -> RedisLimiter {
    let store = patient_store(url);
    let builder = RedisLimiter::builder(quota).on_failure(OnFailure::deny());
    builder.build(&store).unwrap()
}

/// Keys with braces in all places, with what Redis' protocol and Lua read a meaning into, and long
/// ones. No two are equal.
fn keys() -> Vec<Key> {
    let mut keys: Vec<Key> = [
        "",
        "{",
        "}",
        "{}",
        "}{",
        "{a}",
        "{a}b",
        "{b}a",
        "a{b",
        "a}b",
        "{{a}}",
        "a",
        "A",
        "\u{212a}",
        "K",
        "k",
        "a b",
        "a\r\nSET x 1\r\n",
        "a\r\n",
        "a\n",
        "a\0b",
        "a\0",
        "'",
        "\"",
        "]]",
        "\\",
        "*3\r\n$3\r\nSET\r\n",
        "$1",
        "%s",
        "KEYS[1]",
        "1",
        "*",
        "?",
        "[a]",
        "rl:v1:",
        ":",
        "#",
    ]
    .map(Key::from)
    .into();
    keys.extend([b"\xff".as_slice(), b"a", b"a\0b", b"\xff\xfe\r\n\0"].map(Key::bytes));
    keys.push(Key::from(1));
    keys.push(Key::tuple(["ab", "c"].map(Key::from)));
    keys.push(Key::tuple(["a", "bc"].map(Key::from)));
    // Around the longest that is readable in Redis, the longest that is kept, and far beyond.
    for length in [47, 48, 49, 255, 256, 257, 2_000_000] {
        keys.push(Key::from("x".repeat(length)));
        keys.push(Key::from("x".repeat(length - 1) + "y"));
    }
    let distinct: HashSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len());
    keys
}

/// Each key has its own limit: no two share one, and none has two.
async fn each_has_its_own_limit(limiter: &RedisLimiter) {
    let keys = keys();
    for round in 0..LIMIT + 2 {
        for key in &keys {
            let decision = limiter.acquire(key, 1).await.unwrap();
            assert_eq!(
                decision.is_allowed(),
                round < LIMIT,
                "{key:?}, round {round}"
            );
        }
    }
}

/// Names of the subjects in Redis.
async fn names(server: &Server) -> Vec<Vec<u8>> {
    server.send(["KEYS", "*"]).await.unwrap()
}

fn assert_harmless(names: &[Vec<u8>]) {
    for name in names {
        let text = String::from_utf8_lossy(name);
        assert!(name.starts_with(b"rl:v1:"), "{text}");
        assert!(name.len() <= 200, "{text}");
        let is_harmless = |byte: &u8| byte.is_ascii_alphanumeric() || b":./-_@+#".contains(byte);
        assert!(name.iter().all(is_harmless), "{text}");
    }
}

#[tokio::test]
async fn no_key_is_more_than_a_name() {
    needs!(redis);
    let server = Server::start().await;
    let quota = Quota::per(LIMIT, AGE).fixed_window();
    each_has_its_own_limit(&limiter(&server.url(), quota)).await;
    let names = names(&server).await;
    assert_eq!(names.len(), keys().len());
    assert_harmless(&names);
    let scripts = server.info("memory").await["number_of_cached_scripts"].clone();
    assert_eq!(scripts, "1", "no script is made from a key");
}

#[tokio::test]
async fn no_key_chooses_its_server_in_a_cluster() {
    needs!(redis);
    let cluster = Cluster::start().await;
    let urls = cluster.urls().join(",").replace("redis://", "");
    let quota = Quota::per(LIMIT, AGE).fixed_window();
    let limiter = limiter(&format!("redis-cluster://{urls}"), quota);
    each_has_its_own_limit(&limiter).await;
    for attempt in 0..60 {
        let key = Key::from(format!("{{one slot}}{attempt}"));
        assert!(limiter.acquire(&key, 1).await.unwrap().is_allowed());
    }
    let mut all = Vec::new();
    for primary in 0..3 {
        let here = names(cluster.node(primary)).await;
        assert!(here.len() > 10, "all servers have a part");
        all.extend(here);
    }
    assert_eq!(all.len(), keys().len() + 60);
    assert_harmless(&all);
}

/// 300 subjects use up an age's limit, then 30,000 others come by: how many of the first are still
/// denied, and how many of the others were refused by Redis.
async fn flooded(policy: &str) -> (usize, usize) {
    const FIRST: u64 = 300;
    const OTHERS: u64 = 30_000;
    let server = Server::start().await;
    let age = limiter(&server.url(), Quota::per(LIMIT, AGE).fixed_window());
    let minute = limiter(&server.url(), Quota::per_minute(LIMIT).fixed_window());
    for key in 0..FIRST {
        let decision = age.acquire(&Key::from(key), LIMIT).await.unwrap();
        assert!(decision.is_allowed());
    }
    let memory: u64 = server.info("memory").await["used_memory"].parse().unwrap();
    let limit = (memory + 1_000_000).to_string();
    for (directive, value) in [("maxmemory-policy", policy), ("maxmemory", &limit)] {
        let answer = server
            .send::<Value>(["CONFIG", "SET", directive, value])
            .await;
        answer.unwrap();
    }
    let mut refused = 0;
    for chunk in (FIRST..FIRST + OTHERS).collect::<Vec<_>>().chunks(500) {
        let requested = chunk.iter().map(|key| minute.acquire(&Key::from(*key), 1));
        for pending in requested.collect::<Vec<_>>() {
            refused += usize::from(pending.await.is_err());
        }
    }
    // Room again, so that they can be used.
    server
        .send::<Value>(["CONFIG", "SET", "maxmemory", "0"])
        .await
        .unwrap();
    testkit::child_processes::eventually("decisions by Redis", async || {
        age.peek(&Key::from(0), 1).await.ok()
    })
    .await;
    let mut denied = 0;
    for key in 0..FIRST {
        denied += usize::from(age.peek(&Key::from(key), 1).await.unwrap().is_denied());
    }
    println!("{policy}: {denied} of {FIRST} still denied, {refused} of {OTHERS} refused");
    (denied, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_keys_frees_nobody_where_nothing_is_evicted() {
    needs!(redis);
    let (denied, refused) = flooded("noeviction").await;
    assert_eq!(denied, 300);
    assert!(refused > 0, "memory was full");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_keys_frees_nobody_where_those_go_first_that_end_first() {
    needs!(redis);
    let (denied, refused) = flooded("volatile-ttl").await;
    assert_eq!((denied, refused), (300, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_keys_frees_most_under_other_policies() {
    needs!(redis);
    // Why the documentation warns of them.
    let (denied, refused) = flooded("allkeys-lru").await;
    assert!(denied < 300, "{denied} are still denied");
    assert_eq!(refused, 0);
}
