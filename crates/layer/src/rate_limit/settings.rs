//! The settings of a layer, apart from its limiter and its rejection.

use std::{any::Any, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, request::Parts, response};

use super::waiting::Waiting;
use crate::middleware::settings::{CommonSettings, PerRequest};
use tower_ratelimit_core::{
    decision::{Decision, Op, Policy, Receipt},
    key::extract::KeyExtractor,
    limiter::{
        call::Charge,
        limiter::Limiter,
        tier::{RequestQuota, Tier},
    },
    quota::Priority,
    token_usage::{Tokens, UnitsOf},
};

/// The settings of a layer, apart from its limiter and its rejection.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) common: CommonSettings,
    pub(super) cost: Option<PerRequest<u64>>,
    pub(super) expose_decision: bool,
    pub(super) tier: Option<PerRequest<Tier>>,
    pub(super) quota: Option<PerRequest<Option<RequestQuota>>>,
    /// Whether a denied request passes nevertheless.
    pub(super) elastic: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
    pub(super) waiting: Waiting,
    /// Whether denials do not end a request.
    pub(super) overflow: bool,
    /// The cost of a request by its response and its charge.
    pub(super) final_cost: Option<Arc<FinalCost>>,
    /// The charges that follow the bodies of all responses.
    pub(super) spending: Option<Arc<dyn BodyCharges>>,
    pub(super) has_several_limits: bool,
    /// The class of a request at each of several limits that has one of its own; empty if none has.
    pub(super) own_priorities: Arc<[Option<PerRequest<Priority>>]>,
    /// The units that responses charge each of several limits; empty if they charge none.
    pub(super) spends: Arc<[Option<UnitLimit>]>,
    /// One for each limit that rules select from for a request; otherwise empty.
    pub(super) limits: Arc<[TermsOfLimit]>,
}

type FinalCost = dyn Fn(&response::Parts, u64) -> u64 + Send + Sync;

impl Settings {
    pub(super) fn new(extractor: impl KeyExtractor) -> Self {
        Self {
            common: CommonSettings::new(extractor),
            cost: None,
            expose_decision: false,
            tier: None,
            quota: None,
            elastic: None,
            waiting: Waiting::new(),
            overflow: false,
            final_cost: None,
            spending: None,
            has_several_limits: false,
            own_priorities: Arc::default(),
            spends: Arc::default(),
            limits: Arc::new([]),
        }
    }

    /// Whether every request costs one unit of the limiter's own quotas, and an allowed request needs no
    /// other work than to find its class; [`are_plain_for`](Self::are_plain_for) has what its limits need.
    pub(super) fn are_plain(&self) -> bool {
        let Self {
            common,
            cost,
            expose_decision,
            tier,
            quota,
            elastic,
            waiting,
            // Allowed requests are the same with it.
            overflow: _,
            final_cost,
            spending,
            has_several_limits: _,
            own_priorities,
            spends: _,
            limits,
        } = self;
        let is_counted_alike = cost.is_none() && tier.is_none() && quota.is_none();
        let is_counted_alike = is_counted_alike && own_priorities.is_empty() && spending.is_none();
        let waits = limits.is_empty() && waiting.is_enabled();
        let is_final = final_cost.is_none() && elastic.is_none() && !waits;
        let is_reported = *expose_decision || common.observer.is_some() || common.shadow;
        is_counted_alike && is_final && !is_reported
    }

    /// The tier of a request.
    pub(super) fn tier_of(&self, parts: &Parts) -> Tier {
        let quota = self.quota.as_ref().and_then(|quota| quota(parts));
        match (quota, &self.tier) {
            (Some(quota), _) => quota.into(),
            (None, Some(tier)) => tier(parts),
            (None, None) => Tier::DEFAULT,
        }
    }

    /// The class of a request at a limit that has one of its own.
    pub(super) fn own_class_of(&self, limit: usize, parts: &Parts) -> Option<Priority> {
        let own = self.own_priorities.get(limit)?.as_ref()?;
        Some(own(parts))
    }

    /// The charges that reserve units: a layer of one limit may have a cost of its own in their place.
    pub(super) fn reserving(&self) -> Option<&Arc<dyn BodyCharges>> {
        let spending = self.spending.as_ref();
        spending.filter(|_| self.has_several_limits || self.cost.is_none())
    }

    /// Whether a denied request of these limits may wait or exceed them.
    #[inline]
    pub(super) fn revises_denials(&self, limits: impl Iterator<Item = usize>) -> bool {
        self.elastic.is_some() || self.waiting.is_enabled_for(limits)
    }
}

