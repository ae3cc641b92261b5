//! The admission: where a layer decides about requests, apart from everything tower.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::{Extensions, request::Parts, response};

use super::{
    decisions,
    demand::{Course, Demand, DemandRef},
    faults::Faults,
    settings::{FinalCost, Settings},
    wait::WaitingRoom,
};
#[cfg(feature = "rules")]
use crate::decision::{ChargeEnd, Receipt};
use crate::{
    clock::{Clock, OsClock},
    decision::{Decision, Op, Outcome},
    error::LimiterError,
    key::Key,
    limiter::{Limiter, Pending, Tier},
    middleware::{
        front::{Exempt, Front},
        key_rules::{NotCounted, OtherKey},
        responder::Responder,
    },
    observe::{Corrected, Decided, Event},
    reject::Reject,
};

/// Where requests are decided about, apart from everything tower: one for all services of a layer
/// and their clones.
pub(super) struct Admission<L, R> {
    limiter: Arc<L>,
    settings: Settings,
    front: Front<R>,
    /// Whether the settings leave nothing to be looked at in a request that is allowed.
    plain: bool,
    /// Whether a request is asked about by [`Op::Reserve`], since something else may follow.
    reserves: AtomicBool,
    /// Whether the limiter has to be told of denials and responses that may start a block.
    blocks: bool,
    faults: Faults,
}

/// Why the limiter is not asked about a request at once.
pub(super) enum Unasked {
    Exempt(Exempt),
    /// Others may stand in line before it.
    InLine(Demand),
}

/// A request that the limiter's first answer does not settle, or that was not asked about yet.
pub(super) struct Unsettled<F> {
    pub(super) demand: Demand,
    pub(super) answer: Option<Pending<F>>,
}

impl<F> Unsettled<F> {
    #[cold]
    pub(super) fn new(demand: DemandRef<'_>, answer: Pending<F>) -> Self {
        Self {
            demand: demand.keep(),
            answer: Some(answer),
        }
    }
}

impl<L: Limiter, R> Admission<L, R> {
    pub(super) fn new(limiter: Arc<L>, rejection: Arc<R>, mut settings: Settings) -> Self {
        let front = Front::new(&settings.front, rejection, limiter.policies());
        if settings.waiting_room.is_open() {
            settings.waiting_room.keep_epochs_apart(&limiter);
        }
        let bends = settings.bends() && !front.responder().is_shadow();
        let asks_more = bends || settings.final_cost.is_some();
        let admission = Self {
            reserves: AtomicBool::new(asks_more && limiter.supports(&Op::Reserve(1))),
            blocks: limiter.blocks(),
            plain: settings.are_plain(),
            faults: Faults::new(),
            front,
            limiter,
            settings,
        };
        let receipt = admission
            .corrects()
            .then(|| admission.unmeasured().receipt());
        let exceeds = admission.settings.elastic.is_some();
        let brings_quota = admission.settings.quota.is_some();
        (admission.faults).report_missing(&*admission.limiter, receipt, exceeds, brings_quota);
        admission
    }

    /// Why the limiter is not asked about a request, if that is certain whatever its key is.
    #[inline]
    pub(super) fn exempts(&self, parts: &Parts) -> Option<Unasked> {
        let why = self.front.exempts(parts)?;
        Some(self.exempt(why))
    }

    #[inline]
    pub(super) fn extract(&self, parts: &Parts) -> Result<Key, OtherKey> {
        self.front.extract(parts)
    }

