//! `QuotaChange`: the effect of a changed quota on a key that had exhausted the old one.

use std::{fmt, time::Duration};

use super::{
    local::LocalLimiter,
    tier::{OnChange, numbers},
};
use crate::{
    algorithm::{least_limit_begins, long_window_begins},
    clock::{ManualClock, Timestamp},
    key::Key,
    quota::Quota,
};

/// A changed quota, and the units that it gives to a key that had exhausted the old one.
///
/// `Display` is a line for operators.
///
/// ```
/// use tower_ratelimit::{
///     Quota,
///     limiter::{OnChange, QuotaChange},
/// };
///
/// let (before, after) = (Quota::per_minute(2), Quota::per_minute(5));
/// let change = QuotaChange::new("login", before, after, OnChange::Keep);
/// assert_eq!(change.available, 0);
/// assert_eq!(change.next_unit, Some(std::time::Duration::from_secs(12)));
/// let change = QuotaChange::new("login", before, after, OnChange::Fresh);
/// assert_eq!(change.available, 5);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaChange {
    /// The name of the quota's policy.
    pub name: String,
    /// The old quota.
    pub before: Quota,
    /// The new quota.
    pub after: Quota,
    /// Whether the counts start afresh: by [`OnChange::Fresh`], or because the algorithm, period,
    /// number of slices or refill step has changed.
    pub starts_afresh: bool,
    /// The units that the key has at once, including the soft share.
    pub available: u64,
    /// The longest time until the key has its next unit; `None` if it has one at once.
    pub next_unit: Option<Duration>,
}

impl QuotaChange {
    /// The change of a quota that shares no counter with another tier. Both quotas are
    /// [valid](Quota::check); for an invalid one `available` is 0.
    pub fn new(name: impl Into<String>, before: Quota, after: Quota, on_change: OnChange) -> Self {
        let is_fresh = on_change == OnChange::Fresh && numbers(&before) != numbers(&after);
        let mut change = Self {
            name: name.into(),
            before,
            after,
            starts_afresh: is_fresh || !before.counts_like(&after),
            available: 0,
            next_unit: None,
        };
        change.measure();
        change
    }

    /// The change, with counts that start afresh for another reason.
    #[doc(hidden)]
    #[must_use]
    pub fn afresh(mut self) -> Self {
        self.starts_afresh = true;
        self.measure();
        self
    }

    /// Measures the effect with a limiter. Its windows begin at the instant of the change, the longest
    /// possible wait.
    fn measure(&mut self) {
        let name = "changed";
        let first = if self.starts_afresh {
            self.after
        } else {
            self.before
        };
        let start = long_window_begins(&first);
        // For a limit that varies, the hour in which the least comes back.
        let hour = least_limit_begins(&first).or_else(|| least_limit_begins(&self.after));
        let start = (start + hour.unwrap_or(0)) / 1_000;
        let clock = ManualClock::at(Timestamp::from_micros(start));
        let limiter = LocalLimiter::builder(first.named(name)).max_keys(1);
        let Ok(limiter) = limiter.clock(clock).build() else {
            return;
        };
        let key = Key::from(name);
        if !self.starts_afresh {
            limiter.hit(&key, u64::MAX);
            if limiter.set_quota(name, self.after.named(name)).is_err() {
                return;
            }
        }
        self.available = limiter.acquire_up_to(&key, u64::MAX).charged();
        self.next_unit = limiter.peek(&key, 1).retry_after();
        if self.available > 0 {
            self.next_unit = None;
        }
    }
}

impl fmt::Display for QuotaChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            before,
            after,
            ..
        } = self;
        write!(f, "{name}: {before} is now {after}; ")?;
        match (self.starts_afresh, self.next_unit) {
            (true, _) => f.write_str("all keys start afresh"),
            (false, None) => write!(
                f,
                "counts are kept, and a key that was used up has {} at once",
                self.available
            ),
            (false, Some(wait)) => write!(
                f,
                "counts are kept, and a key that was used up has its next unit after at most {}",
                Rounded(wait)
            ),
        }
    }
}

/// A time in whole seconds, or milliseconds below one, rounded up.
struct Rounded(Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        match nanos {
            0..1_000_000_000 => write!(f, "{} ms", nanos.div_ceil(1_000_000)),
            _ => write!(f, "{} s", nanos.div_ceil(1_000_000_000)),
        }
    }
}
