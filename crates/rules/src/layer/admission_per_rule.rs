//! The admissions of a set of rules: one for each rule. All share the limits of the set of rules, of which a rule has one
//! for the quotas that count alike.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use http::HeaderValue;

use crate::{
    in_flight::{InFlightLimit, InFlightTables},
    rule::{Rule, SpendRule, UsagePlace},
    rule_quotas::{CountedUnits, QuotaSet},
    rule_selection::ChargeOfRule,
    rule_set::Rules,
    store::{RuleLimits, tier_of},
};
use tower_ratelimit_core::{
    decision::Policy,
    headers::Headers,
    limiter::{
        Charge, Limiter, OnChange, OpRef, Tier,
        limits_in_force::{LimitTerms, TierSet},
    },
};
use tower_ratelimit_layer::{
    observe::Observer,
    rate_limit::{
        Admission, BodyCharges, SelectedSettings, SharedQueues, Spending, TermsOfLimit, UnitLimit,
    },
    spend::{Bytes, Field},
};

pub(super) type RuleAdmission<R> = Arc<Admission<RuleLimits, R>>;

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
    by_rule: Box<[AdmissionOfRule<R>]>,
    /// Handles requests that no limit counts. It has no policies of its own.
    pub(super) uncounted: RuleAdmission<R>,
}

/// The limits of a rule, by the indexes of its sets of quotas, the default set's first.
type LimitsOfRule = Vec<(usize, Box<[LimitOfSet]>)>;

/// A rule's part of the admissions.
struct AdmissionOfRule<R> {
    /// For requests that meet this rule before others, since a response has the fields of one rule. It rejects requests
    /// without a permit, too.
    admission: RuleAdmission<R>,
    /// By the index of the set of quotas.
    limits: Box<[Box<[LimitOfSet]>]>,
    policies: Box<[Policy]>,
    in_flight: Option<InFlightLimit>,
}

impl<R> Admissions<R> {
    pub(super) fn new(rules: Rules, settings: Arc<LayerSettings<R>>) -> Self {
        let limits_of_rule = |rule: &Rule| -> LimitsOfRule {
            let sets = rule.allowance.indexed_sets().into_iter();
            let limits = sets.map(|(at, set)| (at, limits_of_set(&rules, rule, at, set)));
            limits.collect()
        };
        let limits: Vec<_> = rules.rules().iter().map(limits_of_rule).collect();
        let queues = rules.rules().iter().flat_map(|rule| {
            let kinds = rule.allowance.kinds().into_vec().into_iter();
            let wait = rule.wait.filter(|_| !rule.shadow);
            kinds.map(move |units| (identity(rule, units.as_ref()), wait))
        });
        let parts = SelectedSettings {
            limiter: Arc::new(rules.limits().clone()),
            rejection: Arc::clone(&settings.rejection),
            observer: settings.observer.clone(),
            expose_decision: settings.expose_decision,
            grpc: settings.grpc,
            queues: settings.queues.of_limits(queues.collect()),
            limits: terms_of_limits(&rules, &limits),
        };
        let of_rule = |(rule, limits): (&Rule, LimitsOfRule)| {
            let in_flight = rule.in_flight.as_deref().map(|limit| {
                let sources = rules.permit_sources(rule);
                settings.in_flight.limit((&rule.name, limit), sources)
            });
            AdmissionOfRule::new(rule, limits, in_flight, &parts)
        };
        Self {
            by_rule: rules.rules().iter().zip(limits).map(of_rule).collect(),
            uncounted: parts.admission(&Headers::default(), false, &[]),
            settings,
            rules,
        }
    }

    pub(super) const fn settings(&self) -> &Arc<LayerSettings<R>> {
        &self.settings
    }

    /// The policies of a rule that allows requests, or rejects them uncounted.
    pub(super) fn policies(&self, rule: &Rule) -> &[Policy] {
        &self.by_rule[usize::from(rule.position)].policies
    }

    pub(super) fn in_flight(&self, rule: &Rule) -> Option<&InFlightLimit> {
        self.by_rule[usize::from(rule.position)].in_flight.as_ref()
    }

    /// The admission of requests that meet this rule first.
    pub(super) fn admission(&self, rule: &Rule) -> &RuleAdmission<R> {
        &self.by_rule[usize::from(rule.position)].admission
    }

    /// The limits that a charge is about.
    pub(super) fn limits(&self, charge: &ChargeOfRule<'_>) -> &[LimitOfSet] {
        let limits = &self.by_rule[usize::from(charge.rule.position)].limits;
        limits.get(charge.set_index).map_or(&[], |limits| &**limits)
    }
}

