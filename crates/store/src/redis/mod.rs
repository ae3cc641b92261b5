//! Redis: the scripts that decide, and the connection: one handle, [`RedisStore`], that many limiters share.
//!
//! In: a script with keys and arguments, and the time until which somebody waits for the reply. Out: the reply, or an error
//! whose kind tells a call that was not sent from one that the server may have run.
//!
//! 1. `RedisStore::call` finds the pipeline of the call. In a cluster each server has one, with everything below, and a call
//!    goes to the server that owns the slot of its key (`cluster.rs`).
//! 2. `pipeline.rs` checks the breaker (`breaker.rs`), and takes a place among the calls in flight (`InFlight`). A
//!    call that gets none in time is not sent.
//! 3. It takes the connection, or waits for it to open (`connection.rs`), and sends the script's digest;
//!    the text goes only to a server that does not know it (`script.rs`). A call that a closed connection did
//!    not take is sent once more, by a new one.
//! 4. All of this is within one deadline. The outcome goes to the breaker, which stops calls after failures in a row, and
//!    runs trials until Redis works again (`try_out`).
//!
//! Example: the server hangs. Calls time out at the deadline; the third in a row opens the breaker and closes the
//! connection. Calls then fail at once, and each limiter's fallback decides, until a trial has a reply.

mod address;
mod builder;
mod cluster;
mod connection;
mod error;
mod pipeline;
#[doc(hidden)]
pub mod script;

#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use redis::{ToRedisArgs, Value, aio::ConnectionLike};
use tokio::time::Instant;

pub use self::builder::RedisStoreBuilder;
use self::{
    cluster::Cluster,
    connection::StoreCommon,
    pipeline::{CallProgress, Pipeline, Siblings as _},
    script::Script,
};
use crate::{
    breaker::Guarded as _,
    error::{StoreError, StoreErrorKind},
    health::StoreHealth,
    runtime_thread::Home,
    stats::StoreStats,
};
use tower_ratelimit_core::{
    error::ConfigError,
    lock::unpoisoned,
    log::{self, Code},
};

/// A Redis server, cluster or sentinel group, shared by any number of limiters.
///
/// A clone is a handle to the same connection. The first request opens the connection, and a later
/// one opens it again after it failed. It lives on a thread of the store's own, which starts with
/// the first call and ends with the last handle. A limiter can therefore be awaited in any runtime,
/// and without one. Each store has such a thread, so let limiters share one store.
#[derive(Clone)]
pub struct RedisStore {
    common: Arc<StoreCommon>,
    servers: Servers,
}

impl RedisStore {
    /// Creates the store at this address, with the defaults of the [builder](Self::builder).
    ///
    /// Checks the address and returns. The first request connects, so a server can start while
    /// Redis is down. Needs no runtime yet.
    ///
    /// | address | leads to |
    /// |---|---|
    /// | `redis://user:password@host:6379/0` | a server; all but the host can be left out |
    /// | `rediss://…` | the same, encrypted (feature `redis-tls`) |
    /// | `unix:///run/redis.sock?db=0&user=u&pass=p` | a server on this machine |
    /// | `redis-cluster://user:password@a:7000,b:7001` | a cluster, known by some of its servers |
    /// | `redis-sentinel://user:password@a:26379,b:26379/mymaster/0` | the master of this name |
    ///
    /// `rediss-cluster` and `rediss-sentinel` are encrypted, and `valkey` can stand for `redis`.
    /// User and password are percent-encoded. Those in a sentinel's address are for the servers;
    /// `?sentinel_user=u&sentinel_password=p` is for the sentinels. `?protocol=resp3` chooses the
    /// protocol, which is RESP2 otherwise. An unknown parameter is an error.
    ///
    /// ```
    /// use tower_ratelimit::RedisStore;
    ///
    /// let store = RedisStore::connect("redis://127.0.0.1")?;
    /// assert!(RedisStore::connect("http://127.0.0.1").is_err());
    /// # let _ = store;
    /// # Ok::<_, tower_ratelimit::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the address is not valid. The text does not repeat the address, which can contain a
    /// password.
    pub fn connect(address: &str) -> Result<Self, ConfigError> {
        Self::builder().connect(address)
    }

