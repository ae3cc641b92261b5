//! The desks of a set of rules: one for each set of quotas, and for those that met in a request.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::StatusCode;

use super::{
    desk_cache::{DeskCache, Met},
    group::RuleGroup,
};
use crate::{
    decision::{ChargeEnd, Decision, Policy},
    headers::Headers,
    limiter::{Tier, joint::ChosenTerms, limits::Limits},
    observe::Observer,
    rate_limit::{CountedResponses, Desk, DeskRoom, DeskTerms, Wait},
    rules::{
        allowance::QuotaSet,
        rule::Rule,
        select::ChargeOfRule,
        set::Rules,
        store::{RuleLimiter, tier_of},
    },
};

pub(super) type RuleDesk<R> = Desk<RuleGroup, R>;

/// The settings of the layer.
pub(super) struct LayerSettings<R> {
    pub(super) rejection: Arc<R>,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) expose_decision: bool,
    pub(super) grpc: bool,
    /// Where denied requests wait, also across a reload.
    pub(super) room: DeskRoom,
}

impl<R> LayerSettings<R> {
    /// The same with another rejection.
    pub(super) fn with_rejection<R2>(&self, rejection: Arc<R2>) -> LayerSettings<R2> {
        LayerSettings {
            rejection,
            observer: self.observer.clone(),
            expose_decision: self.expose_decision,
            grpc: self.grpc,
            room: self.room.clone(),
        }
    }
}

impl<R> Clone for LayerSettings<R> {
    fn clone(&self) -> Self {
        self.with_rejection(Arc::clone(&self.rejection))
    }
}

/// A set of rules with all that answers by it.
pub(super) struct Desks<R> {
    pub(super) rules: Rules,
    settings: Arc<LayerSettings<R>>,
    by_rule: Box<[DesksOfRule<R>]>,
    /// For requests that meet no rule.
    unlimited: RuleDesk<R>,
    together: DeskCache<RuleDesk<R>>,
}

/// The desks of a rule, by the places of its sets of quotas.
struct DesksOfRule<R> {
    by_place: Box<[Option<RuleDesk<R>>]>,
    /// For requests that are let pass or rejected uncounted: most rules have none.
    uncounted: OnceLock<RuleDesk<R>>,
    policies: Box<[Policy]>,
}

impl<R> Desks<R> {
    pub(super) fn new(rules: Rules, settings: Arc<LayerSettings<R>>) -> Self {
        let of_rule = |rule: &Rule| DesksOfRule::new(rule, rules.limiter(rule), &settings);
        Self {
            by_rule: rules.rules().iter().map(of_rule).collect(),
            unlimited: settings.desk(RuleGroup::none(Box::default()), OwnTerms::default()),
            together: DeskCache::new(),
            settings,
            rules,
        }
    }

    pub(super) const fn settings(&self) -> &Arc<LayerSettings<R>> {
        &self.settings
    }

    /// The desk of requests that no rule is about, or that this one lets pass or rejects uncounted.
    pub(super) fn uncounted(&self, rule: Option<&Rule>) -> &RuleDesk<R> {
        rule.map_or(&self.unlimited, |rule| {
            self.by_rule[usize::from(rule.place)].uncounted(&self.settings)
        })
    }

    /// The desk of a limit.
    #[inline]
    pub(super) fn of(&self, charge: &ChargeOfRule<'_>) -> &RuleDesk<R> {
        let desks = &self.by_rule[usize::from(charge.rule.place)];
        let desk = desks.by_place[charge.place].as_ref();
        desk.unwrap_or_else(|| desks.uncounted(&self.settings))
    }

