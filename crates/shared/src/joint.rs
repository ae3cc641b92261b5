//! Limits in Redis that are charged together: calls all at the same time, those with leases after
//! the others, and refunds the charges of the others if one denies that does not overflow.

use std::{
    any::Any,
    future::{Future, IntoFuture as _},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};

use super::limiter::{RedisFuture, RedisLimiter};
use tower_ratelimit_core::{
    clock::Timestamp,
    decision::{Decision, JointDecision, Op, Policy},
    error::{ConfigError, ConfigErrorKind, LimiterError},
    key::extract::KeyExtractor,
    limiter::{
        any::boxed,
        call::{Call, Charge, OpRef, OwnedCharge},
        joint::{KeyedLimit, Member, sealed::Sealed},
        limiter::{BoxedFuture, Internals, Limiter, Pending, all_typed},
        limits_in_force::{TierSet, unsupported},
        tier::Tier,
    },
    quota::{Algorithm, OwnedQuota, Quota},
};
pub(crate) use tower_ratelimit_store::runtime_thread::Home;

impl Sealed for RedisLimiter {}

#[allow(
    private_bounds,
    private_interfaces,
    reason = "nobody else implements it"
)]
impl Member for RedisLimiter {
    fn call_list<'a>(
        of: impl Fn(usize) -> Option<&'a Self>,
        call: &Call<'_>,
    ) -> Pending<RedisFuture> {
        let member = |charge: &Charge<'_>| {
            let limiter = of(charge.index())?.clone();
            let op = charge.op.of_limit(limiter.limit_identity());
            Some(op.map(|op| RedisMember {
                charge: charge.op(op).to_owned(),
                limiter,
            }))
        };
        let members: Result<Vec<_>, _> = call.charges.iter().filter_map(member).collect();
        let members = match members {
            Ok(members) => members,
            Err(error) => return Pending::Ready(Err(error)),
        };
        // If one member charged and another cannot, the charge of the first could not be undone.
        if let Some(member) = members.iter().find(|member| !member.is_supported()) {
            return Pending::Ready(Err(unsupported(member.charge.op.as_ref())));
        }
        if let Some(denied) = cached_denial(&members) {
            return Pending::Ready(Ok(denied));
        }
        let home = members.first().map(RedisMember::home).cloned();
        let home = home.unwrap_or(Home::of_callers());
        let deadlines = members.iter();
        let deadlines = deadlines.map(|member| member.limiter.store().deadline());
        let until = {
            // The clock of the home's timers.
            let runtime = home.runtime();
            let _entered = runtime.as_ref().map(Handle::enter);
            Instant::now() + deadlines.max().unwrap_or_default()
        };
        let first = |member: &RedisMember| {
            // Its units cannot always be refunded: the lease may have ended.
            let spends_leases = member.charges() && member.limiter.has_leases();
            (!spends_leases).then(|| (member.limiter).call(&Call::of(&[member.charge.as_ref()])))
        };
        let pending: Vec<_> = members.iter().map(first).collect();
        let decision = decide(members, pending, until);
        Pending::Later(Box::pin(DetachOnDrop::new(&home, decision)))
    }
}

impl Internals for RedisLimiter {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn check(&self, all: &[&dyn Internals]) -> Result<(), ConfigError> {
        let all = all_typed::<Self>(all)?;
        for limiter in &all {
            limiter.with_limits(|limits| check_revocable(limits, limiter.policies()))?;
        }
        for limiter in all {
            limiter.join(check_revocable);
        }
        Ok(())
    }

    fn knows(&self, tier: &Tier) -> bool {
        self.with_limits(|limits| limits.knows(tier))
    }

    fn call_list<'a>(
        &self,
        of: &dyn Fn(usize) -> Option<&'a dyn Internals>,
        call: &Call<'_>,
    ) -> Pending<BoxedFuture> {
        boxed::<Self>(Member::call_list(|limit| of(limit)?.typed::<Self>(), call))
    }

    fn replace_quota(&self, name: &str, quota: OwnedQuota) -> Result<(), ConfigError> {
        self.set_quota(name, quota)
    }

    fn quota(&self, name: &str) -> Option<Quota> {
        self.with_limits(|limits| limits.quota(name))
    }

    fn hand_over_to(&self, next: &dyn Internals) {
        if let Some(next) = next.typed() {
            self.set_replacement(next);
        }
    }
}

/// Checks whether a refund can take back the charges of these limits, so that they can be charged together with others.
fn check_revocable(limits: &TierSet, policies: &[Policy]) -> Result<(), ConfigError> {
    let mut quotas = limits.tiers().flat_map(|(_, quotas)| &quotas.quotas);
    let fault = if quotas.any(|quota| matches!(quota.algorithm(), Algorithm::LeakyBucket { .. })) {
        "a leaky bucket"
    } else if limits.block_for.is_some() {
        "block_for"
    } else {
        return Ok(());
    };
    let name = policies[0].name();
    Err(ConfigError::new(
        ConfigErrorKind::Joint,
        format!(
            "the limit {name:?} has {fault}, which cannot be taken back in Redis when another limit \
             denies: give it a layer of its own, inside this one"
        ),
    ))
}

