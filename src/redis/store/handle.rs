//! The store's handle: [`RedisStore`].

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use redis::{Cmd, ToRedisArgs, Value, aio::ConnectionLike};

use super::{
    error::StoreError,
    health::{StoreHealth, StoreStats},
    home::Home,
    pace::{CallPlace, CallSize},
    script::Script,
    servers::StoreState,
};
use crate::{
    error::ConfigError,
    log::{self, Code},
};

/// A Redis server, cluster or sentinel group, shared by any number of limiters.
///
/// A clone is a handle to the same connection. It is made when the first request needs it, and
/// again after it broke. It lives on a thread of the store's own, which begins with the first call
/// and ends with the last handle: so a limiter can be awaited in any runtime, and without one.
/// Each store is such a thread, so have limiters share one.
#[derive(Clone)]
pub struct RedisStore {
    shared: Arc<StoreState>,
}

impl RedisStore {
    pub(super) fn new(shared: StoreState) -> Self {
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The store at this address, with the defaults of the [builder](Self::builder).
    ///
    /// Checks the address and returns; the connection is made later, so a server can start while
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
    /// protocol, which is RESP2 otherwise.
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
    /// When the address makes no sense. The text does not repeat it, since it can hold a password.
    pub fn connect(address: &str) -> Result<Self, ConfigError> {
        Self::builder().connect(address)
    }

    /// The cluster that these servers belong to, with addresses like `redis://host:7000`. They
    /// have the same user, password and encryption.
    ///
    /// # Errors
    ///
    /// When an address makes no sense.
    pub fn cluster<T: AsRef<str>>(
        addresses: impl IntoIterator<Item = T>,
    ) -> Result<Self, ConfigError> {
        Self::builder().cluster(addresses)
    }

    /// The master of this name that these sentinels watch, with addresses like
    /// `redis://host:26379/0`. User, password and database are those of the servers, not of the
    /// sentinels.
    ///
    /// # Errors
    ///
    /// When an address makes no sense, or the name is empty.
    pub fn sentinel<T: AsRef<str>>(
        addresses: impl IntoIterator<Item = T>,
        master: &str,
    ) -> Result<Self, ConfigError> {
        Self::builder().sentinel(addresses, master)
    }

    /// A connection that you already have. It must be one that reconnects by itself, such as
    /// redis-rs's `ConnectionManager`; deadline and breaker are the store's. It lives on the runtime
    /// that it was made on, and calls run on those of their callers, so both have to be driven.
    #[must_use]
    pub fn from_connection<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        match Self::builder().connection(connection) {
            Ok(store) => store,
            Err(_) => unreachable!("the defaults are accepted"),
        }
    }

