//! The limits in force: the quotas of all tiers, the choice of the tier for an operation, and their change while requests read them.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    call::OpRef,
    limiter::Facts,
    tier::{
        AllQuotas, Counter, LoggedQuotas, OnChange, OwnQuota, Tier, TierPlace, TierQuotas,
        counter_mark, several_quotas,
    },
};
use crate::{
    algorithm::{Bucket, CounterIndex, EvictionWeight, Meter, Most, State},
    clock::ClockReading,
    decision::{Op, Policy, REQUEST_TIER},
    error::{ConfigError, ConfigErrorKind, LimiterError},
    lock::unpoisoned,
    log::{self, Code},
    quota::{
        Algorithm, Fitted, IntoQuotas, Kind, MAX_REFILL_NANOS, OwnedQuota, Priority, Quota,
        check_name,
    },
};

#[doc(hidden)]
pub use super::tier::TierIndex;

/// The quotas of all tiers, in force.
#[derive(Debug, Clone)]
pub struct TierSet {
    /// The first one is the default.
    tiers: Vec<(Tier, TierQuotas)>,
    /// The counters of each key. The index of a counter that no tier needs any more stays free until
    /// another counter takes it.
    counters: Vec<Option<Counter>>,
    /// The quota that requests' own quotas replace; `None` if the default tier has several.
    own: Option<OwnQuota>,
    /// Length of the block after a denial, in nanoseconds.
    pub block_for: Option<u64>,
    /// The name of each counter, by place, instead of the names of the default tier's quotas.
    counter_names: Option<Arc<[String]>>,
    /// The quotas of other limiters that share these counters, with their places.
    others: Vec<(TierPlace, Quota)>,
    /// Whether each quota may owe its capacity.
    has_debt: bool,
}

/// The terms of a limit, whichever limiter counts it.
#[derive(Debug, Clone, Default)]
pub struct LimitTerms {
    /// The tiers' quotas; the default tier is the first.
    pub tiers: Vec<(Tier, Vec<OwnedQuota>)>,
    pub block_for: Option<Duration>,
    pub on_change: OnChange,
    /// The limiter's name, which its lone quota has, too, unless that has one of its own.
    pub name: Option<String>,
    /// The names of the counters of each tier's quotas: those of one name share a counter if they count alike, at any
    /// place of their tiers.
    pub counter_names: Option<Vec<Vec<String>>>,
}

impl LimitTerms {
    /// The terms of these quotas, with the default settings.
    pub fn of(quotas: impl IntoQuotas) -> Self {
        Self {
            tiers: vec![(Tier::DEFAULT, quotas.into_quotas())],
            ..Self::default()
        }
    }

    pub fn add_tier(&mut self, name: Cow<'static, str>, quotas: impl IntoQuotas) {
        self.tiers.push((Tier::of_name(name), quotas.into_quotas()));
    }
}

impl TierSet {
    /// # Errors
    ///
    /// If a tier has no quota, a quota is invalid, two quotas of a tier or two tiers have one name, or the
    /// block is too long.
    pub fn new(terms: LimitTerms) -> Result<Self, ConfigError> {
        let mut limits = Self {
            tiers: Vec::with_capacity(terms.tiers.len()),
            counters: Vec::new(),
            own: None,
            block_for: terms.block_for.map(checked_block).transpose()?,
            counter_names: None,
            others: Vec::new(),
            has_debt: false,
        };
        limits.add_tiers(terms.tiers)?;
        if let Some(names) = &terms.counter_names {
            limits.name_counters(names);
        }
        if terms.on_change == OnChange::Fresh {
            limits.mark_counters();
        }
        // Policies cannot have every name that a limiter can.
        if let Some(name) = terms.name.filter(|name| check_name(name).is_ok()) {
            for (_, quotas) in &mut limits.tiers {
                quotas.name_after(&name);
            }
        }
        limits.share_counters();
        if limits.counter_names.is_none() {
            limits.warn_of_crosswise();
        }
        Ok(limits)
    }

