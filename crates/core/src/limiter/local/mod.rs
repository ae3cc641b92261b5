//! Limiters in this process: the lock-free table of instants, and the table of states under locks.
//!
//! In comes a charge: a key, a tier, a class and an operation. Out comes a decision, at once. `LocalLimiter` hashes the key (`hash.rs`), reads
//! the clock, and goes to one of two tables, chosen when the limiter is built:
//!
//! - A lone token bucket or leaky bucket is one instant for each key: `lock_free_bucket_table.rs` computes the next
//!   instant, and `table.rs` exchanges it by one atomic update.
//! - Any other quotas have an entry for each state of a key in a table under locks (`store/`), and so have all blocks. It
//!   is the limiter's own, or that of a `LocalStore`, which also charges several limits together.
//!
//! A change of quotas puts new limits in force while requests run (`limits_in_force.rs`). A bucket that becomes a window
//! leaves the first table for the second, once. What does not fit is evicted by its weight (`eviction.rs`). Both tables are
//! saved to one format by `state_file.rs`, which nothing here needs.
//!
//! An example: with 10 requests a second and a burst of 20, the first request of a key writes the instant 100 ms from now,
//! at which its bucket is full again. A request is denied if its own 100 ms would move that instant more than 2 s ahead.

mod eviction;
mod lock_free_bucket_table;
mod state_bytes;
#[doc(hidden)]
pub mod state_file;
mod store;
mod table;

use std::{
    any::Any,
    borrow::Cow,
    fmt,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use self::{
    eviction::{Capacity, DEFAULT_MAX_KEYS, DEFAULT_MAX_LOG_TIMES},
    lock_free_bucket_table::LoneLimit,
    store::{StoreTable, StoredLimit},
};
use super::{
    apply_operation::{denied_for, instead_of},
    call::{Call, Charge, Charged, OpRef},
    limiter::{BoxedFuture, Facts, Internals, IntoLimiter, Limiter, Never, Pending, all_typed},
    limits_in_force::{Chosen, LimitTerms, TierSet},
    tier::{OnChange, Tier},
};
use crate::{
    clock::{Clock, ClockReading, OsClock, SharedClock, Timestamp},
    decision::{Decision, Op, Policy, Receipt},
    error::{ConfigError, ConfigErrorKind, LimiterError},
    hash::{KeyHash, KeyHasher},
    key::Key,
    lock::unpoisoned,
    quota::{IntoQuotas, OwnedQuota, Priority, Quota},
};

pub use self::store::{LocalStore, LocalStoreBuilder};

/// Configures a [`LocalLimiter`]. Made by [`LocalLimiter::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct LocalLimiterBuilder {
    terms: LimitTerms,
    max_keys: Option<usize>,
    max_log_times: Option<usize>,
    clock: Option<SharedClock>,
    seed: Option<u64>,
}

impl LocalLimiter {
    /// A builder of a limiter for `quota`, with the default settings.
    pub fn builder(quotas: impl IntoQuotas) -> LocalLimiterBuilder {
        LocalLimiterBuilder::of(LimitTerms::of(quotas))
    }
}

impl LocalLimiterBuilder {
    #[doc(hidden)]
    pub const fn of(terms: LimitTerms) -> Self {
        Self {
            terms,
            max_keys: None,
            max_log_times: None,
            clock: None,
            seed: None,
        }
    }

    /// Adds a tier: quotas for the requests that
    /// [`RateLimitLayer::tier`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.tier) puts into the tier of this name, which must
    /// not be empty. By default there is the default tier only.
    ///
    /// Counters belong to the key, not to the tier. Quotas at the same place of their tiers that count
    /// alike (the same algorithm, period, slices, refill step, calendar) share a counter: a key that changes
    /// its tier keeps its usage. Token buckets and leaky buckets share the time until they are full
    /// again, windows and logs share units. Units that a larger quota allowed count fully for a smaller
    /// one, and can keep the key out for longer than the smaller one's own window. Quotas that do not
    /// count alike have separate counters, so a key gains nothing by alternating between tiers.
    pub fn tier(mut self, name: impl Into<Cow<'static, str>>, quotas: impl IntoQuotas) -> Self {
        self.terms.add_tier(name.into(), quotas);
        self
    }

