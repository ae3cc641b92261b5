//! `OnChange`: whether counts start afresh with other numbers.

use siphasher::sip::SipHasher13;

use super::{
    tier::Tier,
    tier_quotas::{TierPlace, TierQuotas},
};
use crate::quota::{DayLimits, Quota};

/// The effect on the counts when a limiter, or a rule of a file, has another limit, burst, queue or soft share
/// than before.
///
/// `set_quota` of a running limiter always keeps the counts, and so does the admin service.
///
/// | used up 2 a minute, then 5 a minute | [`Keep`](Self::Keep) | [`Fresh`](Self::Fresh) |
/// |---|---|---|
/// | token bucket, leaky bucket | 0 left, the next unit after at most 12 s | 5 |
/// | windows, log | 3 | 5 |
///
/// Another algorithm, period, number of slices or refill step makes another counter in either case.
///
/// ```
/// use tower_ratelimit::{
///     Key, LocalLimiter, LocalStore, Quota, clock::ManualClock, limiter::OnChange,
/// };
///
/// let store = LocalStore::builder().clock(ManualClock::new()).build()?;
/// let login = |quota| {
///     let builder = LocalLimiter::builder(quota).name("login");
///     builder.on_change(OnChange::Fresh).build_in(&store)
/// };
/// let alice = Key::from("alice");
/// assert_eq!(login(Quota::per_minute(2))?.acquire(&alice, 2).remaining(), Some(0));
/// assert_eq!(login(Quota::per_minute(5))?.peek(&alice, 1).remaining(), Some(5));
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
    /// All keys start afresh, in all tiers and quotas of the limiter, and blocks end. A receipt from before
    /// the change refunds nothing.
    ///
    /// The numbers with which a limiter is built are part of its counters' names: in Redis, in a
    /// [store of your own](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/stores/index.html), in a [`LocalStore`](crate::LocalStore) and in a saved
    /// state. So limiters with old and new numbers count separately, and a quota that is changed back
    /// continues with the state that is left.
    ///
    /// While old and new nodes run, a key has the old limit at the old nodes and the new limit at the
    /// new ones.
    Fresh,
}

/// A hash of all numbers that start keys afresh when they change, never 0. It is part of keys in stores, so
/// it must be equal on all nodes and in all versions.
#[doc(hidden)]
pub fn counter_mark(tiers: &[(Tier, TierQuotas)]) -> u32 {
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
    let hash = SipHasher13::new().hash(all.join("|").as_bytes());
    (hash as u32 ^ (hash >> 32) as u32).max(1)
}

/// Limit, capacity and soft share, and the limits of a day with their zone if the limit varies.
type LimitNumbers = (u64, u64, u32, &'static DayLimits, Option<&'static str>);

/// The numbers of a quota that start keys afresh when they change.
#[doc(hidden)]
pub fn numbers(quota: &Quota) -> LimitNumbers {
    (
        quota.limit(),
        quota.capacity(),
        quota.soft_percent(),
        quota.varying_limits().unwrap_or_default(),
        quota.varying_zone(),
    )
}