/// The settings of each limit, by its index. `limits` are those of each rule, by its sets of quotas.
fn terms_of_limits(rules: &Rules, limits: &[LimitsOfRule]) -> Arc<[TermsOfLimit]> {
    let kinds = rules.rules().iter().flat_map(|rule| rule.allowance.kinds());
    let units = kinds.map(|units| {
        let units = units?;
        Some(UnitLimit::of_tiers(Arc::new(move |tokens| {
            units.of(tokens)
        })))
    });
    let units: Arc<[_]> = units.collect();
    let terms = rules.rules().iter().zip(limits).flat_map(|(rule, sets)| {
        let spending = rule.spend.as_deref();
        let spending = spending
            .map(|spend| -> Arc<dyn BodyCharges> { Arc::new(spend.spending(Arc::clone(&units))) });
        let limiters = rules.limits_of(rule).zip(rules.limiters(rule));
        limiters.map(move |(limit, limiter)| {
            let of_sets = sets.iter().flat_map(|(_, limits)| limits);
            let of_limit = of_sets.filter(|own| own.limit == limit);
            let policies = of_limit.map(|own| (own.tier.clone(), own.policies.clone()));
            let counts = rule.count_if.clone();
            TermsOfLimit {
                is_apart: rule.is_apart || rule.wait.is_some() || counts.is_some(),
                // Names are printable ASCII, so each is a value of a header field.
                overflow: HeaderValue::from_str(&rule.name)
                    .ok()
                    .filter(|_| rule.overflows()),
                counts: counts.map(|counts| Arc::new(move |status| counts.counts(status)) as _),
                spending: spending.clone(),
                blocks: limiter.facts().blocks,
                policies: policies.collect(),
            }
        })
    });
    terms.collect()
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

impl<R> AdmissionOfRule<R> {
    fn new(
        rule: &Rule,
        sets: LimitsOfRule,
        in_flight: Option<InFlightLimit>,
        parts: &SelectedSettings<RuleLimits, R>,
    ) -> Self {
        let policies_of = |(_, limits): &(usize, Box<[LimitOfSet]>)| -> Box<[Policy]> {
            let policies = limits.iter().flat_map(|own| &own.policies);
            policies.cloned().collect()
        };
        let policies: Vec<_> = sets.iter().map(policies_of).collect();
        let of_sets: Vec<_> = policies.iter().map(|policies| &**policies).collect();
        let admission = parts.admission(&rule.headers, rule.shadow, &of_sets);
        let mut by_set = Vec::new();
        for (at, limits) in sets {
            by_set.resize_with(by_set.len().max(at + 1), Box::default);
            by_set[at] = limits;
        }
        let first = policies.into_iter().next();
        Self {
            admission,
            limits: by_set.into(),
            policies: first.unwrap_or_else(|| Box::from([Policy::owned(&*rule.name, 0)])),
            in_flight,
        }
    }
}

/// The quotas of a set that count alike, which are those of a tier of one limit.
pub(super) struct LimitOfSet {
    /// The index of the limit.
    pub(super) limit: usize,
    pub(super) tier: Tier,
    pub(super) policies: Box<[Policy]>,
    /// Whether they count units of responses instead of requests.
    pub(super) counts_units: bool,
    /// The most units that all of them have.
    pub(super) capacity: u64,
}

impl LimitOfSet {
    fn new(
        rules: &Rules,
        rule: &Rule,
        set_index: usize,
        quotas: &QuotaSet,
        units: Option<&CountedUnits>,
    ) -> Option<Self> {
        let own = quotas.of_kind(units)?;
        let capacities = own.quotas().map(|quota| quota.quota().capacity());
        Some(Self {
            limit: rules.limit_index(rule, units)?,
            tier: tier_of(set_index, rule.allowance.first_index(units)),
            policies: policies(&own),
            counts_units: units.is_some(),
            capacity: capacities.min()?,
        })
    }

    /// The charge of a request: a denial starts a block at once unless another operation may follow, which `reserves`.
    #[inline]
    pub(super) fn charge<'a>(&'a self, charge: &'a ChargeOfRule<'_>, reserves: bool) -> Charge<'a> {
        let (key, class, cost) = charge.counted();
        let op = if reserves {
            OpRef::Reserve(cost)
        } else {
            OpRef::Acquire(cost)
        };
        let own = Charge::new(key, op).limit(self.limit);
        let own = own.tier(&self.tier).class(class);
        own.overflows(charge.rule.overflows())
    }
}

/// The limits of the set of quotas at this index, in the order of decisions: at least one.
pub(super) fn limits_of_set(
    rules: &Rules,
    rule: &Rule,
    set_index: usize,
    quotas: &QuotaSet,
) -> Box<[LimitOfSet]> {
    let kinds = quotas.kinds();
    let limits = kinds.filter_map(|units| LimitOfSet::new(rules, rule, set_index, quotas, units));
    limits.collect()
}

/// The policies of quotas. The compilation has checked them.
fn policies(set: &QuotaSet) -> Box<[Policy]> {
    let limits = TierSet::new(LimitTerms::of(set.to_owned_quotas()));
    let policies = limits.map(|limits| limits.default_tier().policies.iter().cloned().collect());
    policies.unwrap_or_default()
}

impl SpendRule {
    pub(super) fn spending(&self, limits: Arc<[Option<UnitLimit>]>) -> Spending {
        let mut spending = match &self.read {
            UsagePlace::Format(format) => Spending::new(*format, limits),
            UsagePlace::Bytes => Spending::new(Bytes::both(), limits),
            UsagePlace::Json(pointer) => Spending::new(pointer.clone(), limits),
            UsagePlace::Header(name) => Spending::new(Field::of(name.clone(), false), limits),
            UsagePlace::Trailer(name) => Spending::new(Field::of(name.clone(), true), limits),
        };
        spending.reserve = self.reserve;
        spending.reserve_least = self.reserve_least;
        spending.step = self.step;
        spending.exhausted = self.exhausted;
        spending.missing = self.missing;
        spending
    }
}