    /// Blocks a key for this time after a denial. By default, denials do not block.
    ///
    /// The block starts with the first denial of a cost that could fit; further requests do not extend
    /// it. During the block every request is denied, whatever its cost and tier, and nothing is counted.
    /// A reset ends the block, a refund does not.
    ///
    /// With [`count_if`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.count_if), responses that count start the block instead
    /// of denials, once they have exhausted the quota in a count of their own: six parallel logins that
    /// all succeed block nobody. With [`elastic`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.elastic) or
    /// [`wait`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.wait) the block starts only if neither helps.
    pub const fn block_for(mut self, block: Duration) -> Self {
        self.terms.block_for = Some(block);
        self
    }

    /// Sets the effect on the counts when the limiter is built with another limit, burst, queue or soft share
    /// than the one of its [name](Self::name) before, or than the one whose counts are
    /// [restored](Self::restore). Defaults to [`OnChange::Keep`].
    pub const fn on_change(mut self, on_change: OnChange) -> Self {
        self.terms.on_change = on_change;
        self
    }

    /// Sets the number of keys that are tracked at the same time, whatever their hashes. The table has
    /// nearly twice as many entries, so it often holds more. Defaults to 262,144, about 8 MB for one token
    /// bucket.
    ///
    /// A key takes 30 bytes, whatever its length, for one token bucket or leaky bucket; otherwise 90 bytes
    /// for each counter, and with [`block_for`](Self::block_for) 90 more for each. On top come 40 bytes
    /// and 8 for each slice of a sliding window, and 80 and 16 to 64 for each time in a log. The table never
    /// grows beyond that, and takes memory as keys come. A key takes room only while it is not fresh. Beyond
    /// `max_keys` the key with the least usage is evicted first, measured by the time in which the usage
    /// returns. The counters of a key are evicted one by one, so it keeps the limit that it has exhausted.
    pub const fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = Some(max_keys);
        self
    }

    /// Sets how many times the [logs](crate::quota::Algorithm::SlidingLog) of all keys together have memory
    /// for, at 16 bytes each. Defaults to 4,194,304, 64 MB. A single log may hold the times that
    /// its limit needs.
    ///
    /// Beyond it each request whose log grows evicts a few others, those with the least usage of a sample.
    /// Memory stays near this bound, not exactly below it.
    pub const fn max_log_times(mut self, max_log_times: usize) -> Self {
        self.max_log_times = Some(max_log_times);
        self
    }

    /// Sets the clock. Defaults to [`OsClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(SharedClock::new(clock));
        self
    }

    /// Sets the seed of the keyed hash, for simulations. Random by default.
    #[doc(hidden)]
    pub const fn seed(mut self, seed: Option<u64>) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the limiter's name in a [store](Self::build_in). Limiters of one name in one store share the
    /// counts of quotas that have one name (or one place, for quotas without a name) and count alike. So
    /// a limiter that is rebuilt from changed settings continues with the counts of the last one. As with
    /// [tiers](Self::tier), the counts may reach the largest of those quotas while its limiter lives, and
    /// count fully for a smaller one. Defaults to none: the limiter shares nothing.
    ///
    /// A lone quota without a name has the limiter's name in header fields and metrics.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.terms.name = Some(name.into());
        self
    }

    /// Makes the limiter, with a table of its own.
    ///
    /// # Errors
    ///
    /// If a quota is invalid, see [`Quota::check`](crate::Quota::check), two quotas or two
    /// tiers have one name, there is no quota at all, the block lasts longer than 18 years,
    /// `max_keys` is 0, above 2^32 or more than there is memory for, or the limiter has a
    /// [`name`](Self::name), which is for limiters in a store.
    pub fn build(self) -> Result<LocalLimiter, ConfigError> {
        let hasher = KeyHasher::new(self.seed);
        self.build_with(hasher)
    }

    fn build_with(self, hasher: KeyHasher) -> Result<LocalLimiter, ConfigError> {
        if self.terms.name.is_some() {
            return Err(ConfigError::new(
                ConfigErrorKind::Store,
                "a limiter with a table of its own has no name, which is for limiters in a store: \
                 end with build_in(&store)",
            ));
        }
        let limits = TierSet::new(self.terms)?;
        let capacity = Capacity::checked(
            self.max_keys.unwrap_or(DEFAULT_MAX_KEYS),
            self.max_log_times.unwrap_or(DEFAULT_MAX_LOG_TIMES),
        )?;
        let clock = self.clock;
        let clock = clock.unwrap_or_else(|| SharedClock::new(OsClock::new()));
        LocalLimiter::from_parts(&Arc::new(limits), capacity, clock, hasher)
    }

    /// Makes the limiter in a store, with the store's table, bounds and clock.
    ///
    /// # Errors
    ///
    /// If a quota is invalid, see [`Quota::check`](crate::Quota::check), two quotas or two
    /// tiers have one name, there is no quota at all, the block lasts longer than 18 years, or
    /// `max_keys`, `max_log_times` or `clock` was set, which are the store's.
    pub fn build_in(self, store: &LocalStore) -> Result<LocalLimiter, ConfigError> {
        let of_the_store = [
            ("max_keys", self.max_keys.is_some()),
            ("max_log_times", self.max_log_times.is_some()),
            ("clock", self.clock.is_some()),
        ];
        if let Some((setting, _)) = of_the_store.iter().find(|(_, is_set)| *is_set) {
            return Err(ConfigError::new(
                ConfigErrorKind::Store,
                format!("{setting} of a limiter in a store is the store's: set it there"),
            ));
        }
        let name = self.terms.name.clone();
        let limits = TierSet::new(self.terms)?;
        Ok(LocalLimiter::in_store(limits, name.as_deref(), store))
    }
}

