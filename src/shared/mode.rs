//! Modes: how a limiter that all nodes share asks its store.

use std::{num::NonZeroU8, time::Duration};

use super::lease::LONGEST_LEASE;
use crate::error::{ConfigError, ConfigErrorKind};

const SHORTEST_LEASE: Duration = Duration::from_millis(100);

const DEFAULT_LENGTH: Duration = Duration::from_secs(1);

/// 2^14 subjects.
pub(super) const DEFAULT_MAX_LEASES: usize = 1 << 14;

/// A number of leases that fits into memory.
const MOST_LEASES: usize = 1 << 24;

/// How the nodes of a limiter share their limit: set by
/// [`RedisLimiterBuilder::mode`](super::RedisLimiterBuilder::mode).
///
/// ```
/// use std::time::Duration;
/// use tower_ratelimit::{Quota, shared::{MemoryStore, Mode, SharedLimiter}};
///
/// let limiter = SharedLimiter::builder(Quota::per_second(10_000))
///     .mode(Mode::leased().length(Duration::from_secs(2)).max_units(5_000))
///     .build_on(MemoryStore::new())?;
/// # let _ = limiter;
/// # Ok::<_, tower_ratelimit::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Mode {
    kind: ModeKind,
    length: Option<Duration>,
    max_units: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModeKind {
    Strict,
    Leased,
}

/// The settings of leases, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseTerms {
    /// How long a lease lasts.
    pub(super) length: Duration,
    /// The most units of one.
    pub(super) max_units: u32,
    /// The most subjects that may have one.
    pub(super) max_leases: usize,
}

impl Mode {
    /// The store decides about each request: one round trip, or a share of one. The default.
    pub const fn strict() -> Self {
        Self {
            kind: ModeKind::Strict,
            length: None,
            max_units: None,
        }
    }

    /// A node reserves units of a busy key in the store, and spends them without asking: a lease.
    ///
    /// No more passes than with [`strict`](Self::strict), on whatever nodes. While some nodes hold
    /// units that they do not use, others may be denied that much, for one
    /// [length](Self::length) at most; idle nodes give back within an eighth of it. A request waits
    /// for the store only where its node holds too little: when a key becomes busy, when a window
    /// begins, and while all want more than there is, for which a node asks from time to time and
    /// denies in between. A key that is asked for less than 8 units in a quarter of the length on a
    /// node is decided as with `strict`.
    ///
    /// Nodes in strict mode may share a limiter with those that lease. When the store does not
    /// answer, a node spends the units that it has until their lease ends. A limiter that has a
    /// leaky bucket as a queue or an [uncapped](crate::Quota::uncapped) window among its quotas, or
    /// `block_for`, stays strict.
    pub const fn leased() -> Self {
        Self {
            kind: ModeKind::Leased,
            length: None,
            max_units: None,
        }
    }

    /// How long a lease lasts, from 100 milliseconds to a minute. Defaults to a second.
    ///
    /// The units of a node that is gone come back after this time, counted as spent. With a longer
    /// one there are fewer calls.
    pub const fn length(mut self, length: Duration) -> Self {
        self.length = Some(length);
        self
    }

    /// The most units of one key that a node holds, at least 2. Defaults to no bound but its share
    /// by what the nodes were asked for.
    pub const fn max_units(mut self, units: u32) -> Self {
        self.max_units = Some(units);
        self
    }

    /// The terms of leases, if there are to be any.
    ///
    /// # Errors
    ///
    /// When a setting is out of its bounds, or is one of another mode.
    pub(super) fn lease_terms(self, max_leases: usize) -> Result<Option<LeaseTerms>, ConfigError> {
        if !(1..=MOST_LEASES).contains(&max_leases) {
            return refuse(format!(
                "max_leases({max_leases}): accepted are 1 to {MOST_LEASES}"
            ));
        }
        if self.kind == ModeKind::Strict {
            return match (self.length, self.max_units) {
                (None, None) => Ok(None),
                _ => refuse("strict mode has no leases: neither length nor units".to_owned()),
            };
        }
        let length = self.length.unwrap_or(DEFAULT_LENGTH);
        if !(SHORTEST_LEASE..=LONGEST_LEASE).contains(&length) {
            return refuse(format!(
                "a lease of {length:?}: accepted are {SHORTEST_LEASE:?} to {LONGEST_LEASE:?}"
            ));
        }
        let max_units = self.max_units.unwrap_or(u32::MAX);
        if max_units < 2 {
            return refuse(format!(
                "max_units({max_units}): a lease has at least 2 units"
            ));
        }
        Ok(Some(LeaseTerms {
            length,
            max_units,
            max_leases,
        }))
    }
}

