//! The gate of a [`RulesLayer`](super::RulesLayer): one set of rules decides a request, and settles its response.

use std::{
    mem,
    ops::ControlFlow,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Response, StatusCode, request::Parts};

use super::{
    charged_members::members, handle::Shared, rule_admissions::Admissions, rule_limits::RuleLimits,
};
use crate::{
    middleware::{
        gate::{Admit, Admits, FinalOutcome, Gate, GateFuture, RequestOutcome},
        key_extraction_rules::Uncounted,
    },
    rate_limit::{Correcting, PendingOutcome, RateOutcome, ResponseWork, ShadowRequest},
    reject::{ProblemJson, Reject},
    rules::{
        select::{ChargeOfRule, RuleCharges, RulesVerdict},
        spend::NeedsTrailers,
    },
};

/// A service whose requests are limited by rules. Created by [`RulesLayer`](super::RulesLayer).
///
/// Clones share the counts and the reloads.
pub type RulesLimit<S, R = ProblemJson> = Gate<S, Arc<Shared<R>>>;

/// The response of a [`RulesLimit`](super::RulesLimit) service.
///
/// Dropping it is safe at any time. Charged units stay charged.
pub type RulesFuture<S, B, R> = GateFuture<S, B, Arc<Shared<R>>>;

/// The charges of shadow rules, which `count_if` settles by the response.
pub(super) type ShadowRequests<R> = Vec<ShadowRequest<RuleLimits, R>>;

/// The work of a response by rules; `P` are the permits of the request.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct RulesWork<R, P> {
    pub(super) rate: ResponseWork<RuleLimits, R>,
    watched: ShadowRequests<R>,
    pub(super) permits: P,
}

/// The decision of the quotas, which takes time.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct PendingQuotas<R, P> {
    quotas: PendingOutcome<RuleLimits, R>,
    watched: ShadowRequests<R>,
    permits: P,
}

impl<R> Admit for Arc<Shared<R>> {
    type Work = RulesWork<R, ()>;
    type Deferred = PendingQuotas<R, ()>;
    type Late = Correcting<RuleLimits, R>;
}

impl<R: Reject<B>, B: 'static> Admits<B> for Arc<Shared<R>> {
    type Body = B;

    #[inline(always)]
    fn decide(&self, parts: &mut Parts) -> RequestOutcome<RulesWork<R, ()>, B, Self::Deferred> {
        // One set of rules decides a request. Its admission also settles the response. It is dropped
        // before the inner service is called.
        let admissions = self.admissions.load();
        let now = admissions.rules.begin(&mut parts.headers);
        let verdict = admissions.rules.select(parts, now);
        let mut watched = Vec::new();
        let outcome = decide_by_verdict(&admissions, &verdict, &mut watched, parts);
        PendingQuotas::outcome(outcome, watched, ())
    }

    fn poll_decision(
        deferred: &mut Self::Deferred,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<FinalOutcome<RulesWork<R, ()>, B>> {
        deferred.poll(parts, cx)
    }

    #[inline(always)]
    fn show(work: &mut RulesWork<R, ()>, response: &mut Response<B>) -> ControlFlow<()> {
        work.rate.show(response)
    }

    fn settle(work: &mut RulesWork<R, ()>, response: &mut Response<B>) -> Option<Self::Late> {
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
        work: &mut RulesWork<R, ()>,
        polled: Poll<Result<Response<B>, E>>,
    ) -> Poll<Result<Response<B>, E>> {
        work.settle_watched(&polled);
        polled
    }
}

impl<R, P: Default> Default for RulesWork<R, P> {
    fn default() -> Self {
        Self {
            rate: ResponseWork::Nothing,
            watched: Vec::new(),
            permits: P::default(),
        }
    }
}

impl<R: Send + Sync + 'static, P> RulesWork<R, P> {
    #[inline(always)]
    pub(super) fn settle_watched<B, E>(&mut self, polled: &Poll<Result<Response<B>, E>>) {
        if let (false, Poll::Ready(Ok(response))) = (self.watched.is_empty(), polled) {
            settle(&mut self.watched, response.status());
        }
    }
}

fn settle<R: Send + Sync + 'static>(watched: &mut ShadowRequests<R>, status: StatusCode) {
    for watched in watched.drain(..) {
        watched.settle(status);
    }
}