/// The limiter in this process: exact, bounded in memory, with no background task.
///
/// A clone is a handle to the same counters.
///
/// # Memory
///
/// The table has a fixed size: 30 bytes for each of
/// [`max_keys`](super::LocalLimiterBuilder::max_keys) keys, by default 262,144, about 8 MB for every
/// limiter. It takes 64 KiB for the first 4,000 keys, and the rest when more come. Windows, logs, blocks and several quotas take more, see
/// there. The table does not store keys, only their keyed 64-bit hashes. Two given keys collide with a
/// probability of 2^-64, any two of a million keys with 2^-25. Clients cannot search for collisions,
/// since the hash is keyed at random.
///
/// A key needs an entry only while it is not fresh: once its bucket is full again its entry is free.
/// If more keys are live than fit, the key with the least usage is evicted, and
/// [`evictions`](Self::evictions) counts it. Usage is measured by the time in which it returns, so a
/// key that has exhausted its day outlives fresh keys that have exhausted their second. A flood of
/// fresh keys with a request each cannot evict a key that has exhausted a burst of 2 or more. Exhausted
/// keys, as all keys are with a burst of 1, have equal weight, and a flood of more than `max_keys` of
/// them evicts some: size the table for the keys that can arrive within one refill.
///
/// # Concurrency
///
/// A single token bucket or leaky bucket for each key is updated without locks. All other quotas are
/// updated under the lock of a part of the table with about 2,000 keys, and so is everything in a
/// [`LocalStore`], one table for many limiters.
///
/// # Time
///
/// Valid for 36 years of uptime, and for clocks that step back to 18 years before the start.
#[derive(Clone)]
pub struct LocalLimiter(Arc<Inner>);

