//! Keys and lifetimes that a limiter leaves in Redis.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use redis::Value;
use testkit::{needs, servers::Server};
use tower_ratelimit::{Key, OnFailure, Quota, RedisLimiter, RedisStore};

fn limiter(server: &Server, quota: Quota) -> RedisLimiter {
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    let store = store.connect(&server.url()).unwrap();
    let builder = RedisLimiter::builder(quota).on_failure(OnFailure::deny());
    builder.build(&store).unwrap()
}

async fn only_key(server: &Server) -> String {
    let keys: Vec<String> = server.send(["KEYS", "*"]).await.unwrap();
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys[0].clone()
}

/// Milliseconds; negative for none.
async fn time_to_live(server: &Server, key: &str) -> i64 {
    server.send(["PTTL", key]).await.unwrap()
}

#[tokio::test]
async fn a_key_lives_until_nothing_is_left_to_remember() {
    needs!(redis);
    let server = Server::start().await;
    let hour = Quota::per_hour(4);
    for (quota, slice) in [
        (hour, 0),
        (hour.refill_every(Duration::from_secs(60)), 0),
        (hour.leaky_bucket(3), 0),
        (hour.fixed_window(), 0),
        (hour.sliding_window(), 3_600_000),
        (hour.sliding_window().slices(6), 600_000),
        (hour.sliding_log(), 0),
    ] {
        server.send::<Value>(["FLUSHALL"]).await.unwrap();
        let decision = limiter(&server, quota)
            .acquire(&Key::from("alice"), 1)
            .await;
        let decision = decision.unwrap();
        let reset_after = decision.binding().reset_after().unwrap();
        let key = only_key(&server).await;
        let left = time_to_live(&server, &key).await;
        let longest = i64::try_from(reset_after.as_millis()).unwrap() + 1;
        assert!(
            (longest - 60_000..=longest + slice).contains(&left),
            "{quota:?}: {left} of {longest}"
        );
    }
}

#[tokio::test]
async fn a_lost_time_to_live_is_healed_by_the_next_write() {
    needs!(redis);
    let server = Server::start().await;
    let limiter = limiter(&server, Quota::per_hour(4));
    let alice = Key::from("alice");
    limiter.hit(&alice, 1).await.unwrap();
    let key = only_key(&server).await;
    server.send::<Value>(["PERSIST", &key]).await.unwrap();
    assert_eq!(time_to_live(&server, &key).await, -1);

    limiter.acquire(&alice, 1).await.unwrap();
    assert!(time_to_live(&server, &key).await > 0);
}

#[tokio::test]
async fn what_is_given_back_leaves_nothing() {
    needs!(redis);
    let server = Server::start().await;
    let limiter = limiter(&server, Quota::per_hour(4));
    let alice = Key::from("alice");
    limiter.hit(&alice, 3).await.unwrap();
    limiter.reset(&alice).await.unwrap();
    let mut keys = vec![String::new()];
    while !keys.is_empty() {
        keys = server.send(["KEYS", "rl:v1:*"]).await.unwrap();
    }
    assert_eq!(limiter.peek(&alice, 1).await.unwrap().remaining(), Some(4));
}

#[tokio::test]
async fn a_token_bucket_of_an_address_costs_at_most_150_bytes() {
    // As many as fit before Redis doubles its hash table, which costs 16 bytes more a subject until
    // it is full again.
    const SUBJECTS: u32 = 16_000;
    needs!(redis);
    let server = Server::start().await;
    let quota = Quota::per_hour(100);
    limiter(&server, quota)
        .acquire(&Key::from("before"), 1)
        .await
        .unwrap();
    server.send::<Value>(["FLUSHALL"]).await.unwrap();
    let before = memory_alone(&server).await;
    let limiter = limiter(&server, quota);
    for from in (0..SUBJECTS).step_by(250) {
        let pending: Vec<_> = (from..from + 250)
            .map(|n| Key::from(IpAddr::from(Ipv4Addr::from(0xC633_0000 + n))))
            .map(|key| limiter.acquire(&key, 1))
            .collect();
        for answer in pending {
            assert!(answer.await.unwrap().is_allowed());
        }
    }
    drop(limiter);
    let each = (memory_alone(&server).await - before) / u64::from(SUBJECTS);
    assert!((100..=150).contains(&each), "{each} bytes");
}

/// Memory of the server when only the test is connected.
async fn memory_alone(server: &Server) -> u64 {
    while server.info("clients").await["connected_clients"] != "1" {
        tokio::task::yield_now().await;
    }
    server.info("memory").await["used_memory"].parse().unwrap()
}
