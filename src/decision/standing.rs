use std::fmt;

use super::round::Micros;

/// What is left of a quota, and when there is more.
#[derive(Clone, Copy)]
pub(crate) enum Standing {
    Level(Level),
    Numbers(Numbers),
}

/// A bucket that fills evenly, in nanoseconds. All numbers follow from these three, by divisions
/// that only those pay for who ask for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level {
    /// The time until the bucket is full.
    pub(crate) used: u64,
    /// The time in which the nominal limit comes.
    pub(crate) refill: u64,
    /// The time in which one unit comes.
    pub(crate) interval: u64,
}

/// What was found out or told; `None` for what is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(super) remaining: Option<u64>,
    pub(super) reset_after: Option<Micros>,
    pub(super) effective_window: Option<Micros>,
}

impl Level {
    /// Whether more is used than the nominal limit.
    #[inline]
    pub(crate) const fn is_excess(self) -> bool {
        self.used > self.refill
    }

    #[inline]
    pub(crate) const fn remaining(self) -> u64 {
        self.refill.saturating_sub(self.used) / self.interval
    }

    /// The time in which what remains comes, or the next unit if nothing does.
    #[inline]
    pub(crate) const fn effective_window(self) -> u64 {
        match self.remaining() {
            0 => self.used + self.interval - self.refill,
            remaining => remaining * self.interval,
        }
    }
}

impl Standing {
    pub(super) const UNKNOWN: Self = Self::Numbers(Numbers {
        remaining: None,
        reset_after: None,
        effective_window: None,
    });

    /// What an algorithm counted, with times in nanoseconds.
    pub(crate) const fn counted(remaining: u64, reset_after: u64, effective_window: u64) -> Self {
        Self::Numbers(Numbers {
            remaining: Some(remaining),
            reset_after: Some(Micros::from_nanos(reset_after)),
            effective_window: Some(Micros::from_nanos(effective_window)),
        })
    }

    #[inline]
    pub(super) const fn numbers(self) -> Numbers {
        match self {
            Self::Numbers(numbers) => numbers,
            Self::Level(level) => Numbers {
                remaining: Some(level.remaining()),
                reset_after: Some(Micros::from_nanos(level.used)),
                effective_window: Some(Micros::from_nanos(level.effective_window())),
            },
        }
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.numbers().fmt(f)
    }
}

/// Alike is what says the same.
impl PartialEq for Standing {
    fn eq(&self, other: &Self) -> bool {
        self.numbers() == other.numbers()
    }
}

impl Eq for Standing {}
