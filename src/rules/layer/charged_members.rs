//! The limits of a request: the quotas of the rules that apply, those of a rule that count alike together.

use std::sync::Arc;

use http::StatusCode;

use crate::{
    decision::Policy,
    limiter::{
        AnyLimiter, Tier, UnitsOf,
        tier_set::{LimitTerms, TierSet},
    },
    rate_limit::{CountedResponses, Spending, UnitLimit},
    rules::{
        rule::Rule,
        rule_quotas::QuotaSet,
        rule_set::Rules,
        select::ChargeOfRule,
        spend::{CountedUnits, SpendRule, UsageFormat, UsagePlace},
        store::tier_of,
    },
    spend::{Field, llm::Llm},
};

/// The quotas of a rule that count alike, for a request.
#[derive(Clone, Copy)]
pub(super) struct ChargedMember<'c, 'r> {
    pub(super) charge: &'c ChargeOfRule<'r>,
    /// The units of responses that they count; `None` for requests.
    pub(super) units: Option<&'r CountedUnits>,
}

/// The limits of a request that these rules charge.
pub(super) fn members<'c, 'r: 'c>(
    charges: impl Iterator<Item = &'c ChargeOfRule<'r>>,
) -> Vec<ChargedMember<'c, 'r>> {
    let members = charges.flat_map(|charge| {
        let kinds = charge.quotas.kinds();
        kinds.map(move |units| ChargedMember { charge, units })
    });
    members.collect()
}

impl<'r> ChargedMember<'_, 'r> {
    pub(super) fn limiter(&self, rules: &'r Rules) -> Option<&'r AnyLimiter> {
        rules.limiter_of_kind(self.charge.rule, self.units)
    }

    /// The quotas, in the order of decisions.
    fn quotas(&self) -> Option<QuotaSet> {
        self.charge.quotas.of_kind(self.units)
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = Policy> + use<> {
        let quotas = self.quotas();
        quotas.into_iter().flat_map(|quotas| policies(&quotas))
    }

    /// The tier of the quotas in their limiter.
    pub(super) fn tier(&self) -> Tier {
        let charge = self.charge;
        let first = charge.rule.allowance.first_index(self.units);
        tier_of(charge.set_index, first)
    }

    fn unit_limit(&self) -> Option<UnitLimit> {
        let units = self.units?.clone();
        let quotas = self.quotas()?;
        let capacities = quotas.quotas().map(|quota| quota.quota().capacity());
        let units: UnitsOf = Arc::new(move |tokens| units.of(tokens));
        Some(UnitLimit::of_capacity(units, capacities.min()?))
    }
}

/// The policies of quotas. The compilation has checked them.
pub(super) fn policies(set: &QuotaSet) -> impl Iterator<Item = Policy> + use<> {
    let limits = TierSet::new(LimitTerms::of(set.to_owned_quotas()));
    let policies = limits.map(|limits| limits.default_tier().policies.clone());
    policies
        .map_or_else(|_| Vec::new(), |policies| policies.to_vec())
        .into_iter()
}

/// The effect of a response on each of several limits.
pub(super) fn counts_of_each<'r>(
    rules: impl Iterator<Item = &'r Rule>,
) -> Option<CountedResponses> {
    let each: Vec<_> = rules.map(|rule| rule.count_if.clone()).collect();
    each.iter().any(Option::is_some).then(|| {
        CountedResponses::OfEach(Arc::new(move |status: StatusCode, (at, charged)| {
            let count_if = each.get(at)?.as_ref()?;
            Some(if count_if.counts(status) { charged } else { 0 })
        }))
    })
}

/// The charges that follow the body of a response; `None` if it charges none of the limits. A response is read once:
/// as the first rule with `spend` says.
pub(super) fn spending_of(members: &[ChargedMember<'_, '_>]) -> Option<Spending> {
    let rules = || members.iter().map(|member| member.charge.rule);
    let spend = rules().find_map(|rule| rule.spend.as_deref())?;
    let limits = members.iter().map(ChargedMember::unit_limit).collect();
    Some(spend.spending(limits).with_counted(counts_of_each(rules())))
}

impl SpendRule {
    fn spending(&self, limits: Arc<[Option<UnitLimit>]>) -> Spending {
        let mut spending = match &self.read {
            UsagePlace::Format(format) => Spending::new(format.readers(), limits),
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

impl UsageFormat {
    const fn readers(self) -> Llm {
        match self {
            Self::Any => Llm::any(),
            Self::Openai => Llm::openai(),
            Self::Responses => Llm::responses(),
            Self::Anthropic => Llm::anthropic(),
            Self::Gemini => Llm::gemini(),
        }
    }
}
