//! Limiters in this process: the lock-free table of instants, and the table of states under locks.
//!
//! In comes a charge: a key, a tier, a class and an operation. Out comes a decision, at once. `limiter.rs` hashes the key (`hash.rs`), reads
//! the clock, and goes to one of two tables, chosen when the limiter is built:
//!
//! - A lone token bucket or leaky bucket is one instant for each key: `lock_free_bucket_table.rs` computes the next
//!   instant, and `table.rs` exchanges it by one atomic update.
//! - Any other quotas have an entry for each state of a key in a table under locks (`store/`), and so have all blocks. It
//!   is the limiter's own, or that of a `LocalStore`, which also charges several limits together.
//!
//! A change of quotas puts new limits in force while requests run (`tier_set.rs`). A bucket that becomes a window
//! leaves the first table for the second, once. What does not fit is evicted by its weight (`eviction.rs`). Both tables are
//! saved to one format (`state_file.rs`).
//!
//! An example: with 10 requests a second and a burst of 20, the first request of a key writes the instant 100 ms from now,
//! at which its bucket is full again. A request is denied if its own 100 ms would move that instant more than 2 s ahead.

mod eviction;
mod limiter;
mod lock_free_bucket_table;
mod state_file;
mod store;
mod table;

use std::{borrow::Cow, io::Read, path::Path, time::Duration};

use self::{
    eviction::{Capacity, DEFAULT_MAX_KEYS, DEFAULT_MAX_LOG_TIMES},
    state_file::{BlockReader, FileHeader, log_refused, open},
};
use crate::{
    clock::{Clock, OsClock, SharedClock},
    error::{ConfigError, ConfigErrorKind},
    hash::KeyHasher,
    limiter::{
        tier_quotas::OnChange,
        tier_set::{LimitTerms, TierSet},
    },
    quota::IntoQuotas,
};

pub use self::{
    limiter::LocalLimiter,
    state_file::{RestoreError, RestoreErrorKind, SaveError, SaveErrorKind, Saved},
    store::{LocalStore, LocalStoreBuilder},
};

/// Configures a [`LocalLimiter`]. Made by [`LocalLimiter::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct LocalLimiterBuilder {
    terms: LimitTerms,
    max_keys: Option<usize>,
    max_log_times: Option<usize>,
    clock: Option<SharedClock>,
    seed: Option<u64>,
}

impl LocalLimiter {
    /// A builder of a limiter for `quota`, with the default settings.
    pub fn builder(quotas: impl IntoQuotas) -> LocalLimiterBuilder {
        LocalLimiterBuilder::of(LimitTerms::of(quotas))
    }
}

impl LocalLimiterBuilder {
    #[doc(hidden)]
    pub const fn of(terms: LimitTerms) -> Self {
        Self {
            terms,
            max_keys: None,
            max_log_times: None,
            clock: None,
            seed: None,
        }
    }

    /// Adds a tier: quotas for the requests that
    /// [`RateLimitLayer::tier`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.tier) puts into the tier of this name, which must
    /// not be empty. By default there is the default tier only.
    ///
    /// Counters belong to the key, not to the tier. Quotas at the same place of their tiers that count
    /// alike (the same algorithm, period, slices, refill step, calendar) share a counter: a key that changes
    /// its tier keeps its usage. Token buckets and leaky buckets share the time until they are full
    /// again, windows and logs share units. Units that a larger quota allowed count fully for a smaller
    /// one, and can keep the key out for longer than the smaller one's own window. Quotas that do not
    /// count alike have separate counters, so a key gains nothing by alternating between tiers.
    pub fn tier(mut self, name: impl Into<Cow<'static, str>>, quotas: impl IntoQuotas) -> Self {
        self.terms.add_tier(name.into(), quotas);
        self
    }

    /// Blocks a key for this time after a denial. By default, denials do not block.
    ///
    /// The block starts with the first denial of a cost that could fit; further requests do not extend
    /// it. During the block every request is denied, whatever its cost and tier, and nothing is counted.
    /// A reset ends the block, a refund does not.
    ///
    /// With [`count_if`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.count_if), responses that count start the block instead
    /// of denials, once they have exhausted the quota in a count of their own: six parallel logins that
    /// all succeed block nobody. With [`elastic`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.elastic) or
    /// [`wait`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.wait) the block starts only if neither helps.
    pub const fn block_for(mut self, block: Duration) -> Self {
        self.terms.block_for = Some(block);
        self
    }

    /// Sets the effect on the counts when the limiter is built with another limit, burst, queue or soft share
    /// than the one of its [name](Self::name) before, or than the one whose counts are
    /// [restored](Self::restore). Defaults to [`OnChange::Keep`].
    pub const fn on_change(mut self, on_change: OnChange) -> Self {
        self.terms.on_change = on_change;
        self
    }