impl RedisLimiter {
    /// Combines this limiter with the key that `extractor` finds, for a list of limits that are
    /// [charged together](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.all).
    pub fn by(self, extractor: impl KeyExtractor) -> KeyedLimit<Self> {
        KeyedLimit::new(self, extractor)
    }
}

/// The operation on one of the limits, kept for a refund.
struct RedisMember {
    limiter: RedisLimiter,
    charge: OwnedCharge,
}

impl RedisMember {
    fn is_supported(&self) -> bool {
        let checked = matches!(self.charge.op, Op::Count(_) | Op::Spend(_));
        !checked || (self.limiter).with_limits(|limits| limits.supports(self.charge.op.as_ref()))
    }

    fn home(&self) -> &Home {
        self.limiter.store().home()
    }

    /// The decision of a limit that was not called because another one denies.
    fn not_called(&self, now: Timestamp) -> Decision {
        Decision::unmeasured(now, self.limiter.policies())
    }

    /// Whether it charges units.
    const fn charges(&self) -> bool {
        matches!(
            self.charge.op,
            Op::Acquire(_) | Op::Reserve(_) | Op::AcquireUpTo(_)
        )
    }

    /// Whether it takes what is available, and equal units from all limits.
    const fn takes_what_is_available(&self) -> bool {
        matches!(self.charge.op, Op::AcquireUpTo(_))
    }

    /// Whether it keeps the other limits from being charged.
    fn holds_back(&self, answer: &MemberAnswer) -> bool {
        answer.as_ref().map_or(true, |answer| self.denies(answer))
    }

    /// Whether this decision of its own denies the others.
    fn denies(&self, decision: &Decision) -> bool {
        let passes = self.overflows() && !decision.is_blocked();
        self.charges() && decision.is_denied() && !passes
    }

    fn overflows(&self) -> bool {
        self.charge.as_ref().may_overflow()
    }

    /// Refunds the charged units except `kept`. Only a limit that takes what is available keeps fewer than it
    /// charged.
    fn refund(&self, charged: &Decision, kept: u64) -> Option<Pending<RedisFuture>> {
        let refunds = self.charges() && (kept == 0 || self.takes_what_is_available());
        let units = charged.charged().checked_sub(kept);
        let units = units.filter(|units| refunds && *units > 0)?;
        let receipt = charged.receipt();
        let refund = OpRef::Refund(units, Some(&receipt));
        let refund = self.charge.as_ref().op(refund);
        Some(self.limiter.call(&Call::of(&[refund])))
    }
}

type MemberAnswer = Result<Decision, LimiterError>;

/// The joint denial if any of the limits that do not overflow has a cached one. Then none of them is called: an operation
/// that a denial does not hold back calls all of them.
fn cached_denial(members: &[RedisMember]) -> Option<Decision> {
    if !members.iter().all(RedisMember::charges) {
        return None;
    }
    let denial = |member: &RedisMember| member.limiter.denial(&member.charge);
    let denials: Vec<_> = members.iter().map(denial).collect();
    let mut denying = denials.iter().zip(members);
    let now = denying.find_map(|(denial, member)| {
        let denial = denial.as_ref().filter(|denial| member.denies(denial))?;
        Some(denial.decided_at())
    })?;
    let all = denials.into_iter().zip(members);
    let all = all.map(|(denial, member)| denial.unwrap_or_else(|| member.not_called(now)));
    together(members, all.map(Ok).collect()).ok()
}

/// Decides for all limits together. Waits for refunds no longer than for the answers; refunds that
/// take longer continue without the caller.
async fn decide(
    members: Vec<RedisMember>,
    pending: Vec<Option<Pending<RedisFuture>>>,
    until: Instant,
) -> MemberAnswer {
    let mut answers = answers_of(&members, pending, until).await;
    let mut all = members.iter().zip(&answers);
    if all.any(|(member, answer)| member.holds_back(answer)) {
        refund(&members, &mut answers, 0, until).await;
    } else if let Some(kept) = least_available(&members, &answers) {
        refund(&members, &mut answers, kept, until).await;
    }
    together(&members, answers)
}

