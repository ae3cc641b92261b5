//! The token bucket, as GCRA.

use super::{ClockSkew, Counts, Divisible, Most, Refund, Verdict};
use crate::{
    decision::{Charge, Level, Usage},
    quota::{Kind, Priority, Quota},
};

/// The token bucket as GCRA, the generic cell rate algorithm of ITU-T I.371.
///
/// The state is one number, the theoretical arrival time (TAT): the instant at which the bucket is
/// full again. A bucket `used` nanoseconds before its TAT lacks `used / interval` tokens. A TAT in the
/// past is a full bucket, so 0 is the fresh state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenBucket {
    /// T: nanoseconds in which one token refills.
    interval: u64,
    capacity: u64,
    /// capacity · T: nanoseconds in which an empty bucket fills.
    refill: u64,
    /// The most nanoseconds of a bucket that owes units: those of the capacity and of the debt.
    owing: u64,
    /// `refill` of the nominal limit, without the soft share.
    nominal: u64,
    /// The most nanoseconds from now to a TAT: the refill of the largest bucket that shares it.
    most: u64,
    /// How far beyond `most` a TAT is still accepted, in nanoseconds.
    tolerance: u64,
    kind: Kind,
}

impl TokenBucket {
    /// The bucket of a valid quota. The bounds of valid quotas keep all products within 2^59.
    pub(super) fn new(quota: &Quota, most: Most, skew: ClockSkew) -> Self {
        let interval = quota.interval_nanos();
        let capacity = quota.capacity() + quota.extra();
        let refill = interval * capacity;
        Self {
            interval,
            capacity,
            refill,
            // The numbers of a request's own quota may be slower than the debt of the limiter's quota.
            owing: (interval
                .saturating_mul(quota.debt_units())
                .saturating_add(refill))
            .min(most.nanos)
            .max(refill),
            nominal: interval * quota.capacity(),
            most: most.nanos,
            tolerance: skew.tolerance(most.nanos),
            kind: quota.kind(),
        }
    }

    /// The most nanoseconds from now to an accepted TAT.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// The bucket that may also hold its debt, for units that were used already.
    fn with_debt(self) -> Self {
        Self {
            refill: self.owing,
            ..self
        }
    }

    /// Nanoseconds until the bucket is full.
    fn used(&self, tat: u64, now: u64) -> u64 {
        tat.saturating_sub(now)
    }

    fn level(&self, tat: u64, now: u64) -> Level {
        Level {
            used: self.used(tat, now),
            refill: self.nominal,
            interval: self.interval,
        }
    }
}

impl Divisible for TokenBucket {
    fn part(&self, class: Priority) -> Self {
        let capacity = class.part_of(self.nominal / self.interval);
        let refill = capacity * self.interval;
        Self {
            capacity,
            refill,
            nominal: refill,
            ..*self
        }
    }
}

impl Counts for TokenBucket {
    type State = u64;

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

    fn available(&self, tat: &u64, now: u64) -> u64 {
        self.refill.saturating_sub(self.used(*tat, now)) / self.interval
    }

    /// Takes `cost`, down to an empty bucket and no further.
    fn charge(&self, tat: &mut u64, now: u64, cost: u64) {
        let cost = cost.saturating_mul(self.interval);
        let used = self.used(*tat, now).saturating_add(cost).min(self.refill);
        if used == 0 {
            // A limit of 0 has no tokens.
            return;
        }
        // A thread that read the clock earlier than the last writer must not undo the writer's charge.
        *tat = now.saturating_add(used).max(*tat);
    }

    /// Never as of an instant before that of the state: the units of that time are charged already.
    fn charge_late(&self, tat: &mut u64, now: u64, late: u64, cost: u64) {
        let full_since = now.saturating_sub(late).max((*tat).min(now));
        self.charge(tat, full_since, cost);
    }

    fn spendable(&self, tat: &u64, now: u64) -> u64 {
        self.with_debt().available(tat, now)
    }

    fn spend(&self, tat: &mut u64, now: u64, cost: u64) {
        self.with_debt().charge(tat, now, cost);
    }

    fn made(&self, charged_at: u64, charge: &Charge) -> bool {
        charge.kind == self.kind && charge.fits(charged_at, self.interval, self.owing)
    }

    fn refund(&self, tat: &mut u64, now: u64, refund: Refund) {
        let back = refund.nanos(now, self.interval, self.capacity);
        // A full bucket stays as it is.
        let less = tat.saturating_sub(back).max(now);
        *tat = less.min(*tat);
    }

    /// Moves a TAT beyond a full refill back to it. Such a TAT comes from a clock that stepped back or
    /// from a larger quota, and would lock the key out for longer than any quota can.
    fn clamp(&self, tat: &mut u64, now: u64) {
        if self.used(*tat, now) > self.most + self.tolerance {
            *tat = now.saturating_add(self.most);
        }
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn standing(&self, tat: &u64, now: u64) -> (Usage, bool) {
        let level = self.level(*tat, now);
        let excess = self.nominal < self.refill && level.is_excess();
        (Usage::Level(level), excess)
    }
}
