//! Limits on a real Postgres: counts, faults, sessions, and the start of a program.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod counts;
mod faults;
mod sessions;
mod start;

use std::{error::Error as _, time::Duration};

use testkit::{child_processes::eventually, servers::Postgres, store_contract::StoreBench};
use tokio_postgres::{Client, NoTls};
use tower_ratelimit::{
    AnyLimiter, Decision, Key, LimiterError, OnFailure, Quota,
    shared::SharedLimiter,
    store::{StoreError, StoreErrorKind, StoreHealth},
};
use tower_ratelimit_postgres::PostgresStore;

type Limiter = SharedLimiter<PostgresStore>;

/// A server, and a connection of an administrator.
struct Bench {
    server: Postgres,
    admin: Client,
    /// Added to the URL of each store.
    options: &'static str,
}

/// Stands before the system's function on the search path, and still until it is set.
const CLOCK: &str = "
    CREATE SCHEMA test;
    CREATE TABLE test.clock (at timestamptz NOT NULL);
    INSERT INTO test.clock VALUES ('2026-01-01 12:00:00+00');
    CREATE FUNCTION test.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
        AS 'SELECT at FROM test.clock';";

impl Bench {
    async fn start() -> Self {
        let bench = Self::without_table().await;
        bench.store().create_table().await.unwrap();
        bench
    }

    async fn without_table() -> Self {
        let server = Postgres::start().await;
        let admin = connect(server.port()).await;
        let options = "";
        Self {
            server,
            admin,
            options,
        }
    }

    /// With a clock of its own.
    async fn with_clock() -> Self {
        let mut bench = Self::without_table().await;
        bench.options = "?options=-c%20search_path%3Dtest,pg_catalog";
        bench.run(CLOCK).await;
        bench.store().create_table().await.unwrap();
        bench
    }

    fn store(&self) -> PostgresStore {
        store(&format!("{}{}", url(self.server.port()), self.options))
    }

    /// A limiter whose requests are all decided by the database.
    fn limiter(&self, quota: Quota) -> Limiter {
        limiter(self.store(), quota)
    }

    async fn run(&self, statements: &str) {
        self.admin.batch_execute(statements).await.unwrap();
    }

    async fn number(&self, query: &str) -> i64 {
        self.admin.query_one(query, &[]).await.unwrap().get(0)
    }
}

fn url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres")
}

async fn connect(port: u16) -> Client {
    let (client, connection) = tokio_postgres::connect(&url(port), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A busy machine must not look like a failing database.
fn store(url: &str) -> PostgresStore {
    let store = PostgresStore::connect(url).unwrap();
    store.deadline(Duration::from_secs(60))
}

fn limiter(store: PostgresStore, quota: Quota) -> Limiter {
    SharedLimiter::builder(quota)
        .name("test")
        .on_failure(OnFailure::deny())
        .build_on(store)
        .unwrap()
}

async fn acquire(limiter: &Limiter, key: &str) -> Result<Decision, LimiterError> {
    limiter.acquire(&Key::from(key), 1).await
}

/// Whether a request passes. One that came behind too many others, or before which another was, is repeated.
async fn is_allowed(limiter: &Limiter, key: &Key) -> bool {
    loop {
        match limiter.acquire(key, 1).await {
            Ok(decision) => return decision.is_allowed(),
            Err(error) => assert!(
                matches!(
                    kind(&error),
                    StoreErrorKind::Contended | StoreErrorKind::Crowded
                ),
                "{error}: {}",
                text(&error)
            ),
        }
    }
}

fn cause(error: &LimiterError) -> &StoreError {
    error.source().unwrap().downcast_ref().unwrap()
}

fn kind(error: &LimiterError) -> StoreErrorKind {
    cause(error).kind()
}

fn text(error: &LimiterError) -> String {
    cause(error).to_string()
}

/// Waits until requests no longer wait for the database, and returns the reason.
async fn goes_down(limiter: &Limiter) -> StoreErrorKind {
    eventually("the limiter has noticed", async || {
        drop(acquire(limiter, "alice").await);
        match limiter.health() {
            StoreHealth::Down { cause, .. } => Some(cause),
            _ => None,
        }
    })
    .await
}

/// Waits until the database decides again.
async fn comes_up(limiter: &Limiter) -> Decision {
    eventually("a decision of Postgres", async || {
        let outcome = acquire(limiter, "alice").await;
        outcome
            .inspect_err(|error| println!("{}", text(error)))
            .ok()
    })
    .await
}

impl StoreBench for Bench {
    fn node(&self, name: &str, quota: Quota) -> AnyLimiter {
        let limiter = SharedLimiter::builder(quota)
            .name(name)
            .remember_denials(false)
            .on_failure(OnFailure::deny())
            .build_on(self.store());
        AnyLimiter::new(limiter.unwrap())
    }

    async fn advance(&self, time: Duration) {
        let micros = i64::try_from(time.as_micros()).unwrap();
        let advance = "UPDATE test.clock SET at = at + $1 * interval '1 microsecond'";
        let micros = micros as f64;
        self.admin.execute(advance, &[&micros]).await.unwrap();
    }
}