    /// Names the counters of each tier's quotas.
    fn name_counters(&mut self, names: &[Vec<String>]) {
        let all: BTreeSet<&String> = names.iter().flatten().collect();
        let all: Vec<&String> = all.into_iter().collect();
        for ((_, quotas), own) in self.tiers.iter_mut().zip(names) {
            let places = own
                .iter()
                .map(|name| all.partition_point(|known| *known < name))
                .map(TierPlace);
            quotas.places = places.collect();
        }
        self.counter_names = Some(all.into_iter().cloned().collect());
    }

    /// Makes the numbers of all quotas part of their counters' names. All tiers have the same part, so that they
    /// still share counters.
    fn mark_counters(&mut self) {
        let mark = counter_mark(&self.tiers);
        for quota in self.tiers.iter_mut().flat_map(|(_, tier)| &mut tier.quotas) {
            *quota = quota.with_counter_mark(mark);
        }
    }

    /// The part of the counters' names that is made of numbers; 0 if there is none.
    pub fn counter_mark(&self) -> u32 {
        self.default_tier().quotas[0].counter_mark()
    }

    fn add_tiers(&mut self, tiers: Vec<(Tier, Vec<OwnedQuota>)>) -> Result<(), ConfigError> {
        if tiers.len() > usize::from(TierIndex::MAX) {
            return Err(ConfigError::new(
                ConfigErrorKind::QuotaList,
                format!(
                    "{} tiers; at most {} are accepted",
                    tiers.len(),
                    TierIndex::MAX
                ),
            ));
        }
        for (tier, quotas) in tiers {
            if self.tiers.iter().any(|(known, _)| *known == tier) {
                return Err(ConfigError::new(
                    ConfigErrorKind::QuotaList,
                    format!("two tiers are {tier:?}"),
                ));
            }
            for quota in &quotas {
                self.check_debt(&quota.quota())?;
            }
            self.tiers.push((tier, TierQuotas::new(&quotas)?));
        }
        Ok(())
    }

    /// Checks that the limiter can let keys owe units, if the quota does.
    fn check_debt(&self, quota: &Quota) -> Result<(), ConfigError> {
        if quota.debt_units() == 0 || self.block_for.is_none() {
            return Ok(());
        }
        Err(ConfigError::new(
            ConfigErrorKind::Debt,
            format!(
                "debt({}): a limiter with block_for denies keys and lets none owe units; leave one of both \
                 out",
                quota.debt_units()
            ),
        ))
    }

    /// Checks that classes of requests can share all quotas, whatever their shares are.
    ///
    /// # Errors
    ///
    /// If a quota counts beyond its limit, or holds less than two units.
    fn check_priority(&self) -> Result<(), ConfigError> {
        let named = |tier: &TierQuotas| {
            let names = tier.policies.iter().map(|policy| policy.name().to_owned());
            names.zip(tier.quotas.clone()).collect::<Vec<_>>()
        };
        let mut quotas = self.tiers.iter().flat_map(|(_, tier)| named(tier));
        quotas.try_for_each(|(name, quota)| quota.check_priority(&name))
    }

    pub fn default_tier(&self) -> &TierQuotas {
        &self.tiers[0].1
    }

    pub fn quotas(&self, tier: TierIndex) -> &TierQuotas {
        &self.tiers[usize::from(tier)].1
    }

    pub fn tiers(&self) -> impl ExactSizeIterator<Item = &(Tier, TierQuotas)> {
        self.tiers.iter()
    }

    /// The index of the counter of `quota` at `at`, and its meter.
    pub fn meter_of(&self, at: TierPlace, quota: &Quota) -> Option<(CounterIndex, Meter)> {
        let mut places = self.counters.iter().enumerate();
        places.find_map(|(place, counter)| {
            let counter = counter.as_ref()?;
            let index = CounterIndex(place);
            counter.counts(at, quota).then_some((index, counter.meter))
        })
    }

