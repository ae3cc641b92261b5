//! The service that a [`RulesLayer`](super::RulesLayer) makes.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use tower_service::Service;

use super::{
    charged_members::members,
    future::{RulesFuture, ShadowRequests},
    handle::Shared,
    rule_admissions::Admissions,
    rule_limits::RuleLimits,
};
use crate::{
    key::Key,
    middleware::{gate::inner_service, key_extraction_rules::Uncounted},
    quota::Priority,
    rate_limit::RateOutcome,
    reject::{ProblemJson, Reject},
    rules::{
        select::{ChargeOfRule, RuleCharges, RulesVerdict},
        spend::NeedsTrailers,
    },
};

/// A service whose requests are limited by rules. Created by [`RulesLayer`](super::RulesLayer).
///
/// Clones share the counts and the reloads.
pub struct RulesLimit<S, R = ProblemJson> {
    inner: S,
    shared: Arc<Shared<R>>,
}

impl<S, R> RulesLimit<S, R> {
    pub(super) const fn new(inner: S, shared: Arc<Shared<R>>) -> Self {
        Self { inner, shared }
    }

    inner_service!(S);
}

impl<S, R, ReqBody, ResBody> Service<Request<ReqBody>> for RulesLimit<S, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    type Response = Response<ResBody>;
    type Error = S::Error;
    type Future = RulesFuture<S, ReqBody, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    // Not inlined: the caller would build the future on its stack and then move it.
    #[inline(never)]
    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let shared = &self.shared;
        RulesFuture::new(&mut self.inner, request, |parts, watched| {
            // One set of rules decides a request. Its admission also settles the response. It is dropped
            // before the inner service is called.
            let admissions = shared.admissions.load();
            let now = admissions.rules.begin(&mut parts.headers);
            let verdict = admissions.rules.select(parts, now);
            decide_by_verdict(&admissions, &verdict, watched, parts)
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
    let counted = (&charge.key, charge.class);
    (admissions.of(charge)).decide(counted, u64::from(charge.cost), parts)
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
    watched.extend(shadows.filter_map(|charge| {
        let counted = (&charge.key, charge.class);
        (admissions.of(charge)).watch(counted, u64::from(charge.cost))
    }));
    let hard = charges.iter().filter(|charge| !charge.rule.shadow);
    if admissions.rules.has_spend() && hard.clone().any(|charge| charge.rule.spend.is_some()) {
        return decide_spending(admissions, hard, parts);
    }
    let costs = hard.clone().map(|charge| u64::from(charge.cost));
    let mut others = hard.clone();
    match (others.next(), others.next()) {
        (None, _) => (admissions.uncounted()).uncounted(Uncounted::Skip, &[], parts),
        (Some(charge), None) => {
            let counted = (&charge.key, charge.class);
            (admissions.of(charge)).decide_by_costs(counted, costs, parts)
        }
        _ => {
            let key = Key::of_limits(hard.clone().map(|charge| Some(&charge.key)));
            let counted = (&key, Priority::CRITICAL);
            (admissions.together(hard)).decide_by_costs(counted, costs, parts)
        }
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
    let key = match &*members {
        [member] => member.charge.key.clone(),
        _ => Key::of_limits(members.iter().map(|member| Some(&member.charge.key))),
    };
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
    admission.decide_by_costs((&key, Priority::CRITICAL), costs.iter().copied(), parts)
}

impl<S: Clone, R> Clone for RulesLimit<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for RulesLimit<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulesLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
