//! Members of a joint limiter: limiters that can be charged together.

use crate::{
    error::{ConfigError, ConfigErrorKind},
    limiter::{Limiter, LocalLimiter, Never, Pending, Tier, type_erased_member::MemberCall},
    quota::{OwnedQuota, Quota},
};

/// A limiter that can be charged together with others of its kind: a [`LocalLimiter`] in a
/// [`LocalStore`](crate::LocalStore), a `RedisLimiter`, or an [`AnyLimiter`](crate::AnyLimiter)
/// around one of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be charged together with others",
    label = "expected a `LocalLimiter` in a `LocalStore`, or a `RedisLimiter`"
)]
#[allow(
    private_bounds,
    private_interfaces,
    reason = "nobody else implements it"
)]
pub trait Member: Limiter + sealed::Sealed + Sized {
    /// Checks that these limiters can be charged together.
    #[doc(hidden)]
    fn check(limiters: &[&Self]) -> Result<(), ConfigError>;

    /// Whether the limiter has quotas for this tier.
    #[doc(hidden)]
    fn knows(&self, tier: &Tier) -> bool;

    /// Applies one operation to each member. Operations that take units take them from all members,
    /// or from none.
    #[doc(hidden)]
    fn apply_together<'a>(
        calls: impl Iterator<Item = MemberCall<'a, Self>>,
    ) -> Pending<Self::Future>;

    /// Replaces the default tier's quota of this name.
    #[doc(hidden)]
    fn replace_quota(&self, name: &str, quota: OwnedQuota) -> Result<(), ConfigError>;

    /// The default tier's quota of this name, as it is in force.
    #[doc(hidden)]
    fn quota(&self, name: &str) -> Option<Quota>;

    /// Hands the limit over to `next`: refunds of charges that `next` could not have made are
    /// dropped.
    #[doc(hidden)]
    fn hand_over_to(&self, next: &Self) {
        let _ = next;
    }
}

pub(crate) mod sealed {
    /// For limiters of this crate.
    pub trait Sealed {}
}

impl sealed::Sealed for LocalLimiter {}

#[allow(
    private_bounds,
    private_interfaces,
    reason = "nobody else implements it"
)]
impl Member for LocalLimiter {
    fn check(limiters: &[&Self]) -> Result<(), ConfigError> {
        let refused = |fault| Err(ConfigError::new(ConfigErrorKind::Joint, fault));
        for (at, limiter) in limiters.iter().enumerate() {
            if !limiter.shares_store_with(limiters[0]) {
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

    fn apply_together<'a>(calls: impl Iterator<Item = MemberCall<'a, Self>>) -> Pending<Never> {
        Pending::Ready(Self::decide_many(calls))
    }

    fn replace_quota(&self, name: &str, quota: OwnedQuota) -> Result<(), ConfigError> {
        self.set_quota(name, quota)
    }

    fn quota(&self, name: &str) -> Option<Quota> {
        self.with_limits(|limits| limits.quota(name))
    }
}