    pub fn width(&self) -> usize {
        self.counters.len()
    }

    /// The number of a key's states. If denials block keys, each counter has a second state, for
    /// responses.
    pub fn states(&self) -> usize {
        self.width() * if self.block_for.is_some() { 2 } else { 1 }
    }

    /// The weight of the state with this index.
    #[inline]
    pub(crate) fn eviction_weight(
        &self,
        place: usize,
        state: &State,
        time: ClockReading,
    ) -> EvictionWeight {
        // The states of responses follow those of requests.
        let mut places = place;
        if places >= self.width() {
            places -= self.width();
        }
        match &self.counters[places] {
            Some(counter) => counter.meter.eviction_weight(state, time),
            None => EvictionWeight::default(),
        }
    }

    /// The place and kind of each state's counter; `None` for free counters.
    pub(crate) fn counted(&self) -> impl Iterator<Item = Option<(TierPlace, Kind)>> {
        let counters = self.counters.iter().map(|counter| {
            let counter = counter.as_ref()?;
            Some((counter.at, counter.quota.kind()))
        });
        counters.cycle().take(self.states())
    }

    /// Replaces the default tier's quota of this name.
    ///
    /// # Errors
    ///
    /// If the quota is invalid, has another name, or no quota has this name.
    pub fn replace(&mut self, name: &str, quota: &OwnedQuota) -> Result<(), ConfigError> {
        self.check_debt(&quota.quota())?;
        self.tiers[0].1.replace(name, quota)?;
        self.share_counters();
        Ok(())
    }

    pub fn quota(&self, name: &str) -> Option<Quota> {
        let tier = self.default_tier();
        let mut named = tier.policies.iter().zip(&tier.quotas);
        let (_, quota) = named.find(|(policy, _)| policy.name() == name)?;
        Some(quota.with_counter_mark(0))
    }

    /// The name in decisions of the default tier's quota that has this name.
    pub fn policy_name<'n>(&'n self, name: &'n str) -> &'n str {
        let quotas = &self.tiers[0].1;
        let at = quotas.position(name);
        at.map_or(name, |at| quotas.policies[at].name())
    }

    pub fn all(&self) -> AllQuotas {
        let positions = |(_, quotas): &(Tier, TierQuotas)| {
            let places = quotas.places.iter().copied();
            places
                .zip(quotas.quotas.iter().copied())
                .collect::<Vec<_>>()
        };
        AllQuotas {
            list: self.tiers.iter().flat_map(positions).collect(),
            others: self.others.clone(),
            has_debt: self.has_debt,
        }
    }

    /// Lets each quota owe its capacity, for stores that count units after they were spent.
    pub fn allow_debt(&mut self) {
        self.has_debt = true;
        self.share_counters();
    }

    /// Assigns a counter to every quota: one to all quotas at one place that count alike. Counters that
    /// are still needed keep their index.
    fn share_counters(&mut self) {
        let all = self.all();
        for counter in &mut self.counters {
            counter.take_if(|counter| {
                let mut all = all.list.iter();
                !all.any(|(at, quota)| counter.counts(*at, quota))
            });
        }
        for (at, quota) in &all.list {
            let known = self.counters.iter().flatten();
            if known.into_iter().any(|counter| counter.counts(*at, quota)) {
                continue;
            }
            let counter = Some(Counter::new(*at, quota));
            match self.counters.iter_mut().find(|place| place.is_none()) {
                Some(free) => *free = counter,
                None => self.counters.push(counter),
            }
        }
        for counter in self.counters.iter_mut().flatten() {
            counter.measure_by(&all);
        }
        for (_, quotas) in &mut self.tiers {
            quotas.count_by(&self.counters, &all);
        }
        let logged = self.own.take().map(|own| own.logged);
        self.own = self.own_quota(&all, logged.unwrap_or_default());
    }

