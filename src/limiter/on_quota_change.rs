//! `OnChange`: the effect of changed numbers of a limit on its counts.

use siphasher::sip::SipHasher13;

use super::{
    Tier,
    tier_quotas::{TierPlace, TierQuotas},
};
use crate::quota::{DayLimits, Quota};

/// The effect on the counts when the limit, burst, queue or soft share of a quota changes: by
/// `set_quota`, by a reloaded rule file, or by the admin service.
///
/// | used up 2 a minute, then 5 a minute | [`Keep`](Self::Keep) | [`Fresh`](Self::Fresh) |
/// |---|---|---|
/// | token bucket, leaky bucket | 0 left, the next unit after at most 12 s | 5 |
/// | windows, log | 3 | 5 |
///
/// Another algorithm, period, number of slices or refill step makes another counter in either case.
///
/// ```
/// use tower_ratelimit::{Key, LocalLimiter, ManualClock, OnChange, Quota};
///
/// let limiter = LocalLimiter::builder(Quota::per_minute(2))
///     .on_change(OnChange::Fresh)
///     .clock(ManualClock::new())
///     .build()?;
/// let alice = Key::from("alice");
/// assert_eq!(limiter.acquire(&alice, 2).remaining(), Some(0));
///
/// limiter.set_quota("default", Quota::per_minute(5))?;
/// assert_eq!(limiter.peek(&alice, 1).remaining(), Some(5));
/// # Ok::<_, tower_ratelimit::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnChange {
    /// Each key keeps its state, at most as much as the new quota holds. A bucket keeps the time until
    /// it is full: an exhausted one gets its next unit at the new rate. A window or a log keeps its
    /// units: the new limit less these is left. The default.
    #[default]
    Keep,
    /// All keys of the limiter start afresh, in all its tiers and quotas, and blocks end. A receipt
    /// from before the change refunds nothing.
    ///
    /// In Redis, in a [store of your own](crate::guide::stores) and in a
    /// [`LocalStore`](crate::LocalStore) the numbers are part of a counter's name. So nodes with old
    /// and new numbers count separately, and a quota that is changed back continues with the state
    /// that is left. A limiter with a table of its own resets its keys.
    ///
    /// While old and new nodes run, a key has the old limit at the old nodes and the new limit at the
    /// new ones.
    Fresh,
}

/// The epoch of a limiter's counters, which distinguishes counters of other numbers. All quotas of the
/// limiter have it, so that its tiers continue to share counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Epoch {
    on_change: OnChange,
    /// Whether counters of other numbers stay in the store after a change.
    outlasts: bool,
    numbers: u64,
    /// 0 if keys never start afresh.
    mark: u32,
}

/// The effect of a change of quota on the counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replaced {
    /// Whether each of the former counters is still in use, by index.
    pub(crate) kept: Vec<bool>,
    /// Whether all keys start afresh, and blocks end.
    pub(crate) starts_afresh: bool,
}

impl Epoch {
    /// Counters in a table that resets counters of other numbers.
    pub(crate) fn of_table(on_change: OnChange) -> Self {
        Self {
            on_change,
            ..Self::default()
        }
    }

    /// Counters in a store that keeps counters of other numbers.
    pub(crate) fn of_store(on_change: OnChange) -> Self {
        Self {
            outlasts: true,
            ..Self::of_table(on_change)
        }
    }

    pub(crate) const fn on_change(self) -> OnChange {
        self.on_change
    }

    pub(crate) const fn mark(self) -> u32 {
        self.mark
    }

    /// The epoch of these tiers, after the epoch `self` of the former ones, if there were any. Sets it in
    /// all quotas.
    pub(super) fn next(self, tiers: &mut [(Tier, TierQuotas)], is_first: bool) -> Self {
        let next = self.after(tiers, is_first);
        for quota in tiers.iter_mut().flat_map(|(_, tier)| &mut tier.quotas) {
            *quota = quota.in_epoch(next.mark);
        }
        next
    }

    fn after(self, tiers: &[(Tier, TierQuotas)], is_first: bool) -> Self {
        if self.on_change == OnChange::Keep {
            return self;
        }
        let numbers = digest(tiers);
        let mark = if self.outlasts {
            (numbers as u32 ^ (numbers >> 32) as u32).max(1)
        } else if is_first || numbers == self.numbers {
            self.mark
        } else {
            // Counted instead of hashed: counters that were reset stay reset when a quota is changed
            // back.
            self.mark.wrapping_add(1)
        };
        Self {
            numbers,
            mark,
            ..self
        }
    }
}

/// A hash of all numbers that start keys afresh when they change. It is part of keys in stores, so it
/// must be equal on all nodes and in all versions.
pub(super) fn digest(tiers: &[(Tier, TierQuotas)]) -> u64 {
    let text = |(tier, quotas): &(Tier, TierQuotas)| {
        let name = tier.name();
        let places = quotas.places.iter().copied();
        let mut own: Vec<_> = places.zip(quotas.quotas.iter().map(numbers)).collect();
        own.sort_unstable();
        let own = own
            .iter()
            .map(|(TierPlace(at), (limit, capacity, soft, day, zone))| {
                let day = day.iter().map(|(time, limit)| format!(",{time}={limit}"));
                let day: String = day.chain(zone.map(|zone| format!(" in {zone}"))).collect();
                format!("{at}:{limit},{capacity},{soft}{day};")
            });
        format!("{}:{name}{}", name.len(), own.collect::<String>())
    };
    let mut all: Vec<String> = tiers.iter().map(text).collect();
    all.sort_unstable();
    SipHasher13::new().hash(all.join("|").as_bytes())
}

/// Limit, capacity and soft share, and the limits of a day with their zone if the limit varies.
pub(crate) type LimitNumbers = (u64, u64, u32, &'static DayLimits, Option<&'static str>);

/// The numbers of a quota that start keys afresh when they change.
pub(crate) fn numbers(quota: &Quota) -> LimitNumbers {
    (
        quota.limit(),
        quota.capacity(),
        quota.soft_percent(),
        quota.varying_limits().unwrap_or_default(),
        quota.varying_zone(),
    )
}