    /// Sets the number of keys that are tracked at the same time, whatever their hashes. The table has
    /// nearly twice as many entries, so it often holds more. Defaults to 262,144, about 8 MB for one token
    /// bucket.
    ///
    /// A key takes 30 bytes, whatever its length, for one token bucket or leaky bucket; otherwise 90 bytes
    /// for each counter, and with [`block_for`](Self::block_for) 90 more for each. On top come 40 bytes
    /// and 8 for each slice of a sliding window, and 80 and 16 to 64 for each time in a log. The table never
    /// grows beyond that, and takes memory as keys come. A key takes room only while it is not fresh. Beyond
    /// `max_keys` the key with the least usage is evicted first, measured by the time in which the usage
    /// returns. The counters of a key are evicted one by one, so it keeps the limit that it has exhausted.
    pub const fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = Some(max_keys);
        self
    }

    /// Sets how many times the [logs](crate::quota::Algorithm::SlidingLog) of all keys together have memory
    /// for, at 16 bytes each. Defaults to 4,194,304, 64 MB. A single log may hold the times that
    /// its limit needs.
    ///
    /// Beyond it each request whose log grows evicts a few others, those with the least usage of a sample.
    /// Memory stays near this bound, not exactly below it.
    pub const fn max_log_times(mut self, max_log_times: usize) -> Self {
        self.max_log_times = Some(max_log_times);
        self
    }

    /// Sets the clock. Defaults to [`OsClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(SharedClock::new(clock));
        self
    }

    /// Sets the seed of the keyed hash, for simulations. Random by default.
    #[doc(hidden)]
    pub const fn seed(mut self, seed: Option<u64>) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the limiter's name in a [store](Self::build_in). Limiters of one name in one store share the
    /// counts of quotas that have one name (or one place, for quotas without a name) and count alike. So
    /// a limiter that is rebuilt from changed settings continues with the counts of the last one. As with
    /// [tiers](Self::tier), the counts may reach the largest of those quotas while its limiter lives, and
    /// count fully for a smaller one. Defaults to none: the limiter shares nothing.
    ///
    /// A lone quota without a name has the limiter's name in header fields and metrics.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.terms.name = Some(name.into());
        self
    }

    /// Makes the limiter, with a table of its own.
    ///
    /// # Errors
    ///
    /// If a quota is invalid, see [`Quota::check`](crate::Quota::check), two quotas or two
    /// tiers have one name, there is no quota at all, the block lasts longer than 18 years,
    /// `max_keys` is 0, above 2^32 or more than there is memory for, or the limiter has a
    /// [`name`](Self::name), which is for limiters in a store.
    pub fn build(self) -> Result<LocalLimiter, ConfigError> {
        let hasher = KeyHasher::new(self.seed);
        self.build_with(hasher)
    }

    fn build_with(self, hasher: KeyHasher) -> Result<LocalLimiter, ConfigError> {
        if self.terms.name.is_some() {
            return Err(ConfigError::new(
                ConfigErrorKind::Store,
                "a limiter with a table of its own has no name, which is for limiters in a store: \
                 end with build_in(&store)",
            ));
        }
        let limits = TierSet::new(self.terms)?;
        let capacity = Capacity::checked(
            self.max_keys.unwrap_or(DEFAULT_MAX_KEYS),
            self.max_log_times.unwrap_or(DEFAULT_MAX_LOG_TIMES),
        )?;
        let clock = self.clock;
        let clock = clock.unwrap_or_else(|| SharedClock::new(OsClock::new()));
        LocalLimiter::from_parts(limits, capacity, clock, hasher)
    }

    /// Makes the limiter with a table of its own, and the counts that [`LocalLimiter::save`] wrote.
    ///
    /// Counts continue at their time: what flowed back while no process ran is back, and a block may have
    /// ended. If the clock is behind the file, the limiter treats it as a clock that stepped back.
    /// Limits, bursts, queues and the number of keys may have changed since, as by
    /// [`set_quota`](LocalLimiter::set_quota). With [`OnChange::Fresh`] all keys start afresh if the limiter of
    /// the file was built with other numbers. If fewer keys fit, those with the least usage are dropped. Of a table that is as full as its
    /// number of keys, at most one key in 1,000 finds no place.
    ///
    /// # Errors
    ///
    /// If the file is no state file, cut off, damaged, of another version, of a store or of a limiter
    /// with other quotas (another name, algorithm, period, number of slices or refill step), or the
    /// limiter cannot be [built](Self::build). Nothing of the file is used then.
    pub fn restore(self, from: impl Read) -> Result<LocalLimiter, RestoreError> {
        let mut reader = BlockReader::begin(from)?;
        let header = FileHeader::read(&mut reader)?;
        let saved = header.limit()?;
        let limiter = self.build_with(KeyHasher::of_key(header.hash_key))?;
        limiter.restore_entries(saved, &mut reader)?;
        Ok(limiter)
    }

    /// Makes the limiter with the counts of this file, if it can be [restored](Self::restore). Otherwise
    /// makes it without counts, and logs one line with the reason, unless the file does not exist.
    ///
    /// # Errors
    ///
    /// The same as [`build`](Self::build).
    pub fn restore_or_new(self, path: impl AsRef<Path>) -> Result<LocalLimiter, ConfigError> {
        let path = path.as_ref();
        let restored = open(path).and_then(|file| self.clone().restore(file));
        restored.or_else(|error| {
            log_refused(path, &error);
            self.build()
        })
    }

    /// Makes the limiter in a store, with the store's table, bounds and clock.
    ///
    /// # Errors
    ///
    /// If a quota is invalid, see [`Quota::check`](crate::Quota::check), two quotas or two
    /// tiers have one name, there is no quota at all, the block lasts longer than 18 years, or
    /// `max_keys`, `max_log_times` or `clock` was set, which are the store's.
    pub fn build_in(self, store: &LocalStore) -> Result<LocalLimiter, ConfigError> {
        let of_the_store = [
            ("max_keys", self.max_keys.is_some()),
            ("max_log_times", self.max_log_times.is_some()),
            ("clock", self.clock.is_some()),
        ];
        if let Some((setting, _)) = of_the_store.iter().find(|(_, is_set)| *is_set) {
            return Err(ConfigError::new(
                ConfigErrorKind::Store,
                format!("{setting} of a limiter in a store is the store's: set it there"),
            ));
        }
        let name = self.terms.name.clone();
        let limits = TierSet::new(self.terms)?;
        Ok(LocalLimiter::in_store(limits, name.as_deref(), store))
    }
}
