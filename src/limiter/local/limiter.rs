//! `LocalLimiter`: the limiter in this process.

mod construction_and_key_counts;
mod save_and_restore;
mod set_quota;

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use super::{
    blocks::Blocks,
    capacity::Capacity,
    hash::{KeyHash, KeyHasher},
    lock_free_bucket_table::{LockFree, LoneLimit},
    sharded::Sharded,
    store::{LocalStore, StoreCall, StoredLimit},
};
use crate::{
    clock::{ClockReading, SharedClock, Timestamp},
    decision::{Decision, Op, Policy, Receipt},
    error::{ConfigError, LimiterError},
    key::Key,
    limiter::{
        Facts, Limiter, Never, Pending, Tier,
        apply_operation::denied_for,
        block,
        limiter::one_operation,
        tier_set::{Chosen, SingleBucket, TierSet, check_block, unsupported},
        type_erased_member::ErasedMember,
    },
    quota::{IntoQuotas, Priority},
};

/// The limiter in this process: exact, bounded in memory, with no background task.
///
/// A clone is a handle to the same counters.
///
/// # Memory
///
/// The table has a fixed size: 30 bytes for each of
/// [`max_keys`](super::LocalLimiterBuilder::max_keys) keys, by default 262,144, about 8 MB for every
/// limiter, taken from the system as keys come. Windows, logs, blocks and several quotas take more, see
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
    policies: Vec<Policy>,
    clock: SharedClock,
    hasher: KeyHasher,
    capacity: Capacity,
    /// The limits in force; locked during a change.
    limits: Mutex<Arc<TierSet>>,
    /// The lock-free table, if one instant is the whole state of a key.
    instants: Option<LoneLimit>,
    /// The keys that were blocked by hand while the lock-free table is in use.
    blocks: Blocks,
    /// The sharded table, if one instant is not enough, from the start or since a change of quota.
    subjects: OnceLock<Sharded>,
    /// The table of a store, instead of the limiter's own tables.
    stored: Option<(LocalStore, StoredLimit)>,
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
        self.decide(key, &Op::Acquire(cost))
    }

    /// Takes what is available, at most `most` units; [`Decision::charged`] is their number. Denied if there
    /// are none.
    #[must_use = "the decision may be a denial"]
    pub fn acquire_up_to(&self, key: &Key, most: u64) -> Decision {
        self.decide(key, &Op::AcquireUpTo(most))
    }

    /// Decides like [`acquire`](Self::acquire) and takes nothing.
    pub fn peek(&self, key: &Key, cost: u64) -> Decision {
        self.decide(key, &Op::Peek(cost))
    }

    /// Takes `cost` units whether or not they are available, down to exhaustion. The outcome is that of
    /// [`acquire`](Self::acquire).
    pub fn hit(&self, key: &Key, cost: u64) -> Decision {
        self.decide(key, &Op::Hit(cost))
    }

    /// Refunds `cost` units. With the receipt of the decision that charged them, at most its charge less
    /// the units that have returned since; without a receipt, units of the newest charge.
    ///
    /// A receipt of several limits that were [charged together](crate::limiter::JointLimiter) counts
    /// with this limit's share. Without a share, nothing is refunded; through the trait [`Limiter`] that
    /// is an error.
    pub fn refund(&self, key: &Key, cost: u64, receipt: Option<Receipt>) -> Decision {
        let op = Op::Refund(cost, receipt);
        let own = op.of_limit(self.limit_identity()).ok().flatten();
        self.decide(key, own.as_ref().unwrap_or(&op))
    }

    /// Denies the key everything for this time from now on, whatever its quotas hold; zero ends a block,
    /// also one that a denial started.
    ///
    /// # Errors
    ///
    /// If the block is longer than 18 years.
    pub fn block(&self, key: &Key, block: Duration) -> Result<Decision, LimiterError> {
        self.decide_in(&Tier::DEFAULT, key, &Op::Block(block), Duration::ZERO)
    }

    /// Resets the key to its initial state, in all tiers, and ends its block. The decision has the quotas of
    /// a fresh key.
    pub fn reset(&self, key: &Key) -> Decision {
        self.decide(key, &Op::Reset)
    }

    #[inline]
    fn decide(&self, key: &Key, op: &Op) -> Decision {
        match self.instants() {
            Some(instants) => self.decide_alone(instants, self.0.clock.now(), key, op),
            None => (self.decide_locked(&Tier::DEFAULT, key, op, Duration::ZERO))
                .expect("there is always a default tier"),
        }
    }

    /// Decides the cases apart from the hot path: another tier, an operation that does not just take
    /// units, a state of more than one instant, or a late timer.
    #[inline(never)]
    fn decide_in(
        &self,
        tier: &Tier,
        key: &Key,
        op: &Op,
        late: Duration,
    ) -> Result<Decision, LimiterError> {
        let own = op.of_limit(self.limit_identity())?;
        let op = own.as_ref().unwrap_or(op);
        check_block(op)?;
        match self.instants() {
            // A lone bucket has no window to count in, and may be a queue.
            Some(_) if !self.supports(op) => Err(unsupported(op)),
            Some(instants) if tier.is_default() && late.is_zero() => {
                Ok(self.decide_alone(instants, self.0.clock.now(), key, op))
            }
            Some(instants) => self.decide_in_tier(instants, tier, key, op, late),
            None => self.decide_locked(tier, key, op, late),
        }
    }

    fn supports(&self, op: &Op) -> bool {
        !matches!(op, Op::Count(_) | Op::Spend(_)) || self.with_limits(|limits| limits.supports(op))
    }

    /// The quota and the lock-free table, if that table is in use.
    #[inline]
    fn instants(&self) -> Option<&LoneLimit> {
        let in_force = self.0.subjects.get().is_none();
        self.0.instants.as_ref().filter(|_| in_force)
    }

    /// `now` is read in the argument: the CPU hashes while it waits for the time.
    fn decide_alone(&self, lone: &LoneLimit, now: Timestamp, key: &Key, op: &Op) -> Decision {
        let hash = self.0.hasher.hash(key);
        let bucket = lone.bucket.read();
        match op {
            Op::Acquire(cost) | Op::Reserve(cost) if !self.0.blocks.are_any(now.as_nanos()) => {
                lone.table.acquire(hash, now, &bucket.measured, *cost)
            }
            _ => {
                let time = ClockReading::alike(now);
                self.decide_rarely(hash, time, (&lone.table, &bucket), Chosen::Tier(0), op)
            }
        }
    }

    /// [`decide_alone`](Self::decide_alone) for a class of requests.
    #[inline(never)]
    fn decide_in_class(&self, lone: &LoneLimit, class: Priority, key: &Key, op: &Op) -> Decision {
        let now = self.0.clock.now();
        let hash = self.0.hasher.hash(key);
        let bucket = lone.bucket.read();
        match op {
            Op::Acquire(cost) | Op::Reserve(cost) if !self.0.blocks.are_any(now.as_nanos()) => {
                (lone.table).acquire_in(class, hash, now, &bucket.measured, *cost)
            }
            _ => {
                let (time, chosen) = (ClockReading::alike(now), Chosen::TierInClass(0, class));
                self.decide_rarely(hash, time, (&lone.table, &bucket), chosen, op)
            }
        }
    }

    /// Decides by a request's own quota, the only other tier of a lock-free table, for a class of requests, or after a
    /// late timer.
    fn decide_in_tier(
        &self,
        lone: &LoneLimit,
        tier: &Tier,
        key: &Key,
        op: &Op,
        late: Duration,
    ) -> Result<Decision, LimiterError> {
        let class = tier.priority();
        if tier.request().is_none() && !tier.has_default_quotas() {
            return Err(tier.unknown());
        }
        let time = ClockReading::alike(self.0.clock.now()).for_timer(late);
        let hash = self.0.hasher.hash_bytes(key.as_bytes());
        let bucket = lone.bucket.read();
        let chosen = match tier.request() {
            Some(request) => Chosen::Request(bucket.own.fit(request)),
            None => Chosen::Tier(0),
        };
        let chosen = chosen.in_class(class);
        Ok(self.decide_rarely(hash, time, (&lone.table, &bucket), chosen, op))
    }

    /// Decides any operation by any quota. Checks for blocks by hand, which are not in the table.
    #[cold]
    #[inline(never)]
    fn decide_rarely(
        &self,
        hash: KeyHash,
        time: ClockReading,
        (table, quota): (&LockFree, &SingleBucket),
        chosen: Chosen,
        op: &Op,
    ) -> Decision {
        let Inner {
            blocks,
            capacity,
            subjects,
            ..
        } = &*self.0;
        match op {
            Op::Block(length) => blocks.set(hash, time.as_nanos(), *length, capacity.keys),
            Op::Reset => blocks.set(hash, time.as_nanos(), Duration::ZERO, capacity.keys),
            _ => {}
        }
        if let (Op::Block(_) | Op::Reset, Some(subjects)) = (op, subjects.get()) {
            // The quota has changed since, and the sharded table stores the blocks now.
            let decided = subjects.decide(hash, &self.0.clock, &Tier::DEFAULT, op, Duration::ZERO);
            return decided.expect("there is always a default tier");
        }
        let blocked = blocks.left(hash, time.as_nanos());
        let instead = block::instead_of(op).filter(|_| blocked > 0);
        let done = instead.as_ref().unwrap_or(op);
        let chosen = chosen.by_receipt(op, 1, Some(&quota.own));
        let request = match chosen.of_all() {
            Chosen::Request(fitted) => quota.of_request(fitted),
            _ => None,
        };
        let measured = request.as_ref().unwrap_or(&quota.measured);
        let decision = table.decide_in(chosen.class(), hash, time, measured, done);
        let decision = decision.in_tier(chosen.index());
        match op {
            Op::Refund(..) | Op::Settle(..) => decision,
            _ => denied_for(decision, blocked),
        }
    }

    /// The store in which the limiter counts, and its limit there.
    pub(super) fn stored(&self) -> Option<&(LocalStore, StoredLimit)> {
        self.0.stored.as_ref()
    }

    fn decide_locked(
        &self,
        tier: &Tier,
        key: &Key,
        op: &Op,
        late: Duration,
    ) -> Result<Decision, LimiterError> {
        let key = self.0.hasher.hash_bytes(key.as_bytes());
        if let Some((store, limit)) = &self.0.stored {
            return store.table().decide(StoreCall {
                limit,
                key,
                tier,
                op,
                late,
            });
        }
        let Some(subjects) = self.0.subjects.get() else {
            return Err(tier.unknown());
        };
        subjects.decide(key, &self.0.clock, tier, op, late)
    }
}

