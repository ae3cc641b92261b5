//! The admissions of a set of rules: one for each set of quotas, and one for each list of rules that apply together.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::HeaderValue;

use super::{
    admission_cache::{AdmissionCache, AppliedSet},
    charged_members::{ChargedMember, counts_of_each, members, policies, spending_of},
    in_flight_tables::{InFlightLimit, InFlightTables},
    rule_limits::RuleLimits,
};
use crate::{
    decision::{Decision, Policy},
    headers::Headers,
    limiter::{AnyLimiter, OnChange},
    observe::Observer,
    rate_limit::{
        ChargeTerms, CountedResponses, PreparedAdmission, PreparedSettings, SharedQueues, Spending,
        WaitSettings,
    },
    rules::{
        rule::Rule, rule_quotas::QuotaSet, rule_set::Rules, select::ChargeOfRule,
        spend::CountedUnits, store::tier_of,
    },
    small_list::SmallList,
};

/// The number of rules that apply together to most requests.
const FEW_RULES: usize = 8;

pub(super) type RuleAdmission<R> = PreparedAdmission<RuleLimits, R>;

pub(super) struct LayerSettings<R> {
    pub(super) rejection: Arc<R>,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) expose_decision: bool,
    pub(super) grpc: bool,
    /// The queues of denied requests that wait. They survive a reload.
    pub(super) queues: SharedQueues,
    /// The requests in flight. They survive a reload.
    pub(super) in_flight: InFlightTables,
    pub(super) holds_permits: bool,
    pub(super) follows_bodies: bool,
}

/// The fault of rules with `in_flight` in a layer whose responses hold no permits.
const NEEDS_PERMITS: &str = "a rule has `in_flight`, which only responses that hold permits enforce: use `RulesLayer::holding`";

/// The fault of rules with `spend` in a layer that does not follow the bodies of responses.
const NEEDS_BODIES: &str = "a rule has `spend`, which needs a layer that follows the bodies of responses: use `RulesLayer::holding`";

impl<R> LayerSettings<R> {
    /// The fault of rules that this layer cannot enforce.
    pub(super) fn fault_of(&self, rules: &Rules) -> Option<&'static str> {
        if rules.has_in_flight() && !self.holds_permits {
            return Some(NEEDS_PERMITS);
        }
        (rules.has_spend() && !self.follows_bodies).then_some(NEEDS_BODIES)
    }

    pub(super) fn with_rejection<R2>(&self, rejection: Arc<R2>) -> LayerSettings<R2> {
        LayerSettings {
            rejection,
            observer: self.observer.clone(),
            expose_decision: self.expose_decision,
            grpc: self.grpc,
            queues: self.queues.clone(),
            in_flight: self.in_flight.clone(),
            holds_permits: self.holds_permits,
            follows_bodies: self.follows_bodies,
        }
    }
}

impl<R> Clone for LayerSettings<R> {
    fn clone(&self) -> Self {
        self.with_rejection(Arc::clone(&self.rejection))
    }
}

pub(super) struct Admissions<R> {
    pub(super) rules: Rules,
    settings: Arc<LayerSettings<R>>,
    by_rule: Box<[AdmissionsOfRule<R>]>,
    /// Handles requests that no limit counts.
    unlimited: RuleAdmission<R>,
    together: AdmissionCache<RuleAdmission<R>>,
}

/// The admissions of a rule, by the index of the set of quotas.
struct AdmissionsOfRule<R> {
    by_set: Box<[Option<RuleAdmission<R>>]>,
    policies: Box<[Policy]>,
    in_flight: Option<InFlightLimit>,
    /// Rejects requests without a permit.
    denied_in_flight: OnceLock<RuleAdmission<R>>,
}

impl<R> Admissions<R> {
    pub(super) fn new(rules: Rules, settings: Arc<LayerSettings<R>>) -> Self {
        let of_rule = |rule: &Rule| AdmissionsOfRule::new(rule, &rules, &settings);
        Self {
            by_rule: rules.rules().iter().map(of_rule).collect(),
            unlimited: settings.admission(
                RuleLimits::of_request([], Box::default()),
                OwnTerms::of_nothing(),
            ),
            together: AdmissionCache::new(),
            settings,
            rules,
        }
    }

    pub(super) const fn settings(&self) -> &Arc<LayerSettings<R>> {
        &self.settings
    }

