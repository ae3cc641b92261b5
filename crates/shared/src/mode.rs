//! Modes: when a limiter of all nodes calls its store, and what it decides on the node.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, num::NonZeroU8, time::Duration};

use super::wire::LONGEST_LEASE;
use tower_ratelimit_core::{
    error::{ConfigError, ConfigErrorKind},
    limiter::limits_in_force::TierSet,
    quota::{Algorithm, Priority, Quota},
};

const SHORTEST_LEASE: Duration = Duration::from_millis(100);

const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

const DEFAULT_LENGTH: Duration = Duration::from_secs(1);

/// 2^14 subjects.
pub(super) const DEFAULT_MAX_LEASES: usize = 1 << 14;

/// The largest accepted `max_leases`: more do not fit into memory.
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
    ahead: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModeKind {
    Strict,
    Leased,
    /// With this time between two messages.
    Eventual(Duration),
}

/// The settings of a node's accounts, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// How long a lease lasts; in eventual mode the time between two messages.
    pub(super) length: Duration,
    /// The most units of a subject that a node has spent and the store has not counted: none in leased mode, which
    /// reserves them.
    pub(super) overdraft: u32,
    /// The most units of a lease.
    pub(super) most: u32,
    /// The most subjects with an account.
    pub(super) max_accounts: usize,
    /// Whether a denial is cached until its wait is over, rather than for one pause.
    pub(super) remembers_denials: bool,
    /// No reply comes later than this after its message: twice the store's deadline.
    pub(super) patience: Duration,
}

impl Mode {
    const fn of(kind: ModeKind) -> Self {
        Self {
            kind,
            length: None,
            max_units: None,
            ahead: None,
        }
    }

    /// The store decides about each request: one round trip, or a share of one. The default.
    pub const fn strict() -> Self {
        Self::of(ModeKind::Strict)
    }

    /// A node reserves units of a busy key in the store, a lease, and spends them without further
    /// calls.
    ///
    /// All nodes together allow no more than with [`strict`](Self::strict). While a node holds
    /// units that it does not use, other nodes may be denied that much, for one
    /// [length](Self::length) at most; an idle node returns most of its units within half of that.
    /// A request waits for the store only if its node holds too few units: when a key becomes busy,
    /// when a window begins, and while the nodes want more units than the limit has. In that case a
    /// node requests units at intervals and denies in between. A key with fewer than 8 units of
    /// requests in a quarter of the length on a node is decided as with `strict`.
    ///
    /// Nodes in strict mode can share a limiter with nodes in leased mode. While the store does not
    /// respond, a node spends the units that it has until their lease ends. A limiter stays strict
    /// if it has `block_for`, or a leaky bucket as a queue or an [uncapped](tower_ratelimit_core::Quota::uncapped)
    /// window among its quotas.
    pub const fn leased() -> Self {
        Self::of(ModeKind::Leased)
    }

    /// A node decides without a call, and reports to the store afterwards: after each `interval`,
    /// at least 10 milliseconds, and whenever it has allowed half of [`ahead`](Self::ahead).
    ///
    /// A request waits for the store only if its node has already allowed `ahead` units: it is then
    /// decided as with [`strict`](Self::strict). In return the nodes may allow more than the limit:
    /// N nodes at most (N − 1) · `ahead` units, in any window or in addition to any burst,
    /// whichever messages are lost. A bucket recovers the excess: it goes into debt, up to its
    /// capacity, and allows nothing until the debt is paid. Over time exactly the limit is allowed,
    /// as long as (N − 1) · `ahead` is no more than the capacity. A restarted node, and a key that
    /// changes its tier, count as one node more.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_ratelimit::{Quota, shared::{MemoryStore, Mode, SharedLimiter}};
    ///
    /// let limiter = SharedLimiter::builder(Quota::per_second(1_000))
    ///     .mode(Mode::eventual(Duration::from_millis(50)).ahead(20))
    ///     .build_on(MemoryStore::new())?;
    /// # let _ = limiter;
    /// # Ok::<_, tower_ratelimit::ConfigError>(())
    /// ```
    ///
    /// All nodes of a limiter have to be in this mode: other nodes forget a bucket's debt. While
    /// the store does not respond, a node allows `ahead` units of each key, and then `on_failure`
    /// decides. The node reports these units when the store responds again. If a response is
    /// missing for ten seconds, the store may count units twice, never too few. A leaky bucket as a
    /// queue, an uncapped window and `block_for` are refused: only the store can decide about them.
    pub const fn eventual(interval: Duration) -> Self {
        Self::of(ModeKind::Eventual(interval))
    }

