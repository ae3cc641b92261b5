//! Changes of a limiter's quotas while they are in force.

use std::{sync::Arc, time::Duration};

use super::LocalLimiter;
use crate::{
    decision::Op,
    error::ConfigError,
    limiter::{Tier, local::sharded::Sharded, tier_set::TierSet},
    lock::unpoisoned,
    quota::OwnedQuota,
};

impl LocalLimiter {
    /// Changes the quota of this name (`default` for one that stands alone and was given none) in
    /// the default tier, for this limiter and all its clones.
    ///
    /// If the limit, burst, queue or soft share changes, each key keeps its state, at most as much as the
    /// new quota holds, or the largest quota of another tier that shares the counter. So a raised limit
    /// does not free exhausted keys: a bucket gets its next unit at the new rate, windows and logs have
    /// the new limit less their count. That is so with [`OnChange::Fresh`](crate::OnChange::Fresh), too;
    /// [`reset`](Self::reset) frees one key.
    /// [`QuotaChange`](crate::limiter::QuotaChange) computes the effect of a change. Requests that
    /// [wait](crate::RateLimitLayer::wait) retry at the end of their wait, not earlier, and later
    /// requests of their key queue behind them.
    ///
    /// If the algorithm, period, slices or refill step changes, the quota gets another counter: that of
    /// another tier that counts alike, or a fresh one. The old counts are dropped; a
    /// [store](crate::LocalStore) keeps them until they have returned, and a quota that is changed back
    /// continues with them. Headers show the new quota from the next decision on. Requests that are open
    /// during the change refund to a bucket only units that its new numbers could have charged, see
    /// [`Receipt`](crate::Receipt).
    ///
    /// # Errors
    ///
    /// If the quota is invalid, see [`Quota::check`](crate::Quota::check), has another name, there is no
    /// quota of this name, or there is no memory for the new counters.
    pub fn set_quota(&self, name: &str, quota: impl Into<OwnedQuota>) -> Result<(), ConfigError> {
        let inner = &*self.0;
        let mut current = unpoisoned(inner.limits.lock());
        let mut limits = TierSet::clone(&current);
        let kept = limits.replace(name, &quota.into())?;
        if let Some((store, limit)) = &inner.stored {
            let limits = Arc::new(limits);
            store.table().replace(limit, Arc::clone(&limits));
            *current = limits;
            return Ok(());
        }
        let limits = Arc::new(limits);
        match (
            inner.subjects.get(),
            &inner.instants,
            limits.single_bucket(),
        ) {
            (None, Some(lone), Some(bucket)) => lone.change(bucket, &kept, inner.clock.now()),
            (None, ..) => {
                let made = Sharded::try_new(inner.capacity, &limits)?;
                let made = inner.subjects.get_or_init(|| made);
                for (key, left) in inner.blocks.take(inner.clock.now().as_nanos()) {
                    let block = Op::Block(left);
                    drop(made.decide(key, &inner.clock, &Tier::DEFAULT, &block, Duration::ZERO));
                }
            }
            (Some(subjects), ..) => subjects.install(&limits, &kept),
        }
        *current = limits;
        Ok(())
    }

    /// Reads the limits in force.
    pub(crate) fn with_limits<T>(&self, read: impl FnOnce(&TierSet) -> T) -> T {
        let limits = unpoisoned(self.0.limits.lock());
        read(&limits)
    }
}
