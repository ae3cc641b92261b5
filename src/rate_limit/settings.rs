//! The settings of a layer, apart from its limiter and its rejection.

use std::sync::Arc;

use http::{HeaderMap, request::Parts, response};
#[cfg(feature = "rules")]
use http::{HeaderName, HeaderValue};

use super::{
    spending::{PerResponse, Spending, UnitLimit},
    waiting::Waiting,
};
#[cfg(feature = "rules")]
use crate::decision::{Op, Receipt};
use crate::{
    decision::Decision,
    key::KeyExtractor,
    limiter::{RequestQuota, Tier},
    middleware::{key_extraction_rules::PerRequest, settings::CommonSettings},
    quota::Priority,
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
    /// The denials that do not end a request.
    pub(super) overflow: Overflow,
    pub(super) final_cost: Option<FinalCost>,
    pub(super) has_several_limits: bool,
    /// The class of a request at each member of a joint limiter that has one of its own; empty if none
    /// has.
    pub(super) member_priorities: Arc<[Option<PerRequest<Priority>>]>,
    /// The members of a joint limiter that responses charge; empty if they charge none.
    pub(super) spends: Arc<[Option<UnitLimit>]>,
    /// The cost of a request for each member of a joint limiter, if they differ.
    pub(super) member_costs: Option<PerRequest<Box<[u64]>>>,
}

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
            overflow: Overflow::Never,
            final_cost: None,
            has_several_limits: false,
            member_priorities: Arc::default(),
            spends: Arc::default(),
            member_costs: None,
        }
    }

    /// Whether every request costs one unit of the limiter's own quotas, and an allowed request needs no
    /// other work than to find its class.
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
            has_several_limits: _,
            member_priorities,
            spends: _,
            member_costs,
        } = self;
        let is_counted_alike = cost.is_none() && tier.is_none() && quota.is_none();
        let is_counted_alike =
            is_counted_alike && member_priorities.is_empty() && member_costs.is_none();
        let is_final = final_cost.is_none() && elastic.is_none() && !waiting.is_enabled();
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
        let own = self.member_priorities.get(limit)?.as_ref()?;
        Some(own(parts))
    }

    /// The cost of a request at each limit, if they differ, and the cost at all others.
    pub(super) fn costs_of(&self, parts: &Parts) -> (Option<Box<[u64]>>, u64) {
        let own = self.member_costs.as_ref().map(|costs| costs(parts));
        (own, self.cost.as_ref().map_or(1, |cost| cost(parts)))
    }

    /// Whether a denied request may wait or exceed the limit.
    pub(super) fn revises_denials(&self) -> bool {
        self.elastic.is_some() || self.waiting.is_enabled()
    }
}

#[derive(Clone)]
pub(super) enum FinalCost {
    OfAll(PerResponse<u64, u64>),
    ByBody(Arc<Spending>),
    /// The cost for each of several limits, from the response, the index of the limit and its charge. `None`
    /// for a limit that does not depend on responses: its charge stays and counts towards no block.
    #[cfg(feature = "rules")]
    OfEach(PerResponse<(usize, u64), Option<u64>>),
}

/// The end of the charge of several limits, by the response.
#[cfg(feature = "rules")]
pub(super) struct EndOfCharges {
    pub(super) ops: Vec<Op>,
    /// The units that the limits keep.
    pub(super) kept: u64,
    /// The units that each limit keeps.
    pub(super) kept_by_each: Vec<u64>,
}

impl FinalCost {
    /// The cost for all limits, if `units` were reserved.
    pub(super) fn of_all(&self, response: &response::Parts, units: u64) -> u64 {
        match self {
            Self::OfAll(final_cost) => final_cost(response, units),
            Self::ByBody(spending) => spending.by_head(response, units),
            #[cfg(feature = "rules")]
            Self::OfEach(_) => units,
        }
    }

    /// The settlement of several limits; `None` if all limits settle alike, or nothing changes. `blocks` if the
    /// limiter counts responses towards a block.
    #[cfg(feature = "rules")]
    pub(super) fn of_each(
        &self,
        response: &response::Parts,
        decision: &Decision,
        blocks: bool,
    ) -> Option<EndOfCharges> {
        let Self::OfEach(final_cost) = self else {
            return None;
        };
        let receipt = decision.receipt();
        let charges = receipt.of_each()?.iter().enumerate();
        let costs: Vec<_> = charges
            .map(|(limit, of)| {
                let charged = of.receipt.charged();
                (&of.receipt, final_cost(response, (limit, charged)))
            })
            .collect();
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

/// The field of a request's header in which the service behind a [`RulesLayer`](crate::rules::RulesLayer) finds
/// the rules that denied the request, with the action `overflow`: a line with the name of each.
#[cfg(feature = "rules")]
pub(crate) const OVERFLOW_FIELD: HeaderName = HeaderName::from_static("x-ratelimit-overflow");

/// The denials that do not end a request.
#[derive(Clone)]
pub(super) enum Overflow {
    /// None.
    Never,
    /// The denials of all limits.
    Always,
    /// The denials of some limits: those with the name of a rule, at the index of the limit. The inner service finds
    /// the name in the request's header.
    #[cfg(feature = "rules")]
    OfRules(Arc<[Option<HeaderValue>]>),
}

impl Overflow {
    pub(super) const fn is_always(&self) -> bool {
        matches!(self, Self::Always)
    }

    #[cfg(feature = "rules")]
    pub(super) const fn is_of_rules(&self) -> bool {
        matches!(self, Self::OfRules(_))
    }

    /// Whether a request with this decision passes despite a denial. A blocked key stays out,
    /// because somebody blocked it.
    pub(super) fn lets_pass(&self, decision: &Decision) -> bool {
        match self {
            Self::Never => false,
            Self::Always => decision.is_denied() && !decision.is_blocked(),
            #[cfg(feature = "rules")]
            Self::OfRules(names) => decision.overflows(names.len(), |limit| names[limit].is_some()),
        }
    }

    /// Adds the rules that denied a request which passes to its header.
    #[cfg_attr(
        not(feature = "rules"),
        allow(clippy::unused_self, reason = "as its twin")
    )]
    pub(super) fn mark(&self, decision: &Decision, headers: &mut HeaderMap) {
        #[cfg(feature = "rules")]
        if let Self::OfRules(names) = self {
            for name in decision
                .denying(names.len())
                .filter_map(|limit| names[limit].as_ref())
            {
                headers.append(OVERFLOW_FIELD, name.clone());
            }
        }
        #[cfg(not(feature = "rules"))]
        let _ = (decision, headers);
    }
}
