//! The builder of a limiter in this process.

use std::{borrow::Cow, time::Duration};

use super::{capacity::Capacity, limiter::LocalLimiter};
use crate::{
    clock::{Clock, OsClock, SharedClock},
    error::ConfigError,
    limiter::{Tier, limits::Limits},
    quota::{IntoQuotas, OwnedQuota},
};

/// 2^18 keys: about 8 MB.
const DEFAULT_MAX_KEYS: usize = 1 << 18;

/// 2^22 times.
const DEFAULT_MAX_LOG_TIMES: usize = 1 << 22;

/// Configures a [`LocalLimiter`]. Made by [`LocalLimiter::builder`].
#[derive(Debug)]
#[must_use]
pub struct LocalLimiterBuilder {
    /// The first one is the default.
    tiers: Vec<(Tier, Vec<OwnedQuota>)>,
    block_for: Option<Duration>,
    max_keys: usize,
    max_log_times: usize,
    clock: SharedClock,
}

impl LocalLimiter {
    /// Starts to configure a limiter for `quota`.
    pub fn builder(quotas: impl IntoQuotas) -> LocalLimiterBuilder {
        LocalLimiterBuilder::new(quotas)
    }
}

impl LocalLimiterBuilder {
    fn new(quotas: impl IntoQuotas) -> Self {
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
    /// Counters belong to the key, not to the tier. Quotas that stand at the same place of their
    /// tiers and count alike (the same algorithm, period, slices and refill step) share one: a key
    /// that changes its tier keeps what it has used. Token buckets and leaky buckets share the time
    /// until they are full again, windows and logs share units; what a larger quota let pass is
    /// judged by a smaller one as it is, and can keep the key out for longer than the smaller one's
    /// own window. Quotas that do not count alike have a counter each, so alternating between tiers
    /// gives nothing back.
    pub fn tier(self, name: impl Into<Cow<'static, str>>, quotas: impl IntoQuotas) -> Self {
        self.with_tier(Tier::of_name(name.into()), quotas)
    }

    pub(crate) fn with_tier(mut self, tier: Tier, quotas: impl IntoQuotas) -> Self {
        self.tiers.push((tier, quotas.into_quotas()));
        self
    }

    /// Keeps a key that was denied out for this long. Defaults to not at all.
    ///
    /// The block starts with the first denial of a cost that could fit; further requests do not
    /// extend it. While it lasts every request is denied, whatever its cost and tier, and nothing is
    /// counted. A reset ends it, a refund does not.
    ///
    /// With [`count_if`](crate::RateLimitLayer::count_if) a denial starts no block, but a response
    /// that counts and leaves nothing of the same quota, of which only such responses take: six
    /// parallel logins that all succeed block nobody. With
    /// [`elastic`](crate::RateLimitLayer::elastic) or [`wait`](crate::RateLimitLayer::wait) the block
    /// starts only if neither helps.
    pub const fn block_for(mut self, block: Duration) -> Self {
        self.block_for = Some(block);
        self
    }

    /// How many keys can be tracked at the same time. Defaults to 262,144, about 8 MB for one token
    /// bucket.
    ///
    /// A key takes 30 bytes, whatever its length, for one token bucket or leaky bucket; 75 bytes
    /// and 45 more for each further counter otherwise, and with [`block_for`](Self::block_for) 45
    /// more for each counter. On top come 40 bytes and 8 for each slice of a sliding window, and 80
    /// and 16 to 64 for each time in a log. The table never grows beyond that, and takes memory as
    /// keys come. A key counts only while it has used something that has not come back; beyond
    /// `max_keys` the key with the least to forget is given up first: that of which the least time
    /// flows back.
    pub const fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// For how many times the [logs](crate::Algorithm::SlidingLog) of all keys may hold memory
    /// together, at 16 bytes each. Defaults to 4,194,304, 64 MB. One log alone may hold what its
    /// limit needs.
    ///
    /// Beyond it each request whose log grows gives up a few others: of those that it looks at, the
    /// ones with the least to forget. So the bound is approached, not kept to the byte.
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
    /// When a quota makes no sense, see [`Quota::check`](crate::Quota::check), two quotas or two tiers have one name,
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
        let limits = Limits::new(tiers, block_for)?;
        let capacity = Capacity::checked(max_keys, max_log_times)?;
        LocalLimiter::from_parts(limits, capacity, clock)
    }
}
