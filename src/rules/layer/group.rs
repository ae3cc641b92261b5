//! Groups: the limits of one request, as one limiter.

#[cfg(feature = "redis")]
use crate::shared::RedisLimiter;
use crate::{
    decision::{Op, Policy},
    error::{ConfigError, LimiterError},
    key::Key,
    limiter::{
        Limiter, LocalLimiter, Pending, Tier,
        joint::{ChosenLimits, ChosenTerms},
    },
    rules::store::RuleLimiter,
};

/// The limits of the rules that a request meets: a limiter of fixed tiers, which knows no others.
pub(crate) struct RuleGroup {
    limits: GroupLimits,
    policies: Box<[Policy]>,
    blocks: bool,
}

enum GroupLimits {
    /// Requests are let pass or rejected without any.
    None,
    One(RuleLimiter, Tier),
    Local(ChosenLimits<LocalLimiter>),
    #[cfg(feature = "redis")]
    Redis(ChosenLimits<RedisLimiter>),
}

#[cfg(feature = "redis")]
pub(crate) type GroupFuture = crate::shared::RedisFuture;
#[cfg(not(feature = "redis"))]
pub(crate) type GroupFuture = crate::limiter::Never;

impl RuleGroup {
    /// No limit, under the names of these policies.
    pub(super) const fn none(policies: Box<[Policy]>) -> Self {
        Self {
            limits: GroupLimits::None,
            policies,
            blocks: false,
        }
    }

    pub(super) const fn one(
        limiter: RuleLimiter,
        tier: Tier,
        policies: Box<[Policy]>,
        blocks: bool,
    ) -> Self {
        Self {
            limits: GroupLimits::One(limiter, tier),
            policies,
            blocks,
        }
    }

    /// Limits that are charged together; their key is a joint one, of which each has a part.
    ///
    /// # Errors
    ///
    /// When they cannot be charged together.
    pub(super) fn together(
        limiters: Vec<RuleLimiter>,
        terms: ChosenTerms,
        policies: Box<[Policy]>,
        blocks: bool,
    ) -> Result<Self, ConfigError> {
        let mut local = Vec::new();
        #[cfg(feature = "redis")]
        let mut redis = Vec::new();
        for limiter in limiters {
            match limiter {
                RuleLimiter::Local(limiter) => local.push(limiter),
                #[cfg(feature = "redis")]
                RuleLimiter::Redis(limiter) => redis.push(limiter),
            }
        }
        #[cfg(feature = "redis")]
        if !redis.is_empty() {
            let limits = GroupLimits::Redis(ChosenLimits::new(redis, terms)?);
            return Ok(Self {
                limits,
                policies,
                blocks,
            });
        }
        Ok(Self {
            limits: GroupLimits::Local(ChosenLimits::new(local, terms)?),
            policies,
            blocks,
        })
    }
}

impl Limiter for RuleGroup {
    type Future = GroupFuture;

    #[inline]
    fn apply(&self, key: &Key, op: Op) -> Pending<GroupFuture> {
        self.apply_in(&Tier::DEFAULT, key, op)
    }

    /// The tier has the cost of each limit, where those differ, and tells the lines of requests that
    /// wait apart.
    #[inline]
    fn apply_in(&self, with: &Tier, key: &Key, op: Op) -> Pending<GroupFuture> {
        match &self.limits {
            GroupLimits::One(RuleLimiter::Local(limiter), tier) => {
                now(limiter.apply_in(tier, key, op))
            }
            #[cfg(feature = "redis")]
            GroupLimits::One(RuleLimiter::Redis(limiter), tier) => limiter.apply_in(tier, key, op),
            GroupLimits::Local(limits) => now(limits.apply(key, &op, with.costs())),
            #[cfg(feature = "redis")]
            GroupLimits::Redis(limits) => limits.apply(key, &op, with.costs()),
            GroupLimits::None => Pending::Ready(Err(LimiterError::unsupported(
                "these rules cannot be charged together",
            ))),
        }
    }

    fn policies(&self) -> &[Policy] {
        &self.policies
    }

    fn blocks(&self) -> bool {
        self.blocks
    }

    fn epoch(&self, limit: usize) -> u32 {
        match &self.limits {
            GroupLimits::None => 0,
            GroupLimits::One(RuleLimiter::Local(limiter), _) => limiter.epoch(limit),
            #[cfg(feature = "redis")]
            GroupLimits::One(RuleLimiter::Redis(limiter), _) => limiter.epoch(limit),
            GroupLimits::Local(limits) => limits.epoch(limit),
            #[cfg(feature = "redis")]
            GroupLimits::Redis(limits) => limits.epoch(limit),
        }
    }
}

/// The answer of limits in this process, which is always there.
#[inline]
fn now<F>(answer: Pending<crate::limiter::Never>) -> Pending<F> {
    match answer {
        Pending::Ready(answer) => Pending::Ready(answer),
        Pending::Later(never) => match never {},
    }
}
