//! Epochs of limits: keys start afresh when the epoch changes.

use super::TierSet;
use crate::{limiter::on_quota_change::Epoch, quota::Quota};

impl TierSet {
    /// These limits with counters of this epoch.
    pub(crate) fn in_epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = epoch.next(&mut self.tiers, true);
        self.share_counters();
        self
    }

    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The default tier's quota of this name.
    pub(crate) fn quota(&self, name: &str) -> Option<Quota> {
        let tier = self.default_tier();
        let mut named = tier.policies.iter().zip(&tier.quotas);
        named.find_map(|(policy, quota)| (policy.name() == name).then(|| quota.in_epoch(0)))
    }
}