impl Default for Mode {
    fn default() -> Self {
        Self::strict()
    }
}

fn refuse<T>(message: String) -> Result<T, ConfigError> {
    Err(ConfigError::new(ConfigErrorKind::Lease, message))
}

/// Between which messages about its lease a unit was spent, as a receipt tells it. After 255 of them
/// the numbers begin anew; the time tells such apart.
pub(super) type LeaseNumber = NonZeroU8;

/// The work of a limiter's leases since it was made, in this process.
///
/// All numbers are 0 in [strict](Mode::strict) mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ModeStats {
    /// Operations that were answered without the store: from a lease, or because a denial still
    /// holds.
    pub local: u64,
    /// Operations that the store was asked for.
    pub asked: u64,
    /// Units that were granted.
    pub granted: u64,
    /// Units that were spent, and told to the store.
    pub settled: u64,
    /// Units that were given back.
    pub returned: u64,
    /// Units, spent or not, of leases that ended before the store was told: it counts them as spent.
    pub ended: u64,
    /// Messages about leases that were sent once more, since no answer came.
    pub repeated: u64,
    /// Messages that came too late to take effect: the node began anew.
    pub stale: u64,
}

#[cfg(feature = "metrics")]
impl crate::observe::MetricsObserver {
    /// Records a limiter's [`mode_stats`](crate::RedisLimiter::mode_stats), as counters that have
    /// the label `backend`: `ratelimit_lease_decisions_total` by `decided` (`local`, `asked`),
    /// `ratelimit_lease_units_total` by `fate` (`granted`, `settled`, `returned`, `ended`) and
    /// `ratelimit_lease_messages_total` by `fate` (`repeated`, `stale`). Call it from where metrics
    /// are scraped.
    pub fn record_mode(&self, stats: &ModeStats) {
        use metrics::counter;
        let backend = self.backend_label();
        for (decided, count) in [("local", stats.local), ("asked", stats.asked)] {
            counter!("ratelimit_lease_decisions_total", "backend" => backend, "decided" => decided)
                .absolute(count);
        }
        for (fate, count) in [
            ("granted", stats.granted),
            ("settled", stats.settled),
            ("returned", stats.returned),
            ("ended", stats.ended),
        ] {
            counter!("ratelimit_lease_units_total", "backend" => backend, "fate" => fate)
                .absolute(count);
        }
        for (fate, count) in [("repeated", stats.repeated), ("stale", stats.stale)] {
            counter!("ratelimit_lease_messages_total", "backend" => backend, "fate" => fate)
                .absolute(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_bounds_are_refused() {
        let terms = |mode: Mode| mode.lease_terms(DEFAULT_MAX_LEASES);
        assert_eq!(terms(Mode::strict()), Ok(None));
        let leased = Mode::leased();
        let known = terms(leased).expect("the defaults are good");
        let known = known.expect("leases");
        assert_eq!((known.length, known.max_units), (DEFAULT_LENGTH, u32::MAX));
        for bad in [
            leased.length(Duration::from_millis(99)),
            leased.length(Duration::from_millis(60_001)),
            leased.max_units(1),
            Mode::strict().length(DEFAULT_LENGTH),
            Mode::strict().max_units(2),
        ] {
            let error = terms(bad).expect_err("out of bounds");
            assert_eq!(error.kind(), ConfigErrorKind::Lease, "{bad:?}");
        }
        for bounds in [SHORTEST_LEASE, LONGEST_LEASE] {
            assert!(terms(leased.length(bounds).max_units(2)).is_ok());
        }
        for leases in [0, MOST_LEASES + 1] {
            assert!(leased.lease_terms(leases).is_err());
        }
    }
}
