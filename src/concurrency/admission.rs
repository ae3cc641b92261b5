use std::{ops::ControlFlow, slice, sync::Arc};

use http::{Response, request::Parts};

#[cfg(feature = "redis")]
use super::SharedPermits;
use super::in_flight::{InFlight, Permit};
use crate::{
    clock::{Clock, OsClock, Timestamp},
    decision::{Decision, Policy, QuotaStatus},
    key::Key,
    middleware::{
        key_rules::{KeyRules, NotCounted},
        lookout::Lookout,
        responder::Responder,
    },
    observe::{Decided, Event},
    reject::{Reject, RejectionKind},
};

/// Where requests are decided about, apart from everything tower: one for all services of a layer's
/// `layer()` call and their clones.
pub(super) struct ConcurrencyAdmission<R> {
    policy: Policy,
    in_flight: Arc<InFlight>,
    key_rules: KeyRules,
    responder: Responder<R>,
    lookout: Lookout,
}

/// Whether a request passes.
pub(super) enum Verdict {
    /// It does, and nobody counts it.
    Uncounted,
    /// It does.
    Pass(Admitted),
    /// The limit is used up.
    Deny(Decision),
    /// It was not decided about, for this reason.
    Refuse(RejectionKind),
}

/// A request that passed.
pub(super) struct Admitted {
    /// `None` when it was let pass without being counted.
    permit: Option<Permit>,
    decision: Decision,
}

impl Admitted {
    pub(super) fn into_parts(self) -> (Option<Permit>, Decision) {
        (self.permit, self.decision)
    }
}

impl<R> ConcurrencyAdmission<R> {
    pub(super) fn new(
        policy: Policy,
        in_flight: Arc<InFlight>,
        key_rules: KeyRules,
        responder: Responder<R>,
    ) -> Self {
        Self {
            policy,
            in_flight,
            key_rules,
            responder,
            lookout: Lookout::new(),
        }
    }

    /// Decides about a request by what this process counts.
    pub(super) fn admit(&self, parts: &Parts) -> Verdict {
        match self.key(parts) {
            ControlFlow::Continue(key) => self.count(key),
            ControlFlow::Break(verdict) => verdict,
        }
    }

    /// Whom a request is counted for, or a verdict without that.
    pub(super) fn key(&self, parts: &Parts) -> ControlFlow<Verdict, Key> {
        let policies = slice::from_ref(&self.policy);
        let why = match self.key_rules.owned_key(parts) {
            Ok(key) => {
                if self.lookout.is_alert() {
                    self.look_closely(parts);
                }
                return ControlFlow::Continue(key);
            }
            Err(why) => why,
        };
        ControlFlow::Break(match why {
            NotCounted::Skip => {
                self.responder.observe(|| Event::Bypassed { policies });
                Verdict::Uncounted
            }
            NotCounted::Deny => {
                self.responder.observe(|| Event::Banned { policies });
                self.refuse(RejectionKind::Banned)
            }
            NotCounted::NoKey(error) => self.refuse(self.responder.keyless(policies, error)),
        })
    }

    /// Looks, with a layer's first requests, for a proxy that is taken for a client.
    #[cold]
    #[inline(never)]
    fn look_closely(&self, parts: &Parts) {
        let peer = self.key_rules.believed_peer(parts);
        if let Some(peer) = peer.filter(|_| self.lookout.takes_one()) {
            self.lookout.look_for_proxy(peer, &parts.headers);
        }
    }

    fn count(&self, key: Key) -> Verdict {
        let asked_at = self.responder.start();
        match self.in_flight.acquire(key) {
            Ok((permit, left)) => {
                let decision = allowed(&self.policy, left);
                let key = permit.key();
                (self.responder).decided(|| Decided::now(&decision, key, 1, asked_at));
                self.judge(Some(permit), decision)
            }
            Err(key) => {
                let decision = denied(&self.policy);
                (self.responder).decided(|| Decided::now(&decision, &key, 1, asked_at));
                self.judge(None, decision)
            }
        }
    }

    fn judge(&self, permit: Option<Permit>, decision: Decision) -> Verdict {
        match decision.is_allowed() {
            true => Verdict::Pass(Admitted { permit, decision }),
            // A shadow lets pass what it would reject.
            false if self.responder.is_shadow() => Verdict::Uncounted,
            false => Verdict::Deny(decision),
        }
    }

    fn refuse(&self, kind: RejectionKind) -> Verdict {
        if self.responder.is_shadow() {
            Verdict::Uncounted
        } else {
            Verdict::Refuse(kind)
        }
    }

    /// Lets a request pass, or answers it.
    pub(super) fn settle<B>(
        &self,
        verdict: Verdict,
        parts: &Parts,
    ) -> Result<Option<Admitted>, Response<B>>
    where
        R: Reject<B>,
    {
        match verdict {
            Verdict::Uncounted => Ok(None),
            Verdict::Pass(admitted) => Ok(Some(admitted)),
            Verdict::Deny(decision) => Err(self.responder.deny(parts, &decision)),
            Verdict::Refuse(kind) => Err(self.responder.refuse(parts, kind)),
        }
    }

    /// Whether anything is to be added to the response of a request that passed.
    pub(super) fn decorates(&self) -> bool {
        self.responder.decorates()
    }

    pub(super) fn decorate<B>(&self, decision: &Decision, response: &mut Response<B>) {
        self.responder.decorate(decision, response);
    }
}

#[cfg(feature = "redis")]
impl<R> ConcurrencyAdmission<R> {
    /// Decides about a request of `key` by what all nodes count.
    pub(super) async fn ask(self: Arc<Self>, permits: SharedPermits, key: Key) -> Verdict {
        let asked_at = self.responder.start();
        let answer = permits.acquire(&self.policy, &self.in_flight, &key);
        match answer.await {
            Ok((permit, decision)) => {
                (self.responder).decided(|| Decided::now(&decision, &key, 1, asked_at));
                self.judge(permit, decision)
            }
            Err(error) => {
                self.responder.observe(|| Event::Failed {
                    policies: slice::from_ref(&self.policy),
                    error: &error,
                });
                self.refuse(RejectionKind::LimiterFailed)
            }
        }
    }
}

/// The decision about a request after which so many more may come.
pub(super) fn allowed(policy: &Policy, left: u64) -> Decision {
    Decision::allowed(1, now(), QuotaStatus::new(policy).with_remaining(left))
}

/// The decision about a request that is one too many.
pub(super) fn denied(policy: &Policy) -> Decision {
    let status = QuotaStatus::new(policy).with_remaining(0);
    Decision::denied(now(), status.with_denial(None))
}

/// The decision about a request that passes uncounted.
#[cfg(feature = "redis")]
pub(super) fn unmeasured(policy: &Policy) -> Decision {
    Decision::allowed(0, now(), QuotaStatus::new(policy))
}

fn now() -> Timestamp {
    OsClock.now()
}
