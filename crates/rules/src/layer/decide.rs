//! The gate of a [`RulesLayer`](super::RulesLayer): one set of rules decides a request, and settles its response. The permits
//! of `in_flight` are acquired in this process, or requested from the store that all nodes share.

use std::{
    future::Future,
    mem,
    ops::ControlFlow,
    pin::Pin,
    slice,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use http::{Response, StatusCode, header::UPGRADE, request::Parts};
use http_body::Body;

use super::{handle::Shared, limiter_of_each_rule::Admissions};
use crate::{
    rule::{NeedsTrailers, Rule, UsagePlace},
    rule_selection::{ChargeOfRule, RuleCharges, RulesVerdict, of_each},
    store::RuleLimits,
};
use tower_ratelimit_concurrency::{ConcurrencyBody, Grant, HeldPermits, PendingGrant, Permit};
use tower_ratelimit_core::{
    clock::Timestamp,
    decision::Decision,
    limiter::Charge,
    quota::Priority,
    reject::{ProblemJson, Reject, RejectionKind},
};
use tower_ratelimit_layer::{
    middleware::{
        gate::{Admit, Admits, FinalOutcome, Gate, GateFuture, RequestOutcome},
        settings::Uncounted,
        wrapped_bodies::{BoxError, Following, Follows},
    },
    rate_limit::{
        Admission, Correcting, FewCharges, PendingOutcome, RateOutcome, ResponseWork,
        ShadowRequest, SpendBody,
    },
};

/// A service whose requests are limited by rules. Created by [`RulesLayer`](super::RulesLayer).
///
/// Clones share the counts and the reloads.
pub type RulesLimit<S, R = ProblemJson> = Gate<S, ByRules<R>>;

/// The response of a [`RulesLimit`](super::RulesLimit) service.
///
/// Dropping it is safe at any time. Charged units stay charged.
pub type RulesFuture<S, B, R> = GateFuture<S, B, ByRules<R>>;

/// A service whose requests are limited by rules, and whose responses hold permits. Created by
/// [`HoldingRulesLayer`](super::HoldingRulesLayer).
pub type HoldingRulesLimit<S, R = ProblemJson> = Gate<S, Following<ByRules<R>>>;

/// The response of a [`HoldingRulesLimit`] service.
///
/// Dropping it is safe at any time: its permits are released.
pub type HoldingRulesFuture<S, B, R> = GateFuture<S, B, Following<ByRules<R>>>;

/// The charges of shadow rules, which `count_if` settles by the response.
type ShadowRequests<R> = Vec<ShadowRequest<RuleLimits, R>>;

/// The work of a response by rules.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct RulesWork<R> {
    rate: ResponseWork<RuleLimits, R>,
    held: Held<R>,
}

/// A request's shadows and permits, until its response.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct Held<R> {
    watched: ShadowRequests<R>,
    permits: HeldPermits,
}

/// A decision that takes time.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub enum PendingRules<R> {
    /// Other nodes decide about the permits.
    Permits(AwaitingPermits<R>),
    Quotas(PendingOutcome<RuleLimits, R>, Held<R>),
}

type OutcomeOfRules<R, B> = RequestOutcome<RulesWork<R>, B, PendingRules<R>>;

/// Rules as the decision of a [`Gate`]. Only one that is [`Following`] has rules with `in_flight` or `spend`.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct ByRules<R>(pub(super) Arc<Shared<R>>);

impl<R> Clone for ByRules<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> Admit for ByRules<R> {
    type Work = RulesWork<R>;
    type Deferred = PendingRules<R>;
    type Late = Correcting<RuleLimits, R>;
}

