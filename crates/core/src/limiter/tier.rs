//! Tiers: named sets of quotas of one limiter, what counts them, and a request's own quota in place of one.

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
    iter,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use siphasher::sip::SipHasher13;

use crate::{
    algorithm::{CounterIndex, Meter, Most},
    decision::Policy,
    error::{ConfigError, ConfigErrorKind, LimiterError},
    log::{self, Code},
    quota::{
        Algorithm, DEFAULT_NAME, DayLimits, Fitted, MIN_INTERVAL_NANOS, OwnedQuota, Priority, Quota,
    },
};

/// A tier: the set of a limiter's quotas that measures a request, such as a customer's plan.
///
/// The counters belong to the key, not to the tier: a key that changes its tier keeps its usage.
#[derive(Clone)]
pub struct Tier(Which);

#[derive(Clone)]
enum Which {
    Unlimited,
    Named(&'static str),
    /// A tier with a name from run time; freed with its last clone.
    Owned(Arc<str>),
    Request(RequestQuota),
}

impl Tier {
    /// The default tier: the quotas that the limiter was made with. Requests are in it unless the layer has
    /// a [`tier`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.tier).
    pub const DEFAULT: Self = Self::named("");

    /// The tier without a quota: requests pass uncounted, and the limiter is not called. Their decisions are
    /// not [counted](crate::Decision::is_counted).
    pub const UNLIMITED: Self = Self(Which::Unlimited);

    /// The tier of this name in the limiter. The empty name is the [default](Self::DEFAULT) tier's. A name
    /// that the limiter does not have is an error of the decision, for which a layer sends 503.
    pub const fn named(name: &'static str) -> Self {
        Self(Which::Named(name))
    }

    /// The tier of a name from run time, such as one of a configuration file or a customer's row. Clones
    /// share the name, and the last of them frees it.
    pub fn named_owned(name: impl Into<Arc<str>>) -> Self {
        Self(Which::Owned(name.into()))
    }

    pub(crate) fn of_name(name: Cow<'static, str>) -> Self {
        match name {
            Cow::Borrowed(name) => Self::named(name),
            Cow::Owned(name) => Self::named_owned(name),
        }
    }

    /// Whether it is the [default](Self::DEFAULT) tier.
    #[inline]
    #[doc(hidden)]
    pub fn is_default(&self) -> bool {
        match &self.0 {
            // First, because it is nearly always this one.
            Which::Named("") => true,
            Which::Owned(name) => name.is_empty(),
            _ => false,
        }
    }

    #[inline]
    #[doc(hidden)]
    pub const fn is_unlimited(&self) -> bool {
        matches!(self.0, Which::Unlimited)
    }

    /// The request's own quota, if it brings one.
    pub(crate) const fn request(&self) -> Option<RequestQuota> {
        match &self.0 {
            Which::Request(quota) => Some(*quota),
            _ => None,
        }
    }

    /// The share of one of `nodes` equal nodes of the request's own quota.
    #[doc(hidden)]
    pub fn shared_by(&self, nodes: std::num::NonZeroU32) -> Option<Self> {
        let quota = self.request()?;
        Some(Self::from(quota.shared_by(nodes)))
    }

    /// The tier's name in a limiter; empty for the default tier and those without a name.
    #[doc(hidden)]
    pub fn name(&self) -> &str {
        self.identity().0.unwrap_or_default()
    }

    /// The name and the request's own quota; neither of the unlimited tier.
    fn identity(&self) -> (Option<&str>, Option<RequestQuota>) {
        match &self.0 {
            Which::Unlimited => (None, None),
            Which::Named(name) => (Some(name), None),
            Which::Owned(name) => (Some(name), None),
            Which::Request(quota) => (None, Some(*quota)),
        }
    }

    /// The error of a limiter without tiers.
    pub(crate) fn unknown(&self) -> LimiterError {
        self.unknown_among(iter::once(&Self::DEFAULT))
    }

    /// The error of a limiter that has only the tiers `known`.
    pub(crate) fn unknown_among<'a>(&self, known: impl Iterator<Item = &'a Self>) -> LimiterError {
        if self.request().is_some() {
            return LimiterError::unsupported(
                "the limiter supports no quotas of requests; use a LocalLimiter or a RedisLimiter",
            );
        }
        let known: Vec<_> = known.map(|tier| format!("{tier:?}")).collect();
        LimiterError::unsupported(format!(
            "the limiter was given no quota for {self:?}; there is {}",
            known.join(", ")
        ))
    }
}

