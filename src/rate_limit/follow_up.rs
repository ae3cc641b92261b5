//! The follow-up: the work that is left when the response is there.

use std::sync::Arc;

use http::{Response, request::Parts};

use super::{
    admission::{Admission, Unsettled},
    demand::{Course, DIRECT, DemandRef},
    reservation::Reservation,
};
use crate::{
    decision::Decision,
    headers::Figures,
    limiter::{Limiter, Pending},
    reject::Reject,
};

/// The work that is left when the response is there.
pub(super) enum FollowUp<L, R> {
    Nothing,
    /// The usual: it shows how the one quota stands, for which these numbers will do.
    ShowFigures(Arc<Admission<L, R>>, Figures),
    /// It shows how the quotas stand; boxed, because a decision would be moved about with every
    /// request.
    Show(Arc<Admission<L, R>>, Box<Decision>),
    /// It says what the request costs.
    Settle(Box<Reservation<L, R>>),
}

impl<L: Limiter, R> FollowUp<L, R> {
    /// Admits a request that was decided about and says what its response needs, for which it takes
    /// the decision; or says what a request that does not pass is answered.
    #[inline(never)]
    pub(super) fn admit<B: 'static>(
        decision: &mut Decision,
        demand: DemandRef<'_>,
        course: &Course,
        admission: &Arc<Admission<L, R>>,
        parts: &mut Parts,
    ) -> Result<Self, Response<B>>
    where
        R: Reject<B>,
    {
        admission.look(demand, parts);
        if !admission.passes(decision, demand, course) {
            return Err(admission.responder().deny(parts, decision));
        }
        admission.expose::<B>(demand.key, decision, &mut parts.extensions);
        // A request that only a shadow let pass was charged nothing.
        if admission.corrects() && decision.is_allowed() {
            let (decision, exceeds) = (decision.take(), course.exceeds);
            let reservation = Reservation::new(admission, decision, demand, exceeds);
            return Ok(Self::Settle(Box::new(reservation)));
        }
        Ok(Self::showing(decision, admission))
    }

    /// Shows in the response how the quotas stand.
    #[inline(always)]
    pub(super) fn showing(decision: &mut Decision, admission: &Arc<Admission<L, R>>) -> Self {
        let responder = admission.responder();
        if !responder.decorates() {
            return Self::Nothing;
        }
        let admission = Arc::clone(admission);
        match responder.figures(decision) {
            Some(figures) => Self::ShowFigures(admission, figures),
            None => Self::Show(admission, Box::new(decision.take())),
        }
    }
}

/// The effect of the limiter's first answer.
pub(super) enum First<L: Limiter, R, B> {
    Passes(FollowUp<L, R>),
    Rejected(Response<B>),
    Open(Unsettled<L::Future>),
}

impl<L: Limiter, R: Reject<B>, B: 'static> First<L, R, B> {
    /// Asks the limiter about a request for the first time.
    #[inline(always)]
    pub(super) fn ask(
        demand: DemandRef<'_>,
        admission: &Arc<Admission<L, R>>,
        parts: &mut Parts,
    ) -> Self {
        let mut answer = admission.ask(demand);
        match &mut answer {
            Pending::Ready(Ok(decision)) if admission.just_passes(decision) => {
                Self::Passes(FollowUp::showing(decision, admission))
            }
            Pending::Ready(Ok(decision)) if admission.is_settled(decision) => {
                match FollowUp::admit(decision, demand, &DIRECT, admission, parts) {
                    Ok(follow_up) => Self::Passes(follow_up),
                    Err(response) => Self::Rejected(response),
                }
            }
            _ => Self::Open(Unsettled::new(demand, answer)),
        }
    }
}