    fn own_quota(&self, all: &AllQuotas, logged: Arc<LoggedQuotas>) -> Option<OwnQuota> {
        let tier = self.default_tier();
        let ([quota], [policy]) = (tier.quotas.as_slice(), &*tier.policies) else {
            return None;
        };
        Some(OwnQuota {
            quota: all.in_force(quota),
            most: all.most(tier.places[0], quota),
            room: all.most_without_debt(tier.places[0], quota),
            policy: policy.clone(),
            logged,
        })
    }

    /// Logs a warning if the lists of two tiers are in different orders.
    fn warn_of_crosswise(&self) {
        let default = self.default_tier();
        for (tier, quotas) in &self.tiers[1..] {
            if let Some(at) = default.crossed_with(quotas) {
                let fault = format!(
                    "quota {:?} counts like one of {tier:?} that stands at another place, so they \
                     share no count: list the quotas of all tiers in one order",
                    default.policies[at].name()
                );
                log::report(Code::TIERS_CROSSED, &fault);
            }
        }
    }

    /// Chooses the quotas that measure `op` in `tier`.
    ///
    /// # Errors
    ///
    /// If there is no such tier, or a request brings a quota and the limiter has several.
    #[inline]
    pub fn choose(
        &self,
        tier: &Tier,
        class: Priority,
        op: OpRef<'_>,
    ) -> Result<Chosen, LimiterError> {
        match op {
            // The usual case.
            OpRef::Acquire(_) if tier.is_default() && class.is_critical() => Ok(Chosen::Tier(0)),
            _ => self.choose_any(tier, class, op),
        }
    }

    fn choose_any(
        &self,
        tier: &Tier,
        class: Priority,
        op: OpRef<'_>,
    ) -> Result<Chosen, LimiterError> {
        let own = self.own.as_ref();
        // Other operations are supported by all quotas, and skip the call.
        if matches!(op, OpRef::Count(_) | OpRef::Spend(_)) && !self.supports(op) {
            return Err(unsupported(op));
        }
        if let OpRef::Block(length) = op
            && length.as_nanos() > u128::from(MAX_REFILL_NANOS)
        {
            return Err(LimiterError::unsupported(format!(
                "a block of {length:?} is longer than 18 years, the most that is accepted"
            )));
        }
        let chosen = match tier.request() {
            Some(quota) => Chosen::Request(own.ok_or_else(several_quotas)?.fit(quota)),
            None => Chosen::Tier(self.find(tier)?),
        };
        let chosen = chosen.in_class(class);
        Ok(chosen.by_receipt(op, self.tiers.len(), own))
    }

    /// Whether the quotas of all tiers support operations like `op`.
    pub fn supports(&self, op: OpRef<'_>) -> bool {
        let mut quotas = self.tiers.iter().flat_map(|(_, tier)| &tier.quotas);
        match op {
            OpRef::Count(_) => quotas.all(Quota::is_uncapped),
            OpRef::Spend(_) => self.block_for.is_none() && quotas.all(Quota::can_spend),
            _ => true,
        }
    }

