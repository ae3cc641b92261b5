//! Redis is well, but busy, or called by many at once.

use std::{
    future::{pending, ready},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, future::join_all};
use testkit::{AGE, child_processes::eventually, needs};
use tokio::{task::JoinSet, time::Instant};
use tower_ratelimit::{
    Decision, Key, Limiter as _, OnFailure, Quota, RedisLimiter, RedisStore,
    decision::{Degradation, Op},
    limiter::Pending,
    store::StoreHealth,
};

use super::load_through_fault::patient_store;
use crate::{
    canned_script_replies::{self, FakeServer},
    servers::{Flow, Proxy, Server},
};

/// Denies nothing.
const LARGE: Quota = Quota::per_second(1_000_000);

/// Takes one unit of `hot` so many times at once. Returns the number of decisions that allow and that deny.
async fn at_once(limiter: &RedisLimiter, requests: usize) -> (usize, usize) {
    let mut running = JoinSet::new();
    for _ in 0..requests {
        let limiter = limiter.clone();
        running.spawn(async move { limiter.acquire(&Key::from("hot"), 1).await.unwrap() });
    }
    let mut counts = (0, 0);
    while let Some(decision) = running.join_next().await {
        let decision = decision.unwrap();
        assert!(!decision.is_degraded(), "{decision:?}");
        let is_allowed = decision.is_allowed();
        counts.0 += usize::from(is_allowed);
        counts.1 += usize::from(!is_allowed);
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_at_once_over_a_long_distance_get_exactly_the_limit() {
    needs!(redis);
    let server = Server::start().await;
    let proxy = Proxy::before(server.address()).await;
    proxy.set(Flow::Delay(Duration::from_millis(10)));
    let store = patient_store(&server.url_through(proxy.port()));
    let quota = Quota::per(100, AGE).fixed_window();
    for (name, on_failure) in [
        ("allow", OnFailure::allow()),
        ("local", OnFailure::local()),
        ("deny", OnFailure::deny()),
    ] {
        let builder = RedisLimiter::builder(quota).name(name);
        let limiter = builder.on_failure(on_failure).build(&store).unwrap();
        assert_eq!(at_once(&limiter, 5_000).await, (100, 4_900), "{name}");
    }
    assert_eq!(store.stats().degraded_by_reason().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_thousand_at_once_get_exactly_the_limit_in_few_calls() {
    needs!(redis);
    let server = Server::start().await;
    let store = patient_store(&server.url());
    let builder = RedisLimiter::builder(Quota::per(1_000, AGE).fixed_window());
    let builder = builder.on_failure(OnFailure::deny());
    let limiter = builder.remember_denials(false).build(&store).unwrap();
    assert_eq!(at_once(&limiter, 50_000).await, (1_000, 49_000));
    let calls = server.command_count("evalsha").await;
    assert!(calls < 2_000, "{calls} calls");
}

/// Redis counts none of the requests that were decided without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_time_out_unsent_are_not_counted() {
    needs!(redis);
    let server = Server::start().await;
    let proxy = Proxy::before(server.address()).await;
    let store = RedisStore::builder().deadline(Duration::from_millis(100));
    let store = store.connect(&server.url_through(proxy.port())).unwrap();
    let builder = RedisLimiter::builder(Quota::per(1_000_000, AGE).fixed_window());
    let builder = builder.on_failure(OnFailure::allow());
    let limiter = builder.build(&store).unwrap();
    let key = Key::from("hot");

    // The first call waits for the connection, and the others for that call.
    proxy.set(Flow::BlackHole);
    let requests = (0..50).map(|_| limiter.acquire(&key, 1).into_future());
    for answer in join_all(requests.collect::<Vec<_>>()).await {
        assert!(answer.unwrap().is_degraded());
    }
    proxy.set(Flow::Forward);
    let decision = eventually("a decision by Redis", async || {
        let decision = limiter.peek(&key, 1).await.unwrap();
        (!decision.is_degraded()).then_some(decision)
    });
    assert_eq!(decision.await.remaining(), Some(1_000_000));
}

/// A server that needs `takes` for each call, one after another.
fn busy(takes: Duration) -> FakeServer {
    let free_at = Mutex::new(Instant::now());
    FakeServer::new(move |words| {
        let keys = canned_script_replies::keys(words);
        let mut free_at = free_at.lock().unwrap();
        *free_at = (*free_at).max(Instant::now()) + takes;
        let answered_at = *free_at;
        async move {
            tokio::time::sleep_until(answered_at).await;
            Ok(canned_script_replies::of_buckets(keys))
        }
        .boxed()
    })
}

/// One decision, and whether its caller waited for it.
async fn decided(limiter: &RedisLimiter, key: u64) -> (Decision, bool) {
    match limiter.apply(&Key::from(key), Op::Acquire(1)) {
        Pending::Ready(answer) => (answer.unwrap(), false),
        Pending::Later(answer) => (answer.await.unwrap(), true),
    }
}

/// Each call takes the server 4 ms and carries 32 subjects. A crowd of new subjects is no failure: the server decides
/// about as many as it can within the deadline, and the others are not sent.
#[tokio::test(start_paused = true)]
async fn a_crowd_of_new_subjects_keeps_the_server_busy_and_does_not_open_the_breaker() {
    const REQUESTS: u64 = 10_000;
    let (deadline, takes) = (Duration::from_millis(500), Duration::from_millis(4));
    let possible = 32 * deadline.div_duration_f64(takes) as usize;
    let store = RedisStore::builder().deadline(deadline);
    let store = store.connection(busy(takes)).unwrap();
    let builder = RedisLimiter::builder(LARGE).on_failure(OnFailure::allow());
    let limiter = builder.build(&store).unwrap();
    let mut rounds = Vec::new();
    for round in 0..6 {
        let requests = (0..REQUESTS).map(|one| decided(&limiter, round * REQUESTS + one));
        let answers = join_all(requests).await;
        let count = |reason, waits: &[bool]| {
            let alike = |(decision, waited): &&(Decision, bool)| {
                decision.degraded_by() == reason && waits.contains(waited)
            };
            answers.iter().filter(alike).count()
        };
        let by_redis = count(None, &[true]);
        let timed_out = count(Some(Degradation::TimedOut), &[true]);
        let crowded = count(Some(Degradation::Crowded), &[true, false]);
        assert_eq!(by_redis + timed_out + crowded, REQUESTS as usize);
        assert!(!store.health().is_down());
        rounds.push((by_redis, timed_out));
        tokio::time::sleep(deadline * 2).await;
    }
    println!("{rounds:?}, possible are {possible}");
    // The first answers show how long a call takes.
    for (by_redis, timed_out) in &rounds[1..] {
        assert!(
            (possible * 3 / 4..=possible).contains(by_redis),
            "{rounds:?}"
        );
        assert!(*timed_out <= possible / 20, "{rounds:?}");
    }
    assert_eq!(store.stats().breaker_openings(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_finds_no_script_loads_it_once() {
    needs!(redis);
    let server = Server::start().await;
    let proxy = Proxy::before(server.address()).await;
    let store = patient_store(&server.url_through(proxy.port()));
    let limiter = RedisLimiter::builder(LARGE).on_failure(OnFailure::deny());
    let limiter = limiter.build(&store).unwrap();
    proxy.set(Flow::Delay(Duration::from_millis(10)));
    let mut running = JoinSet::new();
    for key in 0..500_u64 {
        let limiter = limiter.clone();
        running.spawn(async move { limiter.acquire(&Key::from(key), 1).await });
    }
    for answer in running.join_all().await {
        assert!(!answer.unwrap().is_degraded());
    }
    assert_eq!(server.command_count("script|load").await, 1);
    assert_eq!(store.stats().script_loads(), 1);
}

/// A server that is up and falls silent.
#[tokio::test(start_paused = true)]
async fn decisions_without_redis_are_counted_by_their_reason() {
    let is_silent = Arc::new(AtomicBool::new(false));
    let mood = Arc::clone(&is_silent);
    let server = FakeServer::new(move |words| {
        if mood.load(Ordering::Relaxed) {
            return pending().boxed();
        }
        ready(Ok(canned_script_replies::of_alike(words))).boxed()
    });
    let store = RedisStore::builder().connection(server).unwrap();
    let builder = RedisLimiter::builder(LARGE).on_failure(OnFailure::local());
    let limiter = builder.build(&store).unwrap();
    let reason = async || {
        let decision = limiter.acquire(&Key::from("alice"), 1).await.unwrap();
        decision.degraded_by()
    };
    assert_eq!(reason().await, None);
    assert_eq!(store.health(), StoreHealth::Up);

    is_silent.store(true, Ordering::Relaxed);
    assert_eq!(reason().await, Some(Degradation::TimedOut));
    let StoreHealth::Strained { by, .. } = store.health() else {
        panic!("{:?}", store.health());
    };
    assert_eq!(by, Degradation::TimedOut);
    let mut timed_out = 1;
    while reason().await == Some(Degradation::TimedOut) {
        timed_out += 1;
        assert!(timed_out < 10, "{:?}", store.health());
    }
    assert!(store.health().is_down());
    assert!(timed_out >= 3);
    let stats = store.stats();
    let counts: Vec<_> = stats.degraded_by_reason().collect();
    let expected = [
        (Degradation::TimedOut, timed_out),
        (Degradation::GivenUp, 1),
    ];
    for (reason, count) in expected {
        assert_eq!(stats.degraded(reason), count, "{counts:?}");
    }
    assert_eq!(counts.len(), expected.len(), "{counts:?}");
}
