//! The limiter of all nodes in Redis: [`RedisLimiter`].

use std::{fmt, time::Duration};

use super::{
    builder::RedisLimiterBuilder, limiter::SharedLimiter, mode::ModeStats,
    operation_answer::RedisFuture,
};
use crate::{
    decision::{Decision, Op, Policy},
    error::ConfigError,
    key::Key,
    limiter::{
        Limiter, Pending, Tier,
        inherent_methods_macro::handle_methods,
        tier_set::TierSet,
        type_erased_member::{BoxedFuture, ErasedMember},
    },
    quota::{IntoQuotas, OwnedQuota},
    redis::store::redis_store::RedisStore,
    store::health::StoreHealth,
};

/// A limit that all nodes share, through Redis.
///
/// ```no_run
/// use tower_ratelimit::{PeerIp, Quota, RateLimitLayer, RedisLimiter};
///
/// # fn f() -> Result<(), tower_ratelimit::ConfigError> {
/// let limiter = RedisLimiter::connect("redis://localhost", Quota::per_second(10).burst(20))?;
/// let layer = RateLimitLayer::new(limiter, PeerIp);
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
///
/// The server's clock counts, so nodes need not agree about the time, and decisions equal those of
/// the [`LocalLimiter`](crate::LocalLimiter) to the microsecond. A decision costs one round trip,
/// whatever the number of quotas, and often less. A client that retries after a denial costs none
/// until its wait is over, requests of one subject that arrive while a call about it is in flight
/// share the next call, and so do subjects that wait at the same moment.
///
/// A clone is a handle to the same limiter. See the [guide](crate::guide::redis) for running
/// Redis for rate limits.
#[derive(Clone)]
pub struct RedisLimiter(pub(super) SharedLimiter<RedisStore>);

impl RedisLimiter {
    /// Starts to configure a limiter for `quotas`.
    pub fn builder(quotas: impl IntoQuotas) -> RedisLimiterBuilder {
        RedisLimiterBuilder::new(quotas)
    }

    /// Creates a limiter for `quotas` with the default settings, on the server at `url`.
    ///
    /// The first request opens the connection, so a service starts even while Redis is down. To
    /// share one connection between limiters, build them with [`RedisLimiter::builder`] on one
    /// [`RedisStore`].
    ///
    /// # Errors
    ///
    /// If the address is not valid, see [`RedisStore::connect`], or a quota is not valid, see
    /// [`Quota::check`](crate::Quota::check).
    pub fn connect(url: &str, quotas: impl IntoQuotas) -> Result<Self, ConfigError> {
        Self::builder(quotas).build(&RedisStore::connect(url)?)
    }

    /// Changes the quota of this name (`default` for a single quota without a name) in the default
    /// tier, for this limiter and all its clones, on this node. Call it on the other nodes, too.
    ///
    /// If the limit, burst, queue or soft share changes, the state of each key stays, up to the
    /// capacity of the new quota or the largest one of another tier that shares the counter. A
    /// raised limit therefore frees no key at once: an empty bucket gets its next unit at the new
    /// rate, and windows and logs have the new limit less the counted units. That is so with
    /// [`OnChange::Fresh`](crate::OnChange::Fresh), too; [`reset`](Self::reset) frees one key.
    ///
    /// If the algorithm, period, number of slices or refill step changes, all quotas of this
    /// limiter start fresh and blocks end, unless the tiers count in the same ways as before. They
    /// count under other keys, so nodes with the new configuration and nodes with the old one do
    /// not disturb each other. A request in flight returns to a bucket no more than its new numbers
    /// could have charged, see [`Receipt`](crate::Receipt).
    ///
    /// # Errors
    ///
    /// If the quota is not valid, see [`Quota::check`](crate::Quota::check), has another name, or
    /// no quota has this name; or if it is a leaky bucket and the limiter is charged together with
    /// others, see [`RateLimitLayer::all`](crate::RateLimitLayer::all).
    pub fn set_quota(&self, name: &str, quota: impl Into<OwnedQuota>) -> Result<(), ConfigError> {
        let quota = quota.into();
        self.accepts(&quota)?;
        self.0.set_quota(name, quota)
    }

