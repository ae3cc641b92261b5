//! Limits on a real Postgres.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use example_postgres::PostgresStore;
use testkit::{
    contract::{self, StoreBench},
    needs,
    programs::eventually,
    servers::Postgres,
};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};
use tower_ratelimit::{
    AnyLimiter, Key, OnFailure, Quota,
    shared::{Cas, CompareAndSwap, SharedLimiter},
};

/// A server whose `clock_timestamp()` is the test's: it stands before the system's on the search
/// path, and still until it is set.
struct Bench {
    server: Postgres,
    admin: Client,
}

const CLOCK: &str = "
    CREATE SCHEMA test;
    CREATE TABLE test.clock (at timestamptz NOT NULL);
    INSERT INTO test.clock VALUES ('2026-01-01 12:00:00+00');
    CREATE FUNCTION test.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
        AS 'SELECT at FROM test.clock';";

impl Bench {
    async fn start() -> Self {
        let server = Postgres::start().await;
        let config = format!("host=127.0.0.1 port={} user=postgres", server.port());
        let (admin, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
        tokio::spawn(connection);
        admin.batch_execute(CLOCK).await.unwrap();
        let bench = Self { server, admin };
        bench.store().create_table().await.unwrap();
        bench
    }

    fn store(&self) -> PostgresStore {
        let config = format!(
            "host=127.0.0.1 port={} user=postgres options='-c search_path=test,pg_catalog'",
            self.server.port()
        );
        // A busy machine must not look like a failing database.
        PostgresStore::new(config.parse().unwrap()).deadline(Duration::from_secs(60))
    }

    fn limiter(&self, quota: Quota) -> SharedLimiter<Cas<PostgresStore>> {
        SharedLimiter::builder(quota)
            .on_failure(OnFailure::deny())
            .build_on(Cas::new(self.store()))
            .unwrap()
    }

    async fn rows(&self) -> i64 {
        let count = "SELECT count(*) FROM test.rate_limits";
        self.admin.query_one(count, &[]).await.unwrap().get(0)
    }
}

impl StoreBench for Bench {
    fn node(&self, name: &str, quota: Quota) -> AnyLimiter {
        let limiter = SharedLimiter::builder(quota)
            .name(name)
            .remember_denials(false)
            .on_failure(OnFailure::deny())
            .build_on(Cas::new(self.store()));
        AnyLimiter::new(limiter.unwrap())
    }

