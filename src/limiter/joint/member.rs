//! Members of a joint limiter: limiters that can be charged together.

use crate::{
    decision::Op,
    error::{ConfigError, ConfigErrorKind},
    key::JointParts,
    limiter::{Limiter, LocalLimiter, Never, Pending, Tier},
};

/// A limiter of which several can be charged together: a [`LocalLimiter`] in a
/// [`LocalStore`](crate::LocalStore), or a `RedisLimiter`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be charged together with others",
    label = "expected a `LocalLimiter` in a `LocalStore`, or a `RedisLimiter`"
)]
#[allow(private_interfaces, reason = "nobody else implements it")]
pub trait Member: Limiter + sealed::Sealed + Sized {
    /// Whether these can be charged together.
    #[doc(hidden)]
    fn check(limiters: &[Self]) -> Result<(), ConfigError>;

    /// Whether it was given quotas for this tier.
    #[doc(hidden)]
    fn knows(&self, tier: &Tier) -> bool;

    /// Does the operations of a call, those that take units all together or not at all.
    #[doc(hidden)]
    fn apply_together(call: JointCall<'_, Self>) -> Pending<Self::Future>;
}

pub(crate) mod sealed {
    /// For limiters of this crate.
    pub trait Sealed {}
}

/// An operation on the keys of several limits.
pub(crate) struct JointCall<'a, L> {
    pub(super) limiters: &'a [L],
    /// The key of each, if the request is counted by it.
    pub(super) parts: JointParts<'a>,
    pub(super) tier: &'a Tier,
    /// The tier of each, in place of that one.
    pub(super) tiers: Option<&'a [Tier]>,
    pub(super) op: &'a Op,
    /// The operation on each limit that has a key, where they differ.
    pub(super) ops: Option<&'a [Op]>,
}

impl<'a, L: Member> JointCall<'a, L> {
    /// Each limiter that has a key, with the key's bytes, the tier and the operation.
    pub(crate) fn members(
        &self,
    ) -> impl Iterator<Item = (&'a L, &'a [u8], &'a Tier, &'a Op)> + Clone {
        static DEFAULT: Tier = Tier::DEFAULT;
        let (tier, tiers, op, ops) = (self.tier, self.tiers, self.op, self.ops);
        let pairs = self.limiters.iter().zip(self.parts.clone()).enumerate();
        let present = pairs.filter_map(|(place, (limiter, part))| Some((place, limiter, part?)));
        present
            .enumerate()
            .map(move |(at, (place, limiter, part))| {
                let tier = match tiers {
                    Some(tiers) => &tiers[place],
                    None if tier.is_default() || limiter.knows(tier) => tier,
                    None => &DEFAULT,
                };
                (limiter, part, tier, ops.map_or(op, |ops| &ops[at]))
            })
    }
}

impl sealed::Sealed for LocalLimiter {}

#[allow(private_interfaces, reason = "nobody else implements it")]
impl Member for LocalLimiter {
    fn check(limiters: &[Self]) -> Result<(), ConfigError> {
        let refused = |fault| Err(ConfigError::new(ConfigErrorKind::Joint, fault));
        for (at, limiter) in limiters.iter().enumerate() {
            if !limiter.shares_store_with(&limiters[0]) {
                return refused(
                    "limiters in this process are charged together only in one store: make a \
                     LocalStore, and end each builder with build_in(&store)",
                );
            }
            if limiters[..at]
                .iter()
                .any(|other| limiter.counts_with(other))
            {
                return refused("one limit is in the list twice, or two are of one name");
            }
        }
        Ok(())
    }

    fn knows(&self, tier: &Tier) -> bool {
        self.has_tier(tier)
    }

    fn apply_together(call: JointCall<'_, Self>) -> Pending<Never> {
        let limits = call.members().map(|(limiter, ..)| limiter.limit_identity());
        let decision = Self::decide_many(call.members());
        Pending::Ready(decision.map(|decision| decision.by_limits(limits)))
    }
}
