//! Limits whose counters bear a mark: those of keys that start afresh.

use super::{limits::Limits, on_change::Epoch};
#[cfg(feature = "rules")]
use crate::quota::Quota;

impl Limits {
    /// The same limits with counters of this epoch.
    pub(crate) fn in_epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = epoch.next(&mut self.tiers, true);
        self.share_counters();
        self
    }

    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The default tier's quota of this name.
    #[cfg(feature = "rules")]
    pub(crate) fn quota(&self, name: &str) -> Option<Quota> {
        let tier = self.default_tier();
        let mut named = tier.policies.iter().zip(&tier.quotas);
        named.find_map(|(policy, quota)| (policy.name() == name).then(|| quota.in_epoch(0)))
    }
}
