//! The admission of a layer: limiter, settings and reports. It is independent of tower.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Extensions, request::Parts, response};

#[cfg(feature = "rules")]
use super::settings::EndOfCharges;
use super::{
    charge_request::{ChargeRequestRef, DecisionTrace},
    decisions_for_handlers,
    settings::{FinalCost, Settings},
    spending::Spending,
    waiting::Waiting,
    warnings::LimiterWarnings,
};
use crate::{
    clock::OsClock,
    decision::{Decision, Op, Outcome},
    error::LimiterError,
    key::Key,
    limiter::{Limiter, Pending},
    middleware::{key_extraction::KeyStage, key_extraction_rules::Uncounted, responder::Responder},
    observe::{Corrected, Decided, Event},
    reject::{Reject, RejectionKind},
};

/// Decides about requests; independent of tower. Shared by all services and clones of one layer.
pub(crate) struct Admission<L, R> {
    limiter: Arc<L>,
    settings: Settings,
    key_stage: KeyStage<R>,
    /// Whether an allowed request needs no work by the settings.
    plain: bool,
    /// Whether it is plain, and the extractor alone finds keys.
    extracts_alone: bool,
    /// Whether that is so, except that requests have classes.
    extracts_class: bool,
    /// Whether requests are charged by [`Op::Reserve`], since another operation may follow.
    reserves: AtomicBool,
    /// Whether denials and responses may start a block in the limiter.
    blocks: bool,
    /// Whether denied requests pass to the inner service.
    overflows: bool,
    /// Whether the limiter's first denial decides a request.
    settles_denials: bool,
    warnings: LimiterWarnings,
}

impl<L: Limiter, R> Admission<L, R> {
    pub(super) fn new(limiter: Arc<L>, rejection: Arc<R>, mut settings: Settings) -> Self {
        let key_stage = KeyStage::new(&settings.common, rejection, limiter.policies());
        if settings.waiting.is_enabled() {
            settings.waiting.separate_epochs(&limiter);
        }
        let revises = settings.revises_denials() && !key_stage.responder().is_shadow();
        let overflows = settings.overflow.is_always() && !key_stage.responder().is_shadow();
        // An overflowed request starts no block, so it is reserved as well.
        let may_continue = revises || overflows || settings.final_cost.is_some();
        let extracts_alone = settings.are_plain() && !key_stage.has_rules();
        let admission = Self {
            reserves: AtomicBool::new(may_continue && limiter.supports(&Op::Reserve(1))),
            blocks: limiter.blocks(),
            overflows,
            settles_denials: !revises && !overflows,
            plain: settings.are_plain(),
            extracts_alone: extracts_alone && settings.common.priority.is_none(),
            extracts_class: extracts_alone && settings.common.priority.is_some(),
            warnings: LimiterWarnings::new(),
            key_stage,
            limiter,
            settings,
        };
        let receipt = admission
            .corrects()
            .then(|| admission.unmeasured().receipt());
        let exceeds = admission.settings.elastic.is_some();
        let has_quota = admission.settings.quota.is_some();
        (admission.warnings).report_unsupported(&*admission.limiter, receipt, exceeds, has_quota);
        if admission.spending().is_none() && !admission.settings.spends.is_empty() {
            admission.warnings.report_unspent();
        }
        admission
    }

    /// Reports a request that is not counted. Returns its rejection; `None` if it passes.
    pub(super) fn exempt(&self, why: Uncounted) -> Option<RejectionKind> {
        self.key_stage.exempt(why, self.limiter.policies())
    }

    /// Reports a request that the limiter failed to decide. Returns its rejection; `None` if it
    /// passes.
    pub(super) fn fail(&self, error: &LimiterError) -> Option<RejectionKind> {
        let diagnostics = self.key_stage.diagnostics();
        self.warnings.report_undecided(error, diagnostics);
        self.key_stage.undecided(error, self.limiter.policies())
    }

    /// Requests the charge of a request for the first time.
    #[inline]
    pub(super) fn request(&self, charge: ChargeRequestRef<'_>) -> Pending<L::Future> {
        self.apply(charge, self.charge_op(charge.cost))
    }

    /// The operation that charges a request.
    #[inline]
    pub(super) fn charge_op(&self, cost: u64) -> Op {
        if self.reserves.load(Ordering::Relaxed) {
            Op::Reserve(cost)
        } else {
            Op::Acquire(cost)
        }
    }

    #[inline]
    pub(super) fn apply(&self, charge: ChargeRequestRef<'_>, op: Op) -> Pending<L::Future> {
        self.limiter.apply_in(charge.tier, charge.key, op)
    }

    /// Applies the operation of a request whose wait has ended `late` ago.
    pub(super) fn apply_late(
        &self,
        charge: ChargeRequestRef<'_>,
        op: Op,
        late: Duration,
    ) -> Pending<L::Future> {
        (self.limiter).apply_late(charge.tier, charge.key, &[op], late)
    }

