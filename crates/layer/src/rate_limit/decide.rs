//! The decision of an admission about a request, to the outcome that every service uses, and the work that the outcome
//! leaves to the response.
//!
//! In: the head of a request. Out: a [`RequestOutcome`]. The request passes, with the [`ResponseWork`] that is left; or it
//! is rejected, with its response; or the decision takes time.
//!
//! 0. `begin` charges a request of a plain layer before it is taken apart, if its extensions have the key and the limiter
//!    answers at once. An allowed one is done; a denied one continues at 3.
//! 1. `decide` finds the key. A request that is not counted is done (`uncounted`).
//! 2. Key, tier, class and cost for each limit are a [`ChargeRequest`]. `decide_now` requests the charge. An allowed request of a plain layer is
//!    done: its response gets fields, by the numbers of the decision.
//! 3. Any other answer that settles the request is admitted or rejected by `ResponseWork::admit`, with events, jitter and
//!    extensions.
//! 4. The rest is a [`PendingDecision`]. Its steps that take no time run at once, the others in a future, the
//!    [`PendingOutcome`]. `admit` takes what it returns.
//!
//! Example: a layer allows 10 requests a second, and lets denied ones wait for a second. The limiter denies the eleventh
//! for 100 ms. That does not settle it, so it becomes the head of its queue, sleeps, is charged, and passes with a decision
//! that has the delay. With the layer in shadow mode the denial settles it, and it passes at once.

use std::{
    future::Future,
    mem,
    ops::ControlFlow,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Extensions, Response, request::Parts};

use super::{
    admission::{Admission, Path},
    handler_extensions,
    pending_decision::{NextStep, PendingDecision},
    request_charges::{ChargeRequest, DecisionTrace, FewCharges, KeptCharges},
    reservation::{Correcting, Reservation},
};
use crate::{
    middleware::{
        gate::{Admit, Admits, Begun, FinalOutcome, Gate, GateFuture, RequestOutcome},
        settings::{Keys, Uncounted},
    },
    observe::event::Event,
};
use tower_ratelimit_core::{
    clock::OsClock,
    decision::{Decision, Outcome, Policy},
    error::LimiterError,
    headers::QuotaNumbers,
    key::Key,
    limiter::{
        call::{Call, Charge, Numbers},
        limiter::{Limiter, Pending},
        local::LocalLimiter,
    },
    quota::Priority,
    reject::rejection::{ProblemJson, Reject, RejectionKind},
};

/// A service whose requests are rate limited. Made by [`RateLimitLayer`](crate::rate_limit::layer::RateLimitLayer).
pub type RateLimit<S, L = LocalLimiter, R = ProblemJson> = Gate<S, Arc<Admission<L, R>>>;

/// The response of a [`RateLimit`] service.
pub type ResponseFuture<S, B, L, R> = GateFuture<S, B, Arc<Admission<L, R>>>;

impl<L: Limiter, R> Admit for Arc<Admission<L, R>> {
    type Work = ResponseWork<L, R>;
    type Deferred = PendingOutcome<L, R>;
    type Late = Correcting<L, R>;
}

