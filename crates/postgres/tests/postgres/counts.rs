//! Exactly the limit passes, and rows that have expired go.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use testkit::{
    child_processes::eventually,
    needs,
    store_contract::{self, StoreBench as _},
};
use tokio::task::JoinSet;
use tower_ratelimit::{Key, OnFailure, Quota};
use tower_ratelimit_postgres::PostgresStore;

use crate::{Bench, Limiter, is_allowed, limiter};

const ROWS: &str = "SELECT count(*) FROM tower_ratelimit";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contract_of_stores() {
    needs!(postgres);
    let bench = Bench::with_clock().await;
    store_contract::one_limit(&bench).await;
    store_contract::exact_waits(&bench).await;
    store_contract::corrections(&bench).await;
    store_contract::at_once(&bench).await;
    store_contract::counts_on(&bench).await;
}

/// Requests of 40 tasks on these nodes that passed, of 1,000.
pub(super) async fn passed(nodes: &[Limiter]) -> u32 {
    let passed = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..40 {
        let (node, passed) = (nodes[task % nodes.len()].clone(), Arc::clone(&passed));
        tasks.spawn(async move {
            for _ in 0..25 {
                let one = u32::from(is_allowed(&node, &Key::from("alice")).await);
                passed.fetch_add(one, Ordering::Relaxed);
            }
        });
    }
    tasks.join_all().await;
    passed.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_on_some_nodes_get_exactly_the_limit() {
    needs!(postgres);
    let bench = Bench::start().await;
    let nodes = [(); 4].map(|()| bench.limiter(Quota::per_day(500).fixed_window()));
    assert_eq!(passed(&nodes).await, 500);
    assert_eq!(bench.number(ROWS).await, 1);
}

fn leased(bench: &Bench, quota: Quota) -> Limiter {
    let builder = PostgresStore::limiter(quota).on_failure(OnFailure::deny());
    builder.build_on(bench.store()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_leases_allow_no_more_than_the_limit() {
    needs!(postgres);
    let bench = Bench::start().await;
    let nodes = [(); 4].map(|()| leased(&bench, Quota::per_day(500).fixed_window()));
    let passed = passed(&nodes).await;
    assert!((1..=500).contains(&passed), "{passed}");
}

#[tokio::test]
async fn a_lease_saves_calls() {
    needs!(postgres);
    let bench = Bench::start().await;
    let limiter = leased(&bench, Quota::per_day(1_000_000));
    for _ in 0..10_000 {
        assert!(is_allowed(&limiter, &Key::from("alice")).await);
    }
    let calls = limiter.mode_stats().asked;
    assert!(calls < 5_000, "{calls}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_first_requests_at_once_passes() {
    needs!(postgres);
    let bench = Bench::start().await;
    let nodes = [(); 2].map(|()| bench.limiter(Quota::per_day(1)));
    for key in 0_u64..100 {
        let tasks = nodes
            .clone()
            .map(|node| tokio::spawn(async move { is_allowed(&node, &Key::from(key)).await }));
        let [one, two] = tasks;
        let passed = [one.await.unwrap(), two.await.unwrap()];
        assert_ne!(passed[0], passed[1], "{key}");
    }
}

/// Adds rows that have expired, or expire in a minute.
async fn add_rows(bench: &Bench, name: &str, count: u32, expires: &str) {
    let rows = format!(
        "INSERT INTO tower_ratelimit SELECT '{name}' || n, '', now() + interval '{expires}'
         FROM generate_series(1, {count}) AS n"
    );
    bench.run(&rows).await;
}

#[tokio::test]
async fn rows_that_have_expired_are_removed_and_no_others() {
    needs!(postgres);
    let bench = Bench::start().await;
    add_rows(&bench, "a", 1_500, "-1 s").await;
    add_rows(&bench, "b", 2_500, "1 day").await;
    add_rows(&bench, "c", 1_500, "-1 s").await;
    let store = bench.store();
    assert_eq!(store.remove_expired().await.unwrap(), 3_000);
    assert_eq!(bench.number(ROWS).await, 2_500);
    assert_eq!(store.remove_expired().await.unwrap(), 0);
}

#[tokio::test]
async fn removal_waits_for_no_row_that_somebody_writes() {
    needs!(postgres);
    let bench = Bench::start().await;
    add_rows(&bench, "a", 10, "-1 s").await;
    bench
        .run("BEGIN; UPDATE tower_ratelimit SET value = 'x' WHERE key = 'a3'")
        .await;
    assert_eq!(bench.store().remove_expired().await.unwrap(), 9);
    bench.run("COMMIT").await;
}

#[tokio::test]
async fn nodes_that_write_remove_what_has_expired() {
    needs!(postgres);
    let bench = Bench::start().await;
    let limiter = limiter(
        bench.store().clean_every(Duration::ZERO),
        Quota::per_day(1_000_000),
    );
    add_rows(&bench, "a", 2_000, "-1 s").await;
    assert!(is_allowed(&limiter, &Key::from("alice")).await);
    eventually("a table of one row", async || {
        (bench.number(ROWS).await == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn one_removal_runs_at_a_time_however_long_it_takes() {
    needs!(postgres);
    const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'";
    let bench = Bench::start().await;
    bench
        .run(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ \
             BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NULL; END $$; \
             CREATE TRIGGER wait BEFORE DELETE ON tower_ratelimit EXECUTE FUNCTION wait(); \
             SELECT pg_advisory_lock(77)",
        )
        .await;
    let limiter = limiter(
        bench.store().clean_every(Duration::ZERO),
        Quota::per_day(1_000_000),
    );
    add_rows(&bench, "a", 10, "-1 s").await;
    for alice in 0..20 {
        assert!(is_allowed(&limiter, &Key::from(format!("alice {alice}"))).await);
    }
    eventually("a removal that waits", async || {
        (bench.number(WAITING).await == 1).then_some(())
    })
    .await;
    for bob in 0..20 {
        assert!(is_allowed(&limiter, &Key::from(format!("bob {bob}"))).await);
    }
    assert_eq!(bench.number(WAITING).await, 1);

    bench.run("SELECT pg_advisory_unlock(77)").await;
    eventually("the end of the removal", async || {
        (bench.number(WAITING).await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_row_that_is_over_is_as_good_as_none() {
    needs!(postgres);
    let bench = Bench::with_clock().await;
    let nodes = [(); 2].map(|()| bench.limiter(Quota::per_minute(1).fixed_window()));
    let key = Key::from("alice");
    assert!(is_allowed(&nodes[0], &key).await);
    bench.advance(Duration::from_secs(61)).await;
    // It takes the row's place.
    assert!(is_allowed(&nodes[1], &key).await);
    assert!(!is_allowed(&nodes[0], &key).await);
    assert_eq!(
        bench
            .number("SELECT count(*) FROM test.tower_ratelimit")
            .await,
        1
    );
}
