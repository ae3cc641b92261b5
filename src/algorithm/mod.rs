//! The arithmetic: functions of the old state, the time, the quota and the operation, nothing else.
//!
//! Nothing here reads a clock or keeps state, so that every store decides alike. Times are
//! nanoseconds since the epoch; the time now is a whole number of microseconds.
//!
//! Each algorithm answers the same few questions about its state: does a cost fit ([`Verdict`]),
//! what is left, how long until it is as good as new. [`step`] makes the operations out of them,
//! for one quota or for several that are charged together.

mod bucket;
mod fixed_window;
mod leaky_bucket;
mod log;
mod meter;
mod refund;
mod sliding_log;
mod sliding_window;
mod step;
mod stepped_bucket;
mod token_bucket;
mod worth;

#[cfg(feature = "redis")]
use crate::quota::MAX_REFILL_NANOS;
use crate::quota::{MAX_COUNT, Quota};

#[cfg(feature = "redis")]
pub(crate) use self::meter::{
    held::{Beside, Held},
    text::{instant, instant_text},
};
pub(crate) use self::{
    bucket::Bucket,
    meter::{Meter, State},
    refund::{Charged, Refund},
    step::{Answer, Counts, acquire, step},
    worth::{Weight, Worth},
};

/// Whether a cost fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The cost fits, after waiting this long in the queue.
    Fits { wait: u64 },
    /// The cost fits after this long if nothing else comes.
    After(u64),
    /// The cost never fits.
    Never,
}

impl Verdict {
    /// The cost fits at once.
    pub(crate) const FITS: Self = Self::Fits { wait: 0 };

    pub(crate) const fn fits(self) -> bool {
        matches!(self, Self::Fits { .. })
    }

    /// Two verdicts as one: the worse, or the longer wait.
    #[inline]
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::After(one), Self::After(two)) => Self::After(one.max(two)),
            (Self::After(wait), _) | (_, Self::After(wait)) => Self::After(wait),
            (Self::Fits { wait: one }, Self::Fits { wait: two }) => {
                Self::Fits { wait: one.max(two) }
            }
        }
    }
}

/// The most that can count at a counter: that of the largest of the quotas that share it. More
/// comes from a clock that stepped back or from a larger quota, and is clamped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Most {
    /// The nanoseconds in which a bucket fills.
    pub(crate) nanos: u64,
    /// The units of a window.
    pub(crate) units: u64,
}

impl Most {
    pub(crate) fn of(quota: &Quota) -> Self {
        let units = quota.capacity() + quota.extra();
        Self {
            nanos: quota.interval_nanos().saturating_mul(units),
            units: if quota.is_uncapped() {
                MAX_COUNT
            } else {
                units
            },
        }
    }

    /// The same with as much again beyond, where nodes count what passed before they asked.
    #[cfg(feature = "redis")]
    pub(crate) fn with_debt(self) -> Self {
        Self {
            nanos: self.nanos.saturating_mul(2).min(MAX_REFILL_NANOS),
            // The most with which the scripts can reckon.
            units: self.units.saturating_mul(2).min(self.units.max(1 << 49)),
        }
    }

    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.max(other.nanos),
            units: self.units.max(other.units),
        }
    }
}

/// Whether a thread may see a state that others wrote later than it read the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockSkew {
    /// No clock can: it is read while the key is locked.
    None,
    /// A thread's clock can, by as long as it was held up between reading the clock and the update.
    /// Up to a second, or one more full quota, is then no sign of a clock that stepped back: to
    /// correct it would give away what the others took.
    Threads,
}

impl ClockSkew {
    fn tolerance(self, full: u64) -> u64 {
        match self {
            Self::None => 0,
            Self::Threads => full.max(1_000_000_000),
        }
    }
}
