//! The gate of a [`RulesLayer`](super::RulesLayer): one set of rules decides a request, and settles its response.

use std::{
    mem,
    ops::ControlFlow,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Response, StatusCode, request::Parts};

use super::{handle::Shared, rule_admissions::Admissions};
use crate::{
    select::{ChargeOfRule, RuleCharges, RulesVerdict},
    spend::{NeedsTrailers, UsagePlace},
    store::RuleLimits,
};
use tower_ratelimit_core::{
    limiter::Charge,
    reject::{ProblemJson, Reject},
};
use tower_ratelimit_layer::{
    middleware::{
        gate::{Admit, Admits, FinalOutcome, Gate, GateFuture, RequestOutcome},
        settings::Uncounted,
    },
    rate_limit::{
        Correcting, FewCharges, PendingOutcome, RateOutcome, ResponseWork, ShadowRequest,
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

/// Rules as the decision of a [`Gate`].
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct ByRules<R>(pub(super) Arc<Shared<R>>);

impl<R> Clone for ByRules<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> Admit for ByRules<R> {
    type Work = RulesWork<R, ()>;
    type Deferred = PendingQuotas<R, ()>;
    type Late = Correcting<RuleLimits, R>;
}

impl<R: Reject<B>, B: 'static> Admits<B> for ByRules<R> {
    type Body = B;

    #[inline(always)]
    fn decide(&self, parts: &mut Parts) -> RequestOutcome<RulesWork<R, ()>, B, Self::Deferred> {
        // One set of rules decides a request. Its admission also settles the response. It is dropped
        // before the inner service is called.
        let admissions = self.0.admissions.load();
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
    admissions.uncounted.uncounted(why, policies, parts)
}

fn decide_alone<R: Reject<B>, B: 'static>(
    admissions: &Admissions<R>,
    charge: &ChargeOfRule<'_>,
    parts: &mut Parts,
) -> RateOutcome<RuleLimits, R, B> {
    let admission = admissions.admission(charge.rule);
    let Some(limit) = admissions.limits(charge).first() else {
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
    for charge in charges.iter().filter(|charge| charge.rule.shadow) {
        let admission = admissions.admission(charge.rule);
        let limits = admissions.limits(charge).iter();
        let own = limits.map(|limit| limit.charge(charge, reserves(charge, false)));
        watched.extend(own.filter_map(|own| admission.watch(own)));
    }
    let hard = charges.iter().filter(|charge| !charge.rule.shadow);
    let Some(first) = hard.clone().next() else {
        return admissions.uncounted.uncounted(Uncounted::Skip, &[], parts);
    };
    let waits = hard.clone().any(|charge| charge.rule.wait.is_some());
    let list = hard.clone().flat_map(|charge| {
        let (limits, continues) = (admissions.limits(charge), reserves(charge, waits));
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
    let limits = hard.clone().flat_map(|charge| admissions.limits(charge));
    let capacities: Vec<u64> = limits.map(|limit| limit.capacity).collect();
    admissions.uncounted.reserve(list, &capacities, parts);
    // As the first rule says, which reads the response.
    let mut spends = hard.filter_map(|charge| charge.rule.spend.as_ref());
    if let Some(UsagePlace::Trailer(_)) = spends.next().map(|spend| &spend.read) {
        parts.extensions.insert(NeedsTrailers);
    }
}