    /// Whether Redis works, as far as the calls so far have shown. Asks nothing.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        let StoreState {
            common, servers, ..
        } = &*self.shared;
        common.watch.with_strain(servers.health())
    }

    /// Counts of the calls so far, for metrics.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        self.shared.common.stats()
    }

    /// Connects if need be, and tries whether Redis lets a limiter do all it has to. For a
    /// readiness probe, or to connect before the first request. It may take longer than the
    /// [deadline](super::RedisStoreBuilder::deadline), since it waits for the connection.
    ///
    /// In a cluster all servers are tried at the same time, and one that works is enough: those that
    /// do not cost only their own keys.
    ///
    /// # Errors
    ///
    /// The failure, as a call would meet it.
    pub async fn check(&self) -> Result<(), StoreError> {
        let StoreState {
            common, servers, ..
        } = &*self.shared;
        common.home.within(servers.check()).await
    }

    /// The beginning of all keys' names.
    pub(crate) fn prefix(&self) -> &str {
        &self.shared.common.prefix
    }

    /// How long a call takes at most.
    pub(crate) fn deadline(&self) -> Duration {
        self.shared.common.deadline
    }

    /// Why a call about this key would fail at once, without asking Redis.
    pub(crate) fn refusal(&self, key: &[u8]) -> Option<StoreError> {
        self.shared.servers.refusal(key)
    }

    /// Why every call would fail at once.
    pub(crate) fn refusal_of_all(&self) -> Option<StoreError> {
        self.shared.servers.refusal_of_all()
    }

    /// The runtime for tasks that call it.
    pub(crate) fn home(&self) -> &Home {
        &self.shared.common.home
    }

    /// A limiter of this store uses the script: trials load it.
    pub(crate) fn use_script(&self, script: &Script) {
        self.shared.common.use_script(script);
    }

    /// A place for a call of this size, the first of whose keys is this one; an error at once when
    /// an answer `within` this time is not to be expected.
    pub(crate) fn enter(
        &self,
        key: &[u8],
        size: CallSize,
        within: Duration,
    ) -> Result<CallPlace, StoreError> {
        self.shared.servers.enter(key, size, within)
    }

    /// An error when this key would get no place in a call after so many that wait.
    pub(crate) fn expect(&self, key: &[u8], waiting: usize) -> Result<(), StoreError> {
        self.shared.servers.expect(key, waiting)
    }

    /// Whether one call can carry many subjects: not to a cluster, which has them on many servers.
    pub(crate) fn may_travel_together(&self) -> bool {
        !self.shared.servers.is_cluster() && !self.shared.is_split.load(Ordering::Relaxed)
    }

    /// Behind the store's address there are many servers: from now on each subject has its call.
    pub(crate) fn travel_alone(&self) {
        if !self.shared.is_split.swap(true, Ordering::Relaxed) {
            let text = "behind the address of Redis there are many servers, as it answered CROSSSLOT: \
                from now on each subject is asked about in a call of its own; say so at once with \
                RedisStoreBuilder::sharding_proxy";
            log::say(Code::RedisSplit, text);
        }
    }

    /// How long an answer takes at present, with what the server has to do before; `None` without a
    /// connection.
    pub(crate) fn expected(&self) -> Option<Duration> {
        self.shared.servers.expected()
    }

    /// Something is decided without Redis, or not at all, because of this error.
    pub(crate) fn go_without(&self, error: &StoreError) {
        let StoreState {
            common, servers, ..
        } = &*self.shared;
        common.watch.go_without(error, servers.has_reported(error));
    }

    /// Runs `script` on the values of `keys`: one round trip, and never more than the deadline. After
    /// an error of kind [`Timeout`](super::StoreErrorKind::Timeout) it may have run.
    pub(crate) async fn call_in<A: ToRedisArgs>(
        &self,
        place: CallPlace,
        script: &Script,
        keys: &[&[u8]],
        args: &[A],
    ) -> Result<Value, StoreError> {
        let within = Some(self.shared.common.deadline);
        let key = keys.first().copied().unwrap_or_default();
        let call = script.call(keys, args);
        self.count(script, call, key, (place, within)).await
    }

    /// The same on one value without waiting for a place: the call is sent, however many are under way.
    pub(crate) async fn call<A: ToRedisArgs>(
        &self,
        script: &Script,
        key: &[u8],
        args: &[A],
    ) -> Result<Value, StoreError> {
        let place = self.shared.servers.insist(key, CallSize::ONE);
        let call = script.call(&[key], args);
        self.count(script, call, key, (place, None)).await
    }

    /// Runs a call and counts what it comes to.
    async fn count(
        &self,
        script: &Script,
        call: Cmd,
        key: &[u8],
        place: (CallPlace, Option<Duration>),
    ) -> Result<Value, StoreError> {
        let StoreState {
            common, servers, ..
        } = &*self.shared;
        let outcome = common
            .home
            .within(servers.call(script, call, key, place))
            .await;
        common.watch.count(&outcome);
        outcome
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("address", &self.shared.address)
            .field("prefix", &self.shared.common.prefix)
            .field("deadline", &self.shared.common.deadline)
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}
