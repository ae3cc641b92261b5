//! Refunds: how much of a charge can still be given back.

use crate::decision::Charge;

/// Units that are given back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refund {
    pub(crate) cost: u64,
    pub(crate) of: Charged,
}

/// Which charge the units are of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Charged {
    /// The newest there is.
    Newest,
    /// One of this time, in nanoseconds, of this counter.
    At(u64, Charge),
}

impl Charge {
    /// Whether a bucket in which a unit comes in `interval` and that fills in `full` nanoseconds can
    /// have been charged so.
    ///
    /// After a change from a burst of 100 to one of 5 a hundred open requests hold receipts for a
    /// hundred units, of which the clamp has left five: each could be given back and taken anew, all
    /// at one instant.
    #[inline]
    pub(super) const fn fits(&self, charged_at: u64, interval: u64, full: u64) -> bool {
        self.interval == interval && self.end.saturating_sub(charged_at) <= full
    }
}

impl Refund {
    /// How many nanoseconds a bucket of `capacity` units gets back at `now`, at most.
    ///
    /// Each unit fades over the time of a full bucket, by 1 / `capacity` of the time since the
    /// charge. Without that, requests that are begun together and finished one after another would
    /// give back what has long flown back by itself: fill the bucket, keep the last request open,
    /// finish the others, and again, and the open ones give back far more than a bucket at once.
    /// With it, what counts stays within 2 · capacity + rate · L in any time L.
    #[inline]
    pub(super) fn nanos(self, now: u64, interval: u64, capacity: u64) -> u64 {
        let (charged_at, charge) = match self.of {
            Charged::Newest => return self.cost.saturating_mul(interval),
            Charged::At(charged_at, charge) => (charged_at, charge),
        };
        let Some(elapsed) = now.checked_sub(charged_at) else {
            // The clock has stepped back since, and may have moved the bucket.
            return 0;
        };
        let unit = charge
            .interval
            .saturating_sub(elapsed.div_ceil(capacity.max(1)));
        let back = self.cost.saturating_mul(unit);
        back.min(charge.end.saturating_sub(now))
    }
}