    /// The desk of limits that are charged together.
    pub(super) fn together(&self, charges: &[&ChargeOfRule<'_>]) -> Arc<RuleDesk<R>> {
        let met = |charge: &&ChargeOfRule<'_>| (charge.rule.place, charge.place);
        let met: Box<[Met]> = charges.iter().map(met).collect();
        if let Some(desk) = self.together.get(&met) {
            return desk;
        }
        let desk = Arc::new(self.make_together(charges));
        self.together.insert(met, &desk);
        desk
    }

    /// How many desks of several limits are kept.
    #[cfg(test)]
    fn kept(&self) -> usize {
        self.together.len()
    }

    fn make_together(&self, charges: &[&ChargeOfRule<'_>]) -> RuleDesk<R> {
        let rules = || charges.iter().map(|charge| charge.rule);
        let limiters = rules().filter_map(|rule| self.rules.limiter(rule).cloned());
        let waits = rules().any(|rule| rule.wait.is_some());
        let terms = ChosenTerms {
            tiers: charges
                .iter()
                .map(|charge| tier(charge.rule, charge.place))
                .collect(),
            blocks_at_once: rules()
                .map(|rule| rule.count_if.is_none() && !waits)
                .collect(),
        };
        let policies: Box<[Policy]> = charges
            .iter()
            .flat_map(|charge| policies(charge.quotas))
            .collect();
        let blocks = rules().any(|rule| rule.block_for.is_some());
        let group = RuleGroup::together(limiters.collect(), terms, policies.clone(), blocks);
        let group = group.unwrap_or_else(|_| RuleGroup::none(policies));
        self.settings.desk(
            group,
            OwnTerms {
                // One response has one way of telling.
                headers: rules().next().map(|rule| rule.headers.clone()),
                shadow: false,
                counts: counts_of_each(rules()),
                wait: wait_of_all(charges),
            },
        )
    }
}

/// The name of the line of requests that wait for these quotas.
fn line(rule: &Rule, set: usize) -> String {
    format!("{}/{set}", rule.name)
}

impl<R> DesksOfRule<R> {
    fn new(rule: &Rule, limiter: Option<&RuleLimiter>, settings: &LayerSettings<R>) -> Self {
        let places = rule.allowance.places();
        let named = |(_, set): &(usize, &QuotaSet)| policies(set).collect();
        let policies = places
            .first()
            .map_or_else(|| Box::from([Policy::owned(&*rule.name, 0)]), named);
        let most = places.iter().map(|(place, _)| *place).max();
        let of_place = |place: usize| {
            let (_, set) = places.iter().find(|(at, _)| *at == place)?;
            Some(settings.of_one(rule, limiter?, set, place))
        };
        Self {
            by_place: most.map_or_else(Box::default, |most| (0..=most).map(of_place).collect()),
            uncounted: OnceLock::new(),
            policies,
        }
    }

    #[cold]
    fn uncounted(&self, settings: &LayerSettings<R>) -> &RuleDesk<R> {
        self.uncounted.get_or_init(|| {
            let group = RuleGroup::none(self.policies.clone());
            settings.desk(group, OwnTerms::default())
        })
    }
}

/// The terms of a desk beside the layer's.
#[derive(Default)]
struct OwnTerms {
    headers: Option<Headers>,
    shadow: bool,
    counts: Option<CountedResponses>,
    wait: Option<Wait>,
}

impl<R> LayerSettings<R> {
    fn desk(&self, group: RuleGroup, terms: OwnTerms) -> RuleDesk<R> {
        let terms = DeskTerms {
            headers: terms.headers.unwrap_or_default(),
            observer: self.observer.clone(),
            expose_decision: self.expose_decision && !terms.shadow,
            grpc: self.grpc,
            shadow: terms.shadow,
            counts: terms.counts,
            room: self.room.clone(),
            wait: terms.wait,
        };
        Desk::new(group, Arc::clone(&self.rejection), terms)
    }

    fn of_one(
        &self,
        rule: &Rule,
        limiter: &RuleLimiter,
        set: &QuotaSet,
        place: usize,
    ) -> RuleDesk<R> {
        let blocks = rule.block_for.is_some();
        let limiter = limiter.clone();
        let group = RuleGroup::one(limiter, tier(rule, place), policies(set).collect(), blocks);
        let counts = rule.count_if.clone().map(|count_if| {
            CountedResponses::OfOne(Arc::new(move |status| count_if.counts(status)))
        });
        let wait = rule.wait.filter(|_| !rule.shadow);
        let wait = wait.map(|longest| Wait {
            longest,
            of_denial: None,
            lines: vec![(line(rule, place), Some(longest))],
        });
        self.desk(
            group,
            OwnTerms {
                headers: Some(rule.headers.clone()),
                shadow: rule.shadow,
                counts,
                wait,
            },
        )
    }
}

/// The tier of a rule's quotas in its limiter.
pub(super) fn tier(rule: &Rule, place: usize) -> Tier {
    tier_of(place, rule.allowance.first_place())
}

/// The policies of quotas, which were checked when the file was read.
pub(super) fn policies(set: &QuotaSet) -> impl Iterator<Item = Policy> + use<> {
    let quotas = set.quotas().cloned().collect();
    let limits = Limits::new(vec![(Tier::DEFAULT, quotas)], None);
    let policies = limits.map(|limits| limits.default_tier().policies.clone());
    policies.unwrap_or_default().into_iter()
}

/// Which of several limits a response counts for.
fn counts_of_each<'r>(rules: impl Iterator<Item = &'r Rule>) -> Option<CountedResponses> {
    let each: Vec<_> = rules.map(|rule| rule.count_if.clone()).collect();
    each.iter().any(Option::is_some).then(|| {
        CountedResponses::OfEach(Arc::new(move |status: StatusCode, at| {
            match each.get(at).and_then(Option::as_ref) {
                Some(count_if) if count_if.counts(status) => ChargeEnd::Kept,
                Some(_) => ChargeEnd::GivenBack,
                None => ChargeEnd::Untouched,
            }
        }))
    })
}

/// A request waits only if all that deny it say so, and as long as the least of them says.
fn wait_of_all(charges: &[&ChargeOfRule<'_>]) -> Option<Wait> {
    let longest = charges.iter().filter_map(|charge| charge.rule.wait).max()?;
    // One for each quota, as decisions list them.
    let of_quotas = charges.iter().flat_map(|charge| {
        let quotas = charge.quotas.quotas().count();
        std::iter::repeat_n(charge.rule.wait, quotas)
    });
    let of_quotas: Vec<Option<Duration>> = of_quotas.collect();
    let lines = charges.iter().map(|charge| {
        let name = line(charge.rule, charge.place);
        (name, charge.rule.wait)
    });
    Some(Wait {
        longest,
        lines: lines.collect(),
        of_denial: Some(Arc::new(move |denial: &Decision| {
            let quotas = denial.quotas().zip(&of_quotas);
            let denying = quotas.filter(|(quota, _)| quota.is_denied());
            let waits: Option<Vec<Duration>> = denying.map(|(_, wait)| *wait).collect();
            waits?.into_iter().min()
        })),
    })
}

#[cfg(test)]
mod tests;