struct Inner {
    /// The default tier's policies when the limiter was made.
    policies: Arc<[Policy]>,
    clock: SharedClock,
    hasher: KeyHasher,
    capacity: Capacity,
    /// The limits in force; locked during a change.
    limits: Mutex<Arc<TierSet>>,
    /// The lock-free table, if one instant was the whole state of a key when the limiter was made.
    instants: Option<LoneLimit>,
    /// The table under locks, if one instant is not enough, or once somebody has blocked a key by hand.
    locked: OnceLock<LockedLimit>,
    /// Whether the table under locks has all counts, from the start or since a change of quota.
    counts_locked: AtomicBool,
}

/// A limiter's limit in a table under locks: that of a store, or its own.
struct LockedLimit {
    table: Arc<StoreTable>,
    limit: StoredLimit,
}

impl Inner {
    /// The table under locks, which is made for these limits if there is none.
    fn locked(&self, limits: &Arc<TierSet>) -> Result<&LockedLimit, ConfigError> {
        if let Some(locked) = self.locked.get() {
            return Ok(locked);
        }
        let (clock, hasher) = (self.clock.clone(), self.hasher.clone());
        let table = StoreTable::try_new(self.capacity, Some(limits.states()), clock, hasher)?;
        let (limit, table) = (table.limit(None, Arc::clone(limits)), Arc::new(table));
        Ok(self.locked.get_or_init(|| LockedLimit { table, limit }))
    }

    /// Whether any key of a lone bucket may be blocked by hand.
    #[inline]
    fn may_block(&self, now: Timestamp) -> bool {
        let locked = self.locked.get();
        locked.is_some_and(|locked| locked.table.may_block(now.as_nanos()))
    }

    /// Blocks a key of a lone bucket, or ends its block, if that is the operation. Returns the nanoseconds until its block
    /// ends.
    fn block_of(&self, charge: &Charge<'_>, hash: KeyHash, now: Timestamp) -> u64 {
        let Some(LockedLimit { table, limit }) = self.locked.get() else {
            return 0;
        };
        if matches!(charge.op, OpRef::Block(_) | OpRef::Reset) {
            let charge = Charge::new(charge.key, charge.op);
            drop(table.decide(limit, &charge, &Call::of(&[])));
        }
        table.block_left(limit, hash, now.as_nanos())
    }
}

impl LocalLimiter {
    /// A limiter for `quota` with the default settings.
    ///
    /// # Panics
    ///
    /// If the quota is invalid, with the text of [`Quota::check`](crate::Quota::check).
    #[track_caller]
    pub fn new(quotas: impl IntoQuotas) -> Self {
        match Self::try_new(quotas) {
            Ok(limiter) => limiter,
            Err(error) => panic!("{error}"),
        }
    }

    /// A limiter for `quota` with the default settings.
    ///
    /// # Errors
    ///
    /// If the quota is invalid, see [`Quota::check`](crate::Quota::check).
    pub fn try_new(quotas: impl IntoQuotas) -> Result<Self, ConfigError> {
        Self::builder(quotas).build()
    }

    /// Takes `cost` units if they are available, all or nothing. A cost of 0 takes nothing; a cost above
    /// the capacity, soft share included, is always denied, without a
    /// [`retry_after`](Decision::retry_after).
    #[must_use = "the decision may be a denial"]
    pub fn acquire(&self, key: &Key, cost: u64) -> Decision {
        match self.charge_alone(Priority::CRITICAL, key, cost) {
            Some(charged) => charged.decision(),
            None => self.decided(key, OpRef::Acquire(cost)),
        }
    }

    /// Takes what is available, at most `most` units; [`Decision::charged`] is their number. Denied if there
    /// are none.
    #[must_use = "the decision may be a denial"]
    pub fn acquire_up_to(&self, key: &Key, most: u64) -> Decision {
        self.decided(key, OpRef::AcquireUpTo(most))
    }

