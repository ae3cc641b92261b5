use std::{slice, sync::Arc};

use http::{Response, request::Parts};

use super::in_flight::{InFlight, Permit};
use crate::{
    clock::{Clock, OsClock},
    decision::{Decision, Policy, QuotaStatus, Receipt},
    key::Key,
    layer::{Identify, Subject, Voice},
    observe::Event,
    reject::{Reject, RejectionKind},
};

/// Where requests are decided about, apart from everything tower: one for all services of a layer's
/// `layer()` call and their clones.
pub(super) struct Gate<R> {
    policy: Policy,
    in_flight: Arc<InFlight>,
    identify: Identify,
    voice: Voice<R>,
}

/// A request that passed and is counted.
pub(super) struct Admitted {
    permit: Permit,
    decision: Decision,
}

impl Admitted {
    pub(super) fn into_parts(self) -> (Permit, Decision) {
        (self.permit, self.decision)
    }
}

impl<R> Gate<R> {
    pub(super) const fn new(
        policy: Policy,
        in_flight: Arc<InFlight>,
        identify: Identify,
        voice: Voice<R>,
    ) -> Self {
        Self {
            policy,
            in_flight,
            identify,
            voice,
        }
    }

    /// Lets a request pass, or answers it. One that passes with nothing is not counted.
    pub(super) fn admit<B>(&self, parts: &Parts) -> Result<Option<Admitted>, Response<B>>
    where
        R: Reject<B>,
    {
        let policies = slice::from_ref(&self.policy);
        match self.identify.subject(parts) {
            Subject::Key(key) => self.count(parts, key),
            Subject::Nobody => {
                self.voice.observe(|| Event::Bypassed { policies });
                Ok(None)
            }
            Subject::Banned => {
                self.voice.observe(|| Event::Banned { policies });
                self.reject(|| self.voice.refuse(parts, RejectionKind::Banned))
            }
            Subject::Unknown(error) => {
                let kind = self.voice.keyless(policies, error);
                self.reject(|| self.voice.refuse(parts, kind))
            }
        }
    }

    fn count<B>(&self, parts: &Parts, key: Key) -> Result<Option<Admitted>, Response<B>>
    where
        R: Reject<B>,
    {
        let asked_at = self.voice.start();
        match self.in_flight.acquire(key) {
            Ok((permit, left)) => {
                let decision = self.decision(Some(left));
                self.voice.decided(&decision, permit.key(), 1, asked_at);
                Ok(Some(Admitted { permit, decision }))
            }
            Err(key) => {
                let decision = self.decision(None);
                self.voice.decided(&decision, &key, 1, asked_at);
                self.reject(|| self.voice.deny(parts, &decision))
            }
        }
    }

    /// The decision about a request after which this many may come, or that is one too many.
    fn decision(&self, left: Option<u64>) -> Decision {
        let receipt = Receipt::new(OsClock.now());
        let status = QuotaStatus::new(&self.policy).with_remaining(left.unwrap_or(0));
        match left {
            Some(_) => Decision::allowed(1, receipt, status),
            None => Decision::denied(receipt, status.with_denial(None)),
        }
    }

    /// A shadow lets pass what it would reject.
    fn reject<B>(
        &self,
        response: impl FnOnce() -> Response<B>,
    ) -> Result<Option<Admitted>, Response<B>> {
        if self.voice.is_shadow() {
            Ok(None)
        } else {
            Err(response())
        }
    }

    /// Whether anything is to be added to the response of a request that passed.
    pub(super) fn decorates(&self) -> bool {
        self.voice.decorates()
    }

    pub(super) fn decorate<B>(&self, decision: &Decision, response: &mut Response<B>) {
        self.voice.decorate(decision, response);
    }
}
