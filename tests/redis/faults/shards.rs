//! A cluster with a part that stands still or moves: the other keys are served.

use std::{
    error::Error as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use testkit::{child_processes::eventually, needs};
use tokio::time::timeout;
use tower_ratelimit::{Key, OnFailure, Quota, RedisLimiter, RedisStore, store::StoreHealth};

use super::{
    load_through_fault::{patient_store, store_within},
    timed_load::{Load, sample, undecided},
};
use crate::servers::{Cluster, Setup};

/// The keys of the tests.
const KEYS: u64 = 40;

const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Short enough to notice a server that stands still, and longer than a busy machine needs for the others' answers.
const DEADLINE: Duration = Duration::from_secs(3);

/// How often each key is used.
const ROUNDS: usize = 25;

fn url(cluster: &Cluster) -> String {
    let nodes = cluster.urls().join(",").replace("redis://", "");
    format!("redis-cluster://{nodes}")
}

fn limiter(store: &RedisStore) -> RedisLimiter {
    // A unit stays for minutes: the keys of a server are listed after they were used.
    let builder = RedisLimiter::builder(Quota::per(1_000_000, TEN_YEARS));
    let builder = builder.name("shards").on_failure(OnFailure::deny());
    builder.build(store).unwrap()
}

fn key(number: u64) -> Key {
    Key::from(format!("k{number}").as_str())
}

fn keys() -> Vec<Key> {
    (0..KEYS).map(key).collect()
}

/// Uses all keys until each was decided by Redis.
async fn warm_up(limiter: &RedisLimiter) {
    for key in keys() {
        eventually("a decision", async || limiter.acquire(&key, 1).await.ok()).await;
    }
}

/// The keys of the server, and the others.
async fn split(cluster: &Cluster, server: usize) -> (Vec<Key>, Vec<Key>) {
    let names: Vec<String> = cluster.node(server).send(["KEYS", "*"]).await.unwrap();
    let is_there = |number: &u64| {
        let end = format!(":k{number}");
        names.iter().any(|name| name.ends_with(&end))
    };
    let (its, others): (Vec<u64>, Vec<u64>) = (0..KEYS).partition(is_there);
    (
        its.into_iter().map(key).collect(),
        others.into_iter().map(key).collect(),
    )
}

/// How many requests Redis did not decide.
async fn lost(limiter: &RedisLimiter, keys: &[Key]) -> usize {
    let mut lost = 0;
    for key in keys.iter().cycle().take(keys.len() * ROUNDS) {
        lost += usize::from(!sample(limiter, key).await.answer.is_from_redis());
    }
    lost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_costs_only_its_own_keys() {
    needs!(redis);
    let cluster = Cluster::start().await;
    cluster.never_fail_over().await;
    let (store, changes) = store_within(DEADLINE, &url(&cluster));
    let limiter = limiter(&store);
    warm_up(&limiter).await;
    let still = cluster.primary_of(0).await;
    let (its_keys, others) = split(&cluster, still).await;
    assert!(!its_keys.is_empty() && !others.is_empty());

    cluster.node(still).pause();
    let load = Load::start(&limiter, 4, &its_keys);
    let before = lost(&limiter, &others).await;
    eventually("the server to be left alone", async || {
        (store.stats().breaker_openings() > 0).then_some(())
    })
    .await;
    let after = lost(&limiter, &others).await;
    let health = store.health();
    println!("{before} and {after} of {}", others.len() * ROUNDS);
    assert_eq!((before, after), (0, 0), "{health:?}");
    assert!(matches!(health, StoreHealth::Strained { .. }), "{health:?}");

    cluster.node(still).resume();
    eventually("decisions about all keys", async || {
        for key in keys() {
            let decision = limiter.acquire(&key, 1).await.ok()?;
            (!decision.is_degraded()).then_some(())?;
        }
        Some(())
    })
    .await;
    assert!(undecided(&load.stop().await) > 0, "it stood still");
    let changes: Vec<_> = changes.lock().unwrap().clone();
    assert!(
        matches!(changes[0], StoreHealth::Strained { .. }),
        "{changes:?}"
    );
    assert_eq!(changes.last(), Some(&StoreHealth::Up), "{changes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_while_another_server_is_paused() {
    needs!(redis);
    let cluster = Cluster::start().await;
    cluster.never_fail_over().await;
    let (store, _) = store_within(DEADLINE, &url(&cluster));
    let limiter = limiter(&store);
    warm_up(&limiter).await;
    let (from, to) = (cluster.primary_of(0).await, cluster.primary_of(8_192).await);
    let still = cluster.primary_of(16_383).await;
    let (its_keys, others) = split(&cluster, still).await;
    let load = Load::start(&limiter, 4, &its_keys);

    cluster.node(still).pause();
    let moving = cluster.move_slots(0..2_000, (from, to));
    let using = async {
        let mut sum = 0;
        for _ in 0..8 {
            sum += lost(&limiter, &others).await;
        }
        sum
    };
    let ((), lost) = tokio::join!(moving, using);
    let (_, at_last) = split(&cluster, from).await;
    cluster.node(still).resume();
    load.stop().await;
    println!("{lost} of {}", 8 * others.len() * ROUNDS);
    assert_eq!(lost, 0, "{:?}", store.stats());
    assert!(at_last.len() > its_keys.len(), "nothing moved");
}

/// The servers that are left refuse all keys, as long as the lost one has no replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_cluster_that_is_down() {
    needs!(redis);
    let mut cluster = Cluster::start().await;
    let store = patient_store(&url(&cluster));
    let limiter = limiter(&store);
    warm_up(&limiter).await;
    let lost = cluster.primary_of(0).await;
    let (its_keys, others) = split(&cluster, lost).await;
    let address = cluster.node(lost).address().to_string();
    // Its replica first, which would take over.
    cluster.node_mut(lost + 3).kill9();
    cluster.node_mut(lost).kill9();
    let left = (0..3).find(|server| *server != lost).unwrap();
    eventually("a cluster that is down", async || {
        let info = cluster.node(left).send::<String>(["CLUSTER", "INFO"]);
        let info = info.await.unwrap();
        info.contains("cluster_state:fail").then_some(())
    })
    .await;
    // The deadline is twice as long, so that a request that waits for it fails the test.
    let given_up = eventually("decisions without Redis", async || {
        for key in its_keys.iter().chain(&others) {
            limiter.acquire(key, 1).await.err()?;
        }
        matches!(store.health(), StoreHealth::Down { .. }).then_some(())
    });
    timeout(Duration::from_secs(120), given_up)
        .await
        .expect("no request waits");
    let error = limiter.acquire(&others[0], 1).await.unwrap_err();
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("CLUSTERDOWN"), "{cause}");
    assert!(cause.contains(&address), "{cause}");
}

/// Its server serves all other slots, so that only requests for the one fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_no_server_has_costs_only_its_own_keys() {
    needs!(redis);
    let setup = Setup::redis().config("cluster-require-full-coverage", "no");
    let cluster = Cluster::start_with(setup).await;
    let store = patient_store(&url(&cluster));
    let limiter = limiter(&store);
    warm_up(&limiter).await;
    let server = cluster.primary_of(0).await;
    let (its_keys, _) = split(&cluster, server).await;
    let names: Vec<String> = cluster.node(server).send(["KEYS", "*:k*"]).await.unwrap();
    let of_first = |name: &&String| its_keys[0] == Key::from(&name[name.rfind('k').unwrap()..]);
    let slot = cluster.slot(names.iter().find(of_first).unwrap()).await;
    let delete = ["CLUSTER", "DELSLOTS", &slot.to_string()];
    cluster.node(server).send::<()>(delete).await.unwrap();

    for _ in 0..10 {
        let error = limiter.acquire(&its_keys[0], 1).await.unwrap_err();
        let cause = error.source().unwrap().to_string();
        assert!(cause.contains("Hash slot not served"), "{cause}");
    }
    assert_eq!(lost(&limiter, &its_keys[1..]).await, 0);
    assert_eq!(store.stats().breaker_openings(), 0);
}

