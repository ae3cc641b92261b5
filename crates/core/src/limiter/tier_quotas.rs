//! The quotas of one tier, their counters, and whether these start afresh with other numbers.

use std::{borrow::Cow, sync::Arc};

use siphasher::sip::SipHasher13;

use super::tier::Tier;
use crate::{
    algorithm::{CounterIndex, Meter, Most},
    decision::Policy,
    error::{ConfigError, ConfigErrorKind},
    quota::{DEFAULT_NAME, DayLimits, OwnedQuota, Priority, Quota},
};

/// The index of a tier; the default tier has 0.
pub type TierIndex = u16;

/// The place of a quota in its tier: quotas of several tiers share a counter only at one place. With
/// named counters, the index of the counter's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TierPlace(pub usize);

/// The quotas of one tier, which are charged together.
#[derive(Debug, Clone)]
pub struct TierQuotas {
    pub policies: Arc<[Policy]>,
    pub meters: Vec<Meter>,
    pub counters: Vec<CounterIndex>,
    /// The place of each quota: quotas at one place of their tiers share a counter if they count alike.
    pub(super) places: Vec<TierPlace>,
    pub quotas: Vec<Quota>,
    /// Whether each quota has a name of its own.
    pub named: Vec<bool>,
}

/// A counter, shared by the quotas at one place of their tiers that count alike.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    pub(super) at: TierPlace,
    /// The smallest of these quotas, and its meter.
    pub(super) meter: Meter,
    pub quota: Quota,
}

/// The quotas of all tiers, with their places.
#[derive(Debug, Clone, Default)]
pub struct AllQuotas {
    pub list: Vec<(TierPlace, Quota)>,
    /// The quotas of other limiters that share the counters.
    pub(super) others: Vec<(TierPlace, Quota)>,
    /// Whether each quota may owe its capacity.
    pub(crate) has_debt: bool,
}

impl TierQuotas {
    pub fn new(quotas: &[OwnedQuota]) -> Result<Self, ConfigError> {
        if quotas.is_empty() {
            return Err(ConfigError::new(
                ConfigErrorKind::QuotaList,
                "no quota at all; at least one is needed",
            ));
        }
        let mut named: Vec<(Cow<'static, str>, Quota)> = Vec::with_capacity(quotas.len());
        for quota in quotas {
            quota.check()?;
            let name = quota.name_in(quotas.len());
            if named.iter().any(|(known, _)| *known == name) {
                return Err(ConfigError::new(
                    ConfigErrorKind::QuotaList,
                    format!("two quotas are named {name:?}; names have to be unique"),
                ));
            }
            named.push((name, quota.quota()));
        }
        Ok(Self {
            meters: Vec::new(),
            counters: Vec::new(),
            places: (0..quotas.len()).map(TierPlace).collect(),
            policies: policies_of(named),
            quotas: quotas.iter().map(OwnedQuota::quota).collect(),
            named: quotas.iter().map(|quota| quota.name().is_some()).collect(),
        })
    }

    /// Names the quota like its limiter, if it is the only one and has no name of its own. Its counters stay unnamed.
    pub(super) fn name_after(&mut self, limiter: &str) {
        if let ([quota], [false]) = (&*self.quotas, &*self.named) {
            self.policies = policies_of([(limiter.to_owned().into(), *quota)]);
        }
    }

    /// The index of the quota of this name. A lone quota that is named like its limiter is also the default one.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        let is_default = name == DEFAULT_NAME && *self.named == [false];
        let mut policies = self.policies.iter();
        policies.position(|policy| is_default || policy.name() == name)
    }

    /// The index of a quota that counts like one at another place of `other`, so that they share no
    /// counter: a sign that two lists are in different orders.
    pub(super) fn crossed_with(&self, other: &Self) -> Option<usize> {
        let (own, other) = (&self.quotas, &other.quotas);
        let alike = |at: usize, there: usize| {
            let pair = (own.get(at), other.get(there));
            matches!(pair, (Some(one), Some(two)) if one.counts_like(two))
        };
        let mut places = 0..own.len().max(other.len());
        let all = places.clone();
        places.find(|at| {
            let mut others = all.clone().filter(|there| there != at);
            !alike(*at, *at) && others.any(|there| alike(*at, there) && !alike(there, there))
        })
    }

    /// The units that are available to a class when none is used: those of the smallest quota.
    pub fn most_units(&self, class: Priority) -> u64 {
        let quotas = self.quotas.iter();
        let most = quotas.map(|quota| match class {
            Priority::CRITICAL => quota.capacity() + quota.extra(),
            class => class.part_of(quota.capacity()),
        });
        most.min().unwrap_or(0)
    }