/// The decision of all limits. If one of them failed it is an error, unless the operations end charges: then the answers
/// of the others are in force, and the decision has the error.
fn together(members: &[RedisMember], mut answers: Vec<MemberAnswer>) -> MemberAnswer {
    if members.len() == 1 {
        return answers.remove(0);
    }
    let answered = answers.iter().flatten().next();
    let now = answered.map(Decision::decided_at);
    let is_partial = now.is_some()
        && members
            .iter()
            .all(|member| member.charge.op.ends_a_charge());
    if let Some(failed) = (answers.iter().position(Result::is_err)).filter(|_| !is_partial) {
        let receipts = answers.iter();
        let receipts = receipts.map(|answer| Some(answer.as_ref().ok()?.receipt()));
        let receipts: Box<[_]> = receipts.collect();
        let first = answers.swap_remove(failed);
        return first.map_err(|error| error.with(receipts));
    }
    let mut joint = JointDecision::with_room(members.len());
    for (member, answer) in members.iter().zip(answers) {
        let limit = member.limiter.limit_identity();
        match answer {
            Ok(decision) => joint.add(limit, &decision),
            Err(error) => {
                joint.add_failed(limit, &member.not_called(now.unwrap_or_default()), error);
            }
        }
    }
    Ok(joint.finish(|at| members[at].overflows()))
}

/// The least that one of the limits took that take what is available. A degraded one may have taken
/// nothing.
fn least_available(members: &[RedisMember], answers: &[MemberAnswer]) -> Option<u64> {
    let available = members.iter().zip(answers);
    let available = available.filter(|(member, _)| member.takes_what_is_available());
    let charged = available.filter_map(|(_, answer)| Some(answer.as_ref().ok()?.charged()));
    charged.filter(|charged| *charged > 0).min()
}

/// Returns the answers of all limits. Waits for the calls in flight, and then calls the other
/// limits one after another as long as none denies.
async fn answers_of(
    members: &[RedisMember],
    pending: Vec<Option<Pending<RedisFuture>>>,
    until: Instant,
) -> Vec<MemberAnswer> {
    // All calls run while the first is awaited.
    let mut answers = Vec::with_capacity(pending.len());
    for answer in pending {
        answers.push(match answer {
            Some(answer) => Some(answer.await),
            None => None,
        });
    }
    let called = members.iter().zip(&answers);
    let mut all_allow = !called
        .filter_map(|(member, answer)| Some((member, answer.as_ref()?)))
        .any(|(member, answer)| member.holds_back(answer));
    let first = answers.iter().flatten().flatten().next();
    let mut now = first.map_or_else(Timestamp::default, Decision::decided_at);
    for (answer, member) in answers.iter_mut().zip(members) {
        if answer.is_none() {
            let own = if all_allow {
                let left = until.saturating_duration_since(Instant::now());
                let call = [member.charge.as_ref()];
                member.limiter.call_within(left, &Call::of(&call)).await
            } else {
                Ok(member.not_called(now))
            };
            all_allow = all_allow && !member.holds_back(&own);
            now = own.as_ref().map_or(now, Decision::decided_at);
            *answer = Some(own);
        }
    }
    answers.into_iter().flatten().collect()
}

/// Refunds the charge of each limit beyond `kept`, and replaces its answer by that of the refund.
async fn refund(members: &[RedisMember], answers: &mut [MemberAnswer], kept: u64, until: Instant) {
    let refund = |(member, answer): (&RedisMember, &MemberAnswer)| {
        let refund = member.refund(answer.as_ref().ok()?, kept)?;
        let refund = DetachOnDrop::new(member.home(), refund.into_future());
        Some(timeout_at(until, refund))
    };
    let refunds: Vec<_> = members.iter().zip(&*answers).map(refund).collect();
    for (answer, refund) in answers.iter_mut().zip(refunds) {
        let Some(refund) = refund else { continue };
        match (refund.await, &mut *answer) {
            (Ok(Ok(refunded)), answer) if kept == 0 => *answer = Ok(refunded),
            // The kept units have the receipt of their charge. A refund whose answer is lost may have been made, and
            // must not be repeated by a receipt.
            (_, Ok(decision)) => decision.keep_charged(kept),
            (_, Err(_)) => {}
        }
    }
}

/// A future on the runtime of a store's home. If it is dropped, a task of that runtime completes
/// it: a client that disconnects must not leave limits charged for a request that another limit
/// denies.
struct DetachOnDrop {
    work: Option<Work>,
    home: Home,
}

type Work = Pin<Box<dyn Future<Output = Result<Decision, LimiterError>> + Send>>;

impl DetachOnDrop {
    fn new(
        home: &Home,
        work: impl Future<Output = Result<Decision, LimiterError>> + Send + 'static,
    ) -> Self {
        let own = home.clone();
        Self {
            work: Some(Box::pin(async move { own.within(work).await })),
            home: home.clone(),
        }
    }
}

impl Future for DetachOnDrop {
    type Output = Result<Decision, LimiterError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let work = self.work.as_mut().expect("polled after it was ready");
        let done = work.as_mut().poll(cx);
        if done.is_ready() {
            self.work = None;
        }
        done
    }
}

impl Drop for DetachOnDrop {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.home.spawn(async move { drop(work.await) });
        }
    }
}
