//! Changes of a limiter's quotas while they are in force.

use std::sync::Arc;

use super::LocalLimiter;
use crate::{
    decision::Op,
    error::ConfigError,
    limiter::{Tier, limits::Limits, local::sharded::Sharded},
    lock::unpoisoned,
    quota::OwnedQuota,
};

impl LocalLimiter {
    /// Changes the quota of this name (`default` for one that stands alone and was given none) in
    /// the default tier, for this limiter and all its clones.
    ///
    /// A changed limit, burst, queue or soft share leaves the state of each key, at most as much as
    /// the new quota holds, or the largest of another tier that shares the counter. So a raised limit
    /// frees nobody: a bucket that was used up gets its next unit by the new rate, windows and logs
    /// have the new limit less what was counted. With
    /// [`OnChange::Fresh`](crate::OnChange::Fresh) all keys start afresh, and [`reset`](Self::reset) frees one key; [`QuotaChange`](crate::limiter::QuotaChange) says what a
    /// change gives. Requests that [wait](crate::RateLimitLayer::wait) ask again when their wait is
    /// over, not before, and later ones of their key stand behind them, unless keys start afresh.
    ///
    /// A quota whose algorithm, period, slices or refill step changes leaves its counter: it goes on with that of another
    /// tier that counts like the new one, or starts afresh. What it leaves is forgotten; a
    /// [store](crate::LocalStore) keeps it until it has flown back, and a quota that is changed back
    /// goes on with it. Headers show the new quota from the next decision on. Requests that are open
    /// meanwhile give back to a bucket only what its new numbers could have charged, see [`Receipt`](crate::Receipt).
    ///
    /// # Errors
    ///
    /// When the quota makes no sense, see [`Quota::check`](crate::Quota::check), when it has
    /// another name, when there is none of this name, or no memory for what is to be counted now.
    pub fn set_quota(&self, name: &str, quota: impl Into<OwnedQuota>) -> Result<(), ConfigError> {
        let inner = &*self.0;
        let mut current = unpoisoned(inner.limits.lock());
        let mut limits = Limits::clone(&current);
        let replaced = limits.replace(name, &quota.into())?;
        if let Some((store, limit)) = &inner.stored {
            let limits = Arc::new(limits);
            store.table().replace(limit, Arc::clone(&limits));
            *current = limits;
            return Ok(());
        }
        let limits = Arc::new(limits);
        match (inner.subjects.get(), &inner.instants, limits.lone_bucket()) {
            (None, Some(live), Some(bucket)) => {
                live.change(bucket, &replaced, inner.capacity, inner.clock.now())?;
                if replaced.starts_afresh {
                    inner.blocks.clear();
                }
            }
            (None, ..) => {
                let made = Sharded::try_new(inner.capacity, &limits)?;
                let made = inner.subjects.get_or_init(|| made);
                if replaced.starts_afresh {
                    inner.blocks.clear();
                }
                for (key, left) in inner.blocks.take(inner.clock.now().as_nanos()) {
                    let block = Op::Block(left);
                    drop(made.decide(key, &inner.clock, &Tier::DEFAULT, &block));
                }
            }
            (Some(subjects), ..) => subjects.install(&limits, &replaced),
        }
        *current = limits;
        Ok(())
    }

    /// Reads the limits in force.
    pub(crate) fn with_limits<T>(&self, read: impl FnOnce(&Limits) -> T) -> T {
        let limits = unpoisoned(self.0.limits.lock());
        read(&limits)
    }
}
