//! The admission: where a layer decides about requests, apart from everything tower.

use std::{future::Future, pin::Pin, slice, sync::Arc, time::Instant};

use http::request::Parts;

use super::{
    grant::{Grant, Granting},
    in_flight::Permit,
    permits::Permits,
};
use crate::{
    decision::{Decision, Policy},
    key::Key,
    middleware::{
        front::{Exempt, Front},
        responder::Responder,
    },
    observe::Decided,
};

/// The place where requests are decided about, apart from everything tower: one for all services of a
/// layer and their clones.
pub(super) struct PermitAdmission<R> {
    permits: Permits,
    front: Front<R>,
}

/// The fate of a request.
pub(super) enum PermitFate {
    /// It passes, with a permit if it is counted.
    Pass(Option<Permit>, Decision),
    /// The limit is used up.
    Deny(Decision),
    /// No decision is about it.
    Exempt(Exempt),
}

/// A fate, or the way to one.
pub(super) enum Admitted {
    Now(PermitFate),
    Later(Pin<Box<dyn Future<Output = PermitFate> + Send>>),
}

impl<R> PermitAdmission<R> {
    pub(super) fn new(permits: Permits, front: Front<R>) -> Self {
        Self { permits, front }
    }

    pub(super) const fn responder(&self) -> &Responder<R> {
        self.front.responder()
    }

    /// Finds the request's key, and asks for a permit.
    pub(super) fn ask(self: &Arc<Self>, parts: &mut Parts) -> Admitted
    where
        R: Send + Sync + 'static,
    {
        let key = match self.key_of(parts) {
            Ok(key) => key,
            Err(exempt) => return Admitted::Now(PermitFate::Exempt(exempt)),
        };
        if self.front.lookout().is_alert() {
            self.look_closely(parts);
        }
        let asked_at = self.responder().start();
        match self.permits.acquire(key) {
            Granting::Ready(grant) => Admitted::Now(self.judge(grant, asked_at)),
            Granting::Later(grant) => {
                let admission = Arc::clone(self);
                let fate = async move { admission.judge(grant.await, asked_at) };
                Admitted::Later(Box::pin(fate))
            }
        }
    }

    fn key_of(&self, parts: &Parts) -> Result<Key, Exempt> {
        let exempt = |why| self.front.exempt(why, self.policies());
        if let Some(why) = self.front.exempts(parts) {
            return Err(exempt(why));
        }
        let extracted = self.front.extract(parts);
        self.front.key_of(&extracted).cloned().map_err(exempt)
    }

    /// Looks, with a layer's first requests, for a proxy that is taken for a client.
    #[cold]
    #[inline(never)]
    fn look_closely(&self, parts: &Parts) {
        if self.front.lookout().takes_one() {
            self.front.look_for_proxy(parts);
        }
    }

    fn judge(&self, Grant { decision, holder }: Grant, asked_at: Option<Instant>) -> PermitFate {
        let decision = match decision {
            Ok(decision) => decision,
            Err(error) => return PermitFate::Exempt(self.front.undecided(&error, self.policies())),
        };
        let responder = self.responder();
        responder.decided(|| Decided::now(&decision, holder.key(), 1, asked_at));
        if decision.is_allowed() {
            PermitFate::Pass(holder.permit(), decision)
        } else if responder.is_shadow() {
            PermitFate::Exempt(Exempt::Pass)
        } else {
            PermitFate::Deny(decision)
        }
    }

    fn policies(&self) -> &[Policy] {
        slice::from_ref(self.permits.policy())
    }
}