    /// The admission of requests that no limit counts. It has no policies of its own.
    pub(super) const fn uncounted(&self) -> &RuleAdmission<R> {
        &self.unlimited
    }

    /// The policies of a rule that allows requests, or rejects them uncounted.
    pub(super) fn policies(&self, rule: &Rule) -> &[Policy] {
        &self.by_rule[usize::from(rule.position)].policies
    }

    pub(super) fn in_flight(&self, rule: &Rule) -> Option<&InFlightLimit> {
        self.by_rule[usize::from(rule.position)].in_flight.as_ref()
    }

    /// The admission that rejects requests of a rule without a permit.
    #[cold]
    pub(super) fn denied_in_flight(&self, rule: &Rule) -> &RuleAdmission<R> {
        let own = &self.by_rule[usize::from(rule.position)];
        own.denied_in_flight.get_or_init(|| {
            let terms = OwnTerms {
                headers: Some(rule.headers.clone()),
                shadow: rule.shadow,
                ..OwnTerms::of_nothing()
            };
            let policies = own.in_flight.iter().flat_map(InFlightLimit::policies);
            let limits = RuleLimits::of_request([], policies.take(1).cloned().collect());
            self.settings.admission(limits, terms)
        })
    }

    pub(super) fn of(&self, charge: &ChargeOfRule<'_>) -> &RuleAdmission<R> {
        let admissions = &self.by_rule[usize::from(charge.rule.position)];
        let admission = admissions.by_set[charge.set_index].as_ref();
        admission.unwrap_or(&self.unlimited)
    }

    pub(super) fn together<'c, 'r: 'c>(
        &self,
        charges: impl Iterator<Item = &'c ChargeOfRule<'r>> + Clone,
    ) -> Arc<RuleAdmission<R>> {
        let mut sets = SmallList::<AppliedSet, FEW_RULES>::new();
        for charge in charges.clone() {
            sets.push((charge.rule.position, charge.set_index));
        }
        if let Some(admission) = self.together.get(sets.as_slice()) {
            return admission;
        }
        let members = members(charges);
        let admission = Arc::new(self.make_together(&members));
        self.together.insert(sets.as_slice().into(), &admission);
        admission
    }

    /// The number of cached admissions of several limits.
    #[cfg(test)]
    fn cached(&self) -> usize {
        self.together.len()
    }

    fn make_together(&self, members: &[ChargedMember<'_, '_>]) -> RuleAdmission<R> {
        let rules = || members.iter().map(|member| member.charge.rule);
        let limiters = members
            .iter()
            .filter_map(|member| member.limiter(&self.rules));
        let waits = rules().any(|rule| rule.wait.is_some());
        let terms = members.iter().map(|member| ChargeTerms {
            tier: member.tier(),
            blocks_at_once: member.charge.rule.count_if.is_none() && !waits,
        });
        let policies = members.iter().flat_map(ChargedMember::policies);
        let limits = RuleLimits::of_request(limiters.cloned(), policies.collect());
        self.settings.admission(
            limits.with_overflow(rules().map(Rule::overflows)),
            OwnTerms {
                terms: terms.collect(),
                overflow: overflow_of_each(rules()),
                // A response has one set of fields: that of the first rule.
                headers: rules().next().map(|rule| rule.headers.clone()),
                shadow: false,
                counts: counts_of_each(rules()),
                wait: wait_of_all(members),
                spending: spending_of(members),
            },
        )
    }
}

/// The identity of a rule's limit of requests or of these units, which names its queues: they survive a reload.
fn identity(rule: &Rule, units: Option<&CountedUnits>) -> u64 {
    let mut identity = DefaultHasher::new();
    (&rule.name, units.map(CountedUnits::label)).hash(&mut identity);
    if rule.on_change == OnChange::Fresh {
        // Nobody stands behind requests that wait for counts of other numbers.
        format!("{:?}", rule.allowance.sets()).hash(&mut identity);
    }
    identity.finish()
}

