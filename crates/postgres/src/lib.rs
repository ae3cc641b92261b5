//! One limit for all nodes without Redis: a [`PostgresStore`] keeps the counts of
//! [tower-ratelimit](https://docs.rs/tower-ratelimit) in a table of Postgres.
//!
//! ```no_run
//! use tower_ratelimit::{Key, Limiter as _, Quota};
//! use tower_ratelimit_postgres::PostgresStore;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = PostgresStore::connect("postgres://limiter:secret@10.0.0.7/app")?;
//! store.create_table().await?;
//! let limiter = PostgresStore::limiter(Quota::per_second(1_000)).name("api").build_on(store)?;
//!
//! let decision = limiter.acquire(&Key::from("alice"), 1).await?;
//! assert!(decision.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! With tower and axum the limiter goes into a
//! [`RateLimitLayer`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html).
//! It reserves units of a busy key for a second, a lease, and decides about them in this process: see
//! [`Mode::leased`]. All nodes together never allow more than the limit. Without a lease a request costs
//! two statements, and a denial one; a small limit is better off so, with
//! `SharedLimiter::builder(quota).build_on(store)`.
//!
//! If the database does not respond within 250 milliseconds, each node decides by itself, or as
//! [`on_failure`](tower_ratelimit::shared::RedisLimiterBuilder::on_failure) selects. The
//! [guide] covers rights, PgBouncer, TLS, failures and costs.

mod sql;

mod connections;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_postgres::types::Type;
use tower_ratelimit::{
    clock::Timestamp,
    quota::IntoQuotas,
    shared::{
        Cas, CompareAndSwap, Mode, RedisLimiterBuilder, Reply, SharedLimiter, Store, StoreCall,
        Versioned, Write,
    },
    store::{StoreError, StoreErrorKind},
};

use self::{
    connections::Connections,
    sql::{CHECK, CLEAN, CREATE, INSERT, LOAD, UPDATE},
};

#[doc = include_str!("../README.md")]
pub mod guide {}

/// The longest time of a statement that no request waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A store of limits in a table of Postgres.
///
/// For two limiters on one store, give each a clone of an `Arc` of it.
#[derive(Debug)]
pub struct PostgresStore(Cas<Table>);

/// The table and the connections to it.
#[derive(Debug, Clone)]
struct Table {
    connections: Connections,
    deadline: Duration,
    clean_every: Duration,
    cleaned: Arc<Cleaned>,
}

/// The end of the last cleaning of this process, in milliseconds since the store was made;
/// [`RUNNING`] while one runs.
#[derive(Debug)]
struct Cleaned {
    since: Instant,
    at: AtomicU64,
}

const RUNNING: u64 = u64::MAX;

impl Cleaned {
    fn millis(&self) -> u64 {
        self.since.elapsed().as_millis() as u64
    }
}

/// Ends when the cleaning does, also with its runtime.
struct Cleaning(Arc<Cleaned>);

impl Drop for Cleaning {
    fn drop(&mut self) {
        self.0.at.store(self.0.millis(), Ordering::Relaxed);
    }
}

impl PostgresStore {
    /// The statement that [`create_table`](Self::create_table) runs, for a migration.
    pub const MIGRATION: &'static str = sql::MIGRATION;

    /// Creates a store from a URL, `postgres://user:password@host/database`, or from another form
    /// that a [`Config`](tokio_postgres::Config) reads. Connects when it is first used.
    ///
    /// With several hosts the store uses the first that takes writes.
    ///
    /// # Errors
    ///
    /// If the URL is malformed, or has `sslmode=require` without the feature `tls`.
    pub fn connect(url: &str) -> Result<Self, StoreError> {
        Ok(Self(Cas::new(Table {
            connections: Connections::new(url)?,
            deadline: Duration::from_millis(250),
            clean_every: Duration::from_secs(60),
            cleaned: Arc::new(Cleaned {
                since: Instant::now(),
                at: AtomicU64::new(0),
            }),
        })))
    }

    /// Begins a limiter with leases: a node calls the database once for many decisions about a busy
    /// key. [`build_on`](RedisLimiterBuilder::build_on) a store completes it.
    pub fn limiter(quotas: impl IntoQuotas) -> RedisLimiterBuilder {
        SharedLimiter::builder(quotas).mode(Mode::leased())
    }