/// The [default](Tier::DEFAULT) tier.
impl Default for Tier {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A request's own quota is a tier of its own.
impl From<RequestQuota> for Tier {
    fn from(quota: RequestQuota) -> Self {
        Self(Which::Request(quota))
    }
}

/// Compared by name, whether static or owned.
impl PartialEq for Tier {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Tier {}

impl Hash for Tier {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.identity() {
            (Some(""), _) => f.write_str("the default tier"),
            (Some(name), _) => write!(f, "tier {name:?}"),
            (None, Some(quota)) => quota.fmt(f),
            (None, None) => f.write_str("the unlimited tier"),
        }
    }
}

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

/// A quota that a request brings, from a customer's row for example, instead of the limiter's own. Set
/// by [`RateLimitLayer::quota`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.quota); it is a [`Tier`](super::Tier) of its
/// own.
///
/// Only the numbers are the request's. The algorithm, period, slices, refill step, soft share and
/// name are those of the limiter's quota; the limiter must have exactly one. The counters belong to the
/// key: for all numbers, buckets share the time until they are full, and windows and logs share units.
/// A key that changes its numbers keeps its usage, and one that alternates between them gains
/// nothing.
///
/// Therefore a request's quota may not hold more than the limiter's own, or the largest of its tiers
/// that counts alike: a window or log no more units; a bucket or queue at most the units that refill in
/// the time in which the limiter's own fills, and at least one unit, which then refills in that time. A
/// limit of more than a million a second is too high. A larger quota is cut, and the first cut is
/// logged. An [uncapped](Quota::uncapped) window counts beyond any limit, so the request's limit may be
/// as high as that of an uncapped quota.
///
/// ```
/// use tower_ratelimit::{
///     Key, Limiter, LocalLimiter, Quota,
///     limiter::{Call, Charge, OpRef, RequestQuota, Tier},
/// };
///
/// let limiter = LocalLimiter::new(Quota::per_minute(60));
/// let row = Tier::from(RequestQuota::limit(600).burst(100));
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let key = Key::from("alice");
/// let charge = Charge::new(&key, OpRef::Acquire(30)).tier(&row);
/// let decision = limiter.call(&Call::of(&[charge])).await?;
/// assert_eq!(decision.remaining(), Some(70));
/// # Ok::<_, tower_ratelimit::LimiterError>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct RequestQuota {
    limit: u64,
    room: Option<Room>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Room {
    Burst(u64),
    Queue(u64),
}

impl RequestQuota {
    /// `limit` units in the period of the limiter's quota. 0 allows nothing.
    pub const fn limit(limit: u64) -> Self {
        Self { limit, room: None }
    }

    /// Sets the units that an idle key can take at once from a token bucket. Defaults to the limiter's
    /// own burst in proportion to the limit, at least 1: both buckets then fill in one time. 0 allows
    /// nothing. Without effect, and logged once, if the limiter has no token bucket.
    pub const fn burst(mut self, burst: u64) -> Self {
        self.room = Some(Room::Burst(burst));
        self
    }

    /// Sets the units that may wait in the queue of a leaky bucket. Defaults to the limiter's own queue
    /// in proportion to the limit. Without effect, and logged once, if the limiter has no leaky bucket.
    pub const fn queue(mut self, queue: u64) -> Self {
        self.room = Some(Room::Queue(queue));
        self
    }

    /// The share of one of `nodes` equal ones, rounded up.
    #[doc(hidden)]
    pub const fn shared_by(self, nodes: std::num::NonZeroU32) -> Self {
        let nodes = nodes.get() as u64;
        let room = match self.room {
            Some(Room::Burst(burst)) => Some(Room::Burst(burst.div_ceil(nodes))),
            Some(Room::Queue(queue)) => Some(Room::Queue(queue.div_ceil(nodes))),
            None => None,
        };
        Self {
            limit: self.limit.div_ceil(nodes),
            room,
        }
    }
}

/// The log lines about requests' quotas that were written already.
#[derive(Debug, Default)]
pub(crate) struct LoggedQuotas {
    cut: AtomicBool,
    misplaced: AtomicBool,
}

/// The limiter's quota that requests' quotas replace.
#[derive(Debug, Clone)]
pub(crate) struct OwnQuota {
    pub quota: Quota,
    /// The largest value of its counter.
    pub most: Most,
    /// The most that a request's own quota may hold: that value without a debt.
    pub room: Most,
    pub(crate) policy: Policy,
    /// The log lines that were written already.
    pub(crate) logged: Arc<LoggedQuotas>,
}

impl OwnQuota {
    pub(crate) fn fit(&self, request: RequestQuota) -> Fitted {
        let (own, RequestQuota { limit, room }) = (&self.quota, request);
        let most_limit = if own.is_uncapped() {
            self.most_units()
        } else {
            own.period_nanos() / 1_000
        };
        let fast = limit > most_limit;
        let limit = limit.min(most_limit);
        // With a limit of 0 the capacity only sets the time of a unit.
        let interval = interval(own.period_nanos() / limit.max(1));
        let capacity = match (own.algorithm(), room) {
            _ if limit == 0 => 0,
            (Algorithm::TokenBucket, Some(Room::Burst(burst))) => burst,
            (Algorithm::LeakyBucket { .. }, Some(Room::Queue(queue))) => queue.saturating_add(1),
            (Algorithm::TokenBucket | Algorithm::LeakyBucket { .. }, _) => {
                let scaled = u128::from(own.capacity()) * u128::from(limit);
                let scaled = scaled / u128::from(own.limit().max(1));
                u64::try_from(scaled).unwrap_or(u64::MAX).max(1)
            }
            _ => limit,
        };
        let misplaced = match room {
            Some(Room::Burst(_)) => own.algorithm() != Algorithm::TokenBucket,
            Some(Room::Queue(_)) => !matches!(own.algorithm(), Algorithm::LeakyBucket { .. }),
            None => false,
        };
        let wanted = Fitted { capacity, interval };
        let (fitted, cut) = self.cut(wanted);
        let logged = [&self.logged.cut, &self.logged.misplaced][usize::from(misplaced)];
        if (fast || cut || misplaced) && !logged.swap(true, Ordering::Relaxed) {
            self.log(request, fitted, misplaced);
        }
        fitted
    }