    /// Counts of decisions on this node and of leased units, see [`Mode`](crate::shared::Mode).
    pub fn mode_stats(&self) -> ModeStats {
        self.0.mode_stats()
    }

    /// Whether Redis works, as shown by the requests so far.
    pub fn health(&self) -> StoreHealth {
        self.store().health()
    }

    /// The handle to the server, for further limiters.
    pub fn store(&self) -> &RedisStore {
        self.0.store()
    }

    /// As [`apply_in`](Limiter::apply_in), for a caller that waits no longer than `within`. After
    /// that time [`OnFailure`](crate::OnFailure) decides, as it does after the store's
    /// [deadline](crate::redis::RedisStoreBuilder::deadline), which stays the longest wait.
    ///
    /// The operation has been sent to the server, which still does it.
    pub fn apply_within(
        &self,
        within: Duration,
        tier: &Tier,
        key: &Key,
        op: Op,
    ) -> Pending<RedisFuture> {
        self.0
            .submit(within, tier, key, op)
            .unwrap_or_else(|error| Pending::Ready(Err(error)))
    }

    /// Records that `next` replaces this limiter: charges by other numbers than its own are not
    /// refunded.
    #[cfg(feature = "rules")]
    pub(crate) fn set_replacement(&self, next: &Self) {
        self.0.set_replacement(&next.0);
    }

    pub(crate) fn with_limits<T>(&self, read: impl FnOnce(&TierSet) -> T) -> T {
        self.0.with_limits(read)
    }

    /// Whether this node leases units.
    pub(super) fn has_leases(&self) -> bool {
        self.0.has_leases()
    }

    /// The cached denial of this operation.
    pub(super) fn denial(&self, tier: &Tier, key: &Key, op: &Op) -> Option<Decision> {
        self.0.denial(tier, key, op)
    }
}

impl RedisLimiterBuilder {
    /// Builds the limiter.
    ///
    /// # Errors
    ///
    /// If a quota is not valid, see [`Quota::check`](crate::Quota::check), two quotas or two tiers
    /// have the same name, there is no quota, the block lasts longer than 18 years, the limiter's
    /// name contains other characters than are accepted, `max_local_keys` is 0, above 2^32 or more
    /// than the memory allows, or a number of the mode or of the leases is out of bounds.
    pub fn build(self, store: &RedisStore) -> Result<RedisLimiter, ConfigError> {
        self.on(store.clone()).map(RedisLimiter)
    }
}

handle_methods!(RedisLimiter);

#[allow(
    private_interfaces,
    reason = "hidden methods are for limiters of this crate"
)]
impl Limiter for RedisLimiter {
    type Future = RedisFuture;

    fn apply(&self, key: &Key, op: Op) -> Pending<RedisFuture> {
        self.0.apply(key, op)
    }

    fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Pending<RedisFuture> {
        self.0.apply_in(tier, key, op)
    }

    fn policies(&self) -> &[Policy] {
        self.0.policies()
    }

    fn supports(&self, op: &Op) -> bool {
        self.0.supports(op)
    }

    fn supports_priority(&self) -> bool {
        self.0.supports_priority()
    }

    fn check_priority(&self) -> Result<(), ConfigError> {
        self.0.check_priority()
    }

    fn blocks(&self) -> bool {
        self.0.blocks()
    }

    fn identity(&self) -> Option<usize> {
        self.0.identity()
    }

    fn boxed(future: RedisFuture) -> BoxedFuture {
        future.into_boxed()
    }

    fn member(&self) -> Option<&dyn ErasedMember> {
        Some(self)
    }
}

impl fmt::Debug for RedisLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("RedisLimiter");
        self.0.debug(&mut debug);
        debug.field("store", self.store()).finish_non_exhaustive()
    }
}
