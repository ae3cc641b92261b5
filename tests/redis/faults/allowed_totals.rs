//! The number of allowed requests, whatever happens.

use std::time::Duration;

use redis::Value;
use testkit::{AGE, child_processes::eventually, needs};
use tokio::task::JoinSet;
use tower_ratelimit::{Key, OnFailure, Quota, RedisLimiter};

use super::{
    load_through_fault::{patient_store, store},
    timed_load::{Answer, Load, count, times, undecided},
};
use crate::servers::{Flow, Proxy, Server, Setup};

const LIMIT: u64 = 400;

/// A load on one key of a limiter that lets nobody pass without Redis.
struct Burst {
    limiter: RedisLimiter,
    load: Load,
}

impl Burst {
    /// Starts it, and waits until a quarter of the limit is used up.
    async fn start(url: &str) -> Self {
        let (store, _) = store(url);
        let builder = RedisLimiter::builder(Quota::per(LIMIT, AGE).fixed_window());
        let builder = builder
            .on_failure(OnFailure::deny())
            .remember_denials(false);
        let limiter = builder.build(&store).unwrap();
        let burst = Self {
            load: Load::start(&limiter, 8, &[alice()]),
            limiter,
        };
        burst.used(LIMIT / 4).await;
        burst
    }

    /// Waits until Redis decides and so much is used up.
    async fn used(&self, units: u64) {
        eventually("what is used up", async || {
            let decision = self.limiter.peek(&alice(), 1).await.ok()?;
            (decision.remaining()? <= LIMIT - units).then_some(())
        })
        .await;
    }

    /// Waits until all is used up: how many were allowed, and how many Redis did not decide
    /// about, or not in time.
    async fn end(self, what: &str) -> (u64, u64) {
        self.used(LIMIT).await;
        let samples = self.load.stop().await;
        let (allowed, lost) = (count(&samples, Answer::Allowed), undecided(&samples));
        println!(
            "{what}: {allowed} allowed, {lost} undecided; {}",
            times(&samples)
        );
        (allowed, lost)
    }

    /// Checks the exact limit, for a fault in which Redis keeps all values.
    async fn end_exactly(self, what: &str) {
        let (allowed, lost) = self.end(what).await;
        assert!(allowed <= LIMIT, "{what}: {allowed}");
        // A request without an answer may have been counted.
        assert!(allowed + lost >= LIMIT, "{what}: {allowed} and {lost}");
    }
}

fn alice() -> Key {
    Key::from("alice")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_requests_at_once_through_twenty_limiters() {
    needs!(redis);
    let server = Server::start().await;
    let mut requests = JoinSet::new();
    let mut limiters = Vec::new();
    for _ in 0..20 {
        let store = patient_store(&server.url());
        let builder = RedisLimiter::builder(Quota::per(100, AGE).fixed_window());
        let limiter = builder.on_failure(OnFailure::deny()).build(&store).unwrap();
        for _ in 0..50 {
            let limiter = limiter.clone();
            requests.spawn(async move { limiter.acquire(&alice(), 1).await.unwrap() });
        }
        limiters.push(limiter);
    }
    let decisions = requests.join_all().await;
    assert_eq!(decisions.len(), 1_000);
    let allowed = decisions.iter().filter(|decision| decision.is_allowed());
    assert_eq!(allowed.count(), 100);
    for limiter in limiters {
        assert_eq!(limiter.store().stats().connections(), 1, "each its own");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_flushed_again_and_again() {
    needs!(redis);
    let server = Server::start().await;
    let burst = Burst::start(&server.url()).await;
    for _ in 0..10 {
        server.send::<Value>(["SCRIPT", "FLUSH"]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    burst.end_exactly("scripts flushed").await;
    let loads = server.command_count("script|load").await;
    assert!(loads > 1, "the script was loaded {loads} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_flushed() {
    needs!(redis);
    let server = Server::start().await;
    let burst = Burst::start(&server.url()).await;
    burst.used(LIMIT).await;
    server.send::<Value>(["FLUSHALL"]).await.unwrap();
    let (allowed, lost) = burst.end("flushed").await;
    assert!(allowed <= 2 * LIMIT, "one more quota, not more: {allowed}");
    assert!(allowed + lost >= 2 * LIMIT, "{allowed} and {lost}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_comes_back_with_its_data() {
    needs!(redis);
    let setup = Setup::redis()
        .config("appendonly", "yes")
        .config("appendfsync", "always");
    let mut server = setup.start().await;
    let burst = Burst::start(&server.url()).await;
    server.restart().await;
    burst.end_exactly("killed, with its data").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_comes_back_empty() {
    needs!(redis);
    let mut server = Server::start().await;
    let burst = Burst::start(&server.url()).await;
    server.restart().await;
    let (allowed, _) = burst.end("killed, without its data").await;
    assert!(allowed <= 2 * LIMIT, "one more quota, not more: {allowed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_server_does_later_what_came_meanwhile() {
    needs!(redis);
    let server = Server::start().await;
    let burst = Burst::start(&server.url()).await;
    server.pause();
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.resume();
    burst.end_exactly("hung").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_lost_and_nothing_is_sent_twice() {
    needs!(redis);
    let server = Server::start().await;
    let mut proxy = Proxy::before(server.address()).await;
    let burst = Burst::start(&server.url_through(proxy.port())).await;
    proxy.set(Flow::BlackHoleResponses);
    tokio::time::sleep(Duration::from_millis(300)).await;
    proxy.cut().await;
    proxy.set(Flow::Forward);
    burst.end_exactly("answers lost").await;
}