/// The settings of one of the limits of a set of rules, beside those of the layer.
#[allow(
    clippy::exhaustive_structs,
    missing_debug_implementations,
    reason = "hidden"
)]
pub struct TermsOfLimit {
    /// The name of its rule, if its denials do not end a request: the inner service finds it in the request's header.
    pub overflow: Option<HeaderValue>,
    /// Whether a response counts, by its status; `None` if it does not depend on responses: its charge stays and counts
    /// towards no block.
    pub counts: Option<Arc<dyn Fn(StatusCode) -> bool + Send + Sync>>,
    /// The charges that follow the bodies of responses, instead of `counts`.
    pub spending: Option<Arc<dyn BodyCharges>>,
    /// Whether its denials and responses may start a block.
    pub blocks: bool,
    /// Whether its decision may not be the end of it: a denied request may wait or overflow, or a response corrects the
    /// charge.
    pub is_apart: bool,
    /// The policies in each of its tiers.
    pub policies: Box<[(Tier, Box<[Policy]>)]>,
}

/// The end of the charge of several limits, by the response.
pub(super) struct EndOfCharges {
    pub(super) ops: Vec<Op>,
    /// The units that the limits keep.
    pub(super) kept: u64,
    /// The units that each limit keeps.
    pub(super) kept_by_each: Vec<u64>,
}

/// Settings that depend on the limits of a request, which rules select. `limits` are their indexes, in the order of the charges.
impl Settings {
    fn of(&self, limit: usize) -> Option<&TermsOfLimit> {
        self.limits.get(limit)
    }

    /// Whether a charge may be all that is done for these limits.
    #[inline]
    pub(super) fn are_plain_for(&self, mut limits: impl Iterator<Item = usize>) -> bool {
        self.limits.is_empty() || !limits.any(|limit| self.of(limit).is_none_or(|own| own.is_apart))
    }

    /// Whether a response may correct the charge of its request.
    pub(super) fn corrects(&self, mut limits: impl Iterator<Item = usize>) -> bool {
        let corrects = |own: &TermsOfLimit| own.counts.is_some() || own.spending.is_some();
        let corrects = |limit| self.of(limit).is_some_and(corrects);
        let of_layer = self.final_cost.is_some() || self.spending.is_some();
        of_layer || (!self.limits.is_empty() && limits.any(corrects))
    }

    /// The settings of charges that follow the response's body: a response is read once, as the first limit has it.
    pub(super) fn spending(
        &self,
        mut limits: impl Iterator<Item = usize>,
    ) -> Option<&Arc<dyn BodyCharges>> {
        let of_limit = |limit| self.of(limit)?.spending.as_ref();
        self.spending.as_ref().or_else(|| limits.find_map(of_limit))
    }

    /// Whether denials and responses may start a block.
    pub(super) fn blocks(&self, mut limits: impl Iterator<Item = usize>) -> bool {
        limits.any(|limit| self.of(limit).is_some_and(|own| own.blocks))
    }

    /// Whether the limit with this index counts a response with this status; `None` if it does not depend on that.
    pub(super) fn counts(&self, limit: usize, status: StatusCode) -> Option<bool> {
        let counts = self.of(limit)?.counts.as_ref()?;
        Some(counts(status))
    }

    /// The policies of these charges.
    #[cold]
    pub(super) fn policies(&self, charges: &[Charge<'_>]) -> Box<[Policy]> {
        let own = |charge: &Charge<'_>| {
            let tiers = self.of(charge.index()).map_or(&[][..], |own| &own.policies);
            let own = tiers.iter().find(|(tier, _)| tier == charge.tier);
            own.map_or(&[][..], |(_, policies)| policies)
        };
        charges.iter().flat_map(own).cloned().collect()
    }

    /// The cost for all limits, if `units` were reserved.
    pub(super) fn cost_by(
        &self,
        response: &response::Parts,
        units: u64,
        mut limits: impl Iterator<Item = usize> + Clone,
    ) -> u64 {
        if let Some(final_cost) = &self.final_cost {
            return final_cost(response, units);
        }
        let follows_body = self.spending(limits.clone()).is_some();
        match (limits.next(), limits.next()) {
            (Some(only), None)
                if !follows_body && self.counts(only, response.status) == Some(false) =>
            {
                0
            }
            _ => units,
        }
    }

