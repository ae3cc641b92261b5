//! The limit that all nodes count together.

use std::{fmt, time::Duration};

use super::{
    limit::OwnedConcurrency,
    permits::{IntoPermits, Permits},
    shared_permits::SharedPermits,
};
use crate::{
    error::{ConfigError, ConfigErrorKind},
    redis::{
        key_name::{accepted_name, checked_name},
        permits::lease::Leases,
        store::handle::RedisStore,
    },
    shared::fallback::OnFailure,
};

const DEFAULT_LEASE: Duration = Duration::from_secs(60);

/// Renewals come a third of it apart, and have to be answered before the next one.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// How many requests of one key may be in flight at the same time on all nodes together, through
/// Redis.
///
/// ```
/// use std::time::Duration;
/// use tower_ratelimit::{
///     Concurrency, ConcurrencyLayer, OnFailure, PeerIp, RedisStore, SharedConcurrency,
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
/// A request holds a lease, which a background task renews as long as the response is being sent.
/// A node that crashes renews nothing, so its permits are back after the time of a lease. Redis
/// keeps 15 bytes for each request in flight, and writes those of a key anew with each request of
/// that key: it is made for limits of up to about a thousand.
///
/// After Redis has lost its data, requests in flight are known to it again with their next renewal,
/// within a third of a lease; until then each node holds itself to the limit.
///
/// As with a [`Concurrency`](crate::Concurrency), constructors and builders never fail; [`check`](Self::check) and the
/// layer say what is wrong.
#[derive(Clone)]
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
    /// The limit of `concurrency`, counted on the server of `store`. The connection can be the one
    /// of other limits.
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

    /// The name of the limit in Redis. Limits of one name on one server are counted together,
    /// on whatever node they are; others are not.
    ///
    /// Defaults to the policy's name, [`Concurrency::named`](crate::Concurrency::named), with a few letters of
    /// its digest where not all of it is accepted.
    ///
    /// 1 to 64 letters, digits, `-`, `_` and `.`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// After what time the permits of a node come back that has crashed. Defaults to 60 seconds;
    /// from 100 milliseconds to a day.
    ///
    /// Leases are renewed at a third of it, so a node that does not reach Redis for two thirds of
    /// it loses them, until it does. Nodes may have different ones.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The fallback when Redis does not decide in time. Defaults to [`OnFailure::local`]: this
    /// process goes on by itself with the same limit, and [`OnFailure::nodes`] divides it.
    ///
    /// Requests in flight in this process already count. Those that it lets pass meanwhile are told to
    /// Redis afterwards, if they are still in flight. With [`OnFailure::allow`] they are not.
    pub const fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Where the names of leases come from in a simulation, so that it can be repeated; at random
    /// without one. Each node has a seed of its own.
    #[doc(hidden)]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Whether the limit makes sense.
    ///
    /// # Errors
    ///
    /// When [`Concurrency::check`](crate::Concurrency::check) says so, the lease is shorter than 100 milliseconds or longer
    /// than a day, or the name has other characters than are accepted.
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

    fn redis_name(&self) -> Result<String, ConfigError> {
        match &self.name {
            Some(name) => checked_name(name).map(|()| name.clone()),
            None => Ok(accepted_name(self.concurrency.name().to_owned())),
        }
    }
}

impl IntoPermits for SharedConcurrency {
    fn into_permits(self) -> Result<Permits, ConfigError> {
        self.check()?;
        let name = self.redis_name()?;
        let limit = self.concurrency.limit();
        let leases = Leases::new(&self.store, &name, limit, self.lease, self.seed);
        let shared = SharedPermits::new(leases, self.on_failure);
        Ok(Permits::of_nodes(&self.concurrency, shared))
    }
}

impl fmt::Debug for SharedConcurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedConcurrency")
            .field("concurrency", &self.concurrency)
            .field("name", &self.name)
            .field("lease", &self.lease)
            .field("on_failure", &self.on_failure)
            .field("store", &self.store)
            .finish()
    }
}
