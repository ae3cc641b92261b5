//! Members of a joint limiter without their type.

use std::{any::Any, future::Future, pin::Pin, time::Duration};

use super::{Pending, Tier};
use crate::{
    decision::{Decision, Op},
    error::{ConfigError, LimiterError},
    quota::{OwnedQuota, Quota},
};

/// The future of any limiter.
pub(crate) type BoxedFuture = Pin<Box<dyn Future<Output = Result<Decision, LimiterError>> + Send>>;

/// One member's part in a joint operation.
pub(crate) struct MemberCall<'a, L: ?Sized> {
    pub(crate) limiter: &'a L,
    /// The bytes of the member's key.
    pub(crate) key: &'a [u8],
    pub(crate) tier: &'a Tier,
    pub(crate) op: &'a Op,
    /// How long ago the wait of the request has ended.
    pub(crate) late: Duration,
}

impl<'a, L: ?Sized> MemberCall<'a, L> {
    /// Returns this call with `limiter` as its target.
    pub(crate) const fn to<M: ?Sized>(&self, limiter: &'a M) -> MemberCall<'a, M> {
        MemberCall {
            limiter,
            key: self.key,
            tier: self.tier,
            op: self.op,
            late: self.late,
        }
    }
}

/// A [`Member`](super::Member) without its type: an [`AnyLimiter`](super::AnyLimiter) calls it.
/// Where others are passed, all are expected to be of one type.
#[cfg_attr(
    not(feature = "rules"),
    allow(dead_code, reason = "rules replace quotas and limits")
)]
pub(crate) trait ErasedMember {
    fn as_any(&self) -> &dyn Any;

    fn check(&self, members: &[&dyn ErasedMember]) -> Result<(), ConfigError>;

    fn knows(&self, tier: &Tier) -> bool;

    fn apply_together<'a>(
        &self,
        calls: &mut dyn Iterator<Item = MemberCall<'a, dyn ErasedMember + 'a>>,
    ) -> Pending<BoxedFuture>;

    fn replace_quota(&self, name: &str, quota: OwnedQuota) -> Result<(), ConfigError>;

    fn quota(&self, name: &str) -> Option<Quota>;

    fn hand_over_to(&self, next: &dyn ErasedMember);
}