    /// The abilities of a limiter with these limits.
    pub fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        for op in [Op::Count(1), Op::Spend(1)] {
            if !self.supports(op.as_ref()) {
                facts = facts.without(&op);
            }
        }
        facts.blocks = self.block_for.is_some();
        facts.classes = self.check_priority();
        facts
    }

    pub fn knows(&self, tier: &Tier) -> bool {
        self.tiers.iter().any(|(known, _)| known == tier)
    }

    fn find(&self, tier: &Tier) -> Result<TierIndex, LimiterError> {
        if tier.is_default() {
            return Ok(0);
        }
        let mut tiers = self.tiers.iter();
        let found = tiers.position(|(known, _)| known == tier);
        found
            .map(|at| at as TierIndex)
            .ok_or_else(|| tier.unknown_among(self.tiers.iter().map(|(known, _)| known)))
    }

    /// The chosen quotas. A request's own quota is stored in `own`.
    ///
    /// # Errors
    ///
    /// If a request brings a quota and the limiter has several.
    pub fn measured_by<'a>(
        &'a self,
        chosen: Chosen,
        own: &'a mut Option<TierQuotas>,
    ) -> Result<&'a TierQuotas, LimiterError> {
        match chosen {
            Chosen::Tier(tier) | Chosen::TierInClass(tier, _) => Ok(self.quotas(tier)),
            Chosen::Request(fitted) | Chosen::RequestInClass(fitted, _) => {
                *own = self.of_request(fitted);
                own.as_ref().ok_or_else(several_quotas)
            }
        }
    }

    pub fn of_request(&self, fitted: Fitted) -> Option<TierQuotas> {
        let own = self.own.as_ref()?;
        let quota = own.with(fitted);
        Some(TierQuotas {
            policies: Arc::new([own.policy.with_quota(&quota)]),
            meters: vec![Meter::new(&quota, own.most)],
            counters: self.default_tier().counters.clone(),
            places: self.default_tier().places.clone(),
            quotas: vec![quota],
            named: Vec::new(),
        })
    }

    /// The name of the counters at this place, if they have one. Without counter names it is the name of
    /// the default tier's quota.
    fn counter_name(&self, TierPlace(at): TierPlace) -> Option<&str> {
        if let Some(names) = &self.counter_names {
            return names.get(at).map(String::as_str);
        }
        let default = self.default_tier();
        let named = default.named.get(at).copied().unwrap_or(false);
        named.then(|| default.policies[at].name())
    }

    /// The name of the counters at this place; the place itself for counters without a name.
    pub(crate) fn shared_name(&self, at: TierPlace) -> Cow<'_, [u8]> {
        match self.counter_name(at) {
            Some(name) => Cow::Borrowed(name.as_bytes()),
            None => Cow::Owned(at.0.to_le_bytes().to_vec()),
        }
    }

    pub(crate) fn named_quotas(&self) -> impl Iterator<Item = NamedQuota> {
        let list = self.all().list.into_iter();
        list.map(|(at, quota)| NamedQuota {
            counter: self.shared_name(at).into_owned(),
            quota,
        })
    }

    /// Raises the largest value of each counter to that of the largest of these quotas that share it.
    pub(crate) fn include_others(&mut self, others: &[NamedQuota]) {
        let own = self.all().list;
        let place = |other: &NamedQuota| {
            let mut own = own.iter();
            let (at, _) = own.find(|(at, quota)| {
                *self.shared_name(*at) == *other.counter && quota.counts_like(&other.quota)
            })?;
            Some((*at, other.quota))
        };
        self.others = others.iter().filter_map(place).collect();
        self.share_counters();
    }

    /// Whether `next` could have made all charges of these limits, at the counters that both share.
    pub fn charge_like(&self, next: &Self) -> bool {
        let (own, next) = (self.all(), next.all());
        own.list.iter().all(|(at, quota)| {
            let both =
                |(place, other): &&(TierPlace, Quota)| place == at && other.counts_like(quota);
            let mut intervals =
                (next.list.iter().filter(both)).map(|(_, one)| one.interval_nanos());
            let (before, after) = (own.most(*at, quota), next.most(*at, quota));
            match quota.algorithm() {
                _ if !next.list.iter().any(|other| both(&other)) => true,
                Algorithm::TokenBucket | Algorithm::LeakyBucket { .. } => {
                    after.nanos >= before.nanos
                        && intervals.any(|interval| interval == quota.interval_nanos())
                }
                _ => after.units >= before.units,
            }
        })
    }

    /// The largest value of each quota's counter, in the order of
    /// [`named_quotas`](Self::named_quotas).
    pub(crate) fn mosts(&self) -> Vec<Most> {
        let all = self.all();
        let list = all.list.iter();
        list.map(|(at, quota)| all.most(*at, quota)).collect()
    }

    /// The label of each counter.
    pub(crate) fn labels(&self) -> Vec<CounterLabel> {
        let counters = self.counters.iter().flatten();
        let counters = counters.map(|counter| CounterLabel {
            name: self.shared_name(counter.at).into_owned(),
            is_named: self.counter_name(counter.at).is_some(),
            shape: counter.quota.shape_numbers(),
            text: counter.quota.to_string(),
        });
        counters.collect()
    }

    /// The single quota, if the whole state of a key is one instant.
    pub(crate) fn single_bucket(self: &Arc<Self>) -> Option<SingleBucket> {
        if self.block_for.is_some() {
            return None;
        }
        let [(_, quotas)] = self.tiers.as_slice() else {
            return None;
        };
        let (policy, own) = (quotas.policies.first()?, self.own.as_ref()?);
        let bucket = Bucket::new(&own.quota, own.most)?.of_threads();
        Some(SingleBucket {
            measured: (bucket, policy.clone()),
            limits: Arc::clone(self),
        })
    }
}

