//! Requests that nobody waits for any more.

use std::{
    future::Future as _,
    task::{Context, Waker},
    time::Duration,
};

use testkit::{AGE, child_processes::eventually, needs};
use tokio::runtime::{Handle, Runtime};
use tower_ratelimit::{Key, OnFailure, Quota, RedisLimiter, RedisStore, limiter::Pending};

use crate::servers::Server;

const LIMIT: u64 = 1_000_000;
const KEYS: u64 = 20;

fn limiter(server: &Server, deadline: Duration) -> RedisLimiter {
    let patience = Duration::from_secs(20);
    let store = RedisStore::builder().deadline(deadline);
    let store = store.connect_timeout(patience).connect(&server.url());
    let store = store.unwrap();
    let builder = RedisLimiter::builder(Quota::per(LIMIT, AGE).fixed_window());
    builder.on_failure(OnFailure::deny()).build(&store).unwrap()
}

/// Begins so many requests of each key, and drops them: every second one after a first look.
fn begin_and_drop(limiter: &RedisLimiter, requests: u64) {
    for request in 0..requests {
        for key in 0..KEYS {
            let Pending::Later(mut future) = limiter.acquire(&Key::from(key), 1) else {
                panic!("Redis was not asked");
            };
            if request % 2 == 0 {
                let mut context = Context::from_waker(Waker::noop());
                let future = std::pin::Pin::new(&mut future);
                // The answer may have arrived already.
                let _ = future.poll(&mut context);
            }
        }
    }
}

/// With a deadline that no machine misses.
fn patient(server: &Server) -> RedisLimiter {
    limiter(server, Duration::from_secs(240))
}

async fn used(limiter: &RedisLimiter, key: u64) -> u64 {
    let decision = limiter.peek(&Key::from(key), 1).await.unwrap();
    LIMIT - decision.remaining().unwrap()
}

/// Waits until Redis decides.
async fn decides(limiter: &RedisLimiter) {
    eventually("decisions by Redis", async || {
        limiter.peek(&Key::from(0), 1).await.ok()
    })
    .await;
}

/// Waits until no more tasks run than before.
async fn settled(tasks: usize) {
    eventually("the end of all tasks", async || {
        (Handle::current().metrics().num_alive_tasks() <= tasks).then_some(())
    })
    .await;
}

#[tokio::test]
async fn all_are_counted_and_nothing_is_left_of_them() {
    needs!(redis);
    let server = Server::start().await;
    let limiter = patient(&server);
    for key in 0..KEYS {
        assert_eq!(used(&limiter, key).await, 0);
    }
    let tasks = Handle::current().metrics().num_alive_tasks();

    begin_and_drop(&limiter, 500);
    for key in 0..KEYS {
        assert_eq!(used(&limiter, key).await, 500, "it came after them");
    }
    settled(tasks).await;
    let stats = limiter.store().stats();
    assert_eq!(stats.connections(), 1);
    assert_eq!(stats.failures_by_kind().count(), 0, "{stats:?}");
}

#[tokio::test]
async fn a_hung_server_keeps_none_of_them_waiting() {
    needs!(redis);
    let server = Server::start().await;
    let (limiter, patient) = (
        limiter(&server, Duration::from_millis(250)),
        patient(&server),
    );
    for key in 0..KEYS {
        assert_eq!(used(&patient, key).await, 0);
    }
    decides(&limiter).await;
    let tasks = Handle::current().metrics().num_alive_tasks();

    server.pause();
    begin_and_drop(&limiter, 500);
    eventually("Redis to be given up", async || {
        // On a busy machine the timeouts of the dropped ones are excused: these come after them.
        let _ = limiter.acquire(&Key::from("meanwhile"), 1).await;
        limiter.health().is_down().then_some(())
    })
    .await;
    // A trial may be under way, which holds a connection in the making.
    settled(tasks + 2).await;
    server.resume();

    decides(&limiter).await;
    settled(tasks).await;
    for key in 0..KEYS {
        let before = used(&patient, key).await;
        assert!(before <= 500, "{before} were counted");
        let decision = patient.acquire(&Key::from(key), 1).await.unwrap();
        assert!(decision.is_allowed());
        assert_eq!(used(&patient, key).await, before + 1);
    }
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// A runtime that ends takes the connection, its requests and a trial with it.
#[test]
fn a_limiter_outlives_its_runtime() {
    needs!(redis);
    let first = runtime();
    let server = first.block_on(Server::start());
    let (limiter, patient) = (
        limiter(&server, Duration::from_millis(750)),
        patient(&server),
    );
    first.block_on(async {
        decides(&limiter).await;
        server.pause();
        begin_and_drop(&limiter, 50);
    });
    drop(first);
    server.resume();

    let second = runtime();
    second.block_on(async {
        decides(&limiter).await;
        for key in 0..KEYS {
            let before = used(&patient, key).await;
            assert!(before <= 50, "{before} were counted");
            let decision = patient.acquire(&Key::from(key), 1).await.unwrap();
            assert!(decision.is_allowed());
        }
    });
}
