//! The limits in force: the quotas of all tiers, and the choice of the tier for an operation.

mod choice;
mod counter_label;
mod shared_counters;
mod single_bucket;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

pub(crate) use self::{
    choice::{Chosen, check_block, unsupported},
    counter_label::CounterLabel,
    shared_counters::NamedQuota,
    single_bucket::SingleBucket,
};
pub(crate) use super::tier_quotas::TierIndex;
use super::{
    Tier,
    on_change::{OnChange, counter_mark},
    per_request_quota::{LoggedQuotas, OwnQuota},
    tier_quotas::{AllQuotas, Counter, TierPlace, TierQuotas},
};
#[cfg(feature = "shared")]
use crate::algorithm::{CompiledQuota, CounterIndex};
use crate::{
    algorithm::{EvictionWeight, State, Weight},
    clock::ClockReading,
    error::{ConfigError, ConfigErrorKind},
    log::{self, Code},
    quota::{Kind, MAX_REFILL_NANOS, OwnedQuota, Quota, check_name},
};

/// The quotas of all tiers, in force.
#[derive(Debug, Clone)]
pub(crate) struct TierSet {
    /// The first one is the default.
    tiers: Vec<(Tier, TierQuotas)>,
    /// The counters of each key. The index of a counter that no tier needs any more stays free until
    /// another counter takes it.
    counters: Vec<Option<Counter>>,
    /// The quota that requests' own quotas replace; `None` if the default tier has several.
    own: Option<OwnQuota>,
    /// Length of the block after a denial, in nanoseconds.
    pub(crate) block_for: Option<u64>,
    /// The name of each counter, by place, instead of the names of the default tier's quotas.
    counter_names: Option<Arc<[String]>>,
    /// The quotas of other limiters that share these counters, with their places.
    others: Vec<(TierPlace, Quota)>,
    /// Whether each quota may owe its capacity.
    #[cfg(feature = "shared")]
    has_debt: bool,
}

impl TierSet {
    /// # Errors
    ///
    /// If a tier has no quota, a quota is invalid, two quotas of a tier or two tiers have one name, or the
    /// block is too long.
    pub(crate) fn new(
        tiers: Vec<(Tier, Vec<OwnedQuota>)>,
        block_for: Option<Duration>,
    ) -> Result<Self, ConfigError> {
        let mut limits = Self::of_tiers(tiers, block_for)?;
        limits.share_counters();
        limits.warn_of_crosswise();
        Ok(limits)
    }