impl<R: Reject<B>, B: 'static> Admits<B> for ByRules<R> {
    type Body = B;

    #[inline(always)]
    fn decide(&self, parts: &mut Parts) -> OutcomeOfRules<R, B> {
        // One set of rules decides a request. Its admission also settles the response. It is dropped
        // before the inner service is called.
        let admissions = self.0.admissions.load();
        let now = admissions.rules.begin(&mut parts.headers);
        if admissions.rules.has_in_flight() {
            return decide_holding(&admissions, now, parts);
        }
        let verdict = admissions.rules.select(parts, now);
        decide_quotas(&admissions, &verdict, HeldPermits::default(), parts)
    }

    fn poll_decision(
        deferred: &mut PendingRules<R>,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<FinalOutcome<RulesWork<R>, B>> {
        loop {
            match deferred {
                PendingRules::Quotas(quotas, held) => {
                    let outcome = ready!(quotas.poll(parts, cx));
                    let outcome = mem::take(held).outcome(outcome, |never, _| match never {});
                    return Poll::Ready(outcome);
                }
                PendingRules::Permits(waiting) => match ready!(waiting.poll(parts, cx)) {
                    RequestOutcome::Pass(work) => return Poll::Ready(RequestOutcome::Pass(work)),
                    RequestOutcome::Reject(response) => {
                        return Poll::Ready(RequestOutcome::Reject(response));
                    }
                    RequestOutcome::Defer(later) => *deferred = later,
                },
            }
        }
    }

    #[inline(always)]
    fn show(work: &mut RulesWork<R>, response: &mut Response<B>) -> ControlFlow<()> {
        work.rate.show(response)
    }

    fn settle(work: &mut RulesWork<R>, response: &mut Response<B>) -> Option<Self::Late> {
        work.rate.settle(response)
    }

    fn poll_late(
        late: &mut Self::Late,
        response: &mut Response<B>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        late.poll(response, cx)
    }

    #[inline(always)]
    fn wrap<E>(
        work: &mut RulesWork<R>,
        polled: Poll<Result<Response<B>, E>>,
    ) -> Poll<Result<Response<B>, E>> {
        match &polled {
            Poll::Ready(Ok(response)) if !work.held.watched.is_empty() => {
                work.held.settle_shadows(response.status());
            }
            // An error ends the request.
            Poll::Ready(Err(_)) => work.held.permits.release(),
            _ => {}
        }
        polled
    }
}

impl<R, B> Follows<B> for ByRules<R>
where
    R: Reject<B>,
    B: Body<Error: Into<BoxError>> + 'static,
{
    type Followed = ConcurrencyBody<SpendBody<B>>;

    fn follow(work: &mut RulesWork<R>, response: Response<B>) -> Response<Self::Followed> {
        let permits = mem::take(&mut work.held.permits);
        // The charges are settled before the permits are given back.
        let charged = Arc::<Admission<RuleLimits, R>>::follow(&mut work.rate, response);
        charged.map(|body| ConcurrencyBody::new(body, permits))
    }
}

impl<R> Default for RulesWork<R> {
    fn default() -> Self {
        Self {
            rate: ResponseWork::Nothing,
            held: Held::default(),
        }
    }
}

impl<R> Default for Held<R> {
    fn default() -> Self {
        Self {
            watched: Vec::new(),
            permits: HeldPermits::default(),
        }
    }
}

impl<R> Held<R> {
    fn settle_shadows(&mut self, status: StatusCode)
    where
        R: Send + Sync + 'static,
    {
        for watched in self.watched.drain(..) {
            watched.settle(status);
        }
    }

    /// The outcome of a request, by that of its quotas. A rejection settles the shadows, and drops the permits.
    #[inline(always)]
    fn outcome<B, D, E>(
        mut self,
        quotas: RequestOutcome<ResponseWork<RuleLimits, R>, B, D>,
        later: impl FnOnce(D, Self) -> E,
    ) -> RequestOutcome<RulesWork<R>, B, E>
    where
        R: Send + Sync + 'static,
    {
        match quotas {
            RequestOutcome::Pass(rate) => RequestOutcome::Pass(RulesWork { rate, held: self }),
            RequestOutcome::Reject(response) => {
                self.settle_shadows(response.status());
                RequestOutcome::Reject(response)
            }
            RequestOutcome::Defer(quotas) => RequestOutcome::Defer(later(quotas, self)),
        }
    }
}

/// Decides by the quotas about a request with these permits.
#[inline(always)]
fn decide_quotas<R: Reject<B>, B: 'static>(
    admissions: &Admissions<R>,
    verdict: &RulesVerdict<'_>,
    permits: HeldPermits,
    parts: &mut Parts,
) -> OutcomeOfRules<R, B> {
    let mut watched = Vec::new();
    let quotas = decide_by_verdict(admissions, verdict, &mut watched, parts);
    Held { watched, permits }.outcome(quotas, PendingRules::Quotas)
}

#[inline(always)]
fn decide_by_verdict<R: Reject<B>, B: 'static>(
    admissions: &Admissions<R>,
    verdict: &RulesVerdict<'_>,
    watched: &mut ShadowRequests<R>,
    parts: &mut Parts,
) -> RateOutcome<RuleLimits, R, B> {
    let (rule, why) = match verdict {
        RulesVerdict::Limited(charges) => {
            return match charges.as_slice() {
                [Some(charge)] if !charge.rule.is_apart => decide_alone(admissions, charge, parts),
                _ => decide_together(admissions, charges, watched, parts),
            };
        }
        RulesVerdict::Bypassed => (None, Uncounted::Skip),
        RulesVerdict::Allowed(rule) => (Some(*rule), Uncounted::Skip),
        RulesVerdict::Denied(rule) => (Some(*rule), Uncounted::Deny),
        RulesVerdict::Rejected(rule, error) => (Some(*rule), Uncounted::NoKey(*error)),
    };
    let policies = rule.map_or(&[][..], |rule| admissions.policies(rule));
    admissions.uncounted.uncounted(why, policies, parts)
}

