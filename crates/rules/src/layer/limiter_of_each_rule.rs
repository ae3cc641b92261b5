//! The admission of each rule: its limiter, with its settings. All share the limits of the set of rules. The quotas of a rule
//! that count alike are one limit.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use http::HeaderValue;

use crate::{
    in_flight::{InFlightTables, RulePermits},
    rule::{Rule, SpendRule, UsagePlace},
    rule_quotas::CountedUnits,
    rule_set::Rules,
    store::{LimitOfSet, RuleLimits},
};
use tower_ratelimit_core::{
    decision::Policy,
    headers::Headers,
    limiter::{Limiter, OnChange},
};
use tower_ratelimit_layer::{
    observe::Observer,
    rate_limit::{
        Admission, BodyCharges, SelectedSettings, Spending, TermsOfLimit, UnitLimit, Waiting,
    },
    spend::{Bytes, Field},
};

type RuleAdmission<R> = Arc<Admission<RuleLimits, R>>;

#[derive(Clone)]
pub(super) struct LayerSettings {
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) expose_decision: bool,
    pub(super) grpc: bool,
    /// The queues of denied requests that wait. They survive a reload.
    pub(super) waiting: Waiting,
    /// The requests in flight. They survive a reload.
    pub(super) in_flight: InFlightTables,
    /// Whether responses have bodies that hold permits and follow the usage.
    pub(super) is_holding: bool,
}

/// The fault of rules with `in_flight` in a layer whose responses hold no permits.
const NEEDS_PERMITS: &str = "a rule has `in_flight`, which only responses that hold permits enforce: use `RulesLayer::holding`";

/// The fault of rules with `spend` in a layer that does not follow the bodies of responses.
const NEEDS_BODIES: &str = "a rule has `spend`, which needs a layer that follows the bodies of responses: use `RulesLayer::holding`";

impl LayerSettings {
    /// The fault of rules that this layer cannot enforce.
    pub(super) fn fault_of(&self, rules: &Rules) -> Option<&'static str> {
        let needs_permits = rules.has_in_flight().then_some(NEEDS_PERMITS);
        let needs_bodies = rules.has_spend().then_some(NEEDS_BODIES);
        needs_permits.or(needs_bodies).filter(|_| !self.is_holding)
    }
}

pub(super) struct Admissions<R> {
    pub(super) rules: Rules,
    pub(super) permits: RulePermits,
    pub(super) settings: LayerSettings,
    pub(super) rejection: Arc<R>,
    by_rule: Box<[AdmissionOfRule<R>]>,
    /// Handles requests that no limit counts. It has no policies of its own.
    pub(super) uncounted: RuleAdmission<R>,
}

/// A rule's part of the admissions.
struct AdmissionOfRule<R> {
    /// For requests that meet this rule before others, since a response has the fields of one rule. It rejects requests
    /// without a permit, too.
    admission: RuleAdmission<R>,
    policies: Box<[Policy]>,
}

impl<R> Admissions<R> {
    pub(super) fn new(rules: Rules, settings: LayerSettings, rejection: Arc<R>) -> Self {
        let queues = rules.limits().0.iter().map(|limit| {
            let rule = &rules.rules()[usize::from(limit.rule)];
            let wait = rule.wait.filter(|_| !rule.shadow);
            (identity(rule, limit.units.as_ref()), wait)
        });
        let parts = SelectedSettings {
            limiter: Arc::new(rules.limits().clone()),
            rejection: Arc::clone(&rejection),
            observer: settings.observer.clone(),
            expose_decision: settings.expose_decision,
            grpc: settings.grpc,
            waiting: settings.waiting.of_limits(queues.collect()),
            limits: terms_of_limits(&rules),
        };
        let of_rule = |rule: &Rule| {
            let policies_of = |limits: &[LimitOfSet]| -> Box<[Policy]> {
                let policies = limits.iter().flat_map(|own| &own.policies);
                policies.cloned().collect()
            };
            let policies: Vec<_> = rules.limits_of_sets(rule).map(policies_of).collect();
            let of_sets: Vec<_> = policies.iter().map(|policies| &**policies).collect();
            AdmissionOfRule {
                admission: parts.admission(&rule.headers, rule.shadow, &of_sets),
                policies: (policies.into_iter().next())
                    .unwrap_or_else(|| Box::from([Policy::owned(&*rule.name, 0)])),
            }
        };
        let permits = rules.rules().iter().map(|rule| {
            let limit = rule.in_flight.as_deref().map(|limit| (&*rule.name, limit));
            let permits = |limit| {
                settings
                    .in_flight
                    .permits(limit, rules.permit_sources(rule))
            };
            limit.map(permits).unwrap_or_default()
        });
        Self {
            permits: RulePermits(permits.collect()),
            by_rule: rules.rules().iter().map(of_rule).collect(),
            uncounted: parts.admission(&Headers::default(), false, &[]),
            settings,
            rejection,
            rules,
        }
    }

    /// The policies of a rule that allows requests, or rejects them uncounted.
    pub(super) fn policies(&self, rule: &Rule) -> &[Policy] {
        &self.by_rule[usize::from(rule.position)].policies
    }

    /// The admission of requests that meet this rule first.
    pub(super) fn admission(&self, rule: &Rule) -> &RuleAdmission<R> {
        &self.by_rule[usize::from(rule.position)].admission
    }
}

/// The settings of each limit, by its index.
fn terms_of_limits(rules: &Rules) -> Arc<[TermsOfLimit]> {
    let limits = &rules.limits().0;
    let units = limits.iter().map(|limit| {
        let units = limit.units.clone()?;
        Some(UnitLimit::of_tiers(Arc::new(move |tokens| {
            units.of(tokens)
        })))
    });
    let units: Arc<[_]> = units.collect();
    let terms = rules.rules().iter().flat_map(|rule| {
        let spending = rule.spend.as_deref();
        let spending = spending
            .map(|spend| -> Arc<dyn BodyCharges> { Arc::new(spend.spending(Arc::clone(&units))) });
        rules.limits().of_rule(rule).map(move |limit| {
            let of_sets = rules.limits_of_sets(rule).flatten();
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
                blocks: limits[limit].limiter.facts().blocks,
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

impl SpendRule {
    fn spending(&self, limits: Arc<[Option<UnitLimit>]>) -> Spending {
        let mut spending = match &self.read {
            UsagePlace::Format(format) => Spending::new(*format, limits),
            UsagePlace::Bytes => Spending::new(Bytes::both(), limits),
            UsagePlace::Json(pointer) => Spending::new(pointer.clone(), limits),
            UsagePlace::Header(name) => Spending::new(Field::of(name.clone(), false), limits),
            UsagePlace::Trailer(name) => Spending::new(Field::of(name.clone(), true), limits),
        };
        spending.numbers = self.numbers;
        spending
    }
}
