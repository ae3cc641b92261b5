//! Decisions of several limits as one.

use super::{Decision, QuotaStatuses, name::Share};

impl Decision {
    /// Sets the charge to `kept` units, after the others were refunded.
    #[cfg(feature = "redis")]
    pub(crate) const fn keep_charged(&mut self, kept: u64) {
        self.charged = kept;
    }

    /// Merges one decision of each limit. The result is denied if one of them denies, otherwise
    /// delayed by the longest delay. Its receipt contains one receipt of each limit.
    pub(crate) fn merge(mut decisions: Vec<Self>) -> Self {
        assert!(
            !decisions.is_empty(),
            "a decision is about at least one limit"
        );
        if decisions.len() == 1 {
            return decisions.remove(0);
        }
        let all = || decisions.iter();
        let denied = all().any(Self::is_denied);
        // A degraded limit that charged nothing does not lower the charge of the others.
        let counted = all().filter(|decision| !decision.is_degraded() || decision.charged() > 0);
        Self {
            delay: all()
                .map(|decision| decision.delay)
                .max()
                .flatten()
                .filter(|_| !denied),
            charged: counted.map(Self::charged).min().unwrap_or(0),
            charged_at: decisions[0].charged_at,
            tier: decisions[0].tier,
            denied,
            excess: all().any(|decision| decision.excess),
            blocked: all().any(Self::is_blocked),
            degraded: all().find_map(Self::degraded_by),
            uncounted: !all().any(Self::is_counted),
            lease: None,
            quotas: quotas_of(&decisions),
        }
    }
}

impl Decision {
    /// Records the identities of the limits, in their order. Each finds its share of the receipt by
    /// its identity.
    pub(crate) fn by_limits(mut self, limits: impl Iterator<Item = u64>) -> Self {
        self.quotas.identify(limits);
        self
    }
}

fn share_of(decision: &Decision) -> Share {
    Share {
        limit: 0,
        quotas: decision.statuses().len(),
        names: decision.quotas.names().cloned(),
        charged: decision.charged(),
        charged_at: decision.decided_at(),
        tier: decision.tier,
        degraded: decision.is_degraded(),
        lease: decision.lease,
    }
}

fn quotas_of(decisions: &[Decision]) -> QuotaStatuses {
    let count = decisions.iter().map(|decision| decision.statuses().len());
    let mut statuses = Vec::with_capacity(count.sum());
    for decision in decisions {
        statuses.extend_from_slice(decision.statuses());
    }
    QuotaStatuses::of_joint(statuses, decisions.iter().map(share_of))
}