fn decide_alone<R: Reject<B>, B: 'static>(
    admissions: &Admissions<R>,
    charge: &ChargeOfRule<'_>,
    parts: &mut Parts,
) -> RateOutcome<RuleLimits, R, B> {
    let admission = admissions.admission(charge.rule);
    let Some(limit) = admissions.rules.limits_of(charge).first() else {
        return admission.uncounted(Uncounted::Skip, &[], parts);
    };
    let own = limit.charge(charge, reserves(charge, charge.rule.wait.is_some()));
    admission.decide_selected(&[own], parts)
}

/// Whether another operation may follow a charge of a request of which a limit `waits` for its turn.
const fn reserves(charge: &ChargeOfRule<'_>, waits: bool) -> bool {
    waits || charge.rule.count_if.is_some()
}

/// Charges the shadows first, each by itself, then all other limits together.
#[inline(never)]
fn decide_together<R: Reject<B>, B: 'static>(
    admissions: &Admissions<R>,
    charges: &RuleCharges<'_>,
    watched: &mut ShadowRequests<R>,
    parts: &mut Parts,
) -> RateOutcome<RuleLimits, R, B> {
    for charge in of_each(charges).filter(|charge| charge.rule.shadow) {
        let admission = admissions.admission(charge.rule);
        let limits = admissions.rules.limits_of(charge).iter();
        let own = limits.map(|limit| limit.charge(charge, reserves(charge, false)));
        watched.extend(own.filter_map(|own| admission.watch(own)));
    }
    let hard = of_each(charges).filter(|charge| !charge.rule.shadow);
    let Some(first) = hard.clone().next() else {
        return admissions.uncounted.uncounted(Uncounted::Skip, &[], parts);
    };
    let waits = hard.clone().any(|charge| charge.rule.wait.is_some());
    let list = hard.clone().flat_map(|charge| {
        let (limits, continues) = (admissions.rules.limits_of(charge), reserves(charge, waits));
        limits
            .iter()
            .map(move |limit| limit.charge(charge, continues))
    });
    let mut list = FewCharges::collected(list);
    let admission = admissions.admission(first.rule);
    if admissions.rules.has_spend() && hard.clone().any(|charge| charge.rule.spend.is_some()) {
        reserve(admissions, hard, list.as_mut_slice(), parts);
    }
    admission.decide_selected(list.as_slice(), parts)
}

/// Reserves the units of a response, together with the charges of all other limits.
#[cold]
fn reserve<'c, 'r: 'c, R>(
    admissions: &Admissions<R>,
    hard: impl Iterator<Item = &'c ChargeOfRule<'r>> + Clone,
    list: &mut [Charge<'_>],
    parts: &mut Parts,
) {
    let limits = hard
        .clone()
        .flat_map(|charge| admissions.rules.limits_of(charge));
    let capacities: Vec<u64> = limits.map(|limit| limit.capacity).collect();
    admissions.uncounted.reserve(list, &capacities, parts);
    // As the first rule says, which reads the response.
    let mut spends = hard.filter_map(|charge| charge.rule.spend.as_ref());
    if let Some(UsagePlace::Trailer(_)) = spends.next().map(|spend| &spend.read) {
        parts.extensions.insert(NeedsTrailers);
    }
}

/// A permit that other nodes count, too, with the position of its rule and the index of the set of quotas. It is acquired
/// when its future is polled.
type RequestedPermit = ((u16, usize), Pin<Box<dyn Future<Output = Grant> + Send>>);

/// Acquires the permits of all rules or none, then decides by the quotas. A request that a quota denies holds none.
#[inline(never)]
fn decide_holding<R: Reject<B>, B: 'static>(
    admissions: &Arc<Admissions<R>>,
    now: Timestamp,
    parts: &mut Parts,
) -> OutcomeOfRules<R, B> {
    let (mut permits, mut requested, mut refusal) = (HeldPermits::default(), Vec::new(), None);
    let acquire = |rule: &Rule, set_index, key| {
        let limit = admissions.permits.of(rule.position, set_index);
        let Some(limit) = limit.filter(|_| refusal.is_none()) else {
            return;
        };
        let at = (rule.position, set_index);
        match limit.acquire(key, Priority::CRITICAL) {
            PendingGrant::Ready(grant) => match permit(admissions, at, grant, None) {
                Ok(permit) => permit.into_iter().for_each(|permit| permits.push(permit)),
                Err(refused) => refusal = Some(refused),
            },
            PendingGrant::Later(grant) => requested.push((at, grant)),
        }
    };
    let verdict = admissions.rules.select_in_flight(parts, now, acquire);
    // Otherwise no limit decides about the request.
    if matches!(verdict, RulesVerdict::Limited(_) | RulesVerdict::Bypassed) {
        if let Some(refusal) = refusal {
            permits.release();
            return RequestOutcome::Reject(refuse(refusal, admissions, parts));
        }
        if !requested.is_empty() {
            let waiting = AwaitingPermits {
                acquiring: Box::pin(acquire_in_turn(Arc::clone(admissions), permits, requested)),
                admissions: Arc::clone(admissions),
                now,
            };
            return RequestOutcome::Defer(PendingRules::Permits(waiting));
        }
    }
    decide_with(admissions, &verdict, permits, parts)
}

