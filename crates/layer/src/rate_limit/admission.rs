//! What a layer decides with: its limiter, its settings and what it reports. `decide.rs` charges a request by it.

use std::{
    borrow::Cow,
    iter,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    request_charges::{ChargeRequest, DecisionTrace},
    settings::Settings,
};
use crate::{
    middleware::{responder::Responder, setup_diagnostics::Diagnostics},
    observe::event::{Corrected, Decided, Event},
};
use tower_ratelimit_core::{
    clock::OsClock,
    decision::{Decision, Op, Policy},
    error::LimiterError,
    limiter::{
        call::{Charge, OpRef},
        limiter::Limiter,
    },
    reject::rejection::RejectionKind,
};

/// Decides about requests; independent of tower. Shared by all services and clones of one layer.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct Admission<L, R> {
    pub(super) limiter: Arc<L>,
    pub(super) settings: Settings,
    #[doc(hidden)]
    pub responder: Responder<R>,
    pub(super) path: Path,
    /// Whether requests are charged by [`Op::Reserve`], since another operation may follow.
    pub(super) reserves: AtomicBool,
    /// Whether denials and responses may start a block in the limiter.
    blocks: bool,
    /// By it a layer detects that a request was charged already.
    pub(super) identity: usize,
}

/// The way of requests through a layer, chosen when the layer is built: the shortest that its settings allow. On all but
/// the last an allowed request needs no work by the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Path {
    /// Requests are charged before they are taken apart: the extractor alone finds keys, and the limiter answers at once.
    Early,
    /// The extractor alone finds keys.
    Key,
    /// Keys are found by lists, a switch or rules, or requests have classes.
    Keys,
    /// The settings choose tiers or costs, or an allowed request is reported, kept or corrected.
    Full,
}

impl Path {
    fn of<R>(settings: &Settings, responder: &Responder<R>, charges: bool) -> Self {
        let finds = responder.common.key_rules.are_any() || settings.common.priority.is_some();
        match (settings.are_plain(), finds) {
            (false, _) => Self::Full,
            (true, true) => Self::Keys,
            (true, false) if charges => Self::Early,
            (true, false) => Self::Key,
        }
    }
}

impl<L: Limiter, R> Admission<L, R> {
    pub(super) fn new(limiter: Arc<L>, responder: Responder<R>, settings: Settings) -> Self {
        let is_shadow = responder.is_shadow();
        // An overflowed request starts no block, so it is reserved as well.
        let revises = settings.elastic.is_some() || settings.waiting.is_enabled();
        let corrects = settings.corrects(iter::empty());
        let may_continue = corrects
            || !settings.limits.is_empty()
            || ((revises || settings.overflow) && !is_shadow);
        let facts = limiter.facts();
        let own = || Arc::as_ptr(&limiter).addr();
        let admission = Self {
            path: Path::of(&settings, &responder, facts.answers_at_once),
            reserves: AtomicBool::new(may_continue && facts.supports(&Op::Reserve(1))),
            blocks: facts.blocks,
            identity: facts.identity.unwrap_or_else(own),
            responder,
            limiter,
            settings,
        };
        let receipt = corrects.then(|| admission.unmeasured(&[]).receipt());
        let exceeds = admission.settings.elastic.is_some();
        let has_quota = admission.settings.quota.is_some();
        let diagnostics = admission.responder.diagnostics();
        diagnostics.report_unsupported(&*admission.limiter, receipt, exceeds, has_quota);
        if admission.settings.spending.is_none() && !admission.settings.spends.is_empty() {
            Diagnostics::report_unspent();
        }
        admission
    }

    /// Reports a request that a limiter with these policies failed to decide. Returns its rejection; `None` if it
    /// passes.
    pub fn fail(&self, error: &LimiterError, policies: &[Policy]) -> Option<RejectionKind> {
        self.responder.diagnostics().report_undecided(error);
        self.responder.undecided(error, policies)
    }

    /// Whether a request with these parts passes uncounted.
    #[cfg(feature = "mcp")]
    pub(crate) fn skips(&self, parts: &http::request::Parts) -> bool {
        use crate::middleware::settings::Uncounted::Skip;
        matches!(self.responder.common.key_rules.keys_of(parts), Err(Skip))
            || self.settings.tier_of(parts).is_unlimited()
    }

    /// The operation that charges a request this cost.
    #[inline]
    pub(super) fn charge_op(&self, cost: u64) -> OpRef<'static> {
        if self.reserves.load(Ordering::Relaxed) {
            OpRef::Reserve(cost)
        } else {
            OpRef::Acquire(cost)
        }
    }

    /// The policies of these charges.
    pub(super) fn policies(&self, charges: &[Charge<'_>]) -> Cow<'_, [Policy]> {
        if self.settings.limits.is_empty() {
            return Cow::Borrowed(self.limiter.policies());
        }
        Cow::Owned(self.settings.policies(charges).into_vec())
    }

    /// A decision that reports the policies alone.
    pub(super) fn unmeasured(&self, charges: &[Charge<'_>]) -> Decision {
        Decision::uncounted(OsClock::wall_now(), &self.policies(charges))
    }

    /// Reports a decision, and returns whether its request passes. Adds the jitter to a denial.
    pub(super) fn passes(
        &self,
        decision: &mut Decision,
        charge: ChargeRequest<'_>,
        trace: &DecisionTrace,
    ) -> bool {
        if self.responder.is_observed() {
            self.report_decided(decision, charge, trace);
        }
        if decision.is_allowed() || self.responder.is_shadow() {
            return true;
        }
        self.responder.lengthen(decision);
        false
    }

    // Not inlined, because most layers have no observer.
    #[inline(never)]
    fn report_decided(
        &self,
        decision: &Decision,
        charge: ChargeRequest<'_>,
        trace: &DecisionTrace,
    ) {
        self.responder
            .decided(|| self.decided(decision, charge, trace));
    }

    #[inline]
    pub(super) fn decided<'a>(
        &self,
        decision: &'a Decision,
        charge: ChargeRequest<'a>,
        trace: &DecisionTrace,
    ) -> Decided<'a> {
        let decided = Decided::now(decision, charge.charges, charge.started);
        Decided {
            latency: trace.latency.unwrap_or(decided.latency),
            waited: trace.waited,
            provisional: self.settings.corrects(charge.limits()) && decision.is_allowed(),
            ..decided
        }
    }
}

impl<L, R> Admission<L, R> {
    /// Whether a denied request of these limits may wait or exceed them.
    #[inline]
    pub(super) fn revises_denials(&self, limits: impl Iterator<Item = usize>) -> bool {
        self.settings.revises_denials(limits) && !self.responder.is_shadow()
    }

    /// Whether all denied requests pass to the inner service.
    pub(super) const fn overflows(&self) -> bool {
        self.settings.overflow && !self.responder.is_shadow()
    }

    /// Whether denials and responses of these limits may start a block.
    pub(super) fn blocks(&self, limits: impl Iterator<Item = usize>) -> bool {
        if self.settings.limits.is_empty() {
            return self.blocks;
        }
        self.settings.blocks(limits)
    }

    /// Reports the final charge of a request, or an error if it could not be corrected.
    pub(super) fn report_corrected(&self, corrected: Corrected<'_>) {
        match corrected.error {
            Some(error) => self.responder.diagnostics().report_uncorrected(error),
            None => self.responder.diagnostics().note_corrected(),
        }
        self.responder.observe(|| Event::Corrected(corrected));
    }
}
