//! The token bucket, as GCRA.

use super::{ClockSkew, Counts, Most, Refund, Verdict};
use crate::{
    decision::{Charge, Level, Usage},
    quota::{Kind, Quota},
};

/// The token bucket as GCRA, the generic cell rate algorithm of ITU-T I.371.
///
/// The state is one number, the theoretical arrival time (TAT): the instant at which the bucket is
/// full again. A bucket that is `used` nanoseconds away from it lacks `used / interval` tokens. A
/// TAT that has passed is a full bucket, so 0 is the state of a key that was never seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenBucket {
    /// T: the time in which one token comes.
    interval: u64,
    capacity: u64,
    /// capacity · T: the time in which an empty bucket fills.
    refill: u64,
    /// `refill` of the nominal limit, which is less by the soft share.
    nominal: u64,
    /// How far ahead a TAT may be moved to: the refill of the largest bucket that shares it.
    most: u64,
    /// How far beyond that it may lie and count.
    tolerance: u64,
    kind: Kind,
}

impl TokenBucket {
    /// The bucket of a quota that was checked, which keeps every product here within 2^59.
    pub(super) fn new(quota: &Quota, most: Most, skew: ClockSkew) -> Self {
        let interval = quota.interval_nanos();
        let capacity = quota.capacity() + quota.extra();
        let refill = interval * capacity;
        Self {
            interval,
            capacity,
            refill,
            nominal: interval * quota.capacity(),
            most: most.nanos,
            tolerance: skew.tolerance(most.nanos),
            kind: quota.kind(),
        }
    }

    /// How far ahead of now a TAT can be.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// How far the bucket is from full.
    #[inline]
    fn used(&self, tat: u64, now: u64) -> u64 {
        tat.saturating_sub(now)
    }

    #[inline]
    pub(super) fn level(&self, tat: u64, now: u64) -> Level {
        Level {
            used: self.used(tat, now),
            refill: self.nominal,
            interval: self.interval,
        }
    }
}

impl Counts for TokenBucket {
    type State = u64;

    #[inline]
    fn verdict(&self, tat: &u64, now: u64, cost: u64) -> Verdict {
        if cost == 0 {
            return Verdict::FITS;
        }
        if cost > self.capacity {
            return Verdict::Never;
        }
        let needed = self.used(*tat, now) + cost * self.interval;
        match needed.checked_sub(self.refill) {
            None | Some(0) => Verdict::FITS,
            Some(wait) => Verdict::After(wait),
        }
    }

    #[inline]
    fn available(&self, tat: &u64, now: u64) -> u64 {
        self.refill.saturating_sub(self.used(*tat, now)) / self.interval
    }

    /// Takes `cost`, down to an empty bucket and no further.
    #[inline]
    fn charge(&self, tat: &mut u64, now: u64, cost: u64) {
        let cost = cost.saturating_mul(self.interval);
        let used = self.used(*tat, now).saturating_add(cost).min(self.refill);
        if used == 0 {
            // There is nothing to take of a limit of 0.
            return;
        }
        // A thread that read the clock a little earlier than the last one must not take back what
        // that one charged.
        *tat = now.saturating_add(used).max(*tat);
    }

    fn made(&self, charged_at: u64, charge: &Charge) -> bool {
        charge.kind == self.kind && charge.fits(charged_at, self.interval, self.refill)
    }

    fn refund(&self, tat: &mut u64, now: u64, refund: Refund) {
        let back = refund.nanos(now, self.interval, self.capacity);
        // A bucket that is full already stays as it is.
        let less = tat.saturating_sub(back).max(now);
        *tat = less.min(*tat);
    }

    /// A TAT beyond a full refill comes from a clock that stepped back or from a larger quota;
    /// it would lock the key out for longer than any quota can.
    #[inline]
    fn clamp(&self, tat: &mut u64, now: u64) {
        if self.used(*tat, now) > self.most + self.tolerance {
            *tat = now.saturating_add(self.most);
        }
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.kind
    }

    #[inline]
    fn standing(&self, tat: &u64, now: u64) -> (Usage, bool) {
        let level = self.level(*tat, now);
        let excess = self.nominal < self.refill && level.is_excess();
        (Usage::Level(level), excess)
    }
}