/// Decides by the quotas about a request that has its permits. One that asks for an upgrade shares them.
fn decide_with<R: Reject<B>, B: 'static>(
    admissions: &Admissions<R>,
    verdict: &RulesVerdict<'_>,
    permits: HeldPermits,
    parts: &mut Parts,
) -> OutcomeOfRules<R, B> {
    let mut outcome = decide_quotas(admissions, verdict, permits, parts);
    let permits = match &mut outcome {
        RequestOutcome::Pass(work) => &mut work.held.permits,
        RequestOutcome::Defer(PendingRules::Quotas(_, held)) => &mut held.permits,
        _ => return outcome,
    };
    if !permits.is_empty() && parts.headers.contains_key(UPGRADE) {
        parts.extensions.insert(permits.share());
    }
    outcome
}

/// A request that waits for its permits. Dropping it releases those that it has.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct AwaitingPermits<R> {
    acquiring: Pin<Box<dyn Future<Output = Result<HeldPermits, Refusal>> + Send>>,
    admissions: Arc<Admissions<R>>,
    now: Timestamp,
}

/// The position of the rule that refuses a permit, and its denial; or the rejection, where the store failed and `on_failure`
/// of the rules denies.
type Refusal = (u16, Result<Box<Decision>, RejectionKind>);

impl<R> AwaitingPermits<R> {
    /// Decides by the quotas once the request has all permits.
    fn poll<B: 'static>(
        &mut self,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<OutcomeOfRules<R, B>>
    where
        R: Reject<B>,
    {
        let acquired = ready!(self.acquiring.as_mut().poll(cx));
        let admissions = &*self.admissions;
        Poll::Ready(match acquired {
            Ok(permits) => {
                let verdict = admissions.rules.select(parts, self.now);
                decide_with(admissions, &verdict, permits, parts)
            }
            Err(refusal) => RequestOutcome::Reject(refuse(refusal, admissions, parts)),
        })
    }
}

/// Acquires one permit after another, in the order of the rules: of requests that need the same two permits, the one that
/// has the first also gets the second.
async fn acquire_in_turn<R: Send + Sync>(
    admissions: Arc<Admissions<R>>,
    mut permits: HeldPermits,
    requested: Vec<RequestedPermit>,
) -> Result<HeldPermits, Refusal> {
    for (at, grant) in requested {
        let started = Instant::now();
        let permit = permit(&admissions, at, grant.await, Some(started))?;
        permit.into_iter().for_each(|permit| permits.push(permit));
    }
    Ok(permits)
}

/// The permit of a grant; `None` if the request passes without one. Reports a denial, and a store that failed.
fn permit<R>(
    admissions: &Admissions<R>,
    (position, set_index): (u16, usize),
    Grant { decision, holder }: Grant,
    started: Option<Instant>,
) -> Result<Option<Permit>, Refusal> {
    let rule = &admissions.rules.rules()[usize::from(position)];
    let admission = admissions.admission(rule);
    match decision {
        Ok(decision) if decision.is_allowed() => Ok(holder.permit()),
        Ok(decision) => {
            admission.report_denial(&decision, holder.key(), started);
            if rule.shadow {
                return Ok(None);
            }
            Err((position, Ok(Box::new(decision))))
        }
        Err(error) => {
            let limit = admissions.permits.of(position, set_index);
            let policies = limit.map_or(&[][..], |limit| slice::from_ref(limit.policy()));
            let rejection = admission.fail(&error, policies);
            rejection.map_or(Ok(None), |kind| Err((position, Err(kind))))
        }
    }
}

fn refuse<R: Reject<B>, B>(
    (position, why): Refusal,
    admissions: &Admissions<R>,
    parts: &Parts,
) -> Response<B> {
    let rule = &admissions.rules.rules()[usize::from(position)];
    let responder = &admissions.admission(rule).responder;
    match why {
        Ok(denial) => responder.deny(parts, &denial),
        Err(kind) => responder.refuse(parts, kind),
    }
}
