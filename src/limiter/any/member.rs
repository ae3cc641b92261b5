//! `AnyLimiter` as a member of a joint limiter.

use std::any::Any;

use super::AnyLimiter;
use crate::{
    error::{ConfigError, ConfigErrorKind, LimiterError},
    limiter::{
        Limiter, Member, Pending, Tier,
        joint::sealed::Sealed,
        type_erased_member::{BoxedFuture, ErasedMember, MemberCall},
    },
    quota::{OwnedQuota, Quota},
};

/// The member as one of this type.
fn typed<'a, M: Member>(member: &'a (dyn ErasedMember + 'a)) -> Option<&'a M> {
    member.as_any().downcast_ref()
}

impl<M: Member> ErasedMember for M {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn check(&self, members: &[&dyn ErasedMember]) -> Result<(), ConfigError> {
        let members: Option<Vec<&M>> = members.iter().map(|member| typed(*member)).collect();
        M::check(&members.ok_or_else(|| {
            refused(
                "limits are charged together only if all are in one LocalStore, or all in Redis",
            )
        })?)
    }

    fn knows(&self, tier: &Tier) -> bool {
        Member::knows(self, tier)
    }

    fn apply_together<'a>(
        &self,
        calls: &mut dyn Iterator<Item = MemberCall<'a, dyn ErasedMember + 'a>>,
    ) -> Pending<BoxedFuture> {
        let calls = calls.filter_map(|call| Some(call.to(typed::<M>(call.limiter)?)));
        match M::apply_together(calls) {
            Pending::Ready(answer) => Pending::Ready(answer),
            Pending::Later(future) => Pending::Later(M::boxed(future)),
        }
    }

    fn replace_quota(&self, name: &str, quota: OwnedQuota) -> Result<(), ConfigError> {
        Member::replace_quota(self, name, quota)
    }

    fn quota(&self, name: &str) -> Option<Quota> {
        Member::quota(self, name)
    }

    fn hand_over_to(&self, next: &dyn ErasedMember) {
        if let Some(next) = typed(next) {
            Member::hand_over_to(self, next);
        }
    }
}

fn refused(fault: &'static str) -> ConfigError {
    ConfigError::new(ConfigErrorKind::Joint, fault)
}

impl Sealed for AnyLimiter {}

#[allow(
    private_bounds,
    private_interfaces,
    reason = "nobody else implements it"
)]
impl Member for AnyLimiter {
    fn check(limiters: &[&Self]) -> Result<(), ConfigError> {
        let members = limiters.iter().map(|limiter| limiter.member());
        match members.collect::<Option<Vec<_>>>().as_deref() {
            Some(members @ [first, ..]) => first.check(members),
            _ => Err(refused(
                "limits are charged together only if each is a LocalLimiter or a RedisLimiter",
            )),
        }
    }

    fn knows(&self, tier: &Tier) -> bool {
        self.member().is_some_and(|member| member.knows(tier))
    }

    fn apply_together<'a>(
        calls: impl Iterator<Item = MemberCall<'a, Self>>,
    ) -> Pending<BoxedFuture> {
        let calls = calls.filter_map(|call| Some(call.to(call.limiter.member()?)));
        let mut calls = calls.peekable();
        match calls.peek().map(|first| first.limiter) {
            Some(first) => first.apply_together(&mut calls),
            None => Pending::Ready(Err(LimiterError::unsupported(
                "the joint key has no key of any limit",
            ))),
        }
    }

    fn replace_quota(&self, name: &str, quota: OwnedQuota) -> Result<(), ConfigError> {
        self.set_quota(name, quota)
    }

    fn quota(&self, name: &str) -> Option<Quota> {
        self.member()?.quota(name)
    }
}