impl<L: Limiter, R: Reject<B>, B: 'static> Admits<B> for Arc<Admission<L, R>> {
    type Body = B;

    /// Charges a request by its extensions, if the limiter answers at once and they have its key.
    #[inline(always)]
    fn begin(&self, extensions: &Extensions) -> Begun<ResponseWork<L, R>> {
        if self.path != Path::Early || self.responder.diagnostics().is_active() {
            return Begun::Nothing;
        }
        let key_rules = &self.responder.common.key_rules;
        let Some(key) = key_rules.extractor.extract_early(extensions) else {
            return Begun::Nothing;
        };
        match self.limiter.charge(Priority::CRITICAL, &key, 1) {
            Some(charged) if !charged.is_taken() => Begun::Denied(key, charged.decision()),
            Some(_) if !self.responder.decorates() => Begun::Pass(ResponseWork::Nothing),
            Some(charged) => Begun::Pass(ResponseWork::showing(&mut charged.decision(), self)),
            None => self.begin_by_call(key),
        }
    }

    /// Decides about a request whose key the layer finds.
    #[inline(always)]
    fn decide(&self, parts: &mut Parts) -> RateOutcome<L, R, B> {
        let key_rules = &self.responder.common.key_rules;
        if self.path > Path::Key {
            return self.decide_by_settings(&key_rules.keys_of(parts), parts);
        }
        // By reference: a key is long, and stays where the extractor put it.
        match &key_rules.extractor.extract(parts) {
            Ok(key) => self.decide_now(ChargeRequest::of(&[self.charge(key)]), true, parts),
            Err(error) => self.decide_by_settings(&self.responder.missing_key(*error), parts),
        }
    }

    fn decide_denied(
        &self,
        key: &Key,
        mut decision: Decision,
        parts: &mut Parts,
    ) -> RateOutcome<L, R, B> {
        let charges = [self.charge(key)];
        let charge = ChargeRequest::of(&charges);
        if self.is_settled(true, &decision, charge) {
            return ResponseWork::admit(&mut decision, charge, &DecisionTrace::DIRECT, self, parts);
        }
        self.defer(charge, Some(Pending::Ready(Ok(decision))), parts)
    }

    fn poll_decision(
        deferred: &mut PendingOutcome<L, R>,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<FinalOutcome<ResponseWork<L, R>, B>> {
        deferred.poll(parts, cx)
    }

    #[inline(always)]
    fn show(work: &mut ResponseWork<L, R>, response: &mut Response<B>) -> ControlFlow<()> {
        work.show(response)
    }

    fn settle(
        work: &mut ResponseWork<L, R>,
        response: &mut Response<B>,
    ) -> Option<Correcting<L, R>> {
        work.settle(response)
    }

    fn poll_late(
        late: &mut Correcting<L, R>,
        response: &mut Response<B>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        late.poll(response, cx)
    }

    #[inline(always)]
    fn wrap<E>(
        _: &mut ResponseWork<L, R>,
        polled: Poll<Result<Response<B>, E>>,
    ) -> Poll<Result<Response<B>, E>> {
        polled
    }
}

#[doc(hidden)]
pub type RateOutcome<L, R, B> = RequestOutcome<ResponseWork<L, R>, B, PendingOutcome<L, R>>;

/// A decision that takes time: the limiter answers later, or the request waits.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct PendingOutcome<L, R> {
    decision: Pin<Box<dyn Future<Output = LateDecision> + Send>>,
    admission: Arc<Admission<L, R>>,
}

/// The limiter's last answer, the charge that it is about, and its history.
type LateDecision = (Result<Decision, LimiterError>, KeptCharges, DecisionTrace);

impl<L: Limiter, R> Admission<L, R> {
    /// Charges a request by a call, which is answered at once.
    #[inline(never)]
    fn begin_by_call(self: &Arc<Self>, key: Key) -> Begun<ResponseWork<L, R>> {
        let charges = [self.charge(&key)];
        match self.request_for(ChargeRequest::of(&charges), true) {
            Pending::Ready(Ok(mut decision)) if decision.passes_at_once() => {
                Begun::Pass(ResponseWork::showing(&mut decision, self))
            }
            Pending::Ready(Ok(decision)) => Begun::Denied(key, decision),
            Pending::Ready(Err(_)) | Pending::Later(_) => Begun::Nothing,
        }
    }

