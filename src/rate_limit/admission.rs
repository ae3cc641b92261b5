//! The admission of a layer: limiter, settings and reports. It is independent of tower.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{
    charge_request::{ChargeRequestRef, DecisionTrace},
    settings::{FinalCost, Settings},
    spending::Spending,
    warnings::LimiterWarnings,
};
use crate::{
    clock::OsClock,
    decision::{Decision, Op},
    error::LimiterError,
    limiter::{Limiter, Pending},
    middleware::{key_extraction::KeyStage, responder::Responder},
    observe::{Corrected, Decided, Event},
    reject::RejectionKind,
};

/// Decides about requests; independent of tower. Shared by all services and clones of one layer.
pub(crate) struct Admission<L, R> {
    pub(super) limiter: Arc<L>,
    pub(super) settings: Settings,
    pub(super) key_stage: KeyStage<R>,
    /// Whether an allowed request needs no work by the settings.
    pub(super) plain: bool,
    /// Whether it is plain, and the extractor alone finds keys.
    pub(super) extracts_alone: bool,
    /// Whether that is so, except that requests have classes.
    pub(super) extracts_class: bool,
    /// Whether requests are charged by [`Op::Reserve`], since another operation may follow.
    pub(super) reserves: AtomicBool,
    /// Whether denials and responses may start a block in the limiter.
    pub(super) blocks: bool,
    /// Whether denied requests pass to the inner service.
    pub(super) overflows: bool,
    /// Whether the limiter's first denial decides a request.
    pub(super) settles_denials: bool,
    pub(super) warnings: LimiterWarnings,
}

impl<L: Limiter, R> Admission<L, R> {
    pub(super) fn new(limiter: Arc<L>, rejection: Arc<R>, settings: Settings) -> Self {
        let key_stage = KeyStage::new(&settings.common, rejection, limiter.policies());
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

    /// Whether a denied request may wait or exceed the limit.
    pub(super) fn revises_denials(&self) -> bool {
        self.settings.revises_denials() && !self.responder().is_shadow()
    }

    /// A decision that reports the policies alone.
    pub(super) fn unmeasured(&self) -> Decision {
        Decision::uncounted(OsClock::wall_now(), self.limiter.policies())
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
    pub(super) fn decided<'a>(
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
}

impl<L, R> Admission<L, R> {
    #[inline]
    pub(super) const fn responder(&self) -> &Responder<R> {
        self.key_stage.responder()
    }

    /// Whether a response may correct the charge of its request.
    #[inline]
    pub(super) const fn corrects(&self) -> bool {
        self.settings.final_cost.is_some()
    }

    /// Reports the final charge of a request, or an error if it could not be corrected.
    pub(super) fn report_corrected(&self, corrected: Corrected<'_>) {
        match corrected.error {
            Some(error) => self.warnings.report_uncorrected(error),
            None => self.warnings.note_corrected(),
        }
        self.responder().observe(|| Event::Corrected(corrected));
    }

    /// The settings of charges that follow the response's body.
    pub(super) const fn spending(&self) -> Option<&Arc<Spending>> {
        match &self.settings.final_cost {
            Some(FinalCost::ByBody(spending)) => Some(spending),
            _ => None,
        }
    }
}
