//! `Priority`: the share of a limit that a class of requests may use.

use std::fmt;

use crate::error::{ConfigError, ConfigErrorKind};

/// The share of a limit that a class of requests may use. The rest is kept for classes with larger
/// shares. Set by [`RateLimitLayer::priority`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.priority) and
/// [`ConcurrencyLayer::priority`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.ConcurrencyLayer.html#method.priority).
///
/// All classes use one counter. A class with a share below 100 % is allowed while its units fit in
/// ⌊limit · share / 100⌋, at least one unit, whoever has used them. A quota's [soft](crate::Quota::soft)
/// share is for [`CRITICAL`](Self::CRITICAL) requests only.
///
/// # A request that is shed
///
/// A denial that only the class caused, because a critical request of this cost would pass, is
/// [shed](crate::Decision::is_shed). Its wait is the time until the cost fits in the part of the class. It
/// starts no block. A denial that critical requests would get as well is an ordinary one, and so is one by
/// a block: a client whose other requests use up the limit, or that is blocked, has none left for its
/// critical requests either. Give clients limits of their own where one must not exhaust another's.
///
/// `remaining` is what the class may still take; the limit in headers stays the whole one. A cost above the
/// part never fits. A [`Hit`](crate::decision::Op::Hit) and a request that passes an
/// [elastic](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.elastic) layer charge at most the part; corrections by the response do
/// not depend on classes. Requests that [wait](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.wait) form a queue for each class.
///
/// Priorities are ordered: the larger share is the higher priority.
///
/// ```
/// use tower_ratelimit::Priority;
///
/// const BATCH: Priority = Priority::share(50).expect("a share from 1 to 100");
/// assert!(BATCH < Priority::CRITICAL);
/// assert!(Priority::share(0).is_none() && Priority::share(101).is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use]
pub struct Priority(u8);

impl Priority {
    /// The whole limit, soft share included. Requests without a priority are of this class.
    pub const CRITICAL: Self = Self(100);

    /// At most `percent` of the limit; `None` for 0 and above 100. [`TryFrom<u8>`](TryFrom) returns an
    /// error instead.
    pub const fn share(percent: u8) -> Option<Self> {
        match percent {
            1..=100 => Some(Self(percent)),
            _ => None,
        }
    }

    /// The share in percent, 1 to 100.
    pub const fn percent(self) -> u8 {
        self.0
    }

    #[doc(hidden)]
    pub const fn is_critical(self) -> bool {
        self.0 == Self::CRITICAL.0
    }

    /// The units of this capacity that the class may use, without a soft share. A capacity of less than
    /// one unit for the class is one unit, so that a change of quotas does not lock the class out.
    #[doc(hidden)]
    pub const fn part_of(self, capacity: u64) -> u64 {
        let part = self.exact_part_of(capacity);
        if part == 0 && capacity > 0 { 1 } else { part }
    }

    /// [`part_of`](Self::part_of), also less than one unit.
    #[doc(hidden)]
    pub const fn exact_part_of(self, capacity: u64) -> u64 {
        // ⌊capacity · share / 100⌋ in two parts that cannot overflow: a policy of a user's limiter may
        // have any limit.
        let share = self.0 as u64;
        capacity / 100 * share + capacity % 100 * share / 100
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::CRITICAL
    }
}

/// # Errors
///
/// If the share is not 1 to 100.
impl TryFrom<u8> for Priority {
    type Error = ConfigError;

    fn try_from(percent: u8) -> Result<Self, ConfigError> {
        Self::share(percent).ok_or_else(|| {
            ConfigError::new(
                ConfigErrorKind::Priority,
                format!("a share of {percent} %; 1 to 100 are accepted"),
            )
        })
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_1_to_100_percent() {
        for percent in 0..=u8::MAX {
            let is_share = (1..=100).contains(&percent);
            assert_eq!(Priority::share(percent).is_some(), is_share);
            let made = Priority::try_from(percent);
            assert_eq!(made.is_ok(), is_share);
            if let Err(error) = made {
                let text = error.to_string();
                assert!(text.contains(&format!("a share of {percent} %")), "{text}");
                assert!(text.contains("1 to 100"), "{text}");
            }
        }
    }

    /// The part is the capacity less the floor ⌈capacity · (100 − share) / 100⌉.
    #[test]
    fn the_rest_of_a_capacity_is_the_floor_rounded_up() {
        for capacity in (0..500).chain([1 << 53, (1 << 53) - 1, u64::MAX - 1, u64::MAX]) {
            for percent in 1..=100_u8 {
                let class = Priority::share(percent).expect("a share");
                let floor = (u128::from(capacity) * u128::from(100 - percent)).div_ceil(100);
                let exact = u128::from(class.exact_part_of(capacity));
                assert_eq!(exact, u128::from(capacity) - floor);
                let part = class.part_of(capacity);
                assert_eq!(u128::from(part), exact.max(u128::from(capacity.min(1))));
            }
        }
    }
}
