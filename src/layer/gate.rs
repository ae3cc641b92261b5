use std::{cmp::Ordering, sync::Arc, time::Duration};

use http::{request::Parts, response};

use super::{identify::Uncounted, settings::Settings, ticket::Ticket, timer, voice::Voice};
use crate::{
    decision::{Decision, Receipt},
    error::{KeyError, LimiterError},
    key::Key,
    limiter::{Limiter, Pending, Tier},
    observe::Event,
    op::Op,
    reject::RejectionKind,
};

/// Where requests are decided about, apart from everything tower: one for all services of a layer
/// and their clones.
pub(super) struct Gate<L, R> {
    limiter: Arc<L>,
    settings: Settings,
    voice: Voice<R>,
}

/// A request that no decision is about.
#[derive(Clone, Copy)]
pub(super) enum Exempt {
    /// It passes, and the limiter knows nothing of it.
    Uncounted,
    /// It is rejected for this reason.
    Refused(RejectionKind),
}

impl<L: Limiter, R> Gate<L, R> {
    pub(super) fn new(limiter: Arc<L>, rejection: Arc<R>, settings: Settings) -> Self {
        Self {
            voice: Voice::new(
                rejection,
                &settings.headers,
                limiter.policies(),
                settings.observer.clone(),
                settings.shadow,
            ),
            limiter,
            settings,
        }
    }

    /// What comes of a request that needs no key.
    #[inline]
    pub(super) fn exempt(&self, parts: &Parts) -> Option<Exempt> {
        if !self.settings.is_enabled() {
            return Some(self.bypass());
        }
        let why = self.settings.identify.uncounted(parts)?;
        Some(self.uncounted(why))
    }

