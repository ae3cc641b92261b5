//! The builder of a limiter of all nodes.

use std::{borrow::Cow, time::Duration};

use super::{
    fallback::{Fallback, OnFailure},
    limiter::{Parts, SharedLimiter},
    mode::{DEFAULT_MAX_LEASES, Mode, check_in_store},
    store_trait::Store,
    store_trait::{Client as _, StoreBackend},
};
use tower_ratelimit_core::{
    clock::ManualClock,
    error::ConfigError,
    limiter::{
        limits_in_force::{LimitTerms, TierSet},
        tier::OnChange,
    },
    quota::{IntoQuotas, OwnedQuota},
};
pub(crate) use tower_ratelimit_store::key_name::{accepted_name, checked_name};
#[cfg(feature = "redis")]
pub(crate) use tower_ratelimit_store::redis::RedisStore;

/// 2^16 keys: about 2 MB.
const DEFAULT_MAX_LOCAL_KEYS: usize = 1 << 16;

/// Configures a [`RedisLimiter`](crate::limiter::RedisLimiter), or a [`SharedLimiter`] on another store.
/// Made by [`SharedLimiter::builder`].
#[derive(Debug)]
#[must_use]
pub struct RedisLimiterBuilder {
    terms: LimitTerms,
    on_failure: OnFailure,
    max_local_keys: usize,
    /// The longest time that a denial stays cached on this node; zero for none that are.
    longest_denial: Duration,
    mode: Mode,
    max_leases: usize,
    test_clock: Option<ManualClock>,
    seed: Option<u64>,
    has_debt: bool,
}

/// On one store's type, so that a caller need not name the store to come: the builder is for all.
#[cfg(not(feature = "redis"))]
type Named = super::store_trait::MemoryStore;
#[cfg(feature = "redis")]
type Named = RedisStore;

impl SharedLimiter<Named> {
    /// Starts to configure a limiter for `quotas`, in Redis or on any other store. Call `build` at the end, or
    /// [`build_on`](RedisLimiterBuilder::build_on).
    pub fn builder(quotas: impl IntoQuotas) -> RedisLimiterBuilder {
        RedisLimiterBuilder::of(LimitTerms::of(quotas))
    }
}

impl RedisLimiterBuilder {
    #[doc(hidden)]
    pub const fn of(terms: LimitTerms) -> Self {
        Self {
            terms,
            on_failure: OnFailure::local(),
            max_local_keys: DEFAULT_MAX_LOCAL_KEYS,
            longest_denial: Duration::MAX,
            mode: Mode::strict(),
            max_leases: DEFAULT_MAX_LEASES,
            test_clock: None,
            seed: None,
            has_debt: false,
        }
    }