impl<R> AdmissionsOfRule<R> {
    fn new(rule: &Rule, rules: &Rules, settings: &LayerSettings<R>) -> Self {
        // Charges that follow responses are made by several limiters, see `together`.
        let limiter = rules.limiter(rule).filter(|_| rule.spend.is_none());
        let sets = rule.allowance.indexed_sets();
        let named = |(_, set): &(usize, &QuotaSet)| policies(set).collect();
        let policies = sets
            .first()
            .map_or_else(|| Box::from([Policy::owned(&*rule.name, 0)]), named);
        let most = sets.iter().map(|(index, _)| *index).max();
        let of_set = |index: usize| {
            let (_, set) = sets.iter().find(|(at, _)| *at == index)?;
            Some(settings.of_one(rule, limiter?, set, index))
        };
        Self {
            by_set: most.map_or_else(Box::default, |most| (0..=most).map(of_set).collect()),
            policies,
            in_flight: (settings.in_flight).limit(rule, rules.permit_sources(rule)),
            denied_in_flight: OnceLock::new(),
        }
    }
}

/// The terms of an admission that are not the layer's.
#[derive(Default)]
struct OwnTerms {
    headers: Option<Headers>,
    overflow: Option<Arc<[Option<HeaderValue>]>>,
    shadow: bool,
    counts: Option<CountedResponses>,
    wait: Option<WaitSettings>,
    terms: Box<[ChargeTerms]>,
    spending: Option<Spending>,
}

impl OwnTerms {
    /// The terms of an admission that charges nothing.
    fn of_nothing() -> Self {
        Self {
            terms: [ChargeTerms::default()].into(),
            ..Self::default()
        }
    }
}

impl<R> LayerSettings<R> {
    fn admission(&self, limits: RuleLimits, terms: OwnTerms) -> RuleAdmission<R> {
        let terms = PreparedSettings {
            headers: terms.headers.unwrap_or_default(),
            observer: self.observer.clone(),
            expose_decision: self.expose_decision && !terms.shadow,
            grpc: self.grpc,
            shadow: terms.shadow,
            counts: terms.counts,
            queues: self.queues.clone(),
            wait: terms.wait,
            overflow: terms.overflow,
            terms: terms.terms,
            spending: terms.spending,
        };
        PreparedAdmission::new(limits, Arc::clone(&self.rejection), terms)
    }

    fn of_one(
        &self,
        rule: &Rule,
        limiter: &AnyLimiter,
        set: &QuotaSet,
        index: usize,
    ) -> RuleAdmission<R> {
        let counts = rule.count_if.clone().map(|count_if| {
            CountedResponses::OfOne(Arc::new(move |status| count_if.counts(status)))
        });
        let wait = rule.wait.filter(|_| !rule.shadow);
        let wait = wait.map(|longest| WaitSettings {
            longest,
            of_denial: None,
            limits: [(identity(rule, None), Some(longest))].into(),
        });
        self.admission(
            RuleLimits::of_request([limiter.clone()], policies(set).collect()),
            OwnTerms {
                headers: Some(rule.headers.clone()),
                overflow: overflow_of_each([rule].into_iter()),
                shadow: rule.shadow,
                counts,
                wait,
                terms: [ChargeTerms {
                    tier: tier_of(index, rule.allowance.first_index(None)),
                    blocks_at_once: false,
                }]
                .into(),
                spending: None,
            },
        )
    }
}

/// The names of the rules whose denials do not end a request; `None` if all do.
fn overflow_of_each<'r>(
    rules: impl Iterator<Item = &'r Rule>,
) -> Option<Arc<[Option<HeaderValue>]>> {
    // Names are printable ASCII, so each is a value of a header field.
    let name = |rule: &Rule| HeaderValue::from_str(&rule.name).ok();
    let names: Vec<_> = rules
        .map(|rule| name(rule).filter(|_| rule.overflows()))
        .collect();
    names.iter().any(Option::is_some).then(|| names.into())
}

/// The longest wait of a request: it waits only if all rules that deny it have `wait`, and for the shortest of them.
fn wait_of_all(members: &[ChargedMember<'_, '_>]) -> Option<WaitSettings> {
    let waits = members.iter().map(|member| member.charge.rule.wait);
    let longest = waits.flatten().max()?;
    // One element for each quota, in the order of decisions.
    let of_quotas = members.iter().flat_map(|member| {
        let quotas = member.policies().count();
        std::iter::repeat_n(member.charge.rule.wait, quotas)
    });
    let of_quotas: Vec<Option<Duration>> = of_quotas.collect();
    let limits = members.iter().map(|member| {
        let rule = member.charge.rule;
        (identity(rule, member.units), rule.wait)
    });
    Some(WaitSettings {
        longest,
        limits: limits.collect(),
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
