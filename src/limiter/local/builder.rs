use std::time::Duration;

use super::{LocalLimiter, capacity::Capacity};
use crate::{
    clock::{Clock, OsClock, SharedClock},
    error::{ConfigError, ConfigErrorKind},
    limiter::{
        Tier,
        quotas::{Quotas, Rules, Tiers, checked_block},
    },
    quota::{IntoQuotas, Quota},
};

/// 2^18 keys: about 8 MB.
const DEFAULT_MAX_KEYS: usize = 1 << 18;

/// 2^22 times.
const DEFAULT_MAX_LOG_TIMES: usize = 1 << 22;

/// A bucket's number is made of 32 bits.
const MOST_KEYS: u64 = 1 << 32;

/// Configures a [`LocalLimiter`]. Made by [`LocalLimiter::builder`].
#[derive(Debug)]
#[must_use]
pub struct LocalLimiterBuilder {
    /// The first one is the default.
    tiers: Vec<(Tier, Vec<Quota>)>,
    block_for: Option<Duration>,
    max_keys: usize,
    max_log_times: usize,
    clock: SharedClock,
}

impl LocalLimiterBuilder {
    pub(super) fn new(quotas: impl IntoQuotas) -> Self {
        Self {
            tiers: vec![(Tier::DEFAULT, quotas.into_quotas())],
            block_for: None,
            max_keys: DEFAULT_MAX_KEYS,
            max_log_times: DEFAULT_MAX_LOG_TIMES,
            clock: SharedClock::new(OsClock::new()),
        }
    }

    /// Quotas for the requests that [`RateLimitLayer::tier`](crate::RateLimitLayer::tier) puts
    /// into the tier of this name, which must not be empty. Defaults to no tier but the default one.
    ///
    /// Counters belong to the key and are matched by position: a key that changes its tier keeps
    /// what it has used of the first quota, the second, and so on. Windows and logs keep a count.
    /// Token buckets and leaky buckets keep the time until they are full again, so a bucket that
    /// was empty in one tier is empty in the next, and then fills at that one's rate. Where tiers
    /// differ in algorithm, period or slices at one position, a change of tier starts that one
    /// afresh or counts in other windows; tiers of one period and algorithm are what works.
    pub fn tier(self, name: &'static str, quotas: impl IntoQuotas) -> Self {
        self.with_tier(Tier::named(name), quotas)
    }

    pub(crate) fn with_tier(mut self, tier: Tier, quotas: impl IntoQuotas) -> Self {
        self.tiers.push((tier, quotas.into_quotas()));
        self
    }

    /// Keeps a key that was denied out for this long. Defaults to not at all.
    ///
    /// The block starts with the first denial of a cost that could fit; further requests do not
    /// extend it. While it lasts nothing passes and nothing is counted. A reset ends it, a refund
    /// does not.
    pub const fn block_for(mut self, block: Duration) -> Self {
        self.block_for = Some(block);
        self
    }

    /// How many keys can be tracked at the same time. Defaults to 262,144, about 8 MB for one token
    /// bucket.
    ///
    /// A key takes 30 bytes, whatever its length, for one token bucket or leaky bucket; 75 bytes
    /// and 45 more for each further quota otherwise. On top come 40 bytes and 8 for each slice of a
    /// sliding window, and 16 to 32 for each time in a log. The table is allocated at once and never
    /// grows. A key counts only while it has used something that has not come back; beyond
    /// `max_keys` the key with the least to forget is given up first.
    pub const fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// How many times the [logs](crate::Algorithm::SlidingLog) of all keys may keep together, at 16
    /// to 32 bytes each. Defaults to 4,194,304, up to 128 MB.
    ///
    /// Beyond it logs are given up, those with little to forget before those that are exhausted.
    pub const fn max_log_times(mut self, max_log_times: usize) -> Self {
        self.max_log_times = max_log_times;
        self
    }

    /// Where the time comes from. Defaults to [`OsClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = SharedClock::new(clock);
        self
    }

    /// Makes the limiter.
    ///
    /// # Errors
    ///
    /// When a quota makes no sense, see [`Quota::check`], two quotas or two tiers have one name,
    /// there is no quota at all, the block lasts longer than 18 years, or `max_keys` is 0, above
    /// 2^32 or more than there is memory for.
    pub fn build(self) -> Result<LocalLimiter, ConfigError> {
        let Self {
            tiers,
            block_for,
            max_keys,
            max_log_times,
            clock,
        } = self;
        let mut all = Tiers::default();
        for (tier, quotas) in tiers {
            all.add(tier, Quotas::new(quotas)?)?;
        }
        let rules = Rules {
            tiers: all,
            block_for: block_for.map(checked_block).transpose()?,
        };
        if max_keys == 0 || max_keys as u64 > MOST_KEYS {
            return Err(ConfigError::new(
                ConfigErrorKind::MaxKeys,
                format!("max_keys is {max_keys}; accepted are 1 to {MOST_KEYS}"),
            ));
        }
        let capacity = Capacity {
            keys: max_keys,
            log_times: max_log_times,
        };
        LocalLimiter::from_parts(rules, capacity, clock)
    }
}
