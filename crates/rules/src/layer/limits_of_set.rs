//! The limits of a set of quotas: those of a rule that count alike together.

use std::sync::Arc;

use crate::{
    rule::Rule,
    rule_quotas::QuotaSet,
    rule_set::Rules,
    select::ChargeOfRule,
    spend::{CountedUnits, SpendRule, UsagePlace},
    store::tier_of,
};
use tower_ratelimit_core::{
    decision::Policy,
    limiter::{
        Charge, OpRef, Tier,
        tier_set::{LimitTerms, TierSet},
    },
};
use tower_ratelimit_layer::{
    rate_limit::{Spending, UnitLimit},
    spend::{Bytes, Field},
};

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