    /// One unit of the limiter's own quotas.
    #[inline]
    fn charge<'a>(&self, key: &'a Key) -> Charge<'a> {
        Charge::new(key, self.charge_op(1))
    }

    /// Decides about a request of several limits, or whose class, tier and cost the settings choose.
    #[inline(never)]
    fn decide_by_settings<B: 'static>(
        self: &Arc<Self>,
        keys: &Result<Keys, Uncounted>,
        parts: &mut Parts,
    ) -> RateOutcome<L, R, B>
    where
        R: Reject<B>,
    {
        let keys = match keys {
            Ok(keys) => keys.as_slice(),
            Err(why) => return self.uncounted(*why, self.limiter.policies(), parts),
        };
        let tier = self.settings.tier_of(parts);
        let Some(Some((_, first))) = keys.first().filter(|_| !tier.is_unlimited()) else {
            return self.uncounted(Uncounted::Skip, self.limiter.policies(), parts);
        };
        let settings = &self.settings;
        let mut charges = FewCharges::filled(keys.len(), self.charge(first).tier(&tier));
        let class = settings.common.priority_of(parts);
        for (charge, (limit, key)) in charges.as_mut_slice().iter_mut().zip(keys.iter().flatten()) {
            charge.key = key;
            charge.limit = settings.has_several_limits.then_some(*limit);
            charge.class = settings.own_class_of(*limit, parts).unwrap_or(class);
        }
        let op = self.charge_op(settings.cost.as_ref().map_or(1, |cost| cost(parts)));
        let own = charges.as_mut_slice().iter_mut();
        own.for_each(|charge| charge.op = op);
        if let Some(spending) = settings.reserving() {
            spending.reserve(charges.as_mut_slice(), &[], parts);
        }
        self.decide_charge(self.request_of(charges.as_slice()), parts)
    }

    pub(super) fn request_of<'a>(&self, charges: &'a [Charge<'a>]) -> ChargeRequest<'a> {
        ChargeRequest {
            charges,
            started: self.responder.start(),
        }
    }

    /// Decides about a request, which waits behind earlier ones of its key. Compiled once: with more copies of it, the
    /// compiler inlines less of what most requests need.
    #[inline(never)]
    pub(super) fn decide_charge<B: 'static>(
        self: &Arc<Self>,
        charge: ChargeRequest<'_>,
        parts: &mut Parts,
    ) -> RateOutcome<L, R, B>
    where
        R: Reject<B>,
    {
        if self.may_queue(charge) {
            return self.defer(charge, None, parts);
        }
        let plain = self.path < Path::Full && self.settings.are_plain_for(charge.limits());
        self.decide_now(charge, plain, parts)
    }

    /// Requests the charge, and decides by the answer if it settles the request.
    #[inline(always)]
    pub(super) fn decide_now<B: 'static>(
        self: &Arc<Self>,
        charge: ChargeRequest<'_>,
        plain: bool,
        parts: &mut Parts,
    ) -> RateOutcome<L, R, B>
    where
        R: Reject<B>,
    {
        let mut answer = self.request_for(charge, plain);
        match &mut answer {
            Pending::Ready(Ok(decision)) if self.passes_plainly(plain, decision) => {
                RequestOutcome::Pass(ResponseWork::showing(decision, self))
            }
            Pending::Ready(Ok(decision)) if self.is_settled(plain, decision, charge) => {
                ResponseWork::admit(decision, charge, &DecisionTrace::DIRECT, self, parts)
            }
            _ => self.defer(charge, Some(answer), parts),
        }
    }

    /// Requests the charge, without numbers if nobody reads those of a request that passes.
    #[inline]
    pub(super) fn request_for(&self, charge: ChargeRequest<'_>, plain: bool) -> Pending<L::Future> {
        let wants = if plain && !self.responder.decorates() {
            Numbers::OfDenials
        } else {
            Numbers::All
        };
        self.limiter.call(&Call::of(charge.charges).wants(wants))
    }

    /// Decides about a request that the first answer does not settle, or that waits before its first
    /// charge.
    #[cold]
    #[inline(never)]
    pub(super) fn defer<B: 'static>(
        self: &Arc<Self>,
        charge: ChargeRequest<'_>,
        answer: Option<Pending<L::Future>>,
        parts: &mut Parts,
    ) -> RateOutcome<L, R, B>
    where
        R: Reject<B>,
    {
        let mut deferred = PendingDecision::new(charge);
        let next = match deferred.try_now(answer, self, charge) {
            NextStep::Done(answer) => {
                return self.admit(answer, charge, deferred.trace(), parts);
            }
            next => next,
        };
        let (admission, kept) = (Arc::clone(self), charge.keep());
        RequestOutcome::Defer(PendingOutcome {
            decision: Box::pin(async move {
                let answer = deferred.finish(next, &admission, &kept).await;
                (answer, kept, *deferred.trace())
            }),
            admission: Arc::clone(self),
        })
    }

    fn admit<B: 'static, D>(
        self: &Arc<Self>,
        answer: Result<Decision, LimiterError>,
        charge: ChargeRequest<'_>,
        trace: &DecisionTrace,
        parts: &mut Parts,
    ) -> RequestOutcome<ResponseWork<L, R>, B, D>
    where
        R: Reject<B>,
    {
        match answer {
            Ok(mut decision)
                if !self.responder.is_shadow()
                    && self.settings.lets_pass(&decision, charge.charges) =>
            {
                ResponseWork::overflow(&mut decision, charge, trace, self, parts)
            }
            Ok(mut decision) => ResponseWork::admit(&mut decision, charge, trace, self, parts),
            Err(error) => {
                let policies = self.policies(charge.charges);
                self.undecided(self.fail(&error, &policies), &policies, parts)
            }
        }
    }

    /// Passes or rejects a request that limits with these policies do not count.
    #[cold]
    pub fn uncounted<B: 'static>(
        &self,
        why: Uncounted,
        policies: &[Policy],
        parts: &mut Parts,
    ) -> RateOutcome<L, R, B>
    where
        R: Reject<B>,
    {
        self.undecided(self.responder.exempt(why, policies), policies, parts)
    }

    /// Rejects a request without a decision, or passes it if there is no rejection.
    fn undecided<B: 'static, D>(
        &self,
        rejection: Option<RejectionKind>,
        policies: &[Policy],
        parts: &mut Parts,
    ) -> RequestOutcome<ResponseWork<L, R>, B, D>
    where
        R: Reject<B>,
    {
        if let Some(kind) = rejection {
            return RequestOutcome::Reject(self.responder.refuse(parts, kind));
        }
        if self.settings.expose_decision {
            let decision = Decision::uncounted(OsClock::wall_now(), policies);
            let style = self.responder.style::<B>();
            handler_extensions::expose(&[], &decision, style, &mut parts.extensions);
        }
        RequestOutcome::Pass(ResponseWork::Nothing)
    }

    /// Whether earlier requests wait, which this one must perhaps not overtake.
    pub(super) fn may_queue(&self, charge: ChargeRequest<'_>) -> bool {
        let waiting = &self.settings.waiting;
        waiting.may_have_queue(charge) && charge.cost() > 0 && !self.responder.is_shadow()
    }

    #[inline]
    fn is_settled(&self, plain: bool, decision: &Decision, charge: ChargeRequest<'_>) -> bool {
        match decision.outcome() {
            Outcome::Allowed => true,
            Outcome::Delayed(wait) => wait.is_zero() || self.responder.is_shadow(),
            Outcome::Denied if plain => !self.overflows(),
            _ => !self.overflows() && !self.revises_denials(charge.limits()),
        }
    }

    /// Whether a request with this decision passes, and needs no work before it does: by the settings none if `plain`.
    #[inline]
    fn passes_plainly(&self, plain: bool, decision: &Decision) -> bool {
        plain && decision.passes_at_once() && !self.responder.diagnostics().is_active()
    }

    /// Checks one of a layer's first requests for signs of a wrong set-up.
    fn diagnose(&self, charge: ChargeRequest<'_>, parts: &mut Parts) {
        let diagnostics = self.responder.diagnostics();
        if !diagnostics.is_active() {
            return;
        }
        diagnostics.note_decided();
        if !diagnostics.checks_next() {
            return;
        }
        self.responder.check_for_proxy(parts);
        if charge.cost() > 0 {
            let (charges, extensions) = (charge.charges, &mut parts.extensions);
            diagnostics.check_for_second_charge(self.identity, charges, extensions);
        }
    }
}