    /// The longest duration of a decision, connecting included. Defaults to 250 milliseconds.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.with(|table| table.deadline = deadline)
    }

    /// The most connections of this process. Defaults to 4.
    #[must_use]
    pub fn max_connections(self, connections: usize) -> Self {
        self.0.get_ref().connections.resize(connections.max(1));
        self
    }

    /// How often a node that writes calls [`remove_expired`](Self::remove_expired) in the background.
    /// Defaults to a minute; [`Duration::MAX`] means never.
    #[must_use]
    pub fn clean_every(self, interval: Duration) -> Self {
        self.with(|table| table.clean_every = interval)
    }

    fn with(self, change: impl FnOnce(&mut Table)) -> Self {
        let mut table = self.0.get_ref().clone();
        change(&mut table);
        Self(Cas::new(table))
    }

    /// Creates the table if it does not exist, and [checks](Self::check) it.
    ///
    /// # Errors
    ///
    /// If the database does not respond within ten seconds, or refuses.
    pub async fn create_table(&self) -> Result<(), StoreError> {
        self.0.get_ref().run(CREATE).await?;
        self.check().await
    }

    /// Checks that the database can be reached, that the table exists and that this user may read and
    /// write it. Call it at the start if a migration creates the table.
    ///
    /// # Errors
    ///
    /// Otherwise. The error of a missing table contains the [migration](Self::MIGRATION).
    pub async fn check(&self) -> Result<(), StoreError> {
        self.0.get_ref().run(CHECK).await
    }

    /// Removes the rows that have expired by the server's clock, and returns their number. A statement
    /// reads a thousand rows at most.
    ///
    /// # Errors
    ///
    /// If a statement takes longer than ten seconds, or fails.
    pub async fn remove_expired(&self) -> Result<u64, StoreError> {
        self.0.get_ref().clean().await
    }
}

impl Store for PostgresStore {
    async fn transact(&self, key: &str, call: &StoreCall<'_>) -> Result<Reply, StoreError> {
        self.0.transact(key, call).await
    }

    fn deadline(&self) -> Duration {
        self.0.deadline()
    }
}

impl Table {
    async fn run(&self, statements: &str) -> Result<(), StoreError> {
        patiently(self.connections.run(statements)).await
    }

    async fn clean(&self) -> Result<u64, StoreError> {
        let (mut last, mut removed) = (String::new(), 0);
        loop {
            let key = [(&last as _, Type::TEXT)];
            let row = patiently(self.connections.row(CLEAN, &key, PATIENCE)).await?;
            let Some((end, count)) = row.map(|row| (row.get(0), row.get::<_, i64>(1))) else {
                return Ok(removed);
            };
            removed += count.unsigned_abs();
            match end {
                Some(end) => last = end,
                None => return Ok(removed),
            }
        }
    }

    /// Starts a cleaning if none runs, and none has ended for a while.
    fn clean_if_due(&self) {
        let at = self.cleaned.at.load(Ordering::Relaxed);
        let due = Duration::from_millis(at).saturating_add(self.clean_every);
        let claim = &self.cleaned.at;
        if at == RUNNING
            || Duration::from_millis(self.cleaned.millis()) < due
            || claim
                .compare_exchange(at, RUNNING, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        let (table, cleaning) = (self.clone(), Cleaning(Arc::clone(&self.cleaned)));
        tokio::spawn(async move {
            let _cleaning = cleaning;
            if let Err(error) = table.clean().await {
                tracing::warn!(%error, "rows of limits that have expired were not removed");
            }
        });
    }
}

async fn patiently<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = |_| {
        StoreError::new(
            StoreErrorKind::Timeout,
            format!("no answer within {PATIENCE:?}"),
        )
    };
    tokio::time::timeout(PATIENCE, call).await.map_err(late)?
}

impl CompareAndSwap for Table {
    type Version = i64;

    async fn load(&self, key: &str) -> Result<(Versioned<i64>, Timestamp), StoreError> {
        let parameters = [(&key as _, Type::TEXT)];
        let wait = self.deadline / 2;
        let row = self.connections.row(LOAD, &parameters, wait).await?;
        let row = row.ok_or_else(|| StoreError::new(StoreErrorKind::Other, "no row"))?;
        let now = Timestamp::from_micros(row.get::<_, i64>(0).cast_unsigned());
        let value: Option<Vec<u8>> = row.get(1);
        Ok((value.zip(row.get(2)), now))
    }

    async fn swap(
        &self,
        key: &str,
        old: Option<i64>,
        new: &Write,
    ) -> Result<Option<i64>, StoreError> {
        let millis = new.expires_in.as_millis() as f64;
        let (statement, parameters) = match &old {
            None => (INSERT, 3),
            Some(_) => (UPDATE, 4),
        };
        let all = [
            (&key as _, Type::TEXT),
            (&new.value as _, Type::BYTEA),
            (&millis as _, Type::FLOAT8),
            (&old as _, Type::INT8),
        ];
        let wait = self.deadline / 2;
        let written = self
            .connections
            .row(statement, &all[..parameters], wait)
            .await;
        self.clean_if_due();
        match written {
            Ok(row) => Ok(row.map(|row| row.get(0))),
            // Nothing was written, since another transaction was first.
            Err(error) if error.kind() == StoreErrorKind::Contended => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }
}