    /// Applies an operation to each of several limits.
    pub(super) fn apply_each(
        &self,
        charge: ChargeRequestRef<'_>,
        ops: &[Op],
    ) -> Pending<L::Future> {
        self.limiter.apply_each(charge.tier, charge.key, ops)
    }

    /// Whether earlier requests of this key may wait, which this one must not overtake.
    pub(super) fn may_queue(&self, charge: ChargeRequestRef<'_>) -> bool {
        let waiting = &self.settings.waiting;
        waiting.may_have_queue(charge.key) && charge.cost > 0 && !self.responder().is_shadow()
    }

    /// Whether this decision is final.
    #[inline]
    pub(super) fn is_settled(&self, decision: &Decision) -> bool {
        match decision.outcome() {
            Outcome::Allowed => true,
            Outcome::Delayed(wait) => wait.is_zero() || self.responder().is_shadow(),
            Outcome::Denied => self.settles_denials,
        }
    }

    /// Charges requests by [`Op::Acquire`] from now on, since the limiter supports no other operation.
    pub(super) fn stop_reserving(&self) {
        self.reserves.store(false, Ordering::Relaxed);
    }

    /// Whether other operations may follow the charge of a request.
    pub(super) fn may_continue(&self) -> bool {
        self.revises_denials() || self.overflows || self.corrects()
    }

    /// Whether a denied request may wait or exceed the limit.
    pub(super) fn revises_denials(&self) -> bool {
        self.settings.revises_denials() && !self.responder().is_shadow()
    }

    /// Whether the limiter gets final denials, which may start a block.
    pub(super) fn reports_denials(&self) -> bool {
        let may_block = self.blocks && !self.overflows && !self.corrects();
        may_block && self.reserves.load(Ordering::Relaxed)
    }

    /// Whether the limiter gets all responses that count, which may start a block.
    pub(super) const fn blocks(&self) -> bool {
        self.blocks
    }

    /// Whether the elastic layer allows one request beyond the limit now.
    pub(super) fn allows_excess(&self) -> bool {
        let elastic = self.settings.elastic.as_ref();
        elastic.is_some_and(|allows| allows())
    }

    pub(super) const fn waiting(&self) -> &Waiting {
        &self.settings.waiting
    }

    /// A decision that reports the policies alone.
    pub(super) fn unmeasured(&self) -> Decision {
        Decision::uncounted(OsClock::wall_now(), self.limiter.policies())
    }

    /// Checks one of a layer's first requests for signs of a wrong set-up.
    pub(super) fn diagnose(&self, charge: ChargeRequestRef<'_>, parts: &mut Parts) {
        let diagnostics = self.key_stage.diagnostics();
        if !diagnostics.is_active() {
            return;
        }
        diagnostics.note_decided();
        if !diagnostics.checks_next() {
            return;
        }
        self.key_stage.check_for_proxy(parts);
        if charge.cost > 0 {
            let own = || Arc::as_ptr(&self.limiter).addr();
            let identity = self.limiter.identity().unwrap_or_else(own);
            diagnostics.check_for_second_charge(identity, charge.key, &mut parts.extensions);
        }
    }

    /// Whether a request with this decision passes, and needs no work before it does. `plain` is that of
    /// the admission, which most callers know.
    #[inline]
    pub(super) fn passes_plainly(&self, plain: bool, decision: &Decision) -> bool {
        let is_allowed = decision.outcome() == Outcome::Allowed;
        plain && is_allowed && !self.key_stage.diagnostics().is_active()
    }

    /// Reports a decision, and returns whether its request passes. Adds the jitter to a denial.
    pub(super) fn passes(
        &self,
        decision: &mut Decision,
        charge: ChargeRequestRef<'_>,
        trace: &DecisionTrace,
    ) -> bool {
        if self.responder().is_observed() {
            self.report_decided(decision, charge, trace);
        }
        if decision.is_allowed() || self.responder().is_shadow() {
            return true;
        }
        self.responder().lengthen(decision);
        false
    }

    // Not inlined, because most layers have no observer.
    #[inline(never)]
    fn report_decided(
        &self,
        decision: &Decision,
        charge: ChargeRequestRef<'_>,
        trace: &DecisionTrace,
    ) {
        self.responder()
            .decided(|| self.decided(decision, charge, trace));
    }

