//! Times in whole nanoseconds, and their rounding to whole micro- and whole seconds.

use std::time::Duration;

/// A number that is not known.
#[doc(hidden)]
pub const UNKNOWN: u64 = u64::MAX;

/// The largest number that is known. As a time it stands for [`Duration::MAX`] and all that do not fit, which are longer
/// than 584 years.
pub(super) const LONGEST: u64 = UNKNOWN - 1;

/// Whole seconds, rounded up, so that a client that waits this long does not retry too early.
#[doc(hidden)]
pub const fn whole_seconds(duration: Duration) -> u64 {
    let partial = duration.subsec_nanos() > 0;
    duration.as_secs().saturating_add(partial as u64)
}

pub(crate) const fn nanos_of(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 {
        LONGEST
    } else if nanos >= LONGEST as u128 {
        LONGEST - 1
    } else {
        nanos as u64
    }
}

/// The time in microseconds, rounded up; `None` if it is unknown.
pub(super) const fn time_of(nanos: u64) -> Option<Duration> {
    match nanos {
        UNKNOWN => None,
        LONGEST => Some(Duration::MAX),
        nanos => Some(Duration::from_micros(nanos.div_ceil(1_000))),
    }
}

/// The time in whole seconds, rounded up; `None` if it is unknown.
#[inline]
pub(super) const fn seconds_of(nanos: u64) -> Option<u64> {
    match nanos {
        UNKNOWN => None,
        LONGEST => Some(whole_seconds(Duration::MAX)),
        nanos => Some(nanos.div_ceil(1_000_000_000)),
    }
}

/// Nanoseconds of a time in microseconds, rounded up.
pub(super) const fn whole_micros(nanos: u64) -> u64 {
    nanos.div_ceil(1_000).saturating_mul(1_000)
}
