//! The limit that all nodes count together.

use std::{sync::Arc, time::Duration};

use super::{
    concurrency_limit::OwnedConcurrency,
    permits::{IntoPermits, PermitSource, Permits, SharedPermits},
};
use crate::leases::Leases;
use tower_ratelimit_core::error::{ConfigError, ConfigErrorKind};
use tower_ratelimit_shared::fallback::OnFailure;
use tower_ratelimit_store::{
    key_name::{accepted_name, checked_name},
    redis::RedisStore,
};

const DEFAULT_LEASE: Duration = Duration::from_secs(60);

/// The shortest lease. Renewals start a third of a lease apart, and each must succeed within that
/// time.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// How many requests of one key may be in flight at the same time on all nodes together, through
/// Redis.
///
/// ```
/// use std::time::Duration;
/// use tower_ratelimit::{
///     Concurrency, ConcurrencyLayer, OnFailure, PeerIp, RedisStore,
///     concurrency::SharedConcurrency,
/// };
///
/// # fn f() -> Result<(), tower_ratelimit::ConfigError> {
/// let store = RedisStore::connect("redis://localhost")?;
/// let exports = SharedConcurrency::new(&store, Concurrency::max(10).named("exports"))
///     .lease(Duration::from_secs(30))
///     .on_failure(OnFailure::nodes(3));
/// let layer = ConcurrencyLayer::new(exports, PeerIp);
/// # let _ = layer;
/// # Ok(())
/// # }
/// # f().unwrap();
/// ```
///
/// Each request holds a lease. A background task renews it until the response has been sent. A node
/// that crashes renews nothing, so its permits are free again after the length of a lease. Redis
/// keeps 15 bytes for each request in flight, and each request of a key writes all of that key's
/// entries: use it for limits of up to about a thousand.
///
/// If Redis loses its data, each node reports its requests in flight with their next renewal,
/// within a third of a lease. Until then each node enforces the limit for itself.
///
/// As with a [`Concurrency`](crate::concurrency_limit::Concurrency), constructors and builders never fail;
/// [`check`](Self::check) and the layer report faults.
#[derive(Debug, Clone)]
#[must_use]
pub struct SharedConcurrency {
    store: RedisStore,
    concurrency: OwnedConcurrency,
    name: Option<String>,
    lease: Duration,
    on_failure: OnFailure,
    seed: Option<u64>,
}

impl SharedConcurrency {
    /// Creates the limit of `concurrency`, counted on the server of `store`. Other limits can use
    /// the same store.
    pub fn new(store: &RedisStore, concurrency: impl Into<OwnedConcurrency>) -> Self {
        Self {
            store: store.clone(),
            concurrency: concurrency.into(),
            name: None,
            lease: DEFAULT_LEASE,
            on_failure: OnFailure::local(),
            seed: None,
        }
    }

    /// Sets the limit's name in Redis. All nodes with a limit of this name on one server count
    /// together.
    ///
    /// Defaults to the policy's name, [`Concurrency::named`](crate::concurrency_limit::Concurrency::named), with a
    /// few letters of its digest where not all of it is accepted.
    ///
    /// 1 to 64 letters, digits, `-`, `_` and `.`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the length of a lease. It is the time after which the permits of a crashed node are
    /// free again. Defaults to 60 seconds; from 100 milliseconds to a day.
    ///
    /// A node renews its leases every third of it. A node that cannot reach Redis for two thirds of
    /// it loses them until it can. Nodes may have different lengths.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the fallback for requests that Redis does not decide in time. Defaults to
    /// [`OnFailure::local`]: this process enforces the full limit by itself. [`OnFailure::nodes`]
    /// divides it.
    ///
    /// Requests in flight in this process count from the start. The node reports requests that the
    /// fallback allowed to Redis afterwards, if they are still in flight. With [`OnFailure::allow`]
    /// it does not.
    pub const fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Sets the seed for names of leases, so that a simulation can be repeated; without it they are
    /// random. Each node needs a seed of its own.
    #[doc(hidden)]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Fails if [`Concurrency::check`](crate::concurrency_limit::Concurrency::check) does, if the lease is shorter
    /// than 100 milliseconds or longer than a day, or if the name has other characters than `name`
    /// accepts.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.concurrency.check()?;
        if self.lease < SHORTEST_LEASE || self.lease > LONGEST_LEASE {
            return Err(ConfigError::new(
                ConfigErrorKind::Lease,
                format!(
                    "a lease of {:?}; it must be from {SHORTEST_LEASE:?} to a day",
                    self.lease
                ),
            ));
        }
        self.redis_name().map(drop)
    }

    /// The place where all nodes count the permits.
    #[doc(hidden)]
    pub fn source(&self) -> Result<PermitSource, ConfigError> {
        self.check()?;
        let name = self.redis_name()?;
        let limit = self.concurrency.limit();
        let leases = Leases::new(&self.store, &name, limit, self.lease, self.seed);
        let leases = Arc::new(leases);
        let on_failure = self.on_failure.action();
        Ok(PermitSource::Nodes(SharedPermits { leases, on_failure }))
    }

    fn redis_name(&self) -> Result<String, ConfigError> {
        match &self.name {
            Some(name) => checked_name(name).map(|()| name.clone()),
            None => Ok(accepted_name(self.concurrency.name().to_owned())),
        }
    }
}

impl IntoPermits for SharedConcurrency {
    fn into_permits(self) -> Result<Permits, ConfigError> {
        let source = self.source()?;
        Ok(Permits::new(&self.concurrency, source))
    }
}
