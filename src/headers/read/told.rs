//! The quotas that a response tells.

use std::{cmp::Reverse, num::NonZeroU32, ops::Deref, time::Duration};

/// As many quotas of one response are told.
pub(super) const MOST_TOLD: usize = 4;

/// A quota, as a response tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ToldQuota {
    /// Units that are left.
    pub(crate) remaining: u64,
    /// The time within which no more than these can be used.
    pub(crate) window: Option<Duration>,
    /// How units come back, if the policy says so.
    pub(crate) refill: Option<Refill>,
}

/// The times that a policy tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refill {
    /// The time in which all units come back.
    pub(crate) window: Duration,
    /// All units.
    pub(crate) units: NonZeroU32,
}

impl Refill {
    /// The time in which one unit comes back, if they come one by one.
    pub(crate) fn interval(self) -> Duration {
        self.window / self.units.get()
    }
}

impl ToldQuota {
    /// Orders those first that matter most: with the least left, and that for the longest time.
    /// Without a time they forbid nothing.
    fn rank(&self) -> impl Ord + use<> {
        (self.window.is_none(), self.remaining, Reverse(self.window))
    }
}

/// The quotas that matter most of all that a response tells, most first.
#[derive(Debug, Default)]
pub(crate) struct ToldQuotas {
    quotas: [ToldQuota; MOST_TOLD],
    length: usize,
}

impl ToldQuotas {
    fn insert(&mut self, told: ToldQuota) {
        let at = self.partition_point(|other| other.rank() <= told.rank());
        if at < MOST_TOLD {
            self.length = MOST_TOLD.min(self.length + 1);
            self.quotas[at..self.length].rotate_right(1);
            self.quotas[at] = told;
        }
    }

    pub(crate) fn retain(&mut self, wanted: impl Fn(&ToldQuota) -> bool) {
        let mut kept = 0;
        for at in 0..self.length {
            if wanted(&self.quotas[at]) {
                self.quotas[kept] = self.quotas[at];
                kept += 1;
            }
        }
        self.length = kept;
    }
}

impl Deref for ToldQuotas {
    type Target = [ToldQuota];

    fn deref(&self) -> &[ToldQuota] {
        &self.quotas[..self.length]
    }
}

impl FromIterator<ToldQuota> for ToldQuotas {
    fn from_iter<I: IntoIterator<Item = ToldQuota>>(quotas: I) -> Self {
        let mut told = Self::default();
        for quota in quotas {
            told.insert(quota);
        }
        told
    }
}
