use super::{ClockSkew, Counts, Verdict};
use crate::{
    decision::{Level, Standing},
    quota::Quota,
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
    /// The same for the nominal limit, less by the soft share.
    nominal: u64,
    /// Tokens come at multiples of this; 1 for an even flow.
    step: u64,
    /// How far beyond a full refill a TAT may lie and count.
    tolerance: u64,
}

impl TokenBucket {
    /// The bucket of a quota that was checked, which keeps every product here within 2^59.
    pub(super) fn new(quota: &Quota, skew: ClockSkew) -> Self {
        let interval = quota.interval_nanos();
        let capacity = quota.capacity() + quota.extra();
        let refill = interval * capacity;
        Self {
            interval,
            capacity,
            refill,
            nominal: interval * quota.capacity(),
            step: quota.refill_every_nanos().unwrap_or(1),
            tolerance: skew.tolerance(refill),
        }
    }

    /// The last instant at which tokens came.
    #[inline]
    pub(super) fn last_step(&self, now: u64) -> u64 {
        if self.step == 1 {
            now
        } else {
            now - now % self.step
        }
    }

    /// From `now` to the first instant at which tokens come, `wait` or more after the last one.
    #[inline]
    fn until_step(&self, wait: u64, now: u64) -> u64 {
        if self.step == 1 || wait == 0 {
            return wait;
        }
        let ready = self.last_step(now).saturating_add(wait);
        ready.div_ceil(self.step).saturating_mul(self.step) - now
    }

    pub(super) fn refill(&self) -> u64 {
        self.refill
    }

    /// How far the bucket is from full.
    #[inline]
    fn used(&self, tat: u64, now: u64) -> u64 {
        tat.saturating_sub(self.last_step(now))
    }

    #[inline]
    pub(super) fn reset_after(&self, tat: u64, now: u64) -> u64 {
        self.until_step(self.used(tat, now), now)
    }

    /// The same as the level says of an even flow. What comes in steps comes later.
    #[cold]
    fn stepped(&self, level: Level, now: u64) -> Standing {
        let remaining = level.remaining();
        let window = match remaining {
            0 => self.until_step(level.effective_window(), now),
            _ => level.effective_window(),
        };
        Standing::counted(remaining, self.until_step(level.used, now), window)
    }
}

impl Counts for TokenBucket {
    type State = u64;

    const FRESH: u64 = 0;

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
            Some(wait) => Verdict::After(self.until_step(wait, now)),
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
        // A thread that read the clock a little earlier than the last one must not take back what
        // that one charged.
        *tat = self.last_step(now).saturating_add(used).max(*tat);
    }

    fn refund(&self, tat: &mut u64, now: u64, cost: u64, _: u64) {
        let cost = cost.saturating_mul(self.interval);
        // A bucket that is full already stays as it is.
        let less = tat.saturating_sub(cost).max(self.last_step(now));
        *tat = less.min(*tat);
    }

    /// A TAT beyond a full refill comes from a clock that stepped back or from a larger quota;
    /// it would lock the key out for longer than this quota can.
    #[inline]
    fn heal(&self, tat: &mut u64, now: u64) {
        if self.used(*tat, now) > self.refill + self.tolerance {
            *tat = self.last_step(now).saturating_add(self.refill);
        }
    }

    #[inline]
    fn standing(&self, tat: &u64, now: u64) -> (Standing, bool) {
        let level = Level {
            used: self.used(*tat, now),
            refill: self.nominal,
            interval: self.interval,
        };
        let excess = self.nominal < self.refill && level.used > self.nominal;
        let standing = match self.step {
            1 => Standing::Level(level),
            _ => self.stepped(level, now),
        };
        (standing, excess)
    }
}