impl<L: Limiter, R> PendingOutcome<L, R> {
    /// Completes the decision about the request with these parts.
    pub fn poll<B: 'static>(
        &mut self,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<FinalOutcome<ResponseWork<L, R>, B>>
    where
        R: Reject<B>,
    {
        let (answer, kept, trace) = ready!(self.decision.as_mut().poll(cx));
        let charges = kept.as_refs();
        let admitted = self
            .admission
            .admit(answer, kept.request(&charges), &trace, parts);
        Poll::Ready(admitted)
    }
}

#[allow(missing_debug_implementations, reason = "users only name it")]
#[derive(Default)]
#[allow(clippy::exhaustive_enums, reason = "hidden")]
#[doc(hidden)]
pub enum ResponseWork<L, R> {
    #[default]
    Nothing,
    /// Adds the fields of one quota with these numbers: the usual work.
    ShowNumbers(Arc<Admission<L, R>>, QuotaNumbers),
    /// Adds the fields of a decision. Boxed, because each move of a request would move it.
    Show(Arc<Admission<L, R>>, Box<Decision>),
    /// Charges what the response costs, and adds the fields.
    Settle(Box<Reservation<L, R>>),
}

impl<L: Limiter, R> ResponseWork<L, R> {
    /// Adds the fields of a decision that the response does not change; `Break` if it may change it.
    #[inline(always)]
    pub fn show<B>(&self, response: &mut Response<B>) -> ControlFlow<()> {
        match self {
            Self::ShowNumbers(admission, numbers) => {
                admission.responder.decorate_with(numbers, response);
            }
            Self::Show(admission, decision) => {
                admission.responder.decorate(decision, response);
            }
            Self::Nothing => {}
            Self::Settle(_) => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    /// Corrects the charge of a request by its response, unless the body does later.
    pub fn settle<B>(&mut self, response: &mut Response<B>) -> Option<Correcting<L, R>> {
        match mem::take(self) {
            Self::Settle(reservation) if reservation.follows_body(response) => {
                *self = Self::Settle(reservation);
                None
            }
            Self::Settle(reservation) => reservation.settle(response),
            _ => None,
        }
    }

    /// The reservation of a response whose body determines the charge.
    pub(crate) fn take_reservation(&mut self) -> Option<Box<Reservation<L, R>>> {
        match mem::take(self) {
            Self::Settle(reservation) => Some(reservation),
            _ => None,
        }
    }

    /// Admits a request by its decision. Returns the work of its response, or the response of a request
    /// that does not pass. Takes the decision out if the response needs it.
    #[inline(never)]
    fn admit<B: 'static, D>(
        decision: &mut Decision,
        charge: ChargeRequest<'_>,
        trace: &DecisionTrace,
        admission: &Arc<Admission<L, R>>,
        parts: &mut Parts,
    ) -> RequestOutcome<Self, B, D>
    where
        R: Reject<B>,
    {
        admission.diagnose(charge, parts);
        if !admission.passes(decision, charge, trace) {
            return RequestOutcome::Reject(admission.responder.deny(parts, decision));
        }
        if admission.settings.expose_decision {
            let (charges, style) = (charge.charges, admission.responder.style::<B>());
            handler_extensions::expose(charges, decision, style, &mut parts.extensions);
        }
        let settling = Self::settling(decision, charge, trace, admission, parts);
        RequestOutcome::Pass(settling.unwrap_or_else(|| Self::showing(decision, admission)))
    }

    /// The charge that the response of a request which passes corrects, in whatever way it passes; `None` if there is
    /// none.
    #[inline(never)]
    fn settling(
        decision: &mut Decision,
        charge: ChargeRequest<'_>,
        trace: &DecisionTrace,
        admission: &Arc<Admission<L, R>>,
        parts: &mut Parts,
    ) -> Option<Self>
    where
        R: Send + Sync + 'static,
    {
        // A denied request that passes, by a layer in shadow mode or as overflow, was not charged.
        if !admission.settings.corrects(charge.limits()) || decision.is_denied() {
            return None;
        }
        let (decision, exceeds) = (decision.move_out(), trace.exceeds);
        let mut reservation = Reservation::new(admission, decision, charge, exceeds);
        reservation.follow_body(parts);
        Some(Self::Settle(Box::new(reservation)))
    }

    /// Passes a request despite a denial, which the inner service finds in the request. Its response has the fields of
    /// the denial, without the wait: the inner service may set one.
    #[cold]
    fn overflow<B: 'static, D>(
        decision: &mut Decision,
        charge: ChargeRequest<'_>,
        trace: &DecisionTrace,
        admission: &Arc<Admission<L, R>>,
        parts: &mut Parts,
    ) -> RequestOutcome<Self, B, D>
    where
        R: Reject<B>,
    {
        admission.diagnose(charge, parts);
        let responder = &admission.responder;
        responder.observe(|| Event::Overflowed(admission.decided(decision, charge, trace)));
        responder.lengthen(decision);
        (admission.settings).mark(decision, charge.charges, &mut parts.headers);
        decision.set_overflow();
        let (charges, style) = (charge.charges, responder.style::<B>());
        handler_extensions::expose(charges, decision, style, &mut parts.extensions);
        // Limits of other rules may have charged it.
        let settling = Self::settling(decision, charge, trace, admission, parts);
        RequestOutcome::Pass(settling.unwrap_or_else(|| {
            let mut passing = decision.move_out().into_passing();
            Self::showing(&mut passing, admission)
        }))
    }

    /// Adds the fields of a decision to the response, if the layer adds any.
    #[inline(always)]
    fn showing(decision: &mut Decision, admission: &Arc<Admission<L, R>>) -> Self {
        let responder = &admission.responder;
        if !responder.decorates() {
            return Self::Nothing;
        }
        let admission = Arc::clone(admission);
        match responder.numbers(decision) {
            Some(numbers) => Self::ShowNumbers(admission, numbers),
            None => Self::Show(admission, Box::new(decision.move_out())),
        }
    }
}