    /// Decides like [`acquire`](Self::acquire) and takes nothing.
    pub fn peek(&self, key: &Key, cost: u64) -> Decision {
        self.decided(key, OpRef::Peek(cost))
    }

    /// Takes `cost` units whether or not they are available, down to exhaustion. The outcome is that of
    /// [`acquire`](Self::acquire).
    pub fn hit(&self, key: &Key, cost: u64) -> Decision {
        self.decided(key, OpRef::Hit(cost))
    }

    /// Refunds `cost` units. With the receipt of the decision that charged them, at most its charge less
    /// the units that have returned since; without a receipt, units of the newest charge.
    ///
    /// A receipt of several limits that were [charged together](crate::limiter::JointLimiter) counts
    /// with this limit's part. Without one, nothing is refunded; through the trait [`Limiter`] that
    /// is an error.
    pub fn refund(&self, key: &Key, cost: u64, receipt: Option<Receipt>) -> Decision {
        let op = Op::Refund(cost, receipt);
        let refunded = self.decide(key, op.as_ref());
        refunded.unwrap_or_else(|_| self.decided(key, OpRef::Refund(0, None)))
    }

    /// Denies the key everything for this time from now on, whatever its quotas hold; zero ends a block,
    /// also one that a denial started.
    ///
    /// # Errors
    ///
    /// If the block is longer than 18 years.
    pub fn block(&self, key: &Key, block: Duration) -> Result<Decision, LimiterError> {
        self.decide(key, OpRef::Block(block))
    }

    /// Resets the key to its initial state, in all tiers, and ends its block. The decision has the quotas of
    /// a fresh key.
    pub fn reset(&self, key: &Key) -> Decision {
        self.decided(key, OpRef::Reset)
    }

