//! Log lines of a store with a server.
#![cfg(feature = "tracing")]

use std::time::Duration;

use futures_util::FutureExt as _;
use redis::{RedisResult, Value};
use testkit::{child_processes::eventually, logged, needs};
use tower_ratelimit::{Key, Quota, RedisLimiter, RedisStore, decision::Degradation};

use super::{fault, patient};
use crate::{
    canned_script_replies::{self, FakeServer},
    servers::Server,
};

/// The crate's own lines of a run on this thread.
fn lines(run: impl Future<Output = ()>) -> Vec<String> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let mut lines = logged(|| runtime.block_on(run));
    lines.retain(|line| line.contains("tower-ratelimit["));
    lines
}

#[test]
fn each_outage_is_a_line_and_so_is_its_end() {
    needs!(redis);
    let lines = lines(async {
        let mut server = Server::start().await;
        let store = patient().connect(&server.url()).unwrap();
        for _ in 0..2 {
            store.check().await.unwrap();
            server.kill9();
            for _ in 0..10 {
                fault(&store).await;
            }
            server.restart().await;
            store.check().await.unwrap();
            store.check().await.unwrap();
        }
    });
    let codes = ["redis-down", "redis-back", "redis-down", "redis-back"];
    assert_eq!(lines.len(), codes.len(), "{lines:?}");
    for (line, code) in lines.iter().zip(codes) {
        assert!(line.contains(&format!("[{code}]")), "{lines:?}");
    }
}

#[test]
fn a_foreign_value_is_a_line() {
    needs!(redis);
    let lines = lines(async {
        let server = Server::start().await;
        let store = patient().connect(&server.url()).unwrap();
        let limiter = RedisLimiter::builder(Quota::per_hour(100)).name("one");
        let limiter = limiter.build(&store).unwrap();
        let alice = Key::from("alice");
        limiter.acquire(&alice, 1).await.unwrap();
        let keys: Vec<String> = server.send(["KEYS", "*"]).await.unwrap();
        let spoil = ["SET", &keys[0], "somebody else's"];
        server.send::<Value>(spoil).await.unwrap();
        for _ in 0..5 {
            assert!(limiter.acquire(&alice, 1).await.unwrap().is_degraded());
        }
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("[redis-foreign-value]"), "{lines:?}");
    assert!(lines[0].contains("prefix"), "{lines:?}");
    assert!(!lines[0].contains("alice"), "{lines:?}");
}

/// A proxy over many servers that nobody has named works, but the calls before its reply were lost time.
#[test]
fn a_proxy_that_splits_keys_is_logged() {
    let lines = lines(async {
        let server = FakeServer::new(|words| {
            let keys = canned_script_replies::keys(words);
            let reply = match keys {
                1 => Ok(canned_script_replies::of_buckets(1)),
                _ => crossed(),
            };
            async move { reply }.boxed()
        });
        let store = patient().connection(server).unwrap();
        let limiter = RedisLimiter::builder(Quota::per_hour(100)).name("one");
        let limiter = limiter.build(&store).unwrap();
        for _ in 0..3 {
            let keys: Vec<_> = (0..100_u64).map(Key::from).collect();
            let requested = keys.iter().map(|key| limiter.acquire(key, 1).into_future());
            let answers = futures_util::future::join_all(requested).await;
            assert!(answers.iter().flatten().all(|one| !one.is_degraded()));
        }
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("[redis-split]"), "{lines:?}");
    assert!(lines[0].contains("sharding_proxy"), "{lines:?}");
}

fn crossed() -> RedisResult<Value> {
    let text = b"-CROSSSLOT Keys in request don't hash to the same slot\r\n";
    redis::parse_redis_value(text)?.extract_error()
}

/// More requests come at once than can be answered in time, again and again: what is decided without Redis
/// is one line.
#[test]
fn an_overload_of_the_server_is_logged() {
    needs!(redis);
    let lines = lines(async {
        let server = Server::start().await;
        let store = RedisStore::builder().deadline(Duration::from_millis(20));
        let store = store.connect(&server.url()).unwrap();
        let limiter = RedisLimiter::builder(Quota::per_hour(100)).name("one");
        let limiter = limiter.build(&store).unwrap();
        eventually("a connection", async || store.check().await.ok()).await;
        // Where calls were late as well, the breaker may open: that is the other line.
        eventually("a crowd with a closed breaker", async || {
            let (before, was_down) = (store.stats(), store.health().is_down());
            let keys: Vec<_> = (0..20_000_u64).map(Key::from).collect();
            let requested = keys.iter().map(|key| limiter.acquire(key, 1).into_future());
            let answers = futures_util::future::join_all(requested).await;
            assert!(answers.iter().all(Result::is_ok));
            let after = store.stats();
            let [crowded, earlier] =
                [&after, &before].map(|stats| stats.degraded(Degradation::Crowded));
            let is_closed = !was_down && after.breaker_openings() == before.breaker_openings();
            (is_closed && crowded - earlier > 100).then_some(())
        })
        .await;
    });
    let slow = |line: &String| line.contains("[redis-slow]");
    assert!(lines.iter().any(slow), "{lines:?}");
}