/// Whether the operation is a layer's usual one, without a receipt.
#[inline]
const fn takes(op: &Op) -> bool {
    matches!(op, Op::Acquire(_) | Op::Reserve(_))
}

#[allow(
    private_interfaces,
    reason = "hidden methods are for limiters of this crate"
)]
impl Limiter for LocalLimiter {
    type Future = Never;

    #[inline]
    fn apply(&self, key: &Key, op: Op) -> Pending<Self::Future> {
        self.apply_in(&Tier::DEFAULT, key, op)
    }

    #[inline]
    fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Pending<Self::Future> {
        match self.instants() {
            Some(instants) if tier.is_default() && takes(&op) => Pending::Ready(Ok(
                self.decide_alone(instants, self.0.clock.now(), key, &op)
            )),
            instants => match (instants, tier.default_in_class()) {
                (Some(instants), Some(class)) if takes(&op) => {
                    Pending::Ready(Ok(self.decide_in_class(instants, class, key, &op)))
                }
                _ => Pending::Ready(self.decide_in(tier, key, &op, Duration::ZERO)),
            },
        }
    }

    fn apply_late(
        &self,
        tier: &Tier,
        key: &Key,
        ops: &[Op],
        late: Duration,
    ) -> Pending<Self::Future> {
        Pending::Ready(one_operation(ops).and_then(|op| self.decide_in(tier, key, op, late)))
    }

    fn policies(&self) -> &[Policy] {
        &self.0.policies
    }

    fn facts(&self) -> Facts {
        self.with_limits(TierSet::facts).identified_by(&self.0)
    }

    fn member(&self) -> Option<&dyn ErasedMember> {
        Some(self)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some((store, limit)) = &self.stored {
            store.table().leave(limit);
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