    /// The settlement of several limits; `None` if all limits settle alike, or nothing changes.
    pub(super) fn end_of_each(
        &self,
        response: &response::Parts,
        decision: &Decision,
        limits: impl Iterator<Item = usize> + Clone,
    ) -> Option<EndOfCharges> {
        if self.limits.is_empty() || self.spending(limits.clone()).is_some() {
            return None;
        }
        let blocks = self.blocks(limits.clone());
        let receipt = decision.receipt();
        let costs = limits.zip(receipt.of_each()?).map(|(limit, of)| {
            let counts = self.counts(limit, response.status);
            let cost = counts.map(|counts| if counts { of.receipt.charged() } else { 0 });
            (&of.receipt, cost)
        });
        let costs: Vec<_> = costs.collect();
        let is_reported = |(receipt, cost): &(&Receipt, Option<u64>)| {
            cost.is_some_and(|cost| cost == 0 || cost != receipt.charged() || blocks)
        };
        if !costs.iter().any(is_reported) {
            return None;
        }
        let is_refunded = costs.iter().all(|(_, cost)| *cost == Some(0));
        let kept = costs.iter();
        let kept = kept.map(|(receipt, cost)| cost.unwrap_or_else(|| receipt.charged()));
        let ops = costs.iter().map(|(receipt, cost)| match cost {
            Some(cost) => Op::Settle(*cost, Receipt::clone(receipt)),
            // Returns nothing, and counts towards no block.
            None => Op::Refund(0, Some(Receipt::clone(receipt))),
        });
        Some(EndOfCharges {
            ops: ops.collect(),
            kept: if is_refunded { 0 } else { decision.charged() },
            kept_by_each: kept.collect(),
        })
    }
}

/// The field of a request's header in which the service behind a [`RulesLayer`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/rules/struct.RulesLayer.html) finds
/// the rules that denied the request, with the action `overflow`: a line with the name of each.
pub const OVERFLOW_FIELD: HeaderName = HeaderName::from_static("x-ratelimit-overflow");

/// Denials that do not end a request.
impl Settings {
    /// Whether a request with this decision passes despite a denial. A blocked key stays out,
    /// because somebody blocked it.
    pub(super) fn lets_pass(&self, decision: &Decision, charges: &[Charge<'_>]) -> bool {
        if self.overflow {
            return decision.is_denied() && !decision.is_blocked();
        }
        let overflows = |at: usize| charges[at].overflows;
        !self.limits.is_empty() && decision.overflows(charges.len(), overflows)
    }

    /// Adds the rules that denied a request which passes to its header.
    pub(super) fn mark(
        &self,
        decision: &Decision,
        charges: &[Charge<'_>],
        headers: &mut HeaderMap,
    ) {
        let denying = decision.denying(charges.len());
        let names = denying.filter_map(|at| self.of(charges[at].index())?.overflow.as_ref());
        for name in names {
            headers.append(OVERFLOW_FIELD, name.clone());
        }
    }
}

/// Charges that follow the bodies of responses, as far as each layer knows them: those of a
/// [`SpendLayer`](super::SpendLayer) or of a rule.
#[doc(hidden)]
pub trait BodyCharges: Any + Send + Sync {
    /// Reserves units at each limit that responses charge, at most its capacity, if capacities are given.
    fn reserve(&self, charges: &mut [Charge<'_>], capacities: &[u64], request: &Parts);
}

/// A limit whose units the response determines.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "hidden")]
pub struct UnitLimit {
    pub(super) units: UnitsOf,
    pub(super) capacity: u64,
    /// Whether the limiter can charge units that were used already.
    pub(super) can_spend: bool,
}

impl UnitLimit {
    pub(super) fn new(limiter: &impl Limiter, units: UnitsOf) -> Self {
        let limits = limiter.policies().iter().map(|policy| policy.limit());
        Self {
            units,
            capacity: limits.min().unwrap_or(u64::MAX),
            can_spend: limiter.facts().supports(&Op::Spend(1)),
        }
    }

    /// A limit of these units, whose capacity depends on its tier.
    pub const fn of_tiers(units: UnitsOf) -> Self {
        Self {
            units,
            capacity: u64::MAX,
            can_spend: true,
        }
    }

    /// The units that are reserved for a request that declares these tokens: at least 1, since a cost of 0 is allowed
    /// when nothing is left, and at most the limit's capacity, so that small limits allow their first request.
    pub(super) fn reservation(&self, tokens: &Tokens) -> u64 {
        (self.units)(tokens).min(self.capacity).max(1)
    }
}