    /// Creates the store for the cluster with these servers, with addresses like
    /// `redis://host:7000`. All have one user, password and encryption.
    ///
    /// # Errors
    ///
    /// If an address is not valid.
    pub fn cluster<T: AsRef<str>>(
        addresses: impl IntoIterator<Item = T>,
    ) -> Result<Self, ConfigError> {
        Self::builder().cluster(addresses)
    }

    /// Creates the store for the master of this name that these sentinels watch, with addresses
    /// like `redis://host:26379/0`. User, password and database are those of the servers, not of
    /// the sentinels.
    ///
    /// # Errors
    ///
    /// If an address is not valid, or the name is empty.
    pub fn sentinel<T: AsRef<str>>(
        addresses: impl IntoIterator<Item = T>,
        master: &str,
    ) -> Result<Self, ConfigError> {
        Self::builder().sentinel(addresses, master)
    }

    /// Creates the store on a connection that you already have. It must reconnect by itself, as
    /// redis-rs's `ConnectionManager` does; the store adds its deadline and breaker. The connection
    /// lives on the runtime that opened it, and calls run on their callers' runtimes: both must be
    /// driven.
    pub fn from_connection<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        match Self::builder().connection(connection) {
            Ok(store) => store,
            Err(_) => unreachable!("the defaults are accepted"),
        }
    }

    /// Whether Redis works, as shown by the calls so far. Sends nothing.
    pub fn health(&self) -> StoreHealth {
        let health = match &self.servers {
            Servers::One(server) => server.breaker().health(),
            Servers::Cluster(cluster) => cluster.health(),
        };
        self.common.watch.with_strain(health)
    }

    /// Counters of the calls so far, for metrics.
    pub fn stats(&self) -> StoreStats {
        self.common.watch.counters.read()
    }

    /// Connects if necessary, and tests whether Redis lets a limiter do all that it needs. For a
    /// readiness probe, or to connect before the first request. Waits for the connection, so it may
    /// take longer than the [deadline](RedisStoreBuilder::deadline).
    ///
    /// In a cluster it tests all servers at the same time, and one that works is enough: each of
    /// the others affects its own keys only. Behind a
    /// [`sharding_proxy`](RedisStoreBuilder::sharding_proxy) it tests sixteen keys, which lie
    /// on different servers, and fails if one of them fails.
    ///
    /// # Errors
    ///
    /// The failure that a call would have.
    pub async fn check(&self) -> Result<(), StoreError> {
        let check = async {
            match &self.servers {
                Servers::One(server) => server.check().await,
                Servers::Cluster(cluster) => cluster.check().await,
            }
        };
        self.home().within(check).await
    }

    /// Opens new connections in place of the open ones, with the password and the certificates that
    /// are in the [files](RedisStoreBuilder::password_file) now. Calls in flight end on the
    /// old ones. A connection that was handed in stays.
    ///
    /// # Errors
    ///
    /// The first failure to connect. That connection stays as it was.
    pub async fn reconnect(&self) -> Result<(), StoreError> {
        let servers = self.servers.all();
        let each = join_all(servers.iter().map(|server| server.link.renew()));
        let each = self.home().within(each).await;
        each.into_iter().try_for_each(|outcome| outcome)
    }

    /// The beginning of all key names.
    #[doc(hidden)]
    pub fn prefix(&self) -> &str {
        &self.common.prefix
    }

    #[doc(hidden)]
    pub fn deadline(&self) -> Duration {
        self.common.deadline
    }

    /// Returns the error with which a call about this key would fail at once, if any. Sends
    /// nothing.
    #[doc(hidden)]
    pub fn refusal(&self, key: &[u8]) -> Option<StoreError> {
        self.servers.of(key).refusal()
    }

    /// Returns the error with which every call would fail at once, if any.
    #[doc(hidden)]
    pub fn refusal_of_all(&self) -> Option<StoreError> {
        let servers = self.servers.all();
        let refusals: Option<Vec<_>> = servers.iter().map(|server| server.refusal()).collect();
        refusals?.pop()
    }

    /// The runtime for tasks that call the store.
    #[doc(hidden)]
    pub fn home(&self) -> &Home {
        &self.common.home
    }

    /// Registers a script that a limiter of this store uses: trials load it.
    #[doc(hidden)]
    pub fn use_script(&self, script: &Script) {
        let mut scripts = unpoisoned(self.common.scripts.lock());
        if !scripts.iter().any(|known| known.is_same(script)) {
            scripts.push(script.clone());
        }
    }

    /// Whether one call can carry many subjects. A cluster has them on different servers.
    #[doc(hidden)]
    pub fn can_batch_subjects(&self) -> bool {
        matches!(self.servers, Servers::One(_)) && !self.common.is_split.load(Ordering::Relaxed)
    }

    /// Records that several servers are behind the store's address: from now on each call carries
    /// one subject.
    #[doc(hidden)]
    pub fn stop_batching_subjects(&self) {
        if !self.common.is_split.swap(true, Ordering::Relaxed) {
            let text = "behind the address of Redis there are many servers, as it answered CROSSSLOT: \
                from now on each subject is asked about in a call of its own; say so at once with \
                RedisStoreBuilder::sharding_proxy, or --redis-sharding-proxy of the command";
            log::report(Code::REDIS_SPLIT, text);
        }
    }

    /// How long a response takes now; `None` without a connection.
    #[doc(hidden)]
    pub fn expected(&self) -> Option<Duration> {
        match &self.servers {
            Servers::One(server) => server.expected(),
            Servers::Cluster(cluster) => cluster.expected(),
        }
    }

    /// Records that a decision was made without Redis, or not at all, because of this error.
    #[doc(hidden)]
    pub fn record_degraded(&self, error: &StoreError) {
        // Whether the breaker has reported the failure of calls with this error.
        let has_reported = match &self.servers {
            Servers::One(server) => server.breaker().is_open(),
            Servers::Cluster(_) => error.kind() == StoreErrorKind::BreakerOpen,
        };
        (self.common.watch).record_degraded(error, has_reported);
    }

    /// Runs `script` on the values of `keys`: one round trip, at most the deadline. With `until` it waits for a place
    /// among the calls in flight, and is not sent once its callers have left then; without, it is sent however many are in
    /// flight. After an error of kind [`Timeout`](crate::error::StoreErrorKind::Timeout) it may have run.
    #[doc(hidden)]
    pub async fn call<A: ToRedisArgs>(
        &self,
        until: Option<Instant>,
        script: &Script,
        keys: &[&[u8]],
        args: &[A],
    ) -> Result<Value, StoreError> {
        let common = &self.common;
        let key = keys.first().copied().unwrap_or_default();
        let command = Arc::new(script.call(keys, args));
        let began_at = Instant::now();
        let times = (began_at, until);
        let call = async {
            match &self.servers {
                Servers::One(server) => {
                    let progress = CallProgress::new(times);
                    server.attempt(script, command, progress).await
                }
                Servers::Cluster(cluster) => cluster.call(script, command, key, times).await,
            }
        };
        let outcome = common.home.within(call).await;
        common.watch.counters.count(&outcome, began_at.elapsed());
        outcome
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("address", &self.common.address)
            .field("prefix", &self.common.prefix)
            .field("deadline", &self.common.deadline)
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
enum Servers {
    One(Arc<Pipeline>),
    Cluster(Arc<Cluster>),
}

impl Servers {
    /// Returns the server that owns the key's slot.
    fn of(&self, key: &[u8]) -> Arc<Pipeline> {
        match self {
            Self::One(server) => Arc::clone(server),
            Self::Cluster(cluster) => cluster.server_of(key),
        }
    }

    fn all(&self) -> Vec<Arc<Pipeline>> {
        match self {
            Self::One(server) => vec![Arc::clone(server)],
            Self::Cluster(cluster) => cluster.servers(),
        }
    }
}
