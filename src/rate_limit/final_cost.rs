//! The cost of a request by its response.

use std::sync::Arc;

use http::response;

use super::spending::{PerResponse, Spending};
#[cfg(feature = "rules")]
use crate::decision::{Decision, Op, Receipt};

/// The cost of a request by its response.
#[derive(Clone)]
pub(super) enum FinalCost {
    /// One cost for all limits, from the response and the charge.
    OfAll(PerResponse<u64, u64>),
    /// The cost by the response's body.
    ByBody(Arc<Spending>),
    /// The cost for each of several limits, from the response, the index of the limit and its charge. `None`
    /// for a limit that does not depend on responses: its charge stays and counts towards no block.
    #[cfg(feature = "rules")]
    OfEach(PerResponse<(usize, u64), Option<u64>>),
}

/// The end of the charge of several limits, by the response.
#[cfg(feature = "rules")]
pub(super) struct EndOfCharges {
    /// The operation on each limit.
    pub(super) ops: Vec<Op>,
    /// The units that the limits keep.
    pub(super) kept: u64,
    /// The units that each quota keeps.
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
            kept_by_each: decision.by_quota(&kept.collect::<Vec<_>>()),
        })
    }
}
