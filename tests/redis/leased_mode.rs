//! Leased mode in Redis: nodes with connections of their own, and one limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use testkit::{child_processes::eventually, needs, servers::Server};
use tower_ratelimit::{
    Key, OnFailure, Quota, RedisLimiter, RedisStore,
    shared::{Mode, RedisLimiterBuilder},
};

/// Longer than the machine may be busy: units of a lease that ends are counted as spent.
const LENGTH: Duration = Duration::from_secs(10);

fn node(server: &Server, builder: RedisLimiterBuilder) -> RedisLimiter {
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    let store = store.connect(&server.url()).unwrap();
    let builder = builder.name("leased").on_failure(OnFailure::deny());
    builder.build(&store).unwrap()
}

/// Units of leases that ended before the server had a report of them.
fn ended(nodes: &[RedisLimiter]) -> u64 {
    nodes.iter().map(|node| node.mode_stats().ended).sum()
}

/// Has all nodes take units, several requests at a time, until this many have passed or ended.
async fn exhaust(nodes: &[RedisLimiter], limit: u64) -> u64 {
    let passed = Arc::new(AtomicU64::new(0));
    let all: Arc<[RedisLimiter]> = nodes.into();
    let tasks = (0..6 * nodes.len()).map(|task| {
        let (all, passed) = (Arc::clone(&all), Arc::clone(&passed));
        tokio::spawn(async move {
            let node = &all[task % all.len()];
            loop {
                let decision = node.acquire(&Key::from("all"), 1).await.unwrap();
                if decision.is_allowed() {
                    passed.fetch_add(1, Ordering::Relaxed);
                } else if passed.load(Ordering::Relaxed) + ended(&all) >= limit {
                    return;
                } else {
                    // Others may hold units that they do not need.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    passed.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leased_and_strict_nodes_admit_exactly_the_limit_together() {
    needs!(redis);
    let limit = 20_000;
    for quota in [
        Quota::per_day(limit).fixed_window(),
        Quota::per_hour(1).burst(limit),
    ] {
        let server = Server::start().await;
        let leased = || RedisLimiter::builder(quota).mode(Mode::leased().length(LENGTH));
        let nodes = [
            node(&server, leased()),
            node(&server, leased()),
            node(
                &server,
                leased().mode(Mode::leased().length(LENGTH).max_units(500)),
            ),
            node(&server, RedisLimiter::builder(quota)),
        ];
        let passed = exhaust(&nodes, limit).await;
        assert!(passed <= limit, "{passed} with {quota:?}");
        let ended: u64 = nodes.iter().map(|node| node.mode_stats().ended).sum();
        assert!(
            passed + ended >= limit,
            "{passed} and {ended} with {quota:?}"
        );
        for node in &nodes {
            let more = node.acquire(&Key::from("all"), 1).await.unwrap();
            assert!(more.is_denied(), "{more:?}");
        }
        let stats = nodes[0].mode_stats();
        assert!(stats.local > 2 * stats.asked, "{stats:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_whose_server_restarts_begins_anew() {
    needs!(redis);
    let server = Server::start().await;
    let quota = Quota::per_hour(1).burst(100_000);
    let limiter = RedisLimiter::builder(quota).mode(Mode::leased().length(LENGTH));
    let limiter = node(&server, limiter);
    let request = async |times: u32| {
        let mut passed = 0;
        for _ in 0..times {
            let answer = limiter.acquire(&Key::from("all"), 1).await;
            passed += u32::from(answer.is_ok_and(|decision| decision.is_allowed()));
        }
        passed
    };
    assert_eq!(request(200).await, 200);
    assert!(limiter.mode_stats().local > 100);
    let _: () = server.send(["FLUSHALL"]).await.unwrap();
    let _: () = server.send(["SCRIPT", "FLUSH"]).await.unwrap();
    assert_eq!(request(2_000).await, 2_000);
    let stats = limiter.mode_stats();
    assert!(stats.local > 1_500 && stats.granted > 1_000, "{stats:?}");
}

/// The specialized script does not know a value with leases: it is not used for such a subject again
/// and again.
#[tokio::test]
async fn strict_node_calls_once_for_a_leased_subject() {
    needs!(redis);
    let server = Server::start().await;
    let quota = Quota::per_hour(1).burst(100_000);
    let leased = RedisLimiter::builder(quota).mode(Mode::leased().length(LENGTH));
    let leased = node(&server, leased);
    let strict = node(&server, RedisLimiter::builder(quota));
    for _ in 0..100 {
        let _ = leased.acquire(&Key::from("all"), 1).await.unwrap();
    }
    let held = leased.mode_stats();
    assert!(held.granted > held.settled, "{held:?}");
    let calls = async || {
        let stats: String = server.send(["INFO", "commandstats"]).await.unwrap();
        let line = stats.lines().find(|line| line.contains("evalsha:"));
        let calls = line.and_then(|line| line.split_once("calls=")).unwrap().1;
        calls.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let before = calls().await;
    for _ in 0..100 {
        let decision = strict.acquire(&Key::from("all"), 1).await.unwrap();
        assert!(decision.is_allowed());
    }
    let requested = calls().await - before;
    // It is tried again after a second, and this takes few.
    assert!(requested < 180, "{requested} calls for a hundred requests");
}

/// Nodes that call afterwards go beyond the limit by the units that each other one may be ahead. The
/// store counts all that they allow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eventual_nodes_are_ahead_by_no_more_than_they_may() {
    needs!(redis);
    let (limit, ahead) = (20_000, 500);
    for quota in [
        Quota::per_day(limit).fixed_window(),
        Quota::per_day(limit).sliding_log(),
        Quota::per_hour(1).burst(limit),
    ] {
        let server = Server::start().await;
        let mode = Mode::eventual(Duration::from_millis(10)).ahead(ahead);
        let node = || node(&server, RedisLimiter::builder(quota).mode(mode));
        let nodes = [node(), node(), node()];
        let passed = exhaust(&nodes, limit).await;
        let most = limit + 2 * u64::from(ahead);
        assert!((limit..=most).contains(&passed), "{passed} with {quota:?}");
        let reported = async || {
            let stats = nodes.each_ref().map(|node| node.mode_stats());
            let requested: u64 = stats.iter().map(|stats| stats.asked).sum();
            let settled: u64 = stats.iter().map(|stats| stats.settled).sum();
            (settled + requested >= passed).then_some(settled)
        };
        let settled = eventually("the messages", reported).await;
        // All but the first of each task, and those whose report was too small.
        assert!(settled >= limit / 2, "{settled} of {passed}");
        let mut later = 0;
        while nodes[0]
            .acquire(&Key::from("all"), 1)
            .await
            .unwrap()
            .is_allowed()
        {
            later += 1;
            assert!(passed + later <= most, "{later} after {passed}");
        }
    }
}