    /// The most units of one key that a node allows before it reports them: from 1 to the smallest
    /// capacity among the quotas. Required in [`eventual`](Self::eventual) mode.
    pub const fn ahead(mut self, units: u32) -> Self {
        self.ahead = Some(units);
        self
    }

    /// How long a lease lasts, from 100 milliseconds to a minute. Defaults to a second.
    ///
    /// The units of a node that disappears stay reserved until its lease ends, and then count as
    /// spent. A longer lease needs fewer calls.
    pub const fn length(mut self, length: Duration) -> Self {
        self.length = Some(length);
        self
    }

    /// The most units of one key that a node holds, at least 2. By default only the node's share of
    /// the demand on all nodes bounds them.
    pub const fn max_units(mut self, units: u32) -> Self {
        self.max_units = Some(units);
        self
    }

    /// Checks the settings. Returns those of the accounts, or `None` in strict mode.
    ///
    /// # Errors
    ///
    /// If a setting is out of its bounds, or belongs to another mode.
    pub(super) fn terms(
        self,
        max_accounts: usize,
        limits: &TierSet,
    ) -> Result<Option<Terms>, ConfigError> {
        if !(1..=MOST_LEASES).contains(&max_accounts) {
            return refuse(format!(
                "max_leases({max_accounts}): accepted are 1 to {MOST_LEASES}"
            ));
        }
        if self.ahead.is_some() && !matches!(self.kind, ModeKind::Eventual(_)) {
            return refuse("ahead belongs to eventual mode: no other is ahead");
        }
        if self.kind != ModeKind::Leased && (self.length, self.max_units) != (None, None) {
            return refuse("length and max_units belong to leased mode");
        }
        let length = self.length.unwrap_or(DEFAULT_LENGTH);
        let most = self.max_units.unwrap_or(u32::MAX);
        let (length, overdraft) = match self.kind {
            ModeKind::Strict => return Ok(None),
            ModeKind::Leased => {
                if !(SHORTEST_LEASE..=LONGEST_LEASE).contains(&length) {
                    return refuse(format!(
                        "a lease of {length:?}: accepted are {SHORTEST_LEASE:?} to {LONGEST_LEASE:?}"
                    ));
                }
                if most < 2 {
                    return refuse(format!("max_units({most}): a lease has at least 2 units"));
                }
                if obstacle(limits).is_some() {
                    return Ok(None);
                }
                (length, 0)
            }
            ModeKind::Eventual(interval) => {
                if !(SHORTEST_INTERVAL..=LONGEST_LEASE).contains(&interval) {
                    return refuse(format!(
                        "eventual mode with an interval of {interval:?}: accepted are \
                         {SHORTEST_INTERVAL:?} to {LONGEST_LEASE:?}"
                    ));
                }
                let Some(ahead) = self.ahead else {
                    return refuse(
                        "eventual mode without ahead: say how many units of a key a node may let \
                         pass before the store has counted them",
                    );
                };
                check_ahead(ahead, limits)?;
                (interval, ahead)
            }
        };
        Ok(Some(Terms {
            length,
            overdraft,
            most,
            max_accounts,
            remembers_denials: true,
            patience: Duration::MAX,
        }))
    }
}