    async fn advance(&self, time: Duration) {
        let micros = i64::try_from(time.as_micros()).unwrap();
        let advance = "UPDATE test.clock SET at = at + $1 * interval '1 microsecond'";
        let micros = micros as f64;
        self.admin.execute(advance, &[&micros]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contract_of_stores() {
    needs!(postgres);
    let bench = Bench::start().await;
    contract::one_limit(&bench).await;
    contract::exact_waits(&bench).await;
    contract::corrections(&bench).await;
    contract::at_once(&bench).await;
}

/// A call that others came in between of was not done, so it may be repeated.
async fn is_allowed(limiter: &SharedLimiter<Cas<PostgresStore>>) -> bool {
    loop {
        if let Ok(decision) = limiter.acquire(&Key::from("alice"), 1).await {
            return decision.is_allowed();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_on_some_nodes_get_exactly_the_limit() {
    needs!(postgres);
    let bench = Bench::start().await;
    let passed = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let limiter = bench.limiter(Quota::per_day(500).fixed_window());
        for _ in 0..10 {
            let (limiter, passed) = (limiter.clone(), Arc::clone(&passed));
            tasks.spawn(async move {
                for _ in 0..25 {
                    let one = u32::from(is_allowed(&limiter).await);
                    passed.fetch_add(one, Ordering::Relaxed);
                }
            });
        }
    }
    tasks.join_all().await;
    assert_eq!(passed.load(Ordering::Relaxed), 500);
    assert_eq!(bench.rows().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_first_requests_at_once_passes() {
    needs!(postgres);
    let bench = Bench::start().await;
    let nodes = [(); 2].map(|()| bench.limiter(Quota::per_day(1)));
    for node in &nodes {
        assert!(is_allowed(node).await || bench.rows().await == 1);
    }
    for key in 0_u64..100 {
        let tasks = nodes.clone().map(|node| {
            let ask = async move { node.acquire(&Key::from(key), 1).await.unwrap() };
            tokio::spawn(ask)
        });
        let [one, two] = tasks;
        let passed = [one.await.unwrap(), two.await.unwrap()];
        let passed = passed.iter().filter(|decision| decision.is_allowed());
        assert_eq!(passed.count(), 1, "{key}");
    }
}

#[tokio::test]
async fn rows_that_are_over_are_empty_and_removed() {
    needs!(postgres);
    let bench = Bench::start().await;
    let limiter = bench.limiter(Quota::per_minute(1));
    for key in 0_u64..20 {
        assert!(
            limiter
                .acquire(&Key::from(key), 1)
                .await
                .unwrap()
                .is_allowed()
        );
    }
    let store = bench.store();
    assert_eq!(store.remove_expired().await.unwrap(), 0);
    let key = "SELECT max(key) FROM test.rate_limits";
    let key: String = bench.admin.query_one(key, &[]).await.unwrap().get(0);
    assert!(store.load(&key).await.unwrap().0.is_some());
    bench.advance(Duration::from_secs(61)).await;
    assert!(store.load(&key).await.unwrap().0.is_none());
    // A node that does not know the row takes its place.
    let other = bench.limiter(Quota::per_minute(1));
    assert!(
        other
            .acquire(&Key::from(3_u64), 1)
            .await
            .unwrap()
            .is_allowed()
    );
    assert!(
        other
            .acquire(&Key::from(3_u64), 1)
            .await
            .unwrap()
            .is_denied()
    );
    assert_eq!(store.remove_expired().await.unwrap(), 19);
    assert_eq!(bench.rows().await, 1);
}

#[tokio::test]
async fn versions_never_come_again() {
    needs!(postgres);
    let bench = Bench::start().await;
    let limiter = bench.limiter(Quota::per_minute(10));
    let first = limiter.acquire(&Key::from("alice"), 1).await.unwrap();
    assert_eq!(first.remaining(), Some(9));
    let key = "SELECT key FROM test.rate_limits";
    let key: String = bench.admin.query_one(key, &[]).await.unwrap().get(0);
    let version = async || bench.store().load(&key).await.unwrap().0.unwrap().1;
    let before = version().await;
    let empty = "DELETE FROM test.rate_limits";
    bench.admin.execute(empty, &[]).await.unwrap();
    // The limiter remembers a value that is no longer there.
    let again = limiter.acquire(&Key::from("alice"), 1).await.unwrap();
    assert_eq!(again.remaining(), Some(9));
    assert!(version().await > before);
}

#[tokio::test]
async fn connections_that_end_are_made_again() {
    needs!(postgres);
    let bench = Bench::start().await;
    let limiter = bench.limiter(Quota::per_day(1_000_000));
    assert!(is_allowed(&limiter).await);
    for _ in 0..3 {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
        bench.admin.execute(end, &[]).await.unwrap();
        eventually("a decision of Postgres", async || {
            limiter.acquire(&Key::from("alice"), 1).await.ok()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_together_make_one_table() {
    needs!(postgres);
    let bench = Bench::start().await;
    for _ in 0..20 {
        let drop = "DROP TABLE test.rate_limits; DROP SEQUENCE test.rate_limit_versions";
        bench.admin.batch_execute(drop).await.unwrap();
        let mut nodes = JoinSet::new();
        for _ in 0..8 {
            let store = bench.store();
            nodes.spawn(async move { store.create_table().await.unwrap() });
        }
        nodes.join_all().await;
    }
}

#[tokio::test]
async fn time_is_the_servers() {
    needs!(postgres);
    let server = Postgres::start().await;
    let config = format!("host=127.0.0.1 port={} user=postgres", server.port());
    let store = PostgresStore::new(config.parse().unwrap());
    store.create_table().await.unwrap();
    let (admin, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    tokio::spawn(connection);
    let now = "SELECT (extract(epoch FROM now()) * 1000000)::bigint";
    let before: i64 = admin.query_one(now, &[]).await.unwrap().get(0);
    let (none, time) = store.load("nobody").await.unwrap();
    let after: i64 = admin.query_one(now, &[]).await.unwrap().get(0);
    assert_eq!(none, None);
    let time = i64::try_from(time.as_micros()).unwrap();
    assert!((before..=after).contains(&time), "{before} {time} {after}");
}