impl<R: Send + Sync + 'static, P: Default> PendingQuotas<R, P> {
    /// The outcome of a request by that of its quotas. A rejection settles the shadows, and drops the permits.
    #[inline(always)]
    pub(super) fn outcome<B>(
        outcome: RateOutcome<RuleLimits, R, B>,
        mut watched: ShadowRequests<R>,
        permits: P,
    ) -> RequestOutcome<RulesWork<R, P>, B, Self> {
        match outcome {
            RequestOutcome::Pass(rate) => RequestOutcome::Pass(RulesWork {
                rate,
                watched,
                permits,
            }),
            RequestOutcome::Reject(response) => {
                settle(&mut watched, response.status());
                RequestOutcome::Reject(response)
            }
            RequestOutcome::Defer(quotas) => RequestOutcome::Defer(Self {
                quotas,
                watched,
                permits,
            }),
        }
    }

    pub(super) fn poll<B: 'static>(
        &mut self,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<FinalOutcome<RulesWork<R, P>, B>>
    where
        R: Reject<B>,
    {
        Poll::Ready(match ready!(self.quotas.poll(parts, cx)) {
            RequestOutcome::Pass(rate) => RequestOutcome::Pass(RulesWork {
                rate,
                watched: mem::take(&mut self.watched),
                permits: mem::take(&mut self.permits),
            }),
            RequestOutcome::Reject(response) => {
                settle(&mut self.watched, response.status());
                self.permits = P::default();
                RequestOutcome::Reject(response)
            }
            RequestOutcome::Defer(never) => match never {},
        })
    }
}

#[inline(always)]
pub(super) fn decide_by_verdict<R: Reject<B>, B: 'static>(
    admissions: &Admissions<R>,
    verdict: &RulesVerdict<'_>,
    watched: &mut ShadowRequests<R>,
    parts: &mut Parts,
) -> RateOutcome<RuleLimits, R, B> {
    let (rule, why) = match verdict {
        RulesVerdict::Limited(charges) => {
            return match charges.alone() {
                Some(charge) if !charge.rule.is_apart => decide_alone(admissions, charge, parts),
                _ => decide_together(admissions, charges, watched, parts),
            };
        }
        RulesVerdict::Bypassed => (None, Uncounted::Skip),
        RulesVerdict::Allowed(rule) => (Some(*rule), Uncounted::Skip),
        RulesVerdict::Denied(rule) => (Some(*rule), Uncounted::Deny),
        RulesVerdict::Rejected(rule, error) => (Some(*rule), Uncounted::NoKey(*error)),
    };
    let policies = rule.map_or(&[][..], |rule| admissions.policies(rule));
    admissions.uncounted().uncounted(why, policies, parts)
}

fn decide_alone<R: Reject<B>, B: 'static>(
    admissions: &Admissions<R>,
    charge: &ChargeOfRule<'_>,
    parts: &mut Parts,
) -> RateOutcome<RuleLimits, R, B> {
    (admissions.of(charge)).decide_one(charge.counted(), parts)
}

/// Charges the shadows first, each by itself, then all other limits together.
#[inline(never)]
fn decide_together<R: Reject<B>, B: 'static>(
    admissions: &Admissions<R>,
    charges: &RuleCharges<'_>,
    watched: &mut ShadowRequests<R>,
    parts: &mut Parts,
) -> RateOutcome<RuleLimits, R, B> {
    let shadows = charges.iter().filter(|charge| charge.rule.shadow);
    watched.extend(shadows.filter_map(|charge| (admissions.of(charge)).watch(charge.counted())));
    let hard = charges.iter().filter(|charge| !charge.rule.shadow);
    if admissions.rules.has_spend() && hard.clone().any(|charge| charge.rule.spend.is_some()) {
        return decide_spending(admissions, hard, parts);
    }
    let mut others = hard.clone();
    let counted = hard.clone().map(ChargeOfRule::counted);
    match (others.next(), others.next()) {
        (None, _) => (admissions.uncounted()).uncounted(Uncounted::Skip, &[], parts),
        (Some(charge), None) => admissions.of(charge).decide(counted, parts),
        _ => admissions.together(hard).decide(counted, parts),
    }
}

/// Reserves the units of a response, together with the charges of all other limits.
#[cold]
fn decide_spending<'c, 'r: 'c, R: Reject<B>, B: 'static>(
    admissions: &Admissions<R>,
    charges: impl Iterator<Item = &'c ChargeOfRule<'r>> + Clone,
    parts: &mut Parts,
) -> RateOutcome<RuleLimits, R, B> {
    let members = members(charges.clone());
    let admission = admissions.together(charges);
    let costs = members.iter().map(|member| u64::from(member.charge.cost));
    let costs = admission.reservations(costs, parts);
    // As the first rule says, which reads the response.
    let mut spends = members
        .iter()
        .filter_map(|member| member.charge.rule.spend.as_ref());
    if spends.next().is_some_and(|spend| spend.reads_trailers()) {
        parts.extensions.insert(NeedsTrailers);
    }
    let counted = members.iter().map(|member| member.charge.counted());
    let counted = counted.zip(&costs);
    admission.decide(
        counted.map(|((key, class, _), cost)| (key, class, *cost)),
        parts,
    )
}