    /// Takes units by a lone token bucket, in one step without locks: what most requests do. `None` if
    /// there is more to do, and nothing was taken.
    #[inline(always)]
    fn charge_alone(&self, class: Priority, key: &Key, units: u64) -> Option<Charged<'_>> {
        let lone = self.instants()?;
        let measured = lone.token_bucket()?;
        // The clock first: the CPU hashes while it waits for the time.
        let now = self.0.clock.now();
        let hash = self.0.hasher.hash(key);
        if self.0.may_block(now) {
            return None;
        }
        lone.charge(hash, now, measured, class, units)
    }

    fn decided(&self, key: &Key, op: OpRef<'_>) -> Decision {
        let decided = self.decide(key, op);
        decided.expect("there is always a default tier")
    }

    fn decide(&self, key: &Key, op: OpRef<'_>) -> Result<Decision, LimiterError> {
        let charge = Charge::new(key, op);
        match self.instants() {
            Some(lone) => self.decide_alone(lone, &charge, Duration::ZERO),
            None => self.decide_locked(&charge, &Call::of(&[])),
        }
    }

    fn decide_locked(
        &self,
        charge: &Charge<'_>,
        call: &Call<'_>,
    ) -> Result<Decision, LimiterError> {
        let LockedLimit { table, limit } =
            self.0.locked.get().expect("it was made with the limiter");
        table.decide(limit, charge, call)
    }

    /// The quota and the lock-free table, if that table is in use.
    #[inline]
    fn instants(&self) -> Option<&LoneLimit> {
        let lone = self.0.instants.as_ref()?;
        (!self.0.counts_locked.load(Ordering::Acquire)).then_some(lone)
    }

    /// Decides any operation by a lone bucket, or by a request's own quota, the only other tier of a
    /// lock-free table. Checks for blocks by hand, which are not in that table.
    #[cold]
    #[inline(never)]
    fn decide_alone(
        &self,
        lone: &LoneLimit,
        charge: &Charge<'_>,
        late: Duration,
    ) -> Result<Decision, LimiterError> {
        // A limiter outside of a store has no part in a receipt of several limits.
        let op = charge.op.of_limit(0)?;
        if matches!(op, OpRef::Block(_)) {
            let limits = unpoisoned(self.0.limits.lock());
            limits.choose(charge.tier, charge.class, op)?;
            let made = self.0.locked(&limits);
            made.map_err(|error| LimiterError::unsupported(error.to_string()))?;
        }
        let time = ClockReading::alike(self.0.clock.now()).for_timer(late);
        let hash = self.0.hasher.hash(charge.key);
        lone.bucket.decide(|quota| {
            let chosen = quota.limits.choose(charge.tier, charge.class, op)?;
            let blocked = self.0.block_of(charge, hash, time.now);
            let instead = instead_of(op).filter(|_| blocked > 0);
            let request = match chosen.of_all() {
                Chosen::Request(fitted) => quota.of_request(fitted),
                _ => None,
            };
            let measured = request.as_ref().unwrap_or(&quota.measured);
            let done = instead.unwrap_or(op);
            let decision = lone.decide_in(chosen.class(), hash, time, measured, done);
            let decision = decision.in_tier(chosen.index());
            Ok(match op {
                OpRef::Refund(..) | OpRef::Settle(..) => decision,
                _ => denied_for(decision, blocked),
            })
        })
    }

    fn limits(&self) -> Arc<TierSet> {
        unpoisoned(self.0.limits.lock()).clone()
    }

    /// The store in which the limiter counts, and its limit there.
    fn stored(&self) -> Option<&LockedLimit> {
        let locked = self.0.locked.get();
        locked.filter(|locked| locked.table.is_shared())
    }

    fn from_parts(
        limits: &Arc<TierSet>,
        capacity: Capacity,
        clock: SharedClock,
        hasher: KeyHasher,
    ) -> Result<Self, ConfigError> {
        let instants = match limits.single_bucket() {
            Some(quota) => Some(LoneLimit::try_new(quota, capacity, clock.now())?),
            None => None,
        };
        let inner = Inner {
            policies: limits.default_tier().policies.clone(),
            clock,
            hasher,
            capacity,
            counts_locked: AtomicBool::new(instants.is_none()),
            instants,
            locked: OnceLock::new(),
            limits: Mutex::new(Arc::clone(limits)),
        };
        if inner.instants.is_none() {
            inner.locked(limits)?;
        }
        Ok(Self(Arc::new(inner)))
    }

    /// A limiter that counts in a store.
    fn in_store(limits: TierSet, name: Option<&str>, store: &LocalStore) -> Self {
        let limits = Arc::new(limits);
        let table = Arc::clone(&store.0);
        let limit = table.limit(name, Arc::clone(&limits));
        Self(Arc::new(Inner {
            policies: limits.default_tier().policies.clone(),
            clock: table.clock.clone(),
            hasher: table.hasher.clone(),
            capacity: Capacity::NONE,
            limits: Mutex::new(limits),
            instants: None,
            locked: OnceLock::from(LockedLimit { table, limit }),
            counts_locked: AtomicBool::new(true),
        }))
    }

    /// A limiter with these quotas and this clock, for another number of keys, with a table of its own.
    #[doc(hidden)]
    pub fn with_max_keys(&self, max_keys: usize) -> Result<Self, ConfigError> {
        let inner = &*self.0;
        if self.stored().is_some() {
            return Err(ConfigError::new(
                ConfigErrorKind::Store,
                "max_keys of a limiter in a store is the store's: set it there",
            ));
        }
        let capacity = Capacity::checked(max_keys, inner.capacity.log_times)?;
        let (clock, hasher) = (inner.clock.clone(), KeyHasher::new(None));
        Self::from_parts(&self.limits(), capacity, clock, hasher)
    }

    /// The number of keys that are not fresh. A limiter that takes a lock counts each quota of a key, and each block.
    ///
    /// This walks the whole table, in about a millisecond for 262,144 keys: use it for a metrics scrape,
    /// not for every request. For a limiter in a store it is the [store's](LocalStore::tracked_keys)
    /// number.
    pub fn tracked_keys(&self) -> usize {
        let now = self.0.clock.now();
        let instants = self.instants();
        let instants = instants.map(|lone| lone.live_keys(now));
        let locked = self.0.locked.get();
        let locked = locked.map(|locked| locked.table.live_states());
        instants.unwrap_or(0) + locked.unwrap_or(0)
    }

    /// The number of keys that were evicted before they were fresh, since the start. A limiter that takes a lock counts
    /// each quota of a key, and each block: it evicts these one by one. More than a few mean
    /// that `max_keys` is too small for the traffic, or that somebody floods it. For a limiter in a store
    /// it is the [store's](LocalStore::evictions) number.
    pub fn evictions(&self) -> u64 {
        let instants = self.0.instants.as_ref();
        let instants = instants.map(LoneLimit::evictions);
        let locked = self.0.locked.get();
        let locked = locked.map(|locked| locked.table.evictions());
        instants.unwrap_or(0) + locked.unwrap_or(0)
    }

    /// Changes the quota of this name (`default` for one that stands alone and was given none) in
    /// the default tier, for this limiter and all its clones.
    ///
    /// If the limit, burst, queue or soft share changes, each key keeps its state, at most as much as the
    /// new quota holds, or the largest quota of another tier that shares the counter. So a raised limit
    /// does not free exhausted keys: a bucket gets its next unit at the new rate, windows and logs have
    /// the new limit less their count. That is so with [`OnChange::Fresh`], too;
    /// [`reset`](Self::reset) frees one key.
    /// [`QuotaChange`](crate::limiter::QuotaChange) computes the effect of a change. Requests that
    /// [wait](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.wait) retry at the end of their wait, not earlier, and later
    /// requests of their key queue behind them.
    ///
    /// If the algorithm, period, slices or refill step changes, the quota gets another counter: that of
    /// another tier that counts alike, or a fresh one. The old counts stay until they have returned, and a quota that is
    /// changed back continues with them. Only those of a single bucket with a table of its own are dropped. Headers show the new quota from the next decision on. Requests that are open
    /// during the change refund to a bucket only units that its new numbers could have charged, see
    /// [`Receipt`].
    ///
    /// # Errors
    ///
    /// If the quota is invalid, see [`Quota::check`](crate::Quota::check), has another name, there is no
    /// quota of this name, or there is no memory for the new counters.
    pub fn set_quota(&self, name: &str, quota: impl Into<OwnedQuota>) -> Result<(), ConfigError> {
        let inner = &*self.0;
        let mut current = unpoisoned(inner.limits.lock());
        let mut limits = TierSet::clone(&current);
        limits.replace(name, &quota.into())?;
        let limits = Arc::new(limits);
        match (self.instants(), limits.single_bucket()) {
            (Some(lone), Some(bucket)) => {
                let [before, after] = [&current, &limits].map(|of| of.default_tier().quotas[0]);
                lone.change(bucket, before.counts_like(&after), inner.clock.now());
            }
            _ => {
                match inner.locked.get() {
                    Some(LockedLimit { table, limit }) => table.replace(limit, Arc::clone(&limits)),
                    None => drop(inner.locked(&limits)?),
                }
                inner.counts_locked.store(true, Ordering::Release);
            }
        }
        *current = limits;
        Ok(())
    }

    /// Applies operations of several limiters of one store in one step.
    pub(crate) fn decide_many<'a>(
        of: impl Fn(usize) -> Option<&'a Self>,
        call: &Call<'_>,
    ) -> Result<Decision, LimiterError> {
        StoreTable::decide_many(call, |charge| {
            let locked = of(charge.index())?.stored()?;
            Some((&*locked.table, &locked.limit))
        })
    }
}

