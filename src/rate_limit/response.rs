//! The work that a request's response leaves to its layer.

use std::sync::Arc;

use http::request::Parts;

use super::{
    admission::Admission,
    charge_request::{ChargeRequestRef, DecisionTrace},
    charge_reservation::Reservation,
};
use crate::{
    decision::Decision, headers::QuotaNumbers, limiter::Limiter,
    middleware::request_outcome::RequestOutcome, reject::Reject,
};

/// The work that the response of a request leaves.
pub(crate) enum ResponseWork<L, R> {
    Nothing,
    /// Adds the fields of one quota with these numbers: the usual work.
    ShowNumbers(Arc<Admission<L, R>>, QuotaNumbers),
    /// Adds the fields of a decision. Boxed, because each move of a request would move it.
    Show(Arc<Admission<L, R>>, Box<Decision>),
    /// Charges what the response costs, and adds the fields.
    Settle(Box<Reservation<L, R>>),
}

impl<L: Limiter, R> ResponseWork<L, R> {
    /// Admits a request by its decision. Returns the work of its response, or the response of a request
    /// that does not pass. Takes the decision out if the response needs it.
    #[inline(never)]
    pub(super) fn admit<B: 'static, D>(
        decision: &mut Decision,
        charge: ChargeRequestRef<'_>,
        trace: &DecisionTrace,
        admission: &Arc<Admission<L, R>>,
        parts: &mut Parts,
    ) -> RequestOutcome<Self, B, D>
    where
        R: Reject<B>,
    {
        admission.diagnose(charge, parts);
        if !admission.passes(decision, charge, trace) {
            return RequestOutcome::Reject(admission.responder().deny(parts, decision));
        }
        admission.expose::<B>(charge.key, decision, &mut parts.extensions);
        let settling = Self::settling(decision, charge, trace, admission, parts);
        RequestOutcome::Pass(settling.unwrap_or_else(|| Self::showing(decision, admission)))
    }

    /// The charge that the response of a request which passes corrects, in whatever way it passes; `None` if there is
    /// none.
    fn settling(
        decision: &mut Decision,
        charge: ChargeRequestRef<'_>,
        trace: &DecisionTrace,
        admission: &Arc<Admission<L, R>>,
        parts: &mut Parts,
    ) -> Option<Self> {
        // A denied request that passes, by a layer in shadow mode or as overflow, was not charged.
        if !admission.corrects() || decision.is_denied() {
            return None;
        }
        let (decision, exceeds) = (decision.take(), trace.exceeds);
        let mut reservation = Reservation::new(admission, decision, charge, exceeds);
        reservation.follow_body(parts);
        Some(Self::Settle(Box::new(reservation)))
    }

    /// Passes a request despite a denial. Its response has the fields of the denial, without the wait: the inner
    /// service may set one.
    #[cold]
    pub(super) fn overflow<B: 'static, D>(
        decision: &mut Decision,
        charge: ChargeRequestRef<'_>,
        trace: &DecisionTrace,
        admission: &Arc<Admission<L, R>>,
        parts: &mut Parts,
    ) -> RequestOutcome<Self, B, D>
    where
        R: Reject<B>,
    {
        admission.diagnose(charge, parts);
        admission.overflow::<B>(decision, charge, trace, parts);
        // Limits of other rules may have charged it.
        let settling = Self::settling(decision, charge, trace, admission, parts);
        RequestOutcome::Pass(settling.unwrap_or_else(|| {
            let mut passing = decision.take().into_passing();
            Self::showing(&mut passing, admission)
        }))
    }

    /// Adds the fields of a decision to the response, if the layer adds any.
    #[inline(always)]
    pub(super) fn showing(decision: &mut Decision, admission: &Arc<Admission<L, R>>) -> Self {
        let responder = admission.responder();
        if !responder.decorates() {
            return Self::Nothing;
        }
        let admission = Arc::clone(admission);
        match responder.numbers(decision) {
            Some(numbers) => Self::ShowNumbers(admission, numbers),
            None => Self::Show(admission, Box::new(decision.take())),
        }
    }
}