/// Tasks that use all keys until they are stopped, and count what Redis did not decide.
struct Users {
    stop: Arc<AtomicBool>,
    tasks: tokio::task::JoinSet<(usize, usize)>,
}

impl Users {
    fn start(limiter: &RedisLimiter) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (limiter, stop) = (limiter.clone(), Arc::clone(&stop));
            tasks.spawn(async move {
                let (mut lost, mut all) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    for number in 0..500 {
                        let sample = sample(&limiter, &key(number)).await;
                        lost += usize::from(!sample.answer.is_from_redis());
                        all += 1;
                    }
                }
                (lost, all)
            });
        }
        Self { stop, tasks }
    }

    async fn stop(self) -> (usize, usize) {
        self.stop.store(true, Ordering::Relaxed);
        let each = self.tasks.join_all().await;
        each.into_iter()
            .fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_and_nobody_fails() {
    needs!(redis);
    let cluster = Cluster::start().await;
    let store = patient_store(&url(&cluster));
    let limiter = limiter(&store);
    warm_up(&limiter).await;
    let users = Users::start(&limiter);
    let from = cluster.primary_of(0).await;
    cluster.move_slots(0..500, (from, (from + 1) % 3)).await;
    let (lost, all) = users.stop().await;
    println!("{lost} of {all}");
    assert_eq!(lost, 0, "of {all}: {:?}", store.stats());
}