#[allow(
    private_interfaces,
    reason = "hidden methods are for limiters of this crate"
)]
impl Limiter for LocalLimiter {
    type Future = Never;

    #[inline]
    fn call(&self, call: &Call<'_>) -> Pending<Self::Future> {
        let charge = match call.one() {
            Ok(charge) => charge,
            Err(error) => return Pending::Ready(Err(error)),
        };
        let Some(lone) = self.instants() else {
            return Pending::Ready(self.decide_locked(charge, call));
        };
        if let OpRef::Acquire(units) | OpRef::Reserve(units) = charge.op
            && charge.tier.is_default()
            && call.late.is_zero()
            && let Some(charged) = Limiter::charge(self, charge.class, charge.key, units)
        {
            return Pending::Ready(Ok(charged.decision()));
        }
        Pending::Ready(self.decide_alone(lone, charge, call.late))
    }

    fn policies(&self) -> &[Policy] {
        &self.0.policies
    }

    fn charge(&self, class: Priority, key: &Key, units: u64) -> Option<Charged<'_>> {
        self.charge_alone(class, key, units)
    }

    fn facts(&self) -> Facts {
        let mut facts = self.limits().facts().identified_by(&self.0);
        facts.answers_at_once = true;
        facts
    }

    fn internals(&self) -> Option<&dyn Internals> {
        Some(self)
    }
}