    pub(crate) const fn with(&self, fitted: Fitted) -> Quota {
        self.quota.fitted(fitted)
    }

    /// Cuts numbers that are too large, and returns whether any was.
    pub(super) fn cut(&self, wanted: Fitted) -> (Fitted, bool) {
        let Fitted { capacity, interval } = wanted;
        let units = |capacity: u64| capacity.saturating_add(self.quota.extra_of(capacity));
        let is_bucket = matches!(
            self.quota.algorithm(),
            Algorithm::TokenBucket | Algorithm::LeakyBucket { .. }
        );
        if !is_bucket {
            let capacity = capacity.min(self.capacity_for(self.most_units()));
            let interval = self::interval(self.quota.period_nanos() / capacity.max(1));
            return (Fitted { capacity, interval }, capacity < wanted.capacity);
        }
        if capacity == 0 {
            let interval = self::interval(self.quota.period_nanos());
            return (Fitted { capacity, interval }, false);
        }
        // The receipt of an uncapped window may have units less than a nanosecond apart. The script
        // counts exactly if they are at least a microsecond apart.
        let interval = interval.max(self::interval(MIN_INTERVAL_NANOS));
        let wanted = Fitted { capacity, interval };
        let most = self.room.nanos;
        let full = u128::from(interval.get()) * u128::from(units(capacity));
        if full <= u128::from(most) {
            return (wanted, false);
        }
        // T is rounded down to a whole nanosecond and is at least 1,000: the fill times of equal buckets
        // may differ by this rounding. A unit then refills that much earlier.
        let rounding = most / 999;
        let faster = most / units(capacity);
        if full <= u128::from(most) + u128::from(rounding) && faster >= MIN_INTERVAL_NANOS {
            let interval = self::interval(faster);
            return (Fitted { capacity, interval }, false);
        }
        let capacity = self.capacity_for(most / interval).max(1);
        let interval = interval.min(self::interval(most / units(capacity)));
        (Fitted { capacity, interval }, true)
    }

    /// The units of the largest quota of a window or log. For an uncapped window, a count beyond the limit
    /// must stay visible.
    fn most_units(&self) -> u64 {
        self.room.units - u64::from(self.quota.is_uncapped())
    }

    /// The largest capacity that has at most this many units, including its soft share.
    fn capacity_for(&self, units: u64) -> u64 {
        let percent = 100 + u128::from(self.quota.soft_percent());
        let capacity = ((u128::from(units) + 1) * 100 - 1) / percent;
        u64::try_from(capacity).unwrap_or(u64::MAX)
    }

    #[cold]
    fn log(&self, request: RequestQuota, fitted: Fitted, misplaced: bool) {
        let name = self.policy.name();
        if misplaced {
            let fault = format!(
                "{request:?} has room that means nothing to the quota {name:?}: a token bucket has a \
                 burst, a leaky bucket a queue, nothing else either"
            );
            return log::report(Code::REQUEST_QUOTA_MISPLACED, &fault);
        }
        let Fitted { capacity, interval } = fitted;
        let fault = format!(
            "{request:?} is more than the quota {name:?} leaves room for, and was cut to {capacity} at \
             once, one in {interval} nanoseconds: give the limiter a larger quota, or a tier with one, \
             in which as much fits"
        );
        log::report(Code::REQUEST_QUOTA_CUT, &fault);
    }
}

fn interval(nanos: u64) -> NonZeroU64 {
    NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN)
}

/// The error of a limiter with several quotas: a request's quota can replace a single one only.
pub(crate) fn several_quotas() -> LimiterError {
    LimiterError::unsupported(
        "a request's quota takes the place of the limiter's own, and this limiter has several: give \
         each a layer of its own",
    )
}