    /// Limits with named counters: quotas of one name share a counter if they count alike, at any place
    /// of their tiers. `names` has the names of each tier's quotas.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new).
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
                .map(|name| all.partition_point(|known| *known < name))
                .map(TierPlace);
            quotas.places = places.collect();
        }
        limits.counter_names = Some(all.into_iter().cloned().collect());
        limits.share_counters();
        Ok(limits)
    }

    /// Names the lone quota of each tier, if it has no name, like the limiter, unless policies cannot have that name.
    pub(crate) fn named_after(mut self, limiter: Option<&str>) -> Self {
        if let Some(limiter) = limiter.filter(|name| check_name(name).is_ok()) {
            for (_, quotas) in &mut self.tiers {
                quotas.name_after(limiter);
            }
        }
        self
    }

    /// With [`OnChange::Fresh`], the numbers of all quotas become part of their counters' names. All tiers have
    /// the same part, so that they still share counters.
    pub(crate) fn on_change(mut self, on_change: OnChange) -> Self {
        if on_change == OnChange::Fresh {
            let mark = counter_mark(&self.tiers);
            for quota in self.tiers.iter_mut().flat_map(|(_, tier)| &mut tier.quotas) {
                *quota = quota.with_counter_mark(mark);
            }
            self.share_counters();
        }
        self
    }

    /// The part of the counters' names that is made of numbers; 0 if there is none.
    pub(crate) fn counter_mark(&self) -> u32 {
        self.default_tier().quotas[0].counter_mark()
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
            counter_names: None,
            others: Vec::new(),
            #[cfg(feature = "shared")]
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
            for quota in &quotas {
                limits.check_debt(&quota.quota())?;
            }
            limits.tiers.push((tier, TierQuotas::new(&quotas)?));
        }
        Ok(limits)
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
    pub(crate) fn check_priority(&self) -> Result<(), ConfigError> {
        let named = |tier: &TierQuotas| {
            let names = tier.policies.iter().map(|policy| policy.name().to_owned());
            names.zip(tier.quotas.clone()).collect::<Vec<_>>()
        };
        let mut quotas = self.tiers.iter().flat_map(|(_, tier)| named(tier));
        quotas.try_for_each(|(name, quota)| quota.check_priority(&name))
    }

    pub(crate) fn default_tier(&self) -> &TierQuotas {
        &self.tiers[0].1
    }

    pub(crate) fn quotas(&self, tier: TierIndex) -> &TierQuotas {
        &self.tiers[usize::from(tier)].1
    }

    #[cfg(feature = "shared")]
    pub(crate) fn tiers(&self) -> impl ExactSizeIterator<Item = &(Tier, TierQuotas)> {
        self.tiers.iter()
    }

    /// The index of the counter of `quota` at `at`, and its meter.
    #[cfg(feature = "shared")]
    pub(crate) fn meter_of(
        &self,
        at: TierPlace,
        quota: &Quota,
    ) -> Option<(CounterIndex, CompiledQuota)> {
        let mut places = self.counters.iter().enumerate();
        places.find_map(|(place, counter)| {
            let counter = counter.as_ref()?;
            let index = CounterIndex(place);
            counter.counts(at, quota).then_some((index, counter.meter))
        })
    }

    /// The number of a key's counters.
    pub(crate) fn width(&self) -> usize {
        self.counters.len()
    }

    /// The number of a key's states. If denials block keys, each counter has a second state, for
    /// responses.
    pub(crate) fn states(&self) -> usize {
        self.width() * if self.block_for.is_some() { 2 } else { 1 }
    }

    /// The weight of these states of a key, for eviction.
    pub(crate) fn weight(&self, states: &[State], time: ClockReading) -> Weight {
        let mut weight = Weight::default();
        for states in states.chunks(self.width()) {
            for (counter, state) in self.counters.iter().zip(states) {
                let Some(counter) = counter else { continue };
                let here = counter.meter.weight(state, time);
                weight.time = weight.time.max(here.time);
                weight.used = weight.used.max(here.used);
            }
        }
        weight
    }

    /// The weight of the state with this index, for an eviction without the quotas.
    pub(crate) fn eviction_weight(
        &self,
        place: usize,
        state: &State,
        time: ClockReading,
    ) -> EvictionWeight {
        // The states of responses follow those of requests.
        let counter = if place < self.width() {
            &self.counters[place]
        } else {
            &self.counters[place - self.width()]
        };
        let counter = counter.as_ref();
        counter.map_or_else(EvictionWeight::default, |counter| {
            counter.meter.eviction_weight(state, time)
        })
    }

    /// The place and kind of each state's counter; `None` for free counters.
    pub(crate) fn counted(&self) -> impl Iterator<Item = Option<(TierPlace, Kind)>> {
        let counters = self.counters.iter().map(|counter| {
            let counter = counter.as_ref()?;
            Some((counter.at, counter.quota.kind()))
        });
        counters.cycle().take(self.states())
    }

    /// Replaces the default tier's quota of this name. Returns whether each of the former counters is still
    /// in use, by index.
    ///
    /// # Errors
    ///
    /// If the quota is invalid, has another name, or no quota has this name.
    pub(crate) fn replace(
        &mut self,
        name: &str,
        quota: &OwnedQuota,
    ) -> Result<Vec<bool>, ConfigError> {
        self.check_debt(&quota.quota())?;
        let before = self.counters.clone();
        self.tiers[0].1.replace(name, quota)?;
        self.share_counters();
        let kept = before.iter().zip(&self.counters);
        let kept = kept.map(|(before, after)| match (before, after) {
            (Some(before), Some(after)) => before.counts(after.at, &after.quota),
            _ => false,
        });
        Ok(kept.collect())
    }

    /// The default tier's quota of this name.
    pub(crate) fn quota(&self, name: &str) -> Option<Quota> {
        let tier = self.default_tier();
        let mut named = tier.policies.iter().zip(&tier.quotas);
        let (_, quota) = named.find(|(policy, _)| policy.name() == name)?;
        Some(quota.with_counter_mark(0))
    }

    /// The name in decisions of the default tier's quota that has this name.
    #[cfg(feature = "shared")]
    pub(crate) fn policy_name<'n>(&'n self, name: &'n str) -> &'n str {
        let quotas = &self.tiers[0].1;
        let at = quotas.position(name);
        at.map_or(name, |at| quotas.policies[at].name())
    }

    /// The quotas of all tiers.
    pub(crate) fn all(&self) -> AllQuotas {
        let positions = |(_, quotas): &(Tier, TierQuotas)| {
            let places = quotas.places.iter().copied();
            places
                .zip(quotas.quotas.iter().copied())
                .collect::<Vec<_>>()
        };
        AllQuotas {
            list: self.tiers.iter().flat_map(positions).collect(),
            others: self.others.clone(),
            #[cfg(feature = "shared")]
            has_debt: self.has_debt,
        }
    }

    /// Lets each quota owe its capacity, for stores that count units after they were spent.
    #[cfg(feature = "shared")]
    pub(crate) fn allow_debt(&mut self) {
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
        let ([quota], [policy]) = (tier.quotas.as_slice(), tier.policies.as_slice()) else {
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
                log::report(Code::TiersCrossed, &fault);
            }
        }
    }
}

/// The length of a block in nanoseconds.
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
