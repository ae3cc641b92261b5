//! Refunds: the part of a charge that can still be returned.

use crate::decision::Charge;

/// A refund of units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refund {
    pub(crate) cost: u64,
    pub(crate) of: Charged,
}

/// The charge that a refund belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Charged {
    /// The newest charge.
    Newest,
    /// A charge of this counter at this time, in nanoseconds.
    At(u64, Charge),
}

impl Charge {
    /// Whether a bucket that refills a unit in `interval` nanoseconds and fills in `full` nanoseconds
    /// could have made this charge.
    ///
    /// After a change from a burst of 100 to one of 5, a hundred open requests may hold receipts for a
    /// hundred units, and the clamp has left five of these units. Without this check, each receipt
    /// could be refunded and its unit taken again, all at one instant.
    #[inline]
    pub(super) const fn fits(&self, charged_at: u64, interval: u64, full: u64) -> bool {
        self.interval == interval && self.end.saturating_sub(charged_at) <= full
    }
}

impl Refund {
    /// The most nanoseconds that a refund at `now` returns to a bucket of `capacity` units.
    ///
    /// The refund of each unit shrinks by 1 / `capacity` of the time since the charge, to zero over the
    /// time of a full bucket. Otherwise requests that begin together and end one after another would
    /// return units that have refilled already: empty the bucket, keep the last request open, end the
    /// others, repeat; the open ones then return far more than a bucket at once. With it, at most
    /// 2 · capacity + rate · L units pass in any time L.
    #[inline]
    pub(super) fn nanos(self, now: u64, interval: u64, capacity: u64) -> u64 {
        let (charged_at, charge) = match self.of {
            Charged::Newest => return self.cost.saturating_mul(interval),
            Charged::At(charged_at, charge) => (charged_at, charge),
        };
        let Some(elapsed) = now.checked_sub(charged_at) else {
            // The clock has stepped back since the charge, and the clamp may have moved the bucket.
            return 0;
        };
        let unit = charge
            .interval
            .saturating_sub(elapsed.div_ceil(capacity.max(1)));
        let back = self.cost.saturating_mul(unit);
        back.min(charge.end.saturating_sub(now))
    }
}