    pub(super) fn count_by(&mut self, counters: &[Option<Counter>], all: &AllQuotas) {
        let counter_of = |(at, quota): (TierPlace, &Quota)| {
            let counts = |counter: &Option<Counter>| {
                let counter = counter.as_ref();
                counter.is_some_and(|counter| counter.counts(at, quota))
            };
            let counter = counters.iter().position(counts);
            CounterIndex(counter.expect("every quota has one"))
        };
        let quotas = self.places.iter().copied().zip(&self.quotas);
        self.counters = quotas.clone().map(counter_of).collect();
        self.meters = quotas.map(|(at, quota)| all.compiled(at, quota)).collect();
        // Its name may have got numbers since.
        let named = self.policies.iter().zip(&self.meters);
        self.policies = (named.map(|(policy, meter)| policy.with_kind(meter.kind))).collect();
    }

    pub fn replace(&mut self, name: &str, quota: &OwnedQuota) -> Result<(), ConfigError> {
        quota.check()?;
        let at = self.position(name);
        let at = at.ok_or_else(|| {
            let known: Vec<_> = self.policies.iter().map(Policy::name).collect();
            ConfigError::new(
                ConfigErrorKind::QuotaList,
                format!("no quota is named {name:?}; there are {known:?}"),
            )
        })?;
        let name = self.policies[at].name();
        if let Some(other) = quota.name().filter(|other| *other != name) {
            return Err(ConfigError::new(
                ConfigErrorKind::QuotaList,
                format!(
                    "the quota named {name:?} cannot become {other:?}: headers and metrics go on \
                     under one name; leave the new quota's name out"
                ),
            ));
        }
        Arc::make_mut(&mut self.policies)[at] = self.policies[at].with_quota(&quota.quota());
        let mark = self.quotas[at].counter_mark();
        self.quotas[at] = quota.quota().with_counter_mark(mark);
        Ok(())
    }
}

fn policies_of(named: impl IntoIterator<Item = (Cow<'static, str>, Quota)>) -> Arc<[Policy]> {
    let named = named.into_iter();
    named
        .map(|(name, quota)| Policy::of_quota(name, &quota))
        .collect()
}

impl Counter {
    pub(super) fn new(at: TierPlace, quota: &Quota) -> Self {
        Self {
            at,
            meter: Meter::new(quota, Most::of(quota)),
            quota: *quota,
        }
    }

    pub(super) fn counts(&self, at: TierPlace, quota: &Quota) -> bool {
        self.at == at && self.quota.counts_like(quota)
    }

    /// Sets the quota and its meter to the smallest that shares the counter.
    pub(super) fn measure_by(&mut self, all: &AllQuotas) {
        let sharing = all
            .list
            .iter()
            .filter(|(at, quota)| self.counts(*at, quota));
        let smallest = sharing.max_by_key(|(_, quota)| quota.interval_nanos());
        if let Some((at, quota)) = smallest {
            self.meter = all.compiled(*at, quota);
            self.quota = *quota;
        }
    }
}

impl AllQuotas {
    /// The largest value of the counter of `quota` at `at`.
    pub fn most(&self, at: TierPlace, quota: &Quota) -> Most {
        self.largest(at, quota, |other| Most::of(&self.in_force(other)))
    }

    /// The largest value of the counter of `quota` at `at` without a debt.
    pub(super) fn most_without_debt(&self, at: TierPlace, quota: &Quota) -> Most {
        self.largest(at, quota, Most::without_debt)
    }

    fn largest(&self, at: TierPlace, quota: &Quota, most_of: impl Fn(&Quota) -> Most) -> Most {
        let sharing = self.list.iter().chain(&self.others);
        let sharing = sharing.filter(|(place, other)| *place == at && other.counts_like(quota));
        sharing.fold(Most::default(), |most, (_, other)| most.max(most_of(other)))
    }

    pub(super) fn in_force(&self, quota: &Quota) -> Quota {
        if self.has_debt {
            return quota.owing_its_capacity();
        }
        *quota
    }

    fn compiled(&self, at: TierPlace, quota: &Quota) -> Meter {
        Meter::new(&self.in_force(quota), self.most(at, quota))
    }
}

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
pub fn numbers(quota: &Quota) -> LimitNumbers {
    (
        quota.limit(),
        quota.capacity(),
        quota.soft_percent(),
        quota.varying_limits().unwrap_or_default(),
        quota.varying_zone(),
    )
}