    /// The key of a request of which the extractor said this.
    #[inline]
    pub(super) fn key_of<'a>(
        &'a self,
        extracted: &'a Result<Key, OtherKey>,
    ) -> Result<&'a Key, Unasked> {
        let key = self.front.key_of(extracted);
        key.map_err(|why| self.exempt(why))
    }

    /// Completes the usual demand of a request by the settings, or says why the limiter is not asked;
    /// `place` is where its tier is kept.
    #[inline]
    pub(super) fn complete<'a>(
        &self,
        demand: &mut DemandRef<'a>,
        place: &'a mut Option<Tier>,
        parts: &Parts,
    ) -> Option<Unasked> {
        (!self.plain).then(|| self.complete_by_settings(demand, place, parts))?
    }

    #[inline(never)]
    fn complete_by_settings<'a>(
        &self,
        demand: &mut DemandRef<'a>,
        place: &'a mut Option<Tier>,
        parts: &Parts,
    ) -> Option<Unasked> {
        demand.tier = place.insert(self.settings.tier_of(parts));
        if demand.tier.is_unlimited() {
            return Some(self.exempt(NotCounted::Skip));
        }
        demand.cost = self.settings.cost_of(parts);
        demand.asked_at = self.responder().start();
        self.may_stand(*demand)
            .then(|| Unasked::InLine(demand.keep()))
    }

    #[cold]
    pub(super) fn exempt(&self, why: NotCounted) -> Unasked {
        Unasked::Exempt(self.front.exempt(why, self.limiter.policies()))
    }

    /// Asks the limiter about a request for the first time.
    #[inline]
    pub(super) fn ask(&self, demand: DemandRef<'_>) -> Pending<L::Future> {
        self.apply(demand, self.opening(demand.cost))
    }

    /// The operation that every request begins with.
    #[inline]
    pub(super) fn opening(&self, cost: u64) -> Op {
        if self.reserves.load(Ordering::Relaxed) {
            Op::Reserve(cost)
        } else {
            Op::Acquire(cost)
        }
    }

    #[inline]
    pub(super) fn apply(&self, demand: DemandRef<'_>, op: Op) -> Pending<L::Future> {
        self.limiter.apply_in(demand.tier, demand.key, op)
    }

    /// Whether others of this request's key may stand in line, behind whom it belongs.
    pub(super) fn may_stand(&self, demand: DemandRef<'_>) -> bool {
        let room = &self.settings.waiting_room;
        room.may_have_line(demand.key) && demand.cost > 0 && !self.responder().is_shadow()
    }

    /// Whether nothing more is to be tried after this answer.
    #[inline]
    pub(super) fn is_settled(&self, decision: &Decision) -> bool {
        match decision.outcome() {
            Outcome::Allowed => true,
            Outcome::Delayed(wait) => wait.is_zero() || self.responder().is_shadow(),
            Outcome::Denied => !self.bends(),
        }
    }

    /// The decision about a request whose trial is over, or its fate without one.
    pub(super) fn judge(&self, answer: Result<Decision, LimiterError>) -> Result<Decision, Exempt> {
        answer.map_err(|error| {
            self.faults.report_undecided(&error, self.front.lookout());
            self.front.undecided(&error, self.limiter.policies())
        })
    }

    /// Asks the limiter to take units at once from now on, since it knows no reservations.
    pub(super) fn give_reserving_up(&self) {
        self.reserves.store(false, Ordering::Relaxed);
    }

    /// Whether something may follow the first question about a request.
    pub(super) fn asks_more(&self) -> bool {
        self.bends() || self.corrects()
    }

    /// Whether a denial may turn into something else.
    pub(super) fn bends(&self) -> bool {
        self.settings.bends() && !self.responder().is_shadow()
    }

    /// Whether the limiter has to be told that a request was denied in the end.
    pub(super) fn blocks_on_denial(&self) -> bool {
        self.blocks && !self.corrects() && self.reserves.load(Ordering::Relaxed)
    }

    /// Whether the limiter has to be told of a response that costs what was reserved for it.
    pub(super) const fn blocks(&self) -> bool {
        self.blocks
    }

    /// Whether the service has room for one more than the limit allows.
    pub(super) fn probe(&self) -> bool {
        let elastic = self.settings.elastic.as_ref();
        elastic.is_some_and(|passes| passes())
    }

    pub(super) const fn room(&self) -> &WaitingRoom {
        &self.settings.waiting_room
    }

    /// A decision that says nothing but the policies.
    pub(super) fn unmeasured(&self) -> Decision {
        Decision::uncounted(OsClock::new().now(), self.limiter.policies())
    }

    /// Looks, with a layer's first requests, for what is not as somebody meant it.
    pub(super) fn look(&self, demand: DemandRef<'_>, parts: &mut Parts) {
        let lookout = self.front.lookout();
        if !lookout.is_alert() {
            return;
        }
        lookout.note_decided();
        if !lookout.takes_one() {
            return;
        }
        self.front.look_for_proxy(parts);
        if demand.cost > 0 {
            let own = || Arc::as_ptr(&self.limiter).addr();
            let identity = self.limiter.identity().unwrap_or_else(own);
            lookout.look_for_charge(identity, demand.key, &mut parts.extensions);
        }
    }

    /// Whether all that is to be done for a request that was decided about is to let it pass.
    #[inline]
    pub(super) fn just_passes(&self, decision: &Decision) -> bool {
        let is_free = decision.outcome() == Outcome::Allowed;
        self.plain && is_free && !self.front.lookout().is_alert()
    }

    /// Whether a request that was decided about passes.
    pub(super) fn passes(
        &self,
        decision: &mut Decision,
        demand: DemandRef<'_>,
        course: &Course,
    ) -> bool {
        if self.responder().is_observed() {
            self.tell(decision, demand, course);
        }
        if decision.is_allowed() || self.responder().is_shadow() {
            return true;
        }
        self.responder().lengthen(decision);
        false
    }

    /// Tells the observer of a decision; out of line, because most layers have none.
    #[inline(never)]
    fn tell(&self, decision: &Decision, demand: DemandRef<'_>, course: &Course) {
        self.responder().decided(|| {
            let decided = Decided::now(decision, demand.key, demand.cost, demand.asked_at);
            Decided {
                latency: course.latency.unwrap_or(decided.latency),
                waited: course.waited,
                provisional: self.corrects() && decision.is_allowed(),
                ..decided
            }
        });
    }

    /// Puts a decision where handlers find it.
    pub(super) fn expose<B: 'static>(&self, key: &Key, decision: &Decision, to: &mut Extensions)
    where
        R: Reject<B>,
    {
        if self.settings.expose_decision {
            decisions::expose(Some(key), decision, self.responder().style::<B>(), to);
        }
    }

    /// The same for a request that no decision is about.
    pub(super) fn expose_exemption<B: 'static>(&self, to: &mut Extensions)
    where
        R: Reject<B>,
    {
        if self.settings.expose_decision {
            decisions::expose(None, &self.unmeasured(), self.responder().style::<B>(), to);
        }
    }

    /// The cost of a request with this response, for which `units` were reserved.
    pub(super) fn final_cost(&self, response: &response::Parts, units: u64) -> u64 {
        match &self.settings.final_cost {
            Some(FinalCost::Told(final_cost)) => final_cost(response, units),
            _ => units,
        }
    }

    /// The receipt for the settlement of each of several limits by this response, if that differs
    /// from one to the other and anything is given back or may start a block; and the units that
    /// are kept by those that keep any.
    #[cfg(feature = "rules")]
    pub(super) fn settlement(
        &self,
        response: &response::Parts,
        decision: &Decision,
    ) -> Option<(u64, Receipt)> {
        let Some(FinalCost::OfEach(settled)) = &self.settings.final_cost else {
            return None;
        };
        let receipt = decision.receipt();
        let count = receipt.of_each()?.len();
        let all = || (0..count).map(|at| settled(response, at));
        let given_back = |settled| settled == ChargeEnd::GivenBack;
        if !all().any(|settled| given_back(settled) || (self.blocks && settled == ChargeEnd::Kept))
        {
            return None;
        }
        let kept = if all().all(given_back) {
            0
        } else {
            decision.charged()
        };
        Some((kept, receipt.settled_each(|at| settled(response, at))))
    }
}

impl<L, R> Admission<L, R> {
    #[inline]
    pub(super) const fn responder(&self) -> &Responder<R> {
        self.front.responder()
    }

    /// Whether what a request was charged may change with its response.
    #[inline]
    pub(super) const fn corrects(&self) -> bool {
        self.settings.final_cost.is_some()
    }

    /// Tells what a request was charged before its response and after.
    pub(super) fn corrected(
        &self,
        decision: &Decision,
        demand: DemandRef<'_>,
        (before, after): (u64, u64),
    ) {
        self.faults.note_corrected();
        self.responder().observe(|| {
            Event::Corrected(Corrected {
                decision,
                key: demand.key,
                before,
                after,
                error: None,
            })
        });
    }

    /// Tells that what a request was charged stays as it is, though it should not.
    pub(super) fn correction_failed(
        &self,
        decision: &Decision,
        demand: DemandRef<'_>,
        charged: u64,
        error: &LimiterError,
    ) {
        self.faults.report_uncorrected(error);
        self.responder().observe(|| {
            Event::Corrected(Corrected {
                decision,
                key: demand.key,
                before: charged,
                after: charged,
                error: Some(error),
            })
        });
    }
}
