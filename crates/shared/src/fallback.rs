//! The fallback: decides while the store does not respond.

use std::{num::NonZeroU32, time::Duration};

use tower_ratelimit_core::{
    clock::{Clock, TokioClock},
    decision::{Decision, Degradation, Op, Policy},
    error::{ConfigError, LimiterError},
    key::Key,
    limiter::{
        call::{Call, Charge, OpRef},
        limiter::{Limiter, Pending},
        limits_in_force::{LimitTerms, TierSet},
        local::{LocalLimiter, LocalLimiterBuilder},
    },
    quota::OwnedQuota,
};

/// The decision about requests while Redis is down, too slow, or refuses.
///
/// A failure never causes a 429. [`Decision::is_degraded`](tower_ratelimit_core::Decision::is_degraded) marks such
/// decisions, so that an observer can count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct OnFailure(Action);

/// How requests are decided without Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "hidden")]
pub enum Action {
    /// This node, with its share of a limit for this many nodes.
    Local(NonZeroU32),
    Allow,
    Deny,
}

impl OnFailure {
    /// Each node decides on its own by the same quotas. The default.
    ///
    /// `n` nodes together then allow up to `n` times the limit; see [`nodes`](Self::nodes). The
    /// nodes do not report their counts to Redis afterwards, and do not know what Redis counted
    /// before. A receipt corrects only the side that charged it: a charge of the node is refunded
    /// on the node even when Redis works again, and a charge of Redis is not refunded while Redis
    /// is down. The side that decides charges the cost of a response beyond its reservation. A
    /// block after a denial applies on the side that denied. A reset and a block by hand apply on
    /// both sides. If the node decides one of them, or a refund without a receipt, it applies on
    /// the node only: check [`is_degraded`](tower_ratelimit_core::Decision::is_degraded), and repeat the operation
    /// when Redis works again.
    ///
    /// A node tracks a [bounded](crate::RedisLimiterBuilder::max_local_keys) number of
    /// keys.
    pub const fn local() -> Self {
        Self(Action::Local(NonZeroU32::MIN))
    }

    /// Like [`local`](Self::local), with each quota divided by the number of nodes that share the
    /// load, rounded up. 0 counts as 1.
    pub const fn nodes(nodes: u32) -> Self {
        match NonZeroU32::new(nodes) {
            Some(nodes) => Self(Action::Local(nodes)),
            None => Self::local(),
        }
    }

    /// Every request is allowed, uncounted.
    pub const fn allow() -> Self {
        Self(Action::Allow)
    }

    /// Every request fails: 503 with `Retry-After`.
    pub const fn deny() -> Self {
        Self(Action::Deny)
    }

    #[cfg(feature = "redis")]
    #[doc(hidden)]
    pub const fn action(self) -> Action {
        self.0
    }
}

impl Default for OnFailure {
    fn default() -> Self {
        Self::local()
    }
}

/// The limiter, if any, that decides without the store.
#[derive(Debug)]
pub(super) enum Fallback {
    Local {
        limiter: LocalLimiter,
        nodes: NonZeroU32,
    },
    Allow(TokioClock),
    Deny,
}

impl Fallback {
    pub(super) fn new(
        on_failure: OnFailure,
        limits: &TierSet,
        max_keys: usize,
        seed: Option<u64>,
    ) -> Result<Self, ConfigError> {
        Ok(match on_failure.0 {
            Action::Local(nodes) => Self::Local {
                limiter: local_limiter(limits, nodes, max_keys, seed)?,
                nodes,
            },
            Action::Allow => Self::Allow(TokioClock::new()),
            Action::Deny => Self::Deny,
        })
    }

    /// Decides without the store for this reason; `None` if the request is to fail.
    pub(super) fn decide(
        &self,
        charge: &Charge<'_>,
        policies: &[Policy],
        reason: Degradation,
    ) -> Option<Result<Decision, LimiterError>> {
        let foreign = charge.op.receipt().filter(|receipt| !receipt.is_degraded());
        let foreign = foreign.map(|receipt| receipt.clone().of_nothing_here());
        let op = match (charge.op, &foreign) {
            // The store made the charge, so this node does not refund it. The units that a response
            // adds are counted here.
            (OpRef::Refund(..), Some(nothing)) => OpRef::Refund(0, Some(nothing)),
            (OpRef::Settle(cost, _), Some(nothing)) => OpRef::Settle(cost, nothing),
            (op, _) => op,
        };
        let decision = match self {
            Self::Local { limiter, nodes } => {
                let share = charge.tier.shared_by(*nodes);
                let tier = share.as_ref().unwrap_or(charge.tier);
                let Pending::Ready(decision) = limiter.call(&Call::of(&[charge.tier(tier).op(op)]));
                decision
            }
            Self::Allow(clock) => Ok(Decision::unmeasured(clock.wall(clock.now()), policies)),
            Self::Deny => return None,
        };
        Some(decision.map(|decision| decision.into_degraded(reason)))
    }

    /// Applies a reset or a block to this node's counts, too: they are left from an earlier
    /// failure, and used in the next one.
    pub(crate) fn follow(&self, key: &Key, op: &Op) {
        let Self::Local { limiter, .. } = self else {
            return;
        };
        match op {
            Op::Reset => drop(limiter.reset(key)),
            Op::Block(length) => drop(limiter.block(key, *length)),
            _ => {}
        }
    }

    pub(super) fn set_quota(&self, name: &str, quota: &OwnedQuota) -> Result<(), ConfigError> {
        match self {
            Self::Local { limiter, nodes } => {
                limiter.set_quota(name, quota.quota().shared_by(*nodes))
            }
            Self::Allow(_) | Self::Deny => Ok(()),
        }
    }
}

fn local_limiter(
    limits: &TierSet,
    nodes: NonZeroU32,
    max_keys: usize,
    seed: Option<u64>,
) -> Result<LocalLimiter, ConfigError> {
    let tiers = limits.tiers().map(|(tier, quotas)| {
        // Names made of the numbers would change with the share.
        let named = quotas.quotas.iter().zip(&*quotas.policies);
        let shares = named.map(|(quota, policy)| quota.shared_by(nodes).named_as(policy.to_name()));
        (tier.clone(), shares.collect())
    });
    let terms = LimitTerms {
        tiers: tiers.collect(),
        block_for: limits.block_for.map(Duration::from_nanos),
        ..LimitTerms::default()
    };
    // The clock of deadlines, so that a test that pauses it pauses both.
    let clock = TokioClock::new();
    let builder = LocalLimiterBuilder::of(terms).max_keys(max_keys);
    let builder = builder.seed(seed).clock(clock);
    builder.build()
}
