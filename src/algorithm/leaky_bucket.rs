//! The leaky bucket: a queue with slots at equal distances.

use super::{Charged, ClockSkew, Counts, Divisible, Most, Refund, Verdict};
use crate::{
    decision::{Charge, Level, Usage},
    quota::{Kind, Priority, Quota},
};

/// The leaky bucket as a queue: one unit leaves every `interval`, in order of arrival.
///
/// The state is the next free slot: the instant at which the queue is empty. An instant in the past
/// is an empty queue, so 0 is the fresh state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeakyBucket {
    /// T: nanoseconds between two slots.
    interval: u64,
    /// The units that fit: the one that passes at once plus the ones that may wait.
    capacity: u64,
    /// capacity · T: the most nanoseconds from now to the next free slot.
    longest: u64,
    /// `longest` of the nominal limit, without the soft share.
    nominal: u64,
    /// The most nanoseconds from now to a state: the end of the longest queue that shares it.
    most: u64,
    /// How far beyond `most` a state is still accepted, in nanoseconds.
    tolerance: u64,
    kind: Kind,
}

impl LeakyBucket {
    pub(super) fn new(quota: &Quota, most: Most, skew: ClockSkew) -> Self {
        let interval = quota.interval_nanos();
        let capacity = quota.capacity() + quota.extra();
        let longest = interval * capacity;
        Self {
            interval,
            capacity,
            longest,
            nominal: interval * quota.capacity(),
            most: most.nanos,
            tolerance: skew.tolerance(most.nanos),
            kind: quota.kind(),
        }
    }

    /// The most nanoseconds from now to an accepted state.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// Nanoseconds from now to the next free slot.
    fn ahead(&self, next: u64, now: u64) -> u64 {
        next.saturating_sub(now)
    }
}

impl Divisible for LeakyBucket {
    fn part(&self, class: Priority) -> Self {
        let capacity = class.part_of(self.nominal / self.interval);
        let longest = capacity * self.interval;
        Self {
            capacity,
            longest,
            nominal: longest,
            ..*self
        }
    }
}

impl Counts for LeakyBucket {
    type State = u64;

    fn verdict(&self, next: &u64, now: u64, cost: u64) -> Verdict {
        if cost == 0 {
            return Verdict::FITS;
        }
        if cost > self.capacity {
            return Verdict::Never;
        }
        // The last of several units waits for all units before it.
        let wait = self.ahead(*next, now) + (cost - 1) * self.interval;
        match wait.checked_sub(self.longest - self.interval) {
            None | Some(0) => Verdict::Fits { wait },
            Some(wait) => Verdict::After(wait),
        }
    }

    fn available(&self, next: &u64, now: u64) -> u64 {
        let booked = self.ahead(*next, now).div_ceil(self.interval);
        self.capacity.saturating_sub(booked)
    }

    /// Books slots for `cost`, up to the end of the queue.
    fn charge(&self, next: &mut u64, now: u64, cost: u64) {
        let cost = cost.saturating_mul(self.interval);
        let ahead = self.ahead(*next, now).saturating_add(cost);
        let ahead = ahead.min(self.longest);
        // A limit of 0 has no slots.
        if ahead > 0 {
            *next = now.saturating_add(ahead).max(*next);
        }
    }

    fn made(&self, charged_at: u64, charge: &Charge) -> bool {
        charge.kind == self.kind && charge.fits(charged_at, self.interval, self.longest)
    }

    /// Frees the last slots. Slots before others that are booked stay booked.
    fn refund(&self, next: &mut u64, now: u64, refund: Refund) {
        if let Charged::At(_, charge) = refund.of
            && charge.end != *next
        {
            return;
        }
        let back = refund.nanos(now, self.interval, self.capacity);
        *next = next.saturating_sub(back).max(now).min(*next);
    }

    /// Moves a state beyond the end of the queue to the end. It comes from a clock that stepped back or
    /// from a longer queue, and would lock the key out for longer than any queue can.
    fn clamp(&self, next: &mut u64, now: u64) {
        if self.ahead(*next, now) > self.most + self.tolerance {
            *next = now.saturating_add(self.most);
        }
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    /// The usage as a level: slots become free evenly, like tokens.
    fn standing(&self, next: &u64, now: u64) -> (Usage, bool) {
        let level = Level {
            used: self.ahead(*next, now),
            refill: self.nominal,
            interval: self.interval,
        };
        let excess = self.nominal < self.longest && level.is_excess();
        (Usage::Level(level), excess)
    }
}
