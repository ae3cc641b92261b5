//! The limit of a rule on requests that run at the same time.

use std::time::Duration;

use crate::decision::{Policy, Unit};

/// The most requests of a key that run at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InFlightRule {
    /// The name of the policy.
    pub(super) name: Box<str>,
    pub(super) max: u16,
    /// The most of each tier by the index of its set of quotas; empty if all tiers have `max`.
    pub(super) tiers: Box<[u16]>,
    /// The lease of a permit in Redis, if the file sets one.
    pub(super) lease: Option<Duration>,
}

impl InFlightRule {
    /// The most requests of the tier with this index.
    fn most(&self, set_index: usize) -> u64 {
        u64::from(*self.tiers.get(set_index).unwrap_or(&self.max))
    }

    /// The most requests of each tier that has a limit of its own, by its index; of all if none has.
    pub(super) fn most_of_tiers(&self) -> impl Iterator<Item = u64> {
        (0..self.tiers.len().max(1)).map(|tier| self.most(tier))
    }

    /// The policy of the tier with this index.
    pub(super) fn policy(&self, set_index: usize) -> Policy {
        let policy = Policy::owned(&*self.name, self.most(set_index));
        policy.with_unit(Unit::ConcurrentRequests)
    }
}
