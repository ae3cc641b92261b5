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
    rate_limit::{DeskAnswer, Watched},
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
        let (mut parts, body) = request.into_parts();
        let mut watched = Vec::new();
        // The block drops everything else before the inner service is called.
        let answer = {
            // One set decides all of a request. What follows its response is kept by its desk.
            let desks = self.shared.desks.load();
            let verdict = desks.rules.select(&parts, desks.rules.now());
            match &verdict {
                RulesVerdict::Limited(charges) => match charges.alone() {
                    Some(charge) if !charge.rule.shadow => {
                        ask(desks.of(charge), charge, &mut parts)
                    }
                    _ => ask_several(&desks, charges, &mut watched, &mut parts),
                },
                RulesVerdict::Bypassed => desks.uncounted(None).exempt(NotCounted::Skip),
                RulesVerdict::Allowed(rule) => desks.uncounted(Some(rule)).exempt(NotCounted::Skip),
                RulesVerdict::Denied(rule) => desks.uncounted(Some(rule)).exempt(NotCounted::Deny),
                RulesVerdict::Rejected(rule, error) => desks
                    .uncounted(Some(rule))
                    .exempt(NotCounted::NoKey(*error)),
            }
        };
        RulesFuture::new(answer, &mut self.inner, (parts, body), watched)
    }
}

#[inline]
fn ask<R: Reject<B>, B: 'static>(
    desk: &RuleDesk<R>,
    charge: &ChargeOfRule<'_>,
    parts: &mut Parts,
) -> DeskAnswer<RuleGroup, R, B> {
    desk.ask(&charge.key, u64::from(charge.cost), parts)
}

/// The shadows first, each by itself; then all others as one.
#[inline(never)]
fn ask_several<R: Reject<B>, B: 'static>(
    desks: &Desks<R>,
    charges: &RuleCharges<'_>,
    watched: &mut Vec<Watched<RuleGroup, R>>,
    parts: &mut Parts,
) -> DeskAnswer<RuleGroup, R, B> {
    let (shadows, hard): (Vec<_>, Vec<_>) = charges.iter().partition(|charge| charge.rule.shadow);
    watched.extend(
        shadows
            .into_iter()
            .filter_map(|charge| desks.of(charge).watch(&charge.key, u64::from(charge.cost))),
    );
    match hard.as_slice() {
        [] => desks.uncounted(None).exempt(NotCounted::Skip),
        [charge] => ask(desks.of(charge), charge, parts),
        several => {
            let key = Key::joint(several.iter().map(|charge| charge.key.clone()));
            let costs = several.iter().map(|charge| u64::from(charge.cost));
            desks
                .together(several)
                .ask_at_each(&key, costs.collect(), parts)
        }
    }
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
