//! The limit of a rule on requests that run at the same time.

use crate::decision::{Policy, Unit};

/// The most requests of a key that run at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InFlightRule {
    /// The name of the policy.
    pub(super) name: Box<str>,
    pub(super) max: u16,
    /// The most of each tier by the index of its set of quotas; empty if all tiers have `max`.
    pub(super) tiers: Box<[u16]>,
}

impl InFlightRule {
    /// The policy of the tier with this index.
    pub(super) fn policy(&self, set_index: usize) -> Policy {
        let max = self.tiers.get(set_index).unwrap_or(&self.max);
        let policy = Policy::owned(&*self.name, u64::from(*max));
        policy.with_unit(Unit::ConcurrentRequests)
    }
}
