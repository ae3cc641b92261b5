//! Limits that were chosen for a request, each with a tier of its own.

use super::{
    limiter::ops_of_each,
    member::{JointCall, Member},
};
use crate::{
    decision::Op,
    error::{ConfigError, LimiterError},
    key::Key,
    limiter::{Pending, Tier},
};

/// Several limits that are charged together or not at all, each by the quotas of a tier that was
/// chosen with it.
pub(crate) struct ChosenLimits<L> {
    limiters: Box<[L]>,
    terms: ChosenTerms,
}

/// The terms of limits that were chosen, in the limits' order.
pub(crate) struct ChosenTerms {
    pub(crate) tiers: Box<[Tier]>,
    /// Whether a denial by the limit may start its block at once.
    pub(crate) blocks_at_once: Box<[bool]>,
}

impl<L: Member> ChosenLimits<L> {
    /// # Errors
    ///
    /// When the limits cannot be charged together.
    pub(crate) fn new(
        limiters: impl IntoIterator<Item = L>,
        terms: ChosenTerms,
    ) -> Result<Self, ConfigError> {
        let limiters: Box<[L]> = limiters.into_iter().collect();
        L::check(&limiters)?;
        Ok(Self { limiters, terms })
    }

    /// The mark of the counters in force of the limit at this place.
    pub(crate) fn epoch(&self, limit: usize) -> u32 {
        let limiter = self.limiters.get(limit);
        limiter.map_or(0, |limiter| limiter.epoch(0))
    }

    /// Does `op` on a joint key that has a key for each limit, at the cost of the operation or, where
    /// there are `costs`, at that of each limit.
    pub(crate) fn apply(&self, key: &Key, op: &Op, costs: Option<&[u64]>) -> Pending<L::Future> {
        match self.submit(key, op, costs) {
            Ok(answer) => answer,
            Err(error) => Pending::Ready(Err(error)),
        }
    }

    fn submit(
        &self,
        key: &Key,
        op: &Op,
        costs: Option<&[u64]>,
    ) -> Result<Pending<L::Future>, LimiterError> {
        let parts = key.joint_parts();
        let parts =
            parts.ok_or_else(|| LimiterError::unsupported("several limits, and one key"))?;
        let ops = match ops_of_each(op, self.limiters.len())? {
            Some(ops) => ops,
            None => self.ops(op, costs),
        };
        Ok(L::apply_together(JointCall {
            limiters: &self.limiters,
            parts,
            tier: &Tier::DEFAULT,
            tiers: Some(&self.terms.tiers),
            op,
            ops: Some(&ops),
        }))
    }

    /// The operation on each limit, at its own cost.
    fn ops(&self, op: &Op, costs: Option<&[u64]>) -> Vec<Op> {
        let own = |at: usize, cost: &u64| {
            let own = costs.and_then(|costs| costs.get(at));
            own.copied().unwrap_or(*cost)
        };
        let places = self.terms.blocks_at_once.iter().enumerate();
        let ops = places.map(|(at, blocks_at_once)| match op {
            Op::Reserve(cost) if *blocks_at_once => Op::Acquire(own(at, cost)),
            Op::Reserve(cost) => Op::Reserve(own(at, cost)),
            Op::Acquire(cost) => Op::Acquire(own(at, cost)),
            Op::Deny(cost) => Op::Deny(own(at, cost)),
            Op::Peek(cost) => Op::Peek(own(at, cost)),
            Op::Hit(cost) => Op::Hit(own(at, cost)),
            other => other.clone(),
        });
        ops.collect()
    }
}