    /// The limiter's name in Redis. Limiters of one name on one server share their counts, also
    /// across nodes; others do not.
    ///
    /// Defaults to the names of the quotas. A quota without a name contributes its numbers, such as
    /// `10-per-1s-of-20` for a burst of 20. Unrelated limits are therefore separate unless they are
    /// equal, and a limit starts again when its numbers change. Set a name to keep its counts.
    ///
    /// A lone quota without a name has the limiter's name in header fields and metrics, too.
    ///
    /// 1 to 64 letters, digits, `-`, `_` and `.`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.terms.name = Some(name.into());
        self
    }

    /// Adds a tier: quotas for the requests that
    /// [`RateLimitLayer::tier`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.tier) assigns to this name, which must not
    /// be empty. By default the default tier is the only one.
    ///
    /// Counters belong to the key and are matched by position in the lists. Tiers whose quotas at
    /// one position count alike, by the same algorithm, period, slices, refill step and calendar, share a
    /// counter; other tiers have one each. A key that alternates between tiers therefore regains
    /// nothing.
    pub fn tier(mut self, name: impl Into<Cow<'static, str>>, quotas: impl IntoQuotas) -> Self {
        self.terms.add_tier(name.into(), quotas);
        self
    }

    /// Blocks a key for this long after a denial, on all nodes. By default a denial does not block;
    /// a key can still be [blocked by hand](tower_ratelimit_core::decision::Op::Block). See
    /// [`LocalLimiterBuilder::block_for`](tower_ratelimit_core::limiter::LocalLimiterBuilder::block_for).
    pub const fn block_for(mut self, block: Duration) -> Self {
        self.terms.block_for = Some(block);
        self
    }

    /// Whether counts are kept when the limiter is built with another limit, burst, queue or soft share
    /// under the same [name](Self::name). Defaults to [`OnChange::Keep`]. All nodes of the limiter need
    /// the same setting: nodes with another one count separately.
    pub const fn on_change(mut self, on_change: OnChange) -> Self {
        self.terms.on_change = on_change;
        self
    }

    /// The fallback for requests that Redis does not decide in time. Defaults to
    /// [`OnFailure::local`].
    pub const fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// The number of keys that this process tracks at the same time when it decides without Redis,
    /// with [`OnFailure::local`] or [`OnFailure::nodes`]. Defaults to 65,536, about 2 MB for one
    /// token bucket; memory is allocated as keys arrive.
    ///
    /// See [`LocalLimiterBuilder::max_keys`](tower_ratelimit_core::limiter::LocalLimiterBuilder::max_keys) for
    /// other quotas, and for the eviction of keys beyond this number.
    pub const fn max_local_keys(mut self, max_keys: usize) -> Self {
        self.max_local_keys = max_keys;
        self
    }

    /// Whether this process caches a denial until its wait is over, so that a client that keeps
    /// trying costs Redis nothing. Defaults to true.
    ///
    /// A refund or a reset by another node then takes effect here when the denial's wait is over.
    /// One by this limiter or its clones takes effect at once.
    pub const fn remember_denials(mut self, remember: bool) -> Self {
        self.longest_denial = if remember {
            Duration::MAX
        } else {
            Duration::ZERO
        };
        self
    }

    /// The longest time that a denial stays cached on this node.
    #[cfg(feature = "redis")]
    #[doc(hidden)]
    pub const fn remember_denials_for(mut self, longest: Duration) -> Self {
        self.longest_denial = longest;
        self
    }

    /// How this node shares the limit with other nodes. Defaults to [`Mode::strict`].
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The number of keys that can have a lease on this node in [`Mode::leased`], or be ahead of
    /// the store in [`Mode::eventual`]; all others are decided as in strict mode. Defaults to
    /// 16,384, about 4 MB, allocated as keys arrive. Rounded up to a multiple of four; 1 to
    /// 16,777,216.
    pub const fn max_leases(mut self, max_leases: usize) -> Self {
        self.max_leases = max_leases;
        self
    }

    /// Uses this clock instead of the server's, for tests of this crate: keys expire an hour later
    /// than usual.
    #[doc(hidden)]
    pub fn test_clock(mut self, clock: ManualClock) -> Self {
        self.test_clock = Some(clock);
        self
    }

    /// The seed of all hashes, so that a simulation can be repeated. Random by default.
    #[doc(hidden)]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Lets the store count units beyond the limit that nodes have allowed and report later, as in
    /// eventual mode, for tests of this crate.
    #[doc(hidden)]
    pub const fn debt(mut self) -> Self {
        self.has_debt = true;
        self
    }

    /// Builds the limiter in Redis.
    ///
    /// # Errors
    ///
    /// Those of [`build_on`](Self::build_on).
    #[cfg(feature = "redis")]
    pub fn build(self, store: &RedisStore) -> Result<SharedLimiter<RedisStore>, ConfigError> {
        self.on(store.clone())
    }

    /// Builds the limiter on a store of your own.
    ///
    /// # Errors
    ///
    /// If a quota is not valid, see [`Quota::check`](tower_ratelimit_core::Quota::check), or
    /// [varies](tower_ratelimit_core::Quota::varying) by the time of day, two quotas or two tiers
    /// have the same name, there is no quota, the block lasts longer than 18 years, the limiter's
    /// name contains other characters than are accepted, `max_local_keys` is 0, above 2^32 or more
    /// than the memory allows, or a number of the mode or of the leases is out of bounds.
    pub fn build_on<S: Store>(self, store: S) -> Result<SharedLimiter<S>, ConfigError> {
        self.on(store)
    }

    fn on<S: StoreBackend>(self, store: S) -> Result<SharedLimiter<S>, ConfigError> {
        let default_name = default_name(&self.terms.tiers[0].1);
        let name = self.terms.name.clone();
        let mut limits = TierSet::new(self.terms)?;
        check_in_store(&limits)?;
        let name = match name {
            Some(name) => checked_name(&name).map(|()| name)?,
            None => default_name,
        };
        let fallback = Fallback::new(self.on_failure, &limits, self.max_local_keys, self.seed)?;
        let mut accounts = self.mode.terms(self.max_leases, &limits)?;
        if self.has_debt || accounts.is_some_and(|terms| terms.is_eventual()) {
            limits.allow_debt();
        }
        if let Some(terms) = &mut accounts {
            terms.remembers_denials = !self.longest_denial.is_zero();
        }
        let parts = Parts {
            name,
            accounts,
            limits,
            fallback,
            longest_denial: self.longest_denial,
            seed: self.seed,
        };
        let client = S::Client::new(store, self.test_clock);
        Ok(SharedLimiter::from_parts(client, parts))
    }
}

fn default_name(quotas: &[OwnedQuota]) -> String {
    let names: Vec<_> = quotas.iter().map(label).collect();
    accepted_name(names.join("-and-"))
}

/// The quota's name, else all that distinguishes its capacity.
fn label(owned: &OwnedQuota) -> String {
    if let Some(name) = owned.name() {
        return name.to_owned();
    }
    let quota = owned.quota();
    let mut label = quota.rate_text().replace('/', "-per-");
    for (word, number, usual) in [
        ("of", quota.capacity(), quota.limit()),
        ("soft", u64::from(quota.soft_percent()), 0),
    ] {
        if number != usual {
            label += &format!("-{word}-{number}");
        }
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower_ratelimit_core::quota::Quota;

    #[test]
    fn different_limits_have_different_names() {
        let name = |quotas: &[Quota]| default_name(&quotas.into_quotas());
        let ten = Quota::per_second(10);
        assert_eq!(name(&[ten]), "10-per-1s");
        assert_eq!(name(&[ten.burst(20)]), "10-per-1s-of-20");
        assert_eq!(name(&[ten.soft(50)]), "10-per-1s-soft-50");
        assert_eq!(name(&[ten.burst(20).named("api")]), "api");
        assert_eq!(
            name(&[ten, Quota::per_day(99)]),
            "10-per-1s-and-99-per-86400s"
        );

        let spaced = [name(&[ten.named("a b")]), name(&[ten.named("a/b")])];
        assert_ne!(spaced[0], spaced[1]);
        let long = [(); 9].map(|()| ten);
        for name in spaced.into_iter().chain([name(&long), name(&long[1..])]) {
            assert_eq!(checked_name(&name), Ok(()), "{name}");
        }
        assert_ne!(name(&long), name(&long[1..]));
    }
}
