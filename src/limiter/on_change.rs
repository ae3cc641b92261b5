//! `OnChange`: what becomes of counts when a limit's numbers change.

use siphasher::sip::SipHasher13;

use super::{Tier, quotas::Quotas};
use crate::quota::Quota;

/// What becomes of the counts when the limit, the burst, the queue or the soft share of a quota
/// changes: by `set_quota`, by a rule file that is read again, or by the admin service.
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
    /// The state of each key stays, at most what the new quota holds. A bucket keeps the time in
    /// which it is full again: one that was used up gets its next unit by the new rate. A window or
    /// a log keeps its units: the new limit less these is left. The default.
    #[default]
    Keep,
    /// All keys of the limiter start afresh, in all its tiers and quotas, and blocks end. A receipt
    /// from before the change gives nothing back.
    ///
    /// In Redis, in a [store of your own](crate::guide::stores) and in a
    /// [`LocalStore`](crate::LocalStore) the numbers are part of where a key counts. So nodes with
    /// old and new numbers count apart and change nothing for each other, and a quota that is
    /// changed back goes on with what is left there. A lone limiter in this process forgets its
    /// keys.
    ///
    /// While old and new nodes run, a key has the old limit at the old ones and the new limit at
    /// the new ones.
    Fresh,
}

/// The mark of a limiter's counters, which tells those of other numbers apart. All quotas of the
/// limiter bear it, so that its tiers go on sharing counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Epoch {
    on_change: OnChange,
    /// Whether counters of other numbers are still there after a change.
    outlasts: bool,
    numbers: u64,
    /// 0 where keys never start afresh.
    mark: u32,
}

/// The effect of a change of quota on the counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replaced {
    /// Whether each counter that there was is still there.
    pub(crate) kept: Vec<bool>,
    /// Whether all keys start afresh, and blocks end.
    pub(crate) starts_afresh: bool,
}

impl Epoch {
    /// Counters in a table that forgets those of other numbers.
    pub(crate) fn of_table(on_change: OnChange) -> Self {
        Self {
            on_change,
            ..Self::default()
        }
    }

    /// Counters in a store, where those of other numbers stay.
    pub(crate) fn of_store(on_change: OnChange) -> Self {
        Self {
            outlasts: true,
            ..Self::of_table(on_change)
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) const fn on_change(self) -> OnChange {
        self.on_change
    }

    pub(crate) const fn mark(self) -> u32 {
        self.mark
    }

    /// The epoch of these tiers, after that of the tiers before them, if there were any. All their
    /// quotas bear its mark from now on.
    pub(super) fn next(self, tiers: &mut [(Tier, Quotas)], is_first: bool) -> Self {
        let next = self.after(tiers, is_first);
        for quota in tiers.iter_mut().flat_map(|(_, tier)| &mut tier.quotas) {
            *quota = quota.in_epoch(next.mark);
        }
        next
    }

    fn after(self, tiers: &[(Tier, Quotas)], is_first: bool) -> Self {
        if self.on_change == OnChange::Keep {
            return self;
        }
        let numbers = digest(tiers);
        let mark = match self.outlasts {
            true => (numbers as u32 ^ (numbers >> 32) as u32).max(1),
            false if is_first || numbers == self.numbers => self.mark,
            // Not a digest: what was forgotten stays forgotten when a quota is changed back.
            false => self.mark.wrapping_add(1),
        };
        Self {
            numbers,
            mark,
            ..self
        }
    }
}

/// A hash of all numbers that a change is about. Part of keys in stores: the same on all nodes, in
/// all versions.
fn digest(tiers: &[(Tier, Quotas)]) -> u64 {
    let text = |(tier, quotas): &(Tier, Quotas)| {
        let name = tier.name();
        let places = quotas.places.iter().copied();
        let mut own: Vec<_> = places.zip(quotas.quotas.iter().map(numbers)).collect();
        own.sort_unstable();
        let own = own
            .iter()
            .map(|(at, (limit, capacity, soft))| format!("{at}:{limit},{capacity},{soft};"));
        format!("{}:{name}{}", name.len(), own.collect::<String>())
    };
    let mut all: Vec<String> = tiers.iter().map(text).collect();
    all.sort_unstable();
    SipHasher13::new().hash(all.join("|").as_bytes())
}

/// The numbers of a quota that a change is about: limit, capacity and soft share.
pub(crate) fn numbers(quota: &Quota) -> (u64, u64, u32) {
    (quota.limit(), quota.capacity(), quota.soft_percent())
}