    /// A decision, for the observer.
    #[inline]
    fn decided<'a>(
        &self,
        decision: &'a Decision,
        charge: ChargeRequestRef<'a>,
        trace: &DecisionTrace,
    ) -> Decided<'a> {
        let decided = Decided::now(decision, charge.key, charge.cost, charge.started);
        Decided {
            latency: trace.latency.unwrap_or(decided.latency),
            waited: trace.waited,
            provisional: self.corrects() && decision.is_allowed(),
            ..decided
        }
    }

    /// Whether a request with this decision passes despite a denial.
    pub(super) fn lets_overflow(&self, decision: &Decision) -> bool {
        !self.responder().is_shadow() && self.settings.overflow.lets_pass(decision)
    }

    /// Reports a request that passes despite a denial, which the inner service finds in the request. Adds the jitter to
    /// the denial.
    pub(super) fn overflow<B: 'static>(
        &self,
        decision: &mut Decision,
        charge: ChargeRequestRef<'_>,
        trace: &DecisionTrace,
        parts: &mut Parts,
    ) where
        R: Reject<B>,
    {
        let decided = || self.decided(decision, charge, trace);
        self.responder().observe(|| Event::Overflowed(decided()));
        self.responder().lengthen(decision);
        self.settings.overflow.mark(decision, &mut parts.headers);
        decision.set_overflow();
        let style = self.responder().style::<B>();
        decisions_for_handlers::expose(Some(charge.key), decision, style, &mut parts.extensions);
    }

    /// Adds a decision to the request's extensions, for handlers.
    pub(super) fn expose<B: 'static>(&self, key: &Key, decision: &Decision, to: &mut Extensions)
    where
        R: Reject<B>,
    {
        if self.settings.expose_decision {
            decisions_for_handlers::expose(Some(key), decision, self.responder().style::<B>(), to);
        }
    }

    /// Adds a decision that is not counted to the extensions of an exempt request.
    pub(super) fn expose_exemption<B: 'static>(&self, to: &mut Extensions)
    where
        R: Reject<B>,
    {
        if self.settings.expose_decision {
            decisions_for_handlers::expose(
                None,
                &self.unmeasured(),
                self.responder().style::<B>(),
                to,
            );
        }
    }

    /// The cost of a request by its response, if `units` were reserved.
    pub(super) fn final_cost(&self, response: &response::Parts, units: u64) -> u64 {
        let final_cost = self.settings.final_cost.as_ref();
        final_cost.map_or(units, |final_cost| final_cost.of_all(response, units))
    }

    /// The settlement of several limits by this response; `None` if all limits settle alike, or nothing
    /// changes.
    #[cfg(feature = "rules")]
    pub(super) fn settlement(
        &self,
        response: &response::Parts,
        decision: &Decision,
    ) -> Option<EndOfCharges> {
        let final_cost = self.settings.final_cost.as_ref()?;
        final_cost.of_each(response, decision, self.blocks)
    }
}

impl<L, R> Admission<L, R> {
    #[inline]
    pub(super) const fn key_stage(&self) -> &KeyStage<R> {
        &self.key_stage
    }

    pub(super) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether an allowed request needs no work by the settings.
    #[inline]
    pub(super) const fn is_plain(&self) -> bool {
        self.plain
    }

    /// Whether it is plain, and the extractor alone finds keys.
    #[inline]
    pub(super) const fn extracts_alone(&self) -> bool {
        self.extracts_alone
    }

    /// Whether it is plain, the extractor alone finds keys, and requests have classes.
    pub(super) const fn extracts_class(&self) -> bool {
        self.extracts_class
    }

    #[inline]
    pub(super) const fn responder(&self) -> &Responder<R> {
        self.key_stage.responder()
    }

    /// Whether a response may correct the charge of its request.
    #[inline]
    pub(super) const fn corrects(&self) -> bool {
        self.settings.final_cost.is_some()
    }

    /// Reports the charge of a request before its response and after, and the units that each quota kept if they
    /// differ.
    pub(super) fn report_corrected(
        &self,
        decision: &Decision,
        charge: ChargeRequestRef<'_>,
        (before, after): (u64, u64),
        kept_by_each: &[u64],
    ) {
        self.warnings.note_corrected();
        self.responder().observe(|| {
            Event::Corrected(Corrected {
                decision,
                key: charge.key,
                before,
                after,
                kept_by_each,
                spent: None,
                error: None,
            })
        });
    }

    pub(super) const fn warnings(&self) -> &LimiterWarnings {
        &self.warnings
    }

    /// The settings of charges that follow the response's body.
    pub(super) const fn spending(&self) -> Option<&Arc<Spending>> {
        match &self.settings.final_cost {
            Some(FinalCost::ByBody(spending)) => Some(spending),
            _ => None,
        }
    }

    /// Reports a charge that stays, since its correction failed.
    pub(super) fn report_uncorrected(
        &self,
        decision: &Decision,
        charge: ChargeRequestRef<'_>,
        charged: u64,
        error: &LimiterError,
    ) {
        self.warnings.report_uncorrected(error);
        self.responder().observe(|| {
            Event::Corrected(Corrected {
                decision,
                key: charge.key,
                before: charged,
                after: charged,
                kept_by_each: &[],
                spent: None,
                error: Some(error),
            })
        });
    }
}
