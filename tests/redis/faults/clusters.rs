//! A cluster that moves slots and loses servers.

use redis::Value;
use testkit::{AGE, child_processes::eventually, needs};
use tower_ratelimit::{Key, OnFailure, Quota, RedisLimiter};

use super::{
    load_through_fault::{Trial, patient_store, store},
    timed_load::{Answer, Load, count, times, undecided},
};
use crate::servers::Cluster;

const LIMIT: u64 = 600;

fn url(cluster: &Cluster) -> String {
    let nodes = cluster.urls().join(",").replace("redis://", "");
    format!("redis-cluster://{nodes}")
}

fn limiter(cluster: &Cluster) -> RedisLimiter {
    let (store, _) = store(&url(cluster));
    let builder = RedisLimiter::builder(Quota::per(LIMIT, AGE).fixed_window());
    let builder = builder
        .remember_denials(false)
        .on_failure(OnFailure::deny());
    builder.build(&store).unwrap()
}

fn alice() -> Key {
    Key::from("alice")
}

async fn used(limiter: &RedisLimiter, units: u64) {
    eventually("what is used up", async || {
        let decision = limiter.peek(&alice(), 1).await.ok()?;
        (decision.remaining()? <= LIMIT - units).then_some(())
    })
    .await;
}

/// The slot of the one subject.
async fn slot(cluster: &Cluster) -> u16 {
    for node in 0..3 {
        let keys: Vec<String> = cluster
            .node(node)
            .send(["KEYS", "*str:alice"])
            .await
            .unwrap();
        if let Some(key) = keys.first() {
            return cluster.slot(key).await;
        }
    }
    panic!("no server has the subject");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_and_everybody_is_counted() {
    needs!(redis);
    let cluster = Cluster::start().await;
    let limiter = limiter(&cluster);
    let load = Load::start(&limiter, 4, &[alice()]);
    used(&limiter, 1).await;
    let slot = slot(&cluster).await;
    let from = cluster.primary_of(slot).await;
    let to = (from + 1) % 3;

    cluster.begin_move(slot, to).await;
    cluster.move_keys(slot, to).await;
    // Now the old primary replies ASK, and soon MOVED.
    eventually("a reply ASK", async || {
        let errors = cluster.node(from).info("errorstats").await;
        errors.contains_key("errorstat_ASK").then_some(())
    })
    .await;
    cluster.finish_move(slot, to).await;
    used(&limiter, LIMIT).await;
    let samples = load.stop().await;
    let moved = cluster.node(from).info("errorstats").await;
    assert!(moved.contains_key("errorstat_MOVED"), "{moved:?}");

    let (allowed, lost) = (count(&samples, Answer::Allowed), undecided(&samples));
    println!(
        "moved: {allowed} allowed, {lost} undecided; {}",
        times(&samples)
    );
    assert!(allowed <= LIMIT, "{allowed}");
    assert!(allowed + lost >= LIMIT, "{allowed} and {lost}");
}

/// No map of slots has it, as it owns none: the connection stays until the next map.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_server_that_takes_its_first_slot_has_one_connection() {
    needs!(redis);
    let cluster = Cluster::start().await;
    let store = patient_store(&url(&cluster));
    let limiter = RedisLimiter::builder(Quota::per(LIMIT, AGE).fixed_window())
        .build(&store)
        .unwrap();
    limiter.acquire(&alice(), 1).await.unwrap();
    let slot = slot(&cluster).await;
    let new = 3;
    cluster.empty(new).await;
    cluster.begin_move(slot, new).await;
    cluster.move_keys(slot, new).await;

    eventually("a decision of the new server", async || {
        let decision = limiter.acquire(&alice(), 1).await.ok()?;
        (!decision.is_degraded()).then_some(())
    })
    .await;
    let before = store.stats().connections();
    for _ in 0..20 {
        let decision = limiter.acquire(&alice(), 1).await.unwrap();
        assert!(!decision.is_degraded(), "{decision:?}");
    }
    assert_eq!(store.stats().connections(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_server_of_a_cluster_is_replaced() {
    needs!(redis);
    let mut cluster = Cluster::start().await;
    let trial = Trial::start_well("a server lost", &url(&cluster)).await;
    cluster.kill_primary_of(0).await;
    trial.fails_for_some().await;
    cluster.primary_of(0).await;
    trial.recovers_for_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_of_a_cluster_is_killed_in_a_burst() {
    needs!(redis);
    let mut cluster = Cluster::start().await;
    let limiter = limiter(&cluster);
    let load = Load::start(&limiter, 4, &[alice()]);
    used(&limiter, LIMIT / 4).await;
    let slot = slot(&cluster).await;
    cluster.kill_primary_of(slot).await;
    cluster.primary_of(slot).await;
    used(&limiter, LIMIT).await;
    let samples = load.stop().await;

    let (allowed, lost) = (count(&samples, Answer::Allowed), undecided(&samples));
    println!(
        "killed: {allowed} allowed, {lost} undecided; {}",
        times(&samples)
    );
    // The replica may lack what was counted last, at worst all of it.
    assert!(allowed <= 2 * LIMIT, "{allowed}");
    assert!(allowed + lost >= LIMIT, "{allowed} and {lost}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_address_of_one_server_leads_to_a_cluster() {
    needs!(redis);
    let cluster = Cluster::start().await;
    let (store, _) = store(&cluster.urls()[0]);
    let limiter = RedisLimiter::builder(Quota::per_day(LIMIT))
        .build(&store)
        .unwrap();
    let mut degraded = 0;
    for key in 0..30_u64 {
        let decision = limiter.acquire(&Key::from(key), 1).await.unwrap();
        assert!(decision.is_allowed(), "never a denial");
        degraded += u64::from(decision.is_degraded());
    }
    assert!(degraded > 0, "two of three keys belong to other servers");
    let keys: Value = cluster.node(1).send(["KEYS", "*"]).await.unwrap();
    assert_eq!(keys, Value::Array(Vec::new()));
}
