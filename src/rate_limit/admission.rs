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
    settings::Settings,
    trial::{Asked, Next, Trial},
    wait::WaitingRoom,
};
use crate::{
    clock::{Clock, OsClock},
    decision::Decision,
    decision::Op,
    error::{KeyError, LimiterError},
    key::Key,
    limiter::{Limiter, Pending, Tier},
    middleware::{key_rules::NotCounted, responder::Responder},
    observe::{Corrected, Decided, Event},
    reject::{Reject, RejectionKind},
};

/// Where requests are decided about, apart from everything tower: one for all services of a layer
/// and their clones.
pub(super) struct Admission<L, R> {
    limiter: Arc<L>,
    settings: Settings,
    responder: Responder<R>,
    /// Whether a request is asked about by [`Op::Reserve`], since something else may follow.
    reserves: AtomicBool,
    /// Whether the limiter has to be told of denials and responses that may start a block.
    blocks: bool,
    faults: Faults,
}

/// A request that no decision is about.
#[derive(Clone, Copy)]
pub(super) enum Exempt {
    /// It passes, and the limiter knows nothing of it.
    Uncounted,
    /// It is rejected for this reason.
    Refused(RejectionKind),
}

impl<L: Limiter, R> Admission<L, R> {
    pub(super) fn new(limiter: Arc<L>, rejection: Arc<R>, settings: Settings) -> Self {
        let responder = Responder::new(
            rejection,
            &settings.headers,
            limiter.policies(),
            settings.observer.clone(),
            settings.shadow,
        );
        let bends = settings.bends() && !settings.shadow;
        let asks_more = bends || settings.final_cost.is_some();
        let admission = Self {
            reserves: AtomicBool::new(asks_more && limiter.supports(&Op::Reserve(1))),
            blocks: limiter.blocks(),
            faults: Faults::new(),
            responder: responder.with_grpc(settings.grpc),
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

    /// What comes of a request that needs no key.
    #[inline]
    pub(super) fn exempt(&self, parts: &Parts) -> Option<Exempt> {
        if !self.settings.is_enabled() {
            return Some(self.bypass());
        }
        let why = self.settings.key_rules.uncounted(parts)?;
        Some(self.uncounted(why))
    }

    /// What the extractor says of a request that is not [exempt](Self::exempt).
    #[inline]
    pub(super) fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        self.settings.key_rules.extract(parts)
    }

    /// What the limiter is to be asked about a request that is not [exempt](Self::exempt) and of
    /// which the extractor said this, unless that is nothing; `tier` is the place for a tier of its own.
    #[inline]
    pub(super) fn demand<'a>(
        &'a self,
        extracted: &'a Result<Key, KeyError>,
        tier: &'a mut Option<Tier>,
        parts: &Parts,
    ) -> Result<DemandRef<'a>, Exempt> {
        let key = match self.settings.key_rules.key(extracted) {
            Ok(key) => key,
            Err(why) => return Err(self.uncounted(why)),
        };
        let tier = self.settings.tier_of(parts, tier);
        if tier.is_unlimited() {
            return Err(self.bypass());
        }
        Ok(Demand {
            key,
            tier,
            cost: self.settings.cost_of(parts),
            asked_at: self.responder.start(),
        })
    }

    #[cold]
    fn uncounted(&self, why: NotCounted) -> Exempt {
        let policies = self.limiter.policies();
        match why {
            NotCounted::Skip => self.bypass(),
            NotCounted::Deny => {
                self.responder.observe(|| Event::Banned { policies });
                self.refuse(RejectionKind::Banned)
            }
            NotCounted::NoKey(error) => self.refuse(self.responder.keyless(policies, error)),
        }
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
    pub(super) fn ask(&self, demand: DemandRef<'_>) -> Pending<L::Future> {
        self.apply(demand, self.opening(demand.cost))
    }

    #[inline]
    pub(super) fn apply(&self, demand: DemandRef<'_>, op: Op) -> Pending<L::Future> {
        self.limiter.apply_in(demand.tier, demand.key, op)
    }

    /// Whether others of this request's key may stand in line, behind whom it belongs.
    #[inline]
    pub(super) fn may_stand(&self, demand: DemandRef<'_>) -> bool {
        let room = &self.settings.waiting_room;
        room.may_have_line(demand.key) && demand.cost > 0 && !self.responder.is_shadow()
    }

    /// Whether nothing more is to be tried after this answer.
    #[inline]
    pub(super) fn is_settled(&self, decision: &Decision) -> bool {
        if self.responder.is_shadow() {
            return true;
        }
        decision.delay().is_zero() && !(decision.is_denied() && self.settings.bends())
    }

    /// Tries what the layer has to offer to a request that the first answer does not settle, as far as
    /// that takes no time; without an answer the limiter is not asked yet.
    pub(super) fn try_now(
        &self,
        trial: &mut Trial,
        answer: Option<Pending<L::Future>>,
        demand: DemandRef<'_>,
    ) -> Next<L::Future> {
        let next = match answer {
            Some(answer) => Next::Answer(Asked::Pass, answer),
            None => trial.begin(self, demand),
        };
        trial.run(next, self, demand)
    }

    /// What comes of a request whose trial is over.
    pub(super) fn judge(&self, answer: Result<Decision, LimiterError>) -> Result<Decision, Exempt> {
        answer.map_err(|error| {
            self.faults.report_undecided(&error);
            self.responder.observe(|| Event::Failed {
                policies: self.limiter.policies(),
                error: &error,
            });
            self.refuse(RejectionKind::LimiterFailed)
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
        self.settings.bends() && !self.responder.is_shadow()
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
    #[inline]
    pub(super) fn look(&self, demand: DemandRef<'_>, parts: &mut Parts) {
        if self.faults.lookout.is_alert() {
            self.look_closely(demand, parts);
        }
    }

    #[cold]
    #[inline(never)]
    fn look_closely(&self, demand: DemandRef<'_>, parts: &mut Parts) {
        let lookout = &self.faults.lookout;
        lookout.note_decided();
        if !lookout.takes_one() {
            return;
        }
        if let Some(peer) = self.settings.key_rules.believed_peer(parts) {
            lookout.look_for_proxy(peer, &parts.headers);
        }
        if demand.cost > 0 {
            let own = || Arc::as_ptr(&self.limiter).addr();
            let identity = self.limiter.identity().unwrap_or_else(own);
            lookout.look_for_charge(identity, demand.key, &mut parts.extensions);
        }
    }

    /// Whether a request that was decided about passes.
    #[inline]
    pub(super) fn passes(
        &self,
        decision: &mut Decision,
        demand: DemandRef<'_>,
        course: &Course,
    ) -> bool {
        if self.settings.observer.is_some() {
            self.tell(decision, demand, course);
        }
        if decision.is_allowed() || self.responder.is_shadow() {
            return true;
        }
        decision.lengthen(self.settings.headers.draw_jitter());
        false
    }

    /// Tells the observer of a decision; out of line, because most layers have none.
    #[inline(never)]
    fn tell(&self, decision: &Decision, demand: DemandRef<'_>, course: &Course) {
        self.responder.decided(|| {
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
    #[inline]
    pub(super) fn expose<B: 'static>(&self, key: &Key, decision: &Decision, to: &mut Extensions)
    where
        R: Reject<B>,
    {
        if self.settings.expose_decision {
            decisions::expose(Some(key), decision, self.responder.style::<B>(), to);
        }
    }

    /// The same for a request that no decision is about.
    pub(super) fn expose_exemption<B: 'static>(&self, to: &mut Extensions)
    where
        R: Reject<B>,
    {
        if self.settings.expose_decision {
            decisions::expose(None, &self.unmeasured(), self.responder.style::<B>(), to);
        }
    }

    /// A shadow lets pass what could not be decided, too.
    fn refuse(&self, kind: RejectionKind) -> Exempt {
        if self.responder.is_shadow() {
            Exempt::Uncounted
        } else {
            Exempt::Refused(kind)
        }
    }

    fn bypass(&self) -> Exempt {
        self.responder.observe(|| Event::Bypassed {
            policies: self.limiter.policies(),
        });
        Exempt::Uncounted
    }

    /// What a request with this response costs that was reserved `units` for.
    pub(super) fn final_cost(&self, response: &response::Parts, units: u64) -> u64 {
        let final_cost = self.settings.final_cost.as_ref();
        final_cost.map_or(units, |final_cost| final_cost(response, units))
    }
}

impl<L, R> Admission<L, R> {
    pub(super) const fn responder(&self) -> &Responder<R> {
        &self.responder
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
        self.responder.observe(|| {
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
        self.responder.observe(|| {
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
