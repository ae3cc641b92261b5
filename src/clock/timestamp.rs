//! `Timestamp`: a point in time.

use std::time::Duration;

/// A point in time: whole microseconds since 1970-01-01T00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub(super) u64);

impl Timestamp {
    /// The timestamp that is `micros` microseconds after the epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The timestamp that is `seconds` after the epoch.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Nanoseconds since the epoch, saturating in the year 2554.
    pub(crate) const fn as_nanos(self) -> u64 {
        self.0.saturating_mul(1_000)
    }

    /// This timestamp plus `duration`, rounded down to microseconds and saturating.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(whole_micros(duration)))
    }

    /// This timestamp minus `duration`, rounded down to microseconds and saturating.
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(whole_micros(duration)))
    }
}

pub(super) const fn whole_micros(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000)
        .saturating_add(duration.subsec_micros() as u64)
}
