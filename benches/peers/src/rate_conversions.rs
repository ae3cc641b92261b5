//! One rate, in the words of every crate. No crate has to express more than it can.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

/// One unit comes back in every `interval`, up to `burst` units.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    pub interval: Duration,
    pub burst: u32,
}

impl Rate {
    /// One key may send as often as it likes.
    pub const UNBOUNDED: Self = Self::new(Duration::from_micros(1), 4_000_000_000);

    /// The limit of a service: never used up here, since a thousand clients share the requests.
    pub const USUAL: Self = Self::new(Duration::from_micros(10), 1_000);

    /// A usual limit for peers that know no less than a millisecond.
    pub const IN_MILLISECONDS: Self = Self::new(Duration::from_millis(1), 1_000);

    /// Units are refilled so late that every key stays in the table.
    pub const SLOW: Self = Self::new(Duration::from_secs(100), 1_000_000);

    /// A limit for peers without windows of more than a year.
    pub const SLOW_IN_A_YEAR: Self = Self::new(Duration::from_secs(100), 1_000);

    /// A limit that all clients share. It has room for a turn of requests, and is full again before the
    /// next one.
    pub const SHARED: Self = Self::new(Duration::from_micros(1), 10_000);

    /// One request a day: all but the first are denied.
    pub const USED_UP: Self = Self::new(Duration::from_secs(86_400), 1);

    /// To see whether a limiter limits.
    pub const FIVE: Self = Self::new(Duration::from_secs(3_600), 5);

    const fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst }
    }

    pub fn ours(self) -> tower_ratelimit::Quota {
        tower_ratelimit::Quota::per(1, self.interval).burst(self.burst.into())
    }

    pub fn governor(self) -> governor::Quota {
        let quota = governor::Quota::with_period(self.interval).expect("an interval above 0");
        quota.allow_burst(self.burst_u32())
    }

    pub fn axum_gcra(self) -> axum_gcra::gcra::Quota {
        let burst = NonZeroU64::from(self.burst_u32());
        axum_gcra::gcra::Quota::new(self.interval, burst)
    }

    /// This rate as a fixed window.
    pub fn as_window(self) -> (u64, Duration) {
        (self.burst.into(), self.interval * self.burst)
    }

    /// This rate as units in whole seconds, which is all that limitador knows.
    pub fn in_seconds(self) -> (u64, u64) {
        let (limit, window) = self.as_window();
        let seconds = window.as_secs().max(1);
        let units = Duration::from_secs(seconds).as_nanos() / self.interval.as_nanos();
        (limit.max(units as u64), seconds)
    }

    /// This rate for a limiter without keys. No run may use up what a thousand clients share.
    pub const fn without_keys(self) -> Self {
        if self.burst < Self::USUAL.burst {
            self
        } else {
            Self::UNBOUNDED
        }
    }

    pub fn burst_u32(self) -> NonZeroU32 {
        NonZeroU32::new(self.burst).expect("a burst above 0")
    }
}
