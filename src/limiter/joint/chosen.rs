//! Limits that were chosen for a request, each with a tier and a cost of its own.

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

/// Several limits that are charged together or not at all, each by the quotas of a tier and at a
/// cost that were chosen with it.
pub(crate) struct ChosenLimits<L> {
    limiters: Box<[L]>,
    terms: ChosenTerms,
}

/// The terms of limits that were chosen, in the limits' order.
pub(crate) struct ChosenTerms {
    pub(crate) tiers: Box<[Tier]>,
    pub(crate) costs: Box<[u64]>,
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

    /// Does `op` on a joint key that has a key for each limit. The cost of the operation does not
    /// count, unless it is 0.
    pub(crate) fn apply(&self, key: &Key, op: &Op) -> Pending<L::Future> {
        match self.submit(key, op) {
            Ok(answer) => answer,
            Err(error) => Pending::Ready(Err(error)),
        }
    }

    fn submit(&self, key: &Key, op: &Op) -> Result<Pending<L::Future>, LimiterError> {
        let parts = key.joint_parts();
        let parts =
            parts.ok_or_else(|| LimiterError::unsupported("several limits, and one key"))?;
        let ops = match ops_of_each(op, self.limiters.len())? {
            Some(ops) => ops,
            None => self.ops(op),
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
    fn ops(&self, op: &Op) -> Vec<Op> {
        let ChosenTerms {
            costs,
            blocks_at_once,
            ..
        } = &self.terms;
        let terms = costs.iter().zip(blocks_at_once);
        let ops = terms.map(|(cost, at_once)| match op {
            Op::Reserve(_) if *at_once => Op::Acquire(*cost),
            Op::Reserve(_) => Op::Reserve(*cost),
            Op::Acquire(_) => Op::Acquire(*cost),
            Op::Deny(_) => Op::Deny(*cost),
            Op::Peek(_) => Op::Peek(*cost),
            Op::Hit(_) => Op::Hit(*cost),
            other => other.clone(),
        });
        ops.collect()
    }
}
