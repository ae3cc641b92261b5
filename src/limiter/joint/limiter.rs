//! The limiter of several limits that are charged together: [`JointLimiter`].

use std::{fmt, sync::Arc};

use super::member::{JointCall, Member};
use crate::{
    decision::{ChargeEnd, Op, Policy, Receipt},
    error::{ConfigError, ConfigErrorKind, LimiterError},
    key::Key,
    limiter::{
        Limiter, LocalLimiter, Pending, Tier, limits::cannot_count, request_quota::several_quotas,
    },
};

/// Several limits, each with a key of its own, that are charged together or not at all.
///
/// [`RateLimitLayer::all`](crate::RateLimitLayer::all) makes one. It is asked about a
/// [`Key::joint`], which has a key for each limit; a decision has the quotas of all. A tier is that
/// of the limits that know it, and the others judge by their default quotas.
///
/// ```
/// use tower_ratelimit::{Key, LocalLimiter, LocalStore, Quota, limiter::{JointLimiter, Limiter}};
///
/// let store = LocalStore::new();
/// let limiter = |quota| LocalLimiter::builder(quota).build_in(&store);
/// let address = limiter(Quota::per_minute(2).named("address"))?;
/// let everybody = limiter(Quota::per_minute(100).named("everybody"))?;
/// let both = JointLimiter::new([address, everybody.clone()])?;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let key = Key::joint([Key::from("203.0.113.7"), Key::global()]);
/// for _ in 0..10 {
///     let _ = both.acquire(&key, 1).await?;
/// }
/// // Eight were denied, and took nothing from the others.
/// assert_eq!(everybody.peek(&Key::global(), 1).remaining(), Some(98));
/// # Ok::<_, tower_ratelimit::LimiterError>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// A clone is a handle to the same limits, and so is each of its [`limiters`](Self::limiters).
pub struct JointLimiter<L = LocalLimiter>(Arc<Inner<L>>);

struct Inner<L> {
    limiters: Box<[L]>,
    policies: Box<[Policy]>,
}

impl<L: Member> JointLimiter<L> {
    /// The limit of all these limits together.
    ///
    /// # Errors
    ///
    /// When there is none, two of their quotas have one name, a
    /// [`LocalLimiter`] has a table of its own or is in another
    /// [`LocalStore`](crate::LocalStore) than the first, or a `RedisLimiter` has a leaky bucket or
    /// a block, which it could not take back.
    pub fn new(limiters: impl IntoIterator<Item = L>) -> Result<Self, ConfigError> {
        let limiters: Box<[L]> = limiters.into_iter().collect();
        if limiters.is_empty() {
            return Err(refused("no limit at all; at least one is needed"));
        }
        let policies: Box<[Policy]> = limiters
            .iter()
            .flat_map(|limiter| limiter.policies().iter().cloned())
            .collect();
        for (at, policy) in policies.iter().enumerate() {
            let name = policy.name();
            if policies[..at].iter().any(|other| other.name() == name) {
                return Err(ConfigError::new(
                    ConfigErrorKind::QuotaList,
                    format!(
                        "two quotas are named {name:?}; give one another name, `.named(\"...\")`"
                    ),
                ));
            }
        }
        L::check(&limiters)?;
        Ok(Self(Arc::new(Inner { limiters, policies })))
    }

    /// The limits, in their order: handles to look at one, to refund, block or reset a key of it, or
    /// to change its quota. Each takes its own share of a receipt of all. The receipt of one is for
    /// that one: all together refuse it.
    #[must_use]
    pub fn limiters(&self) -> &[L] {
        &self.0.limiters
    }

    fn submit(&self, tier: &Tier, key: &Key, op: &Op) -> Result<Pending<L::Future>, LimiterError> {
        let limiters = &*self.0.limiters;
        let parts = key
            .joint_parts()
            .filter(|parts| parts.clone().count() == limiters.len());
        let parts = parts.ok_or_else(|| {
            LimiterError::unsupported(format!(
                "a joint limiter of {} limits is asked about a Key::joint of as many keys",
                limiters.len()
            ))
        })?;
        if tier.request().is_some() {
            return Err(several_quotas());
        }
        // What one of them counted nobody would take back when another one cannot count.
        if matches!(op, Op::Count(_)) && !self.supports(op) {
            return Err(cannot_count());
        }
        if !tier.is_default() && !limiters.iter().any(|limiter| limiter.knows(tier)) {
            return Err(tier.unknown());
        }
        let ops = ops_of_each(op, parts.clone().flatten().count())?;
        Ok(L::apply_together(JointCall {
            limiters,
            parts,
            tier,
            tiers: None,
            op,
            ops: ops.as_deref(),
        }))
    }
}

/// The operation on each limit that has a key, where it is not the same on all.
pub(super) fn ops_of_each(op: &Op, count: usize) -> Result<Option<Vec<Op>>, LimiterError> {
    let Some(receipt) = op.receipt() else {
        return Ok(None);
    };
    let receipts = match receipt.of_each() {
        None if count == 1 => return Ok(None),
        Some(receipts) if receipts.len() == count => receipts,
        _ => {
            return Err(LimiterError::unsupported(
                "the receipt is of a decision about other limits than the key: that of one limit is \
                 for that one of limiters(), with its own key",
            ));
        }
    };
    let ops = receipts.iter().map(|of| match op {
        Op::Settle(cost, _) => settlement(*cost, of.receipt.clone()),
        Op::Refund(cost, _) => Op::Refund(*cost, Some(of.receipt.clone())),
        other => other.clone(),
    });
    Ok(Some(ops.collect()))
}

fn settlement(cost: u64, receipt: Receipt) -> Op {
    match receipt.settled() {
        ChargeEnd::AsAsked => Op::Settle(cost, receipt),
        #[cfg(feature = "rules")]
        ChargeEnd::GivenBack => Op::Settle(0, receipt),
        #[cfg(feature = "rules")]
        ChargeEnd::Kept => Op::Settle(receipt.charged(), receipt),
        // It gives nothing back, and counts towards no block.
        #[cfg(feature = "rules")]
        ChargeEnd::Untouched => Op::Refund(0, Some(receipt)),
    }
}

fn refused(fault: impl Into<std::borrow::Cow<'static, str>>) -> ConfigError {
    ConfigError::new(ConfigErrorKind::Joint, fault)
}

impl<L: Member> Limiter for JointLimiter<L> {
    type Future = L::Future;

    fn apply(&self, key: &Key, op: Op) -> Pending<Self::Future> {
        self.apply_in(&Tier::DEFAULT, key, op)
    }

    fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Pending<Self::Future> {
        self.submit(tier, key, &op)
            .unwrap_or_else(|error| Pending::Ready(Err(error)))
    }

    fn policies(&self) -> &[Policy] {
        &self.0.policies
    }

    fn supports(&self, op: &Op) -> bool {
        self.0.limiters.iter().all(|limiter| limiter.supports(op))
    }

    fn blocks(&self) -> bool {
        self.0.limiters.iter().any(Limiter::blocks)
    }

    fn identity(&self) -> Option<usize> {
        Some(Arc::as_ptr(&self.0).addr())
    }

    fn epoch(&self, limit: usize) -> u32 {
        let limiter = self.0.limiters.get(limit);
        limiter.map_or(0, |limiter| limiter.epoch(0))
    }
}

impl<L> Clone for JointLimiter<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L> fmt::Debug for JointLimiter<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JointLimiter")
            .field("policies", &self.0.policies)
            .finish_non_exhaustive()
    }
}
