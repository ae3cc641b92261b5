//! The limits in force: the quotas of all tiers, and which of them an operation is measured by.

mod beside;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

pub(crate) use self::beside::NamedQuota;
use super::{
    Tier,
    on_change::{Epoch, Replaced},
    quotas::{AllQuotas, Counter, Quotas},
    request_quota::{OwnQuota, SaidOfQuotas, several_quotas},
};
use crate::{
    algorithm::{Bucket, ClockSkew, Meter, State, Weight, Worth},
    decision::Op,
    decision::{Policy, REQUEST_TIER},
    error::{ConfigError, ConfigErrorKind, LimiterError},
    log::{self, Code},
    quota::{Fitted, Kind, MAX_REFILL_NANOS, OwnedQuota, Quota},
};

/// The quotas in force.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// The first one is the default.
    pub(super) tiers: Vec<(Tier, Quotas)>,
    /// The counters of each key. A place whose counter no tier needs any more stays free until
    /// another takes it.
    counters: Vec<Option<Counter>>,
    /// The quota that requests' quotas stand in for, if the default tier has one alone.
    own: Option<OwnQuota>,
    /// How long a key that broke its limit stays out, in nanoseconds.
    pub(crate) block_for: Option<u64>,
    /// The mark of the counters, where keys start afresh when numbers change.
    pub(super) epoch: Epoch,
    /// Names of the counters, by their places, in place of those of the default tier's quotas.
    counter_names: Option<Arc<[String]>>,
    /// The quotas of other limiters that count at these counters, by their places.
    beside: Vec<(usize, Quota)>,
    /// Whether as much again may count beyond a capacity.
    #[cfg(feature = "redis")]
    has_debt: bool,
}

/// All that is counted where one instant for each key is enough.
#[derive(Debug, Clone)]
pub(crate) struct LoneBucket {
    pub(crate) measured: (Bucket, Policy),
    pub(crate) own: OwnQuota,
}

/// Where a tier stands among the tiers; the default one is the first.
pub(crate) type TierIndex = u16;

/// The quotas that an operation is measured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Chosen {
    Tier(TierIndex),
    /// A request's own.
    Request(Fitted),
}

impl Chosen {
    /// The tier index by which decisions name it.
    pub(crate) const fn index(self) -> TierIndex {
        match self {
            Self::Tier(tier) => tier,
            Self::Request(_) => REQUEST_TIER,
        }
    }

    /// The quotas that `op` is measured by which was asked for in `self`: those of its receipt, if
    /// it has one and a limiter of this many tiers knows them.
    pub(crate) fn by_receipt(self, op: &Op, tiers: usize, own: Option<&OwnQuota>) -> Self {
        let Some(receipt) = op.receipt() else {
            return self;
        };
        match (receipt.request(), own) {
            (Some(fitted), Some(own)) => Self::Request(own.refit(fitted)),
            (None, _) if usize::from(receipt.tier()) < tiers => Self::Tier(receipt.tier()),
            _ => self,
        }
    }
}

impl Limits {
    /// # Errors
    ///
    /// When a tier has no quota, one of them makes no sense, two quotas of a tier or two tiers have
    /// one name, or the block is too long.
    pub(crate) fn new(
        tiers: Vec<(Tier, Vec<OwnedQuota>)>,
        block_for: Option<Duration>,
    ) -> Result<Self, ConfigError> {
        let mut limits = Self::of_tiers(tiers, block_for)?;
        limits.share_counters();
        limits.warn_of_crosswise();
        Ok(limits)
    }

