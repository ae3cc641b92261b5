//! Decisions of several limits: each limit writes its part, and callers read them.

use std::sync::Arc;

use super::{
    Decision, Outcome, Policy, QuotaStatus, QuotaStatuses, Receipt, Ruling, Status, decision::Part,
};
use crate::{error::LimiterError, small_list::SmallList};

/// A decision of several limits while each writes its part.
#[doc(hidden)]
#[derive(Debug)]
pub struct JointDecision {
    parts: Vec<Part>,
    statuses: Vec<Status>,
    ruling: Ruling,
}

#[doc(hidden)]
impl JointDecision {
    /// Room for `count` limits of one quota each.
    pub fn with_room(count: usize) -> Self {
        Self::of(Ruling::OF_NONE, Vec::with_capacity(count), count)
    }

    /// A decision whose ruling and statuses are known, and whose `count` limits [write](Self::write_part) their parts.
    #[inline(always)]
    pub fn of(ruling: Ruling, statuses: Vec<Status>, count: usize) -> Self {
        Self {
            parts: Vec::with_capacity(count),
            statuses,
            ruling,
        }
    }

    /// Writes the part of the limit with this identity.
    #[inline(always)]
    pub fn write(
        &mut self,
        limit: u64,
        ruling: Ruling,
        policies: &Arc<[Policy]>,
        statuses: impl Iterator<Item = Status>,
    ) {
        self.write_part(limit, ruling, policies, self.statuses.len());
        statuses.for_each(|status| self.statuses.push(status));
    }

    /// Writes the part of the limit with this identity, whose first status is at this index.
    #[inline(always)]
    pub(crate) fn write_part(
        &mut self,
        limit: u64,
        ruling: Ruling,
        policies: &Arc<[Policy]>,
        first: usize,
    ) {
        self.parts.push(Part {
            limit,
            policies: Arc::clone(policies),
            first,
            ruling,
            error: None,
        });
    }

    /// [`write`](Self::write) for a limit that decided before it was known whether others would.
    pub fn add(&mut self, limit: u64, decision: &Decision) {
        let (policies, statuses) = (decision.quotas.policies(), decision.statuses());
        self.write(limit, decision.ruling, &policies, statuses.iter().copied());
    }

    /// [`add`](Self::add) for a limit that did not answer, with a decision without numbers.
    pub fn add_failed(&mut self, limit: u64, unknown: &Decision, error: LimiterError) {
        self.add(limit, unknown);
        if let Some(part) = self.parts.last_mut() {
            part.error = Some(Arc::new(error));
        }
    }

    /// The decision of limits whose rulings are the parts of its own.
    #[inline(always)]
    pub(crate) fn ruled(self) -> Decision {
        let quotas = QuotaStatuses::of_limits(self.parts, self.statuses);
        Decision::of(self.ruling, quotas)
    }

    /// The decision, whose receipt has one of each limit. Limits that overflow do not decide by their denials, unless all
    /// deny or a key is blocked; and if another limit denies, they do not deny.
    pub fn finish(mut self, overflows: impl Fn(usize) -> bool) -> Decision {
        let passes = |at, part: &Part| part.ruling.denied && overflows(at) && !part.ruling.blocks();
        let mut parts = self.parts.iter().enumerate();
        let is_denied = parts.any(|(at, part)| part.ruling.denied && !passes(at, part));
        let all_pass = self.parts.iter().all(|part| part.ruling.denied) && !is_denied;
        for (at, part) in self.parts.iter_mut().enumerate() {
            if all_pass || !passes(at, part) {
                self.ruling.join(&part.ruling);
            } else if is_denied {
                part.ruling.denied = false;
                let statuses = self.statuses[part.places()].iter_mut();
                statuses.for_each(Status::pardon);
            }
        }
        let first = self.parts.first();
        let first = first.expect("a decision is about at least one limit");
        self.ruling = self.ruling.of_all(&first.ruling);
        self.ruled()
    }
}

