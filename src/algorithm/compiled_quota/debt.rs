//! Debts: units beyond the limit, for units that were used before they could be denied.

use super::{CompiledQuota, Rate, State};
use crate::{
    algorithm::{Counts as _, Most},
    quota::Quota,
};

impl Rate {
    /// The units that a key may owe. A request's own quota may leave less room for them; a bucket bounds its
    /// time itself.
    pub(super) fn debt(&self, quota: &Quota, most: Most) -> u64 {
        if !quota.can_spend() {
            return 0;
        }
        let room = most.units.saturating_sub(self.limit());
        quota.debt_units().min(room)
    }

    /// The largest limit of a window or log; 0 for a bucket.
    fn limit(&self) -> u64 {
        match self {
            Self::Bucket(_) => 0,
            Self::FixedWindow(window) => window.limit,
            Self::CalendarWindow(window) => window.limit,
            Self::SlidingWindow(window) => window.limit,
            Self::SlidingLog(log) => log.limit,
            Self::Varying(window) => window.largest(),
        }
    }

    /// A copy of the window or log with this many units more.
    fn with_more(self, debt: u64) -> Self {
        match self {
            Self::FixedWindow(window) => Self::FixedWindow(window.with_limit(window.limit + debt)),
            Self::CalendarWindow(window) => {
                Self::CalendarWindow(window.with_limit(window.limit + debt))
            }
            Self::SlidingWindow(window) => {
                Self::SlidingWindow(window.with_limit(window.limit + debt))
            }
            Self::SlidingLog(log) => Self::SlidingLog(log.with_limit(log.limit + debt)),
            // A bucket has its own debt, and limits that vary have one each.
            rate @ (Self::Bucket(_) | Self::Varying(_)) => rate,
        }
    }
}

impl CompiledQuota {
    /// The units beyond the limit that a key may owe.
    #[cfg(feature = "shared")]
    pub(crate) const fn debt(&self) -> u64 {
        self.debt
    }

    /// A copy of the quota with its debt added to the limit of a window or log.
    fn with_debt(&self) -> Self {
        Self {
            rate: self.rate.with_more(self.debt),
            ..*self
        }
    }

    /// The most units that can be spent.
    pub(super) fn spendable_of_any(&self, state: &State, now: u64) -> u64 {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.as_counts().spendable(state.instant(), now),
            Rate::Varying(window) => window.spendable(state, now, self.debt),
            _ => self.with_debt().available(state, now),
        }
    }

    /// Takes units that were used already.
    pub(super) fn spend_of_any(&self, state: &mut State, now: u64, cost: u64) {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.as_counts().spend(state.instant_mut(), now, cost),
            Rate::Varying(window) => window.charge(state, now, (cost, self.debt)),
            _ => self.with_debt().charge(state, now, cost),
        }
    }
}