    /// Limits of which quotas of one name share a counter where they count alike, wherever they stand
    /// in their tiers. `names` are those of each tier's quotas.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub(crate) fn with_counter_names(
        tiers: Vec<(Tier, Vec<OwnedQuota>)>,
        block_for: Option<Duration>,
        names: &[Vec<String>],
    ) -> Result<Self, ConfigError> {
        let mut limits = Self::of_tiers(tiers, block_for)?;
        let all: BTreeSet<&String> = names.iter().flatten().collect();
        let all: Vec<&String> = all.into_iter().collect();
        for ((_, quotas), own) in limits.tiers.iter_mut().zip(names) {
            let places = own
                .iter()
                .map(|name| all.partition_point(|known| *known < name));
            quotas.places = places.collect();
        }
        limits.counter_names = Some(all.into_iter().cloned().collect());
        limits.share_counters();
        Ok(limits)
    }

    fn of_tiers(
        tiers: Vec<(Tier, Vec<OwnedQuota>)>,
        block_for: Option<Duration>,
    ) -> Result<Self, ConfigError> {
        let mut limits = Self {
            tiers: Vec::with_capacity(tiers.len()),
            counters: Vec::new(),
            own: None,
            block_for: block_for.map(checked_block).transpose()?,
            epoch: Epoch::default(),
            counter_names: None,
            beside: Vec::new(),
            #[cfg(feature = "redis")]
            has_debt: false,
        };
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
            if limits.tiers.iter().any(|(known, _)| *known == tier) {
                return Err(ConfigError::new(
                    ConfigErrorKind::QuotaList,
                    format!("two tiers are {tier:?}"),
                ));
            }
            limits.tiers.push((tier, Quotas::new(&quotas)?));
        }
        Ok(limits)
    }

    pub(crate) fn default_tier(&self) -> &Quotas {
        &self.tiers[0].1
    }

    pub(crate) fn quotas(&self, tier: TierIndex) -> &Quotas {
        &self.tiers[usize::from(tier)].1
    }

    #[cfg(feature = "redis")]
    pub(crate) fn tiers(&self) -> impl ExactSizeIterator<Item = &(Tier, Quotas)> {
        self.tiers.iter()
    }

    /// The quotas that `op` in `tier` is measured by.
    ///
    /// # Errors
    ///
    /// When there is no such tier, or a request brings a quota that stands in for none.
    #[inline]
    pub(crate) fn choose(&self, tier: &Tier, op: &Op) -> Result<Chosen, LimiterError> {
        match op {
            // Nearly all that is asked.
            Op::Acquire(_) if tier.is_default() => Ok(Chosen::Tier(0)),
            _ => self.choose_any(tier, op),
        }
    }

    fn choose_any(&self, tier: &Tier, op: &Op) -> Result<Chosen, LimiterError> {
        let own = self.own.as_ref();
        if matches!(op, Op::Count(_)) && !self.count_on() {
            return Err(cannot_count());
        }
        let asked = match tier.request() {
            Some(quota) => Chosen::Request(own.ok_or_else(several_quotas)?.fit(quota)),
            None => Chosen::Tier(self.find(tier)?),
        };
        Ok(asked.by_receipt(op, self.tiers.len(), own))
    }

    /// Whether the quotas of all tiers count beyond their limits.
    pub(crate) fn count_on(&self) -> bool {
        let mut quotas = self.tiers.iter().flat_map(|(_, tier)| &tier.quotas);
        quotas.all(Quota::is_uncapped)
    }

    pub(crate) fn knows(&self, tier: &Tier) -> bool {
        self.tiers.iter().any(|(known, _)| known == tier)
    }

    /// Where `tier` stands.
    fn find(&self, tier: &Tier) -> Result<TierIndex, LimiterError> {
        if tier.is_default() {
            return Ok(0);
        }
        let found = self.tiers.iter().position(|(known, _)| known == tier);
        found
            .map(|at| at as TierIndex)
            .ok_or_else(|| tier.unknown_among(self.tiers.iter().map(|(known, _)| known)))
    }

    /// The quotas that were chosen; those of a request are put into `own`.
    ///
    /// # Errors
    ///
    /// When a request brings a quota that stands in for none.
    pub(crate) fn measured_by<'a>(
        &'a self,
        chosen: Chosen,
        own: &'a mut Option<Quotas>,
    ) -> Result<&'a Quotas, LimiterError> {
        match chosen {
            Chosen::Tier(tier) => Ok(self.quotas(tier)),
            Chosen::Request(fitted) => {
                *own = self.of_request(fitted);
                own.as_ref().ok_or_else(several_quotas)
            }
        }
    }

    /// A request's quota, as the tier that it is.
    pub(crate) fn of_request(&self, fitted: Fitted) -> Option<Quotas> {
        let own = self.own.as_ref()?;
        let quota = own.with(fitted);
        Some(Quotas {
            policies: vec![own.policy.with_quota(&quota)],
            meters: vec![Meter::new(&quota, own.most)],
            counters: self.default_tier().counters.clone(),
            places: self.default_tier().places.clone(),
            quotas: vec![quota],
            named: Vec::new(),
        })
    }

    /// The counters of each key, and where each stands: the meter of one of the quotas that count
    /// there.
    #[cfg(feature = "redis")]
    pub(crate) fn meter_of(&self, at: usize, quota: &Quota) -> Option<(usize, Meter)> {
        let mut places = self.counters.iter().enumerate();
        places.find_map(|(place, counter)| {
            let counter = counter.as_ref()?;
            counter.counts(at, quota).then_some((place, counter.meter))
        })
    }

    /// How many counters a key has.
    pub(crate) fn width(&self) -> usize {
        self.counters.len()
    }

    /// How many states a key has: where it can be blocked, a count of responses stands beside
    /// each count of charges.
    pub(crate) fn states(&self) -> usize {
        self.width() * if self.block_for.is_some() { 2 } else { 1 }
    }

    /// The one quota, if all there is to count for a key is one instant for it.
    pub(crate) fn lone_bucket(&self) -> Option<LoneBucket> {
        if self.block_for.is_some() {
            return None;
        }
        let [(_, quotas)] = self.tiers.as_slice() else {
            return None;
        };
        let (policy, own) = (quotas.policies.first()?, self.own.clone()?);
        let bucket = Bucket::new(&own.quota, own.most, ClockSkew::Threads)?;
        Some(LoneBucket {
            measured: (bucket, policy.clone()),
            own,
        })
    }

    /// How much would be forgotten with these states of a key.
    pub(crate) fn weight(&self, states: &[State], now: u64) -> Weight {
        let mut weight = Weight::default();
        for states in states.chunks(self.width()) {
            for (counter, state) in self.counters.iter().zip(states) {
                let Some(counter) = counter else { continue };
                let here = counter.meter.weight(state, now);
                weight.time = weight.time.max(here.time);
                weight.used = weight.used.max(here.used);
            }
        }
        weight
    }

    /// The worth of the state at this place, told to those who do not know the quotas.
    pub(crate) fn worth(&self, place: usize, state: &State, now: u64) -> Worth {
        let counter = self.counters[place % self.width()].as_ref();
        counter.map_or_else(Worth::default, |counter| counter.meter.worth(state, now))
    }

    /// The counters of each key, one for each of its states: what tells them apart, but for the
    /// limits.
    pub(crate) fn counted(&self) -> impl Iterator<Item = Option<(usize, Kind)>> {
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
    /// When the quota makes no sense, has another name, or there is none of this name.
    pub(crate) fn replace(
        &mut self,
        name: &str,
        quota: &OwnedQuota,
    ) -> Result<Replaced, ConfigError> {
        let (before, epoch) = (self.counters.clone(), self.epoch);
        self.tiers[0].1.replace(name, quota)?;
        self.epoch = epoch.next(&mut self.tiers, false);
        self.share_counters();
        let kept = before.iter().zip(&self.counters);
        let kept = kept.map(|(before, after)| match (before, after) {
            (Some(before), Some(after)) => before.counts(after.at, &after.quota),
            _ => false,
        });
        Ok(Replaced {
            kept: kept.collect(),
            starts_afresh: self.epoch != epoch,
        })
    }

    /// The quotas of all tiers.
    pub(crate) fn all(&self) -> AllQuotas {
        let positions = |(_, quotas): &(Tier, Quotas)| {
            let places = quotas.places.iter().copied();
            places
                .zip(quotas.quotas.iter().copied())
                .collect::<Vec<_>>()
        };
        AllQuotas {
            list: self.tiers.iter().flat_map(positions).collect(),
            beside: self.beside.clone(),
            #[cfg(feature = "redis")]
            has_debt: self.has_debt,
        }
    }

    /// Lets as much again count beyond each capacity, for nodes that count what passed before they
    /// asked.
    #[cfg(feature = "redis")]
    pub(crate) fn allow_debt(&mut self) {
        self.has_debt = true;
        self.share_counters();
    }

    /// Gives every quota its counter: one for those that stand at one place and count alike. The
    /// counters that are still needed stay where they are.
    pub(super) fn share_counters(&mut self) {
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
        let told = self.own.take().map(|own| own.told);
        self.own = self.own_quota(&all, told.unwrap_or_default());
    }

    fn own_quota(&self, all: &AllQuotas, told: Arc<SaidOfQuotas>) -> Option<OwnQuota> {
        let tier = self.default_tier();
        let ([quota], [policy]) = (tier.quotas.as_slice(), tier.policies.as_slice()) else {
            return None;
        };
        Some(OwnQuota {
            quota: *quota,
            most: all.most(tier.places[0], quota),
            policy: policy.clone(),
            told,
        })
    }

    /// Says so if the lists of two tiers are in different orders.
    fn warn_of_crosswise(&self) {
        let default = self.default_tier();
        for (tier, quotas) in &self.tiers[1..] {
            if let Some(at) = default.crossed_with(quotas) {
                let fault = format!(
                    "quota {:?} counts like one of {tier:?} that stands at another place, so they \
                     share no count: list the quotas of all tiers in one order",
                    default.policies[at].name()
                );
                log::say(Code::TiersCrossed, &fault);
            }
        }
    }
}

impl LoneBucket {
    /// The bucket of a request's quota, which shares the counter.
    pub(crate) fn of_request(&self, fitted: Fitted) -> Option<(Bucket, Policy)> {
        let quota = self.own.with(fitted);
        let bucket = Bucket::new(&quota, self.own.most, ClockSkew::Threads)?;
        Some((bucket, self.own.policy.with_quota(&quota)))
    }
}

/// The error of a limiter that was asked to count, and whose quotas end at their limits.
pub(crate) fn cannot_count() -> LimiterError {
    LimiterError::unsupported(
        "`count` needs quotas that count beyond their limits: `Quota::fixed_window().uncapped()`",
    )
}

/// A block in nanoseconds, if it is not too long.
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