fn checked_block(block: Duration) -> Result<u64, ConfigError> {
    let nanos = u64::try_from(block.as_nanos()).unwrap_or(u64::MAX);
    if nanos > MAX_REFILL_NANOS {
        return Err(ConfigError::new(
            ConfigErrorKind::Overflow,
            format!("a block of {block:?} is longer than 18 years, the most that is accepted"),
        ));
    }
    Ok(nanos)
}

/// The choice of the quotas that measure an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chosen {
    Tier(TierIndex),
    /// A request's own quota.
    Request(Fitted),
    /// Quotas with the share that a class of requests may use. Variants of their own, so that requests
    /// without a priority need no check for one.
    TierInClass(TierIndex, Priority),
    RequestInClass(Fitted, Priority),
}

impl Chosen {
    /// The tier index in decisions.
    pub const fn index(self) -> TierIndex {
        match self {
            Self::Tier(tier) | Self::TierInClass(tier, _) => tier,
            Self::Request(_) | Self::RequestInClass(..) => REQUEST_TIER,
        }
    }

    #[inline]
    pub const fn class(self) -> Priority {
        match self {
            Self::Tier(_) | Self::Request(_) => Priority::CRITICAL,
            Self::TierInClass(_, class) | Self::RequestInClass(_, class) => class,
        }
    }

    /// The quotas, whatever the class is.
    pub(crate) const fn of_all(self) -> Self {
        match self {
            Self::TierInClass(tier, _) => Self::Tier(tier),
            Self::RequestInClass(fitted, _) => Self::Request(fitted),
            of_all => of_all,
        }
    }

    #[must_use]
    pub const fn in_class(self, class: Priority) -> Self {
        match self.of_all() {
            of_all if class.is_critical() => of_all,
            Self::Tier(tier) | Self::TierInClass(tier, _) => Self::TierInClass(tier, class),
            Self::Request(fitted) | Self::RequestInClass(fitted, _) => {
                Self::RequestInClass(fitted, class)
            }
        }
    }

    /// The choice for `op`. If the operation has a receipt, its tier replaces `self`, unless a limiter of
    /// `tiers` tiers does not have it.
    fn by_receipt(self, op: OpRef<'_>, tiers: usize, own: Option<&OwnQuota>) -> Self {
        let Some(receipt) = op.receipt() else {
            return self;
        };
        let by_receipt = match (receipt.request(), own) {
            (Some(fitted), Some(own)) => Self::Request(own.cut(fitted).0),
            (None, _) if usize::from(receipt.tier()) < tiers => Self::Tier(receipt.tier()),
            _ => self,
        };
        by_receipt.in_class(self.class())
    }
}