/// What keeps nodes from deciding about units of these limits by themselves, if anything does. In leased mode an uncapped
/// window would not count units that nodes hold, those that other nodes hold would block a key that has not used up
/// its quota, and windows of the calendar are too long for leases to matter.
fn obstacle(limits: &TierSet) -> Option<&'static str> {
    let obstacles = [
        (
            has_any(limits, |quota| {
                matches!(quota.algorithm(), Algorithm::LeakyBucket { .. })
            }),
            "a leaky bucket: a place in the queue is given by the store alone",
        ),
        (
            has_any(limits, |quota| quota.calendar().is_some()),
            "a quota of the calendar: only the store knows when its next window ends",
        ),
        (
            has_any(limits, Quota::is_uncapped),
            "an uncapped window: how far it is beyond its limit the store alone knows",
        ),
        (
            limits.block_for.is_some(),
            "block_for: only the store knows when a limit was broken",
        ),
    ];
    let found = obstacles.into_iter().find(|(is_such, _)| *is_such);
    found.map(|(_, what)| what)
}

pub(super) fn check_in_store(limits: &TierSet) -> Result<(), ConfigError> {
    if has_any(limits, |quota| quota.varying_limits().is_some()) {
        return Err(ConfigError::new(
            ConfigErrorKind::Varying,
            "varying: in a store a limit is the same all day; accepted are limits without times of \
             day, of which a tier, or the `schedule` of a rule, chooses one",
        ));
    }
    Ok(())
}

fn has_any(limits: &TierSet, is_such: impl Fn(&Quota) -> bool) -> bool {
    let mut quotas = limits.tiers().flat_map(|(_, quotas)| &quotas.quotas);
    quotas.any(is_such)
}

impl Terms {
    pub(super) const fn is_eventual(&self) -> bool {
        self.overdraft > 0
    }

    /// The time between two runs of the maintenance task.
    pub(super) fn tick(&self) -> Duration {
        if self.is_eventual() {
            self.length
        } else {
            self.length / 8
        }
    }

    /// The time over which the demand for a subject is counted.
    pub(super) const fn span(&self) -> Duration {
        if self.is_eventual() {
            Duration::from_secs(1)
        } else {
            self.length
        }
    }

    /// Checks whether changed limits can stay in this mode.
    ///
    /// # Errors
    ///
    /// If they cannot.
    pub(super) fn check(&self, limits: &TierSet) -> Result<(), ConfigError> {
        if self.is_eventual() {
            return check_ahead(self.overdraft, limits);
        }
        match obstacle(limits) {
            Some(what) => refuse(format!(
                "leased mode with {what}; build the limiter with it, which then decides as in strict mode"
            )),
            None => Ok(()),
        }
    }
}

/// Checks whether nodes can allow so many units of these quotas before they report them.
fn check_ahead(units: u32, limits: &TierSet) -> Result<(), ConfigError> {
    if let Some(what) = obstacle(limits) {
        return refuse(format!(
            "eventual mode with {what}; accepted is strict mode"
        ));
    }
    let tiers = limits
        .tiers()
        .map(|(_, quotas)| quotas.most_units(Priority::CRITICAL));
    let most = tiers.min().unwrap_or(0);
    if !(1..=most).contains(&u64::from(units)) {
        return refuse(format!(
            "ahead({units}): accepted are 1 to the smallest capacity among the quotas, {most}"
        ));
    }
    Ok(())
}

impl Default for Mode {
    fn default() -> Self {
        Self::strict()
    }
}

fn refuse<T>(message: impl Into<Cow<'static, str>>) -> Result<T, ConfigError> {
    Err(ConfigError::new(ConfigErrorKind::Lease, message))
}

/// The number of the lease message before a charge, as its receipt contains it. It starts again
/// after 255; the time distinguishes equal numbers.
pub(super) type LeaseNumber = NonZeroU8;
