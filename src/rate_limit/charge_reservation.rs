//! Reservations: charges that the response of a request may correct.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Response, response};

use super::{
    admission::Admission,
    charge_request::{ChargeRequest, ChargeRequestRef},
};
use crate::{
    decision::{Decision, Op},
    error::LimiterError,
    limiter::{Limiter, Pending, PendingFuture},
};

/// The charge of a request until its response. A reservation that is dropped leaves the charge as it
/// is.
pub(crate) struct Reservation<L, R> {
    admission: Arc<Admission<L, R>>,
    decision: Decision,
    charge: ChargeRequest,
    /// Whether an elastic layer allowed the request, and charged nothing.
    exceeds: bool,
    /// The cost by the response, once it is known.
    cost: Option<u64>,
    /// The units that each quota keeps, if the response settles each of several limits by itself.
    kept_by_each: Vec<u64>,
    /// Whether the final charge was reported.
    reported: bool,
}

impl<L, R> Reservation<L, R> {
    pub(super) fn new(
        admission: &Arc<Admission<L, R>>,
        decision: Decision,
        charge: ChargeRequestRef<'_>,
        exceeds: bool,
    ) -> Self {
        Self {
            admission: Arc::clone(admission),
            decision,
            charge: charge.keep(),
            exceeds,
            cost: None,
            kept_by_each: Vec::new(),
            reported: false,
        }
    }

    /// The units that the request was charged when it arrived.
    const fn charged(&self) -> u64 {
        self.decision.charged()
    }

    /// Adds the fields to the response.
    fn show<B>(&self, response: &mut Response<B>) {
        let responder = self.admission.responder();
        if responder.decorates() {
            responder.decorate(&self.decision, response);
        }
    }
}

/// A response with its fields, or one that waits for the correction.
pub(super) type Settled<B, L, R> = Result<Response<B>, Box<Correcting<Response<B>, L, R>>>;

impl<L: Limiter, R> Reservation<L, R> {
    /// Corrects the charge and adds the fields to the response, if the limiter answers at once.
    pub(super) fn settle<B>(mut self: Box<Self>, response: Response<B>) -> Settled<B, L, R> {
        let (parts, body) = response.into_parts();
        let answer = self.correct(&parts);
        let mut response = Response::from_parts(parts, body);
        match answer {
            None => self.report(self.charged()),
            Some(Pending::Ready(answer)) => self.on_answer(answer),
            Some(later) => {
                return Err(Box::new(Correcting {
                    answer: Box::pin(later.into_future()),
                    reservation: self,
                    response: Some(response),
                }));
            }
        }
        self.show(&mut response);
        Ok(response)
    }

    /// Corrects the charge at a limit in shadow mode, which does not delay the response.
    #[cfg(feature = "rules")]
    pub(super) fn settle_in_background(mut self: Box<Self>, response: &response::Parts)
    where
        R: Send + Sync + 'static,
    {
        match self.correct(response) {
            None => self.report(self.charged()),
            Some(Pending::Ready(answer)) => self.on_answer(answer),
            Some(Pending::Later(answer)) => spawn(async move {
                let answer = answer.await;
                self.on_answer(answer);
            }),
        }
    }

    fn correct(&mut self, response: &response::Parts) -> Option<Pending<L::Future>> {
        #[cfg(feature = "rules")]
        if let Some(settlement) = self.admission.settlement(response, &self.decision) {
            self.cost = Some(settlement.kept);
            self.kept_by_each = settlement.kept_by_each;
            let charge = self.charge.as_ref();
            return Some(self.admission.apply_each(charge, &settlement.ops));
        }
        let charged = self.charged();
        let assumed = if self.exceeds {
            self.charge.cost
        } else {
            charged
        };
        let cost = self.admission.final_cost(response, assumed);
        self.cost = Some(cost);
        // A limiter with blocks counts responses, also those that cost what they were charged.
        let unchanged = cost == charged && (cost == 0 || !self.admission.blocks());
        let op = if self.exceeds {
            (cost > 0).then_some(Op::Hit(cost))
        } else {
            (!unchanged).then(|| Op::Settle(cost, self.decision.receipt()))
        }?;
        Some(self.admission.apply(self.charge.as_ref(), op))
    }

    fn on_answer(&mut self, answer: Result<Decision, LimiterError>) {
        let charged = self.charged();
        let decision = match answer {
            Ok(decision) => decision,
            Err(error) => return self.fail(&error),
        };
        let cost = self.cost.unwrap_or(charged);
        // The fallback has answered, which cannot refund a charge of the store.
        if decision.is_degraded() && !self.decision.is_degraded() && cost < charged {
            let fault = "the store did not answer, so its charge was not refunded";
            return self.fail(&LimiterError::unavailable(fault));
        }
        // Units beyond the charge are charged as far as there are any.
        let after = cost.min(charged.saturating_add(decision.charged()));
        // The request has passed, even if it cost more than was left: its fields report no wait.
        self.decision = if self.exceeds || decision.is_denied() {
            decision.into_excess()
        } else {
            decision
        };
        self.reported = true;
        let charge = self.charge.as_ref();
        self.admission.report_corrected(
            &self.decision,
            charge,
            (charged, after),
            &self.kept_by_each,
        );
    }
}

impl<L, R> Reservation<L, R> {
    /// Reports that the charge could not be corrected.
    fn fail(&mut self, error: &LimiterError) {
        self.reported = true;
        let charge = self.charge.as_ref();
        self.admission
            .report_uncorrected(&self.decision, charge, self.charged(), error);
    }

    /// Reports that the charge stays.
    fn report(&mut self, charged: u64) {
        self.reported = true;
        let charge = self.charge.as_ref();
        self.admission
            .report_corrected(&self.decision, charge, (charged, charged), &[]);
    }
}

impl<L, R> Drop for Reservation<L, R> {
    fn drop(&mut self) {
        if !self.reported {
            self.report(self.charged());
        }
    }
}

/// A response that waits for the correction of its charge.
pub(super) struct Correcting<P, L: Limiter, R> {
    answer: Pin<Box<PendingFuture<L::Future>>>,
    reservation: Box<Reservation<L, R>>,
    response: Option<P>,
}

impl<B, L: Limiter, R> Correcting<Response<B>, L, R> {
    /// The response with the fields after the correction, or before it if it fails.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Response<B>> {
        let answer = ready!(self.answer.as_mut().poll(cx));
        self.reservation.on_answer(answer);
        let mut response = self.response.take().expect("polled after it was ready");
        self.reservation.show(&mut response);
        Poll::Ready(response)
    }
}

/// Runs work that no request waits for.
#[cfg(feature = "rules")]
pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    #[cfg(feature = "redis")]
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(work);
    }
    #[cfg(not(feature = "redis"))]
    drop(work);
}