impl Decision {
    /// The outcome and the charge of each limit, in the order of the limits: one part for each of several limits that were
    /// [charged together](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.all), otherwise this decision.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = DecisionPart<'_>> {
        let parts = self.quotas.parts();
        (0..parts.len().max(1)).map(move |limit| DecisionPart {
            decision: self,
            ruling: parts.get(limit).map_or(&self.ruling, |part| &part.ruling),
            limit,
        })
    }

    /// The identity of the limit that has the quota at this index, among several, and the index in that limit: equal for
    /// several keys of one limit.
    pub(crate) fn counter_of(&self, place: usize) -> Option<(u64, usize)> {
        let part = self.quotas.parts().get(self.quotas.limit_of(place))?;
        (part.limit != 0).then(|| (part.limit, place - part.first))
    }

    /// The error of the first limit that did not answer while another one did.
    #[doc(hidden)]
    pub fn error(&self) -> Option<&Arc<LimiterError>> {
        let mut parts = self.quotas.parts().iter();
        parts.find_map(|part| part.error.as_ref())
    }

    /// Gives the quotas of limits that did not answer what they had `before`, when the same limits decided.
    #[doc(hidden)]
    pub fn complete_by(&mut self, before: &Self) {
        let Some((parts, statuses)) = self.quotas.limits_mut() else {
            return;
        };
        for (part, before_of) in parts.iter_mut().zip(before.quotas.parts()) {
            if part.error.is_some() && part.policies.len() == before_of.policies.len() {
                statuses[part.places()].copy_from_slice(&before.statuses()[before_of.places()]);
                part.policies = Arc::clone(&before_of.policies);
            }
        }
    }
}

/// The receipt of each of `count` limits, from the answer to an operation on all of them; `None` for one that failed.
/// One limit, the usual case, needs no allocation.
#[doc(hidden)]
pub fn receipts_of_each(
    answer: &Result<Decision, LimiterError>,
    count: usize,
) -> SmallList<Option<Receipt>, 1> {
    match answer {
        Ok(decision) => {
            let receipt = decision.receipt();
            let each = decision.parts().zip(receipt.each());
            each.map(|(part, receipt)| part.error().is_none().then(|| receipt.clone()))
                .collect()
        }
        Err(error) => {
            let beside = error.beside().and_then(|beside| beside.downcast_ref());
            let beside: Option<&Box<[Option<Receipt>]>> = beside;
            (0..count)
                .map(|limit| beside?.get(limit)?.clone())
                .collect()
        }
    }
}

/// The part of one of several limits in a decision, see [`Decision::parts`].
#[derive(Debug, Clone, Copy)]
pub struct DecisionPart<'a> {
    decision: &'a Decision,
    ruling: &'a Ruling,
    /// The limit among those that decided together.
    limit: usize,
}

impl<'a> DecisionPart<'a> {
    /// The decision of this limit. The request passes only if none of them denies.
    pub const fn outcome(&self) -> Outcome {
        self.ruling.outcome()
    }

    /// The units that this limit took.
    pub const fn charged(&self) -> u64 {
        self.ruling.charged
    }

    /// The error of this limit, if its store did not respond while others did. Only operations that end charges have
    /// such a decision: a list of [`Settle`](crate::decision::Op::Settle), [`Refund`](crate::decision::Op::Refund),
    /// [`Hit`](crate::decision::Op::Hit) and [`Spend`](crate::decision::Op::Spend). All others are an error as a whole.
    pub fn error(&self) -> Option<&'a LimiterError> {
        let part = self.decision.quotas.parts().get(self.limit)?;
        part.error.as_deref()
    }

    /// The status of each quota of this limit. Its numbers are unknown if there is an [error](Self::error).
    pub fn quotas(&self) -> impl ExactSizeIterator<Item = QuotaStatus<'a>> + use<'a> {
        let quotas = &self.decision.quotas;
        quotas
            .places_of(self.limit)
            .map(|place| quotas.quota(place))
    }
}