impl Internals for LocalLimiter {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn check(&self, all: &[&dyn Internals]) -> Result<(), ConfigError> {
        let refused = |fault| Err(ConfigError::new(ConfigErrorKind::Joint, fault));
        let own = self.stored().map(|own| &own.table);
        let in_store = all_typed::<Self>(all)?.into_iter().map(|one| {
            let stored = one.stored()?;
            own.is_some_and(|own| Arc::ptr_eq(own, &stored.table))
                .then_some(stored)
        });
        let Some(all) = in_store.collect::<Option<Vec<_>>>() else {
            return refused(
                "limiters in this process are charged together only in one store: make a LocalStore, and \
                 end each builder with build_in(&store)",
            );
        };
        let mut others = all.iter().enumerate();
        if others.any(|(at, one)| {
            all[..at]
                .iter()
                .any(|other| one.limit.counts_with(&other.limit))
        }) {
            return refused("one limit is in the list twice, or two are of one name");
        }
        Ok(())
    }

    fn knows(&self, tier: &Tier) -> bool {
        self.stored()
            .is_some_and(|locked| locked.limit.read().limits.knows(tier))
    }

    fn call_list<'a>(
        &self,
        of: &dyn Fn(usize) -> Option<&'a dyn Internals>,
        call: &Call<'_>,
    ) -> Pending<BoxedFuture> {
        Pending::Ready(Self::decide_many(|limit| of(limit)?.typed(), call))
    }

    fn replace_quota(&self, name: &str, quota: OwnedQuota) -> Result<(), ConfigError> {
        self.set_quota(name, quota)
    }

    fn quota(&self, name: &str) -> Option<Quota> {
        self.limits().quota(name)
    }
}

/// Marks the conversion of a [`Quota`](crate::Quota), or of several that are charged together, to a [`LocalLimiter`].
#[derive(Debug)]
#[non_exhaustive]
pub struct FromQuota;

impl<Q: IntoQuotas> IntoLimiter<FromQuota> for Q {
    type Limiter = LocalLimiter;

    fn into_limiter(self) -> Result<LocalLimiter, ConfigError> {
        LocalLimiter::builder(self).build()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(LockedLimit { table, limit }) = self.locked.get() {
            table.leave(limit);
        }
    }
}

impl fmt::Debug for LocalLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalLimiter")
            .field("policies", &self.0.policies)
            .field("evictions", &self.evictions())
            .finish_non_exhaustive()
    }
}
