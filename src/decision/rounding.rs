//! Times in whole micro- and nanoseconds, and the rounding to whole seconds.

use std::{fmt, num::NonZeroU64, time::Duration};

/// Whole seconds, rounded up, so that a client that waits this long does not retry too early.
pub(crate) const fn whole_seconds(duration: Duration) -> u64 {
    let partial = duration.subsec_nanos() > 0;
    duration.as_secs().saturating_add(partial as u64)
}

/// A time in whole microseconds, rounded up. The longest value also represents all longer times.
///
/// Stored plus one, so that an `Option` takes no extra room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Micros(NonZeroU64);

impl Micros {
    const LONGEST: Self = Self(NonZeroU64::MAX);

    pub(crate) const fn new(micros: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(micros))
    }

    pub(super) const fn from_nanos(nanos: u64) -> Self {
        Self::new(nanos.div_ceil(1_000))
    }

    pub(super) const fn from_duration(duration: Duration) -> Self {
        let partial = !duration.subsec_nanos().is_multiple_of(1_000);
        let below_a_second = duration.subsec_micros() as u64 + partial as u64;
        let seconds = duration.as_secs().saturating_mul(1_000_000);
        Self::new(seconds.saturating_add(below_a_second))
    }

    pub(super) const fn get(self) -> u64 {
        self.0.get() - 1
    }

    pub(super) const fn duration(self) -> Duration {
        if self.get() == Self::LONGEST.get() {
            Duration::MAX
        } else {
            Duration::from_micros(self.get())
        }
    }

    /// Whole seconds, rounded up.
    pub(super) const fn whole_seconds(self) -> u64 {
        if self.get() == Self::LONGEST.get() {
            whole_seconds(Duration::MAX)
        } else {
            self.get().div_ceil(1_000_000)
        }
    }

    pub(super) const fn saturating_add(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.get()))
    }

    /// Subtracts `passed` microseconds; the result is at least `least`.
    pub(super) fn less(self, passed: u64, least: u64) -> Self {
        Self::new(self.get().saturating_sub(passed).max(least))
    }
}

/// A time in whole nanoseconds. The longest value, 584 years, represents `Duration::MAX` and all
/// times that do not fit.
///
/// Stored plus one, like [`Micros`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Nanos(NonZeroU64);

impl Nanos {
    pub(super) const fn from_duration(duration: Duration) -> Self {
        let nanos = duration.as_nanos();
        let nanos = if nanos > u64::MAX as u128 {
            u64::MAX
        } else {
            nanos as u64
        };
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    pub(super) const fn get(self) -> u64 {
        self.0.get() - 1
    }

    pub(super) const fn duration(self) -> Duration {
        if self.0.get() == u64::MAX {
            Duration::MAX
        } else {
            Duration::from_nanos(self.get())
        }
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.duration().fmt(f)
    }
}
