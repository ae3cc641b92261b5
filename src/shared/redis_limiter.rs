//! The limiter that all nodes share through Redis: [`RedisLimiter`].

use std::{fmt, time::Duration};

use super::{
    answer::RedisFuture, builder::RedisLimiterBuilder, limiter::SharedLimiter, mode::ModeStats,
};
use crate::{
    decision::{Decision, Op, Policy},
    error::ConfigError,
    key::Key,
    limiter::{
        Limiter, Pending, Tier,
        erased_member::{BoxedFuture, ErasedMember},
        handle::handle_methods,
        tier_set::TierSet,
    },
    quota::{IntoQuotas, OwnedQuota},
    redis::store::handle::RedisStore,
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
/// The server's clock counts, so nodes need not agree about the time, and decisions are those of
/// the [`LocalLimiter`](crate::LocalLimiter) to the microsecond. Each costs one round trip, however
/// many quotas there are, and less where it can be avoided: a client that retries after a denial
/// costs none until its wait is over, requests of one subject that arrive while another one is
/// under way travel together, and so do subjects that wait at the same moment.
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

    /// A limiter for `quotas` with the default settings, on the server at `url`.
    ///
    /// Nothing is connected yet: that happens with the first request, so the service starts
    /// whether or not Redis is there. Limiters that should share one connection are made with
    /// [`RedisLimiter::builder`] on one [`RedisStore`].
    ///
    /// # Errors
    ///
    /// When the address is none, see [`RedisStore::connect`], or a quota makes no sense, see
    /// [`Quota::check`](crate::Quota::check).
    pub fn connect(url: &str, quotas: impl IntoQuotas) -> Result<Self, ConfigError> {
        Self::builder(quotas).build(&RedisStore::connect(url)?)
    }

    /// Changes the quota of this name (`default` for one that stands alone and was given none) in
    /// the default tier, for this limiter and all its clones, on this node; other nodes have to be
    /// told, too.
    ///
    /// A changed limit, burst, queue or soft share leaves the state of each key, at most as much as
    /// the new quota holds, or the largest of another tier that shares the counter. So a raised limit
    /// frees nobody: a bucket that was used up gets its next unit by the new rate, windows and logs
    /// have the new limit less what was counted. With
    /// [`OnChange::Fresh`](crate::OnChange::Fresh) all keys start afresh under other keys in the
    /// store, and [`reset`](Self::reset) frees one key.
    ///
    /// A changed algorithm, period,
    /// number of slices or refill step starts all quotas of this limiter afresh, and ends blocks,
    /// unless its tiers count in the same ways as before: they are counted under other keys, so
    /// nodes that have the new configuration already and nodes that have the old one do not disturb
    /// each other. Requests that are open meanwhile give back to a bucket only what its new numbers
    /// could have charged, see [`Receipt`](crate::Receipt).
    ///
    /// # Errors
    ///
    /// When the quota makes no sense, see [`Quota::check`](crate::Quota::check), or has another
    /// name, or there is none of this name; when it is a leaky bucket and the limiter is charged
    /// together with others, see [`RateLimitLayer::all`](crate::RateLimitLayer::all).
    pub fn set_quota(&self, name: &str, quota: impl Into<OwnedQuota>) -> Result<(), ConfigError> {
        let quota = quota.into();
        self.accepts(&quota)?;
        self.0.set_quota(name, quota)
    }

    /// How many decisions were made without the store, and what became of the units that were leased,
    /// see [`Mode`](crate::shared::Mode).
    #[must_use]
    pub fn mode_stats(&self) -> ModeStats {
        self.0.mode_stats()
    }

    /// How the server is doing, as far as requests have found out.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        self.store().health()
    }

    /// The handle to the server, for further limiters.
    #[must_use]
    pub fn store(&self) -> &RedisStore {
        self.0.store()
    }

    /// Does what [`apply_in`](Limiter::apply_in) does, for a caller that waits for the answer no longer than `within`.
    /// Then the [`OnFailure`](crate::OnFailure) decides, as it does after the store's
    /// [deadline](crate::redis::RedisStoreBuilder::deadline), which stays the longest time.
    ///
    /// The operation is on its way to the server meanwhile, and is done there all the same.
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

    /// Another limiter takes its place: what was charged by other numbers than that one's is not
    /// given back.
    #[cfg(feature = "rules")]
    pub(crate) fn make_way_for(&self, next: &Self) {
        self.0.make_way_for(&next.0);
    }

    pub(crate) fn with_limits<T>(&self, read: impl FnOnce(&TierSet) -> T) -> T {
        self.0.with_limits(read)
    }

    /// Whether this node holds units that it spends by itself.
    pub(super) fn has_leases(&self) -> bool {
        self.0.has_leases()
    }

    /// The denial that is remembered of an operation like this.
    pub(super) fn denial(&self, tier: &Tier, key: &Key, op: &Op) -> Option<Decision> {
        self.0.denial(tier, key, op)
    }
}

impl RedisLimiterBuilder {
    /// Makes the limiter.
    ///
    /// # Errors
    ///
    /// When a quota makes no sense, see [`Quota::check`](crate::Quota::check), two quotas or two
    /// tiers have one name, there is no quota at all, the block lasts longer than 18 years, the
    /// limiter's name has other characters than are accepted, `max_local_keys` is 0, above 2^32 or
    /// more than there is memory for, or the mode's or the leases' numbers are out of bounds.
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

    fn blocks(&self) -> bool {
        self.0.blocks()
    }

    fn identity(&self) -> Option<usize> {
        self.0.identity()
    }

    fn epoch(&self, limit: usize) -> u32 {
        self.0.epoch(limit)
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