    /// What the extractor says of a request that is not [exempt](Self::exempt).
    #[inline]
    pub(super) fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        self.settings.identify.extract(parts)
    }

    /// What the limiter is to be asked about a request that is not [exempt](Self::exempt) and of
    /// which the extractor said this, unless that is nothing.
    #[inline]
    pub(super) fn ticket<'a>(
        &'a self,
        extracted: &'a Result<Key, KeyError>,
        parts: &Parts,
    ) -> Result<Ticket<&'a Key>, Exempt> {
        let key = match self.settings.identify.key(extracted) {
            Ok(key) => key,
            Err(why) => return Err(self.uncounted(why)),
        };
        let tier = self.settings.tier_of(parts);
        if tier == Tier::UNLIMITED {
            return Err(self.bypass());
        }
        Ok(Ticket {
            key,
            tier,
            cost: self.settings.cost_of(parts),
            asked_at: self.voice.start(),
        })
    }

    #[cold]
    fn uncounted(&self, why: Uncounted) -> Exempt {
        let policies = self.limiter.policies();
        match why {
            Uncounted::Skipped => self.bypass(),
            Uncounted::Banned => {
                self.voice.observe(|| Event::Banned { policies });
                self.refuse(RejectionKind::Banned)
            }
            Uncounted::Keyless(error) => self.refuse(self.voice.keyless(policies, error)),
        }
    }

    #[inline]
    pub(super) fn ask(&self, ticket: Ticket<&Key>) -> Pending<L::Future> {
        self.apply(ticket, Op::Acquire(ticket.cost))
    }

    #[inline]
    fn apply(&self, ticket: Ticket<&Key>, op: Op) -> Pending<L::Future> {
        self.limiter.apply_in(ticket.tier, ticket.key, op)
    }

    /// Whether the request cannot be judged at once: [`Gate::wait`] goes on from here.
    #[inline]
    pub(super) fn has_to_wait(&self, decision: &Decision) -> bool {
        if self.voice.is_shadow() {
            return false;
        }
        !decision.delay().is_zero() || (decision.is_denied() && self.settings.bends())
    }

    /// The way of a request that cannot be judged at once.
    pub(super) async fn wait(
        self: Arc<Self>,
        answer: Pending<L::Future>,
        ticket: Ticket,
    ) -> Result<(Decision, Ticket), Exempt> {
        match self.decide_in_time(answer, ticket.as_ref()).await {
            Ok(decision) => Ok((decision, ticket)),
            Err(error) => {
                self.voice.observe(|| Event::Failed {
                    policies: self.limiter.policies(),
                    error: &error,
                });
                Err(self.refuse(RejectionKind::LimiterFailed))
            }
        }
    }

    /// The decision, after whatever waiting it asks for and a denial allows.
    async fn decide_in_time(
        &self,
        answer: Pending<L::Future>,
        ticket: Ticket<&Key>,
    ) -> Result<Decision, LimiterError> {
        let mut decision = answer.await?;
        let mut waited = Duration::ZERO;
        while decision.is_denied() && self.has_to_wait(&decision) {
            let elastic = self.settings.elastic.as_ref();
            if !decision.is_blocked() && elastic.is_some_and(|passes| passes()) {
                let hit = self.apply(ticket, Op::Hit(ticket.cost)).await?;
                return Ok(hit.into_excess().delayed_by(waited));
            }
            let room = &self.settings.waiting_room;
            let place = room.enter(decision.retry_after(), waited);
            let Some((wait, _seat)) = place else {
                return Ok(decision);
            };
            let slept = timer::sleep(wait).await;
            waited += slept.map_err(LimiterError::unavailable)?;
            decision = self.apply(ticket, Op::Acquire(ticket.cost)).await?;
        }
        if !decision.delay().is_zero() && !self.voice.is_shadow() {
            let turn = timer::sleep(decision.delay()).await;
            turn.map_err(LimiterError::unavailable)?;
        }
        Ok(decision.delayed_by(waited))
    }

    /// Whether a request that was decided about passes.
    #[inline]
    pub(super) fn passes(&self, decision: &mut Decision, ticket: Ticket<&Key>) -> bool {
        self.voice
            .decided(decision, ticket.key, ticket.cost, ticket.asked_at);
        if decision.is_allowed() || self.voice.is_shadow() {
            return true;
        }
        decision.lengthen(self.settings.headers.draw_jitter());
        false
    }

    /// A shadow lets pass what could not be decided, too.
    fn refuse(&self, kind: RejectionKind) -> Exempt {
        if self.voice.is_shadow() {
            Exempt::Uncounted
        } else {
            Exempt::Refused(kind)
        }
    }

    fn bypass(&self) -> Exempt {
        self.voice.observe(|| Event::Bypassed {
            policies: self.limiter.policies(),
        });
        Exempt::Uncounted
    }

    pub(super) const fn voice(&self) -> &Voice<R> {
        &self.voice
    }

    pub(super) const fn exposes_decision(&self) -> bool {
        self.settings.expose_decision
    }

    /// Whether what a request was charged may change with its response.
    #[inline]
    pub(super) const fn corrects(&self) -> bool {
        self.settings.final_cost.is_some()
    }

    /// Corrects what a request was charged by what its response says that it cost.
    pub(super) fn correct(
        &self,
        response: &response::Parts,
        decision: &Decision,
        ticket: Ticket<&Key>,
    ) -> Option<Pending<L::Future>> {
        let final_cost = self.settings.final_cost.as_ref()?;
        if decision.is_denied() {
            // Only a shadow let it pass; it was charged nothing, and would not have run.
            return None;
        }
        let charged = decision.charged();
        let op = correction(charged, final_cost(response, charged), decision.receipt())?;
        Some(self.apply(ticket, op))
    }
}

fn correction(charged: u64, cost: u64, receipt: Receipt) -> Option<Op> {
    match cost.cmp(&charged) {
        Ordering::Equal => None,
        Ordering::Greater => Some(Op::Hit(cost - charged)),
        Ordering::Less => Some(Op::Refund(charged - cost, Some(receipt))),
    }
}