#[cold]
pub fn unsupported(op: OpRef<'_>) -> LimiterError {
    LimiterError::unsupported(match op {
        OpRef::Spend(_) => {
            "`spend` charges units that were used already: a leaky bucket has no slots for them, and a \
             limiter with `block_for` denies keys instead"
        }
        _ => {
            "`count` needs quotas that count beyond their limits: `Quota::fixed_window().uncapped()`"
        }
    })
}

/// A quota, with the name of its counter among limiters of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedQuota {
    counter: Vec<u8>,
    quota: Quota,
}

/// The description that finds a counter again in the next process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CounterLabel {
    /// The name of the counter; its place if it has none.
    pub name: Vec<u8>,
    pub(crate) is_named: bool,
    /// The letter of the algorithm, the period in nanoseconds, the slices, and the refill step in
    /// nanoseconds: counters that differ in these count differently.
    pub(crate) shape: [u64; 4],
    /// The smallest quota of the counter, for messages.
    pub(crate) text: String,
}

impl CounterLabel {
    pub(crate) fn counts_like(&self, other: &Self) -> bool {
        let identity = |label: &Self| (label.is_named, label.shape);
        self.name == other.name && identity(self) == identity(other)
    }

    pub(crate) fn shown_name(&self) -> String {
        if self.is_named {
            return format!("{:?}", String::from_utf8_lossy(&self.name));
        }
        let place = self.name.first().copied().unwrap_or(0);
        format!("at place {}", u32::from(place) + 1)
    }
}

/// The limits of a limiter whose whole state of a key is one instant.
#[derive(Debug, Clone)]
pub(crate) struct SingleBucket {
    pub(crate) measured: (Bucket, Policy),
    pub(crate) limits: Arc<TierSet>,
}

impl SingleBucket {
    /// The bucket of a request's own quota, which shares the counter.
    pub(crate) fn of_request(&self, fitted: Fitted) -> Option<(Bucket, Policy)> {
        let own = self.limits.own.as_ref()?;
        let quota = own.with(fitted);
        let bucket = Bucket::new(&quota, own.most)?.of_threads();
        Some((bucket, own.policy.with_quota(&quota)))
    }
}

/// Limits that every request reads and that rarely change. Until the first change, a read takes no
/// lock.
#[derive(Debug)]
pub struct ChangingLimits<T> {
    first: T,
    changed: AtomicBool,
    current: RwLock<T>,
}

impl<T: Clone> ChangingLimits<T> {
    pub fn new(first: T) -> Self {
        Self {
            current: RwLock::new(first.clone()),
            changed: AtomicBool::new(false),
            first,
        }
    }

    /// The first limits, if they are in force.
    #[inline]
    pub(crate) fn first(&self) -> Option<&T> {
        (!self.changed.load(Ordering::Acquire)).then_some(&self.first)
    }

    /// The limits without their lock: calls on several limits that held such locks could wait for each other while limits
    /// are replaced.
    #[inline]
    pub fn read(&self) -> Cow<'_, T> {
        match self.first() {
            Some(first) => Cow::Borrowed(first),
            None => Cow::Owned(unpoisoned(self.current.read()).clone()),
        }
    }

    /// Decides by the limits in force. Nothing replaces changed ones meanwhile; a decision by the first ones, which have no
    /// lock, may end after they were replaced. `decide` must not wait for who replaces them.
    pub(crate) fn decide<R>(&self, decide: impl FnOnce(&T) -> R) -> R {
        match self.first() {
            Some(first) => decide(first),
            None => decide(&*unpoisoned(self.current.read())),
        }
    }

    /// Restores the first limits.
    pub(crate) fn return_to_first(&self) {
        self.changed.store(false, Ordering::Release);
    }

    pub fn replace(&self, new: T) {
        *unpoisoned(self.current.write()) = new;
        self.changed.store(true, Ordering::Release);
    }
}
