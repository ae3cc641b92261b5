//! The service that a [`RulesLayer`](super::RulesLayer) makes.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use tower_service::Service;

use super::group::RuleGroup;
use super::{
    desks::{Desks, RuleDesk},
    future::RulesFuture,
    handle::Shared,
};
use crate::{
    key::Key,
    middleware::{key_rules::NotCounted, service::inner_service},
    rate_limit::ResponseFuture,
    reject::{ProblemJson, Reject},
    rules::select::{ChargeOfRule, RuleCharges, RulesVerdict},
};

/// A service whose requests are limited by rules. Made by [`RulesLayer`](super::RulesLayer).
///
/// Clones share the counts, and a reload is one for all of them.
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

    // Within its caller the future would be built apart and then moved to its place.
    #[inline(never)]
    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (parts, body) = request.into_parts();
        // One set decides all of a request. What follows its response is kept by its desk.
        let desks = self.shared.desks.load();
        let verdict = desks.rules.select(&parts, desks.rules.now());
        let (desk, why) = match verdict {
            RulesVerdict::Limited(charges) => {
                return limited(&desks, &charges, &mut self.inner, parts, body);
            }
            RulesVerdict::Bypassed => (desks.uncounted(None), NotCounted::Skip),
            RulesVerdict::Allowed(rule) => (desks.uncounted(Some(rule)), NotCounted::Skip),
            RulesVerdict::Denied(rule) => (desks.uncounted(Some(rule)), NotCounted::Deny),
            RulesVerdict::Rejected(rule, error) => {
                (desks.uncounted(Some(rule)), NotCounted::NoKey(error))
            }
        };
        RulesFuture::new(desk.exempt(why, &mut self.inner, parts, body))
    }
}

/// The future of a request that limits apply to.
#[inline]
fn limited<S, R, B, ResBody>(
    desks: &Desks<R>,
    charges: &RuleCharges<'_>,
    inner: &mut S,
    parts: Parts,
    body: B,
) -> RulesFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    match charges.alone() {
        Some(charge) if !charge.rule.shadow => {
            RulesFuture::new(respond(desks.of(charge), charge, inner, parts, body))
        }
        _ => limited_by_several(desks, charges, inner, parts, body),
    }
}

fn respond<S, R, B, ResBody>(
    desk: &RuleDesk<R>,
    charge: &ChargeOfRule<'_>,
    inner: &mut S,
    parts: Parts,
    body: B,
) -> ResponseFuture<S, B, RuleGroup, R>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    desk.respond((&charge.key, u64::from(charge.cost)), inner, parts, body)
}

/// The shadows first, each by itself; then all others as one.
#[inline(never)]
fn limited_by_several<S, R, B, ResBody>(
    desks: &Desks<R>,
    charges: &RuleCharges<'_>,
    inner: &mut S,
    parts: Parts,
    body: B,
) -> RulesFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    let shadows = charges.iter().filter(|charge| charge.rule.shadow);
    let watched =
        shadows.filter_map(|charge| desks.of(charge).watch(&charge.key, u64::from(charge.cost)));
    let watched = watched.collect();
    let hard: Vec<_> = charges
        .iter()
        .filter(|charge| !charge.rule.shadow)
        .collect();
    let response = match hard.as_slice() {
        [] => desks
            .uncounted(None)
            .exempt(NotCounted::Skip, inner, parts, body),
        [charge] => respond(desks.of(charge), charge, inner, parts, body),
        several => {
            let key = Key::joint(several.iter().map(|charge| charge.key.clone()));
            let cost = several.iter().map(|charge| charge.cost).max().unwrap_or(0);
            let desk = desks.together(several);
            desk.respond((&key, u64::from(cost)), inner, parts, body)
        }
    };
    RulesFuture::watching(response, watched)
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
