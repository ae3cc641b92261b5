//! Reservations: charges that a request's response may change.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Response, response};

use super::{
    admission::Admission,
    demand::{Demand, DemandRef},
};
use crate::{
    decision::Decision,
    decision::Op,
    error::LimiterError,
    limiter::{Limiter, Pending, PendingFuture},
};

/// The charge of a request until its response says what it cost. A reservation that is dropped leaves
/// it as it is.
pub(super) struct Reservation<L, R> {
    admission: Arc<Admission<L, R>>,
    decision: Decision,
    demand: Demand,
    /// Whether an elastic layer let the request pass, which charged nothing.
    exceeds: bool,
    /// The cost that the response tells.
    cost: Option<u64>,
    /// Whether the observer knows what was charged in the end.
    told: bool,
}

impl<L, R> Reservation<L, R> {
    pub(super) fn new(
        admission: &Arc<Admission<L, R>>,
        decision: Decision,
        demand: DemandRef<'_>,
        exceeds: bool,
    ) -> Self {
        Self {
            admission: Arc::clone(admission),
            decision,
            demand: demand.keep(),
            exceeds,
            cost: None,
            told: false,
        }
    }

    /// The units that were charged when the request came.
    const fn charged(&self) -> u64 {
        self.decision.charged()
    }

    /// Shows in the response how the quota stands.
    fn show<B>(&self, response: &mut Response<B>) {
        let responder = self.admission.responder();
        if responder.decorates() {
            responder.decorate(&self.decision, response);
        }
    }
}

/// A response that shows what it cost, or waits for that.
pub(super) type Settled<B, L, R> = Result<Response<B>, Box<Correcting<Response<B>, L, R>>>;

impl<L: Limiter, R> Reservation<L, R> {
    /// Corrects what the request was charged, and shows that in its response, if that can be done at
    /// once.
    pub(super) fn settle<B>(mut self: Box<Self>, response: Response<B>) -> Settled<B, L, R> {
        let (parts, body) = response.into_parts();
        let answer = self.correct(&parts);
        let mut response = Response::from_parts(parts, body);
        match answer {
            None => self.tell(self.charged()),
            Some(Pending::Ready(answer)) => self.hear(answer),
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

    /// Corrects what a request was charged that a shadow let pass, beside its response.
    #[cfg(feature = "rules")]
    pub(super) fn settle_apart(mut self: Box<Self>, response: &response::Parts)
    where
        R: Send + Sync + 'static,
    {
        match self.correct(response) {
            None => self.tell(self.charged()),
            Some(Pending::Ready(answer)) => self.hear(answer),
            Some(Pending::Later(answer)) => spawn(async move {
                let answer = answer.await;
                self.hear(answer);
            }),
        }
    }

    fn correct(&mut self, response: &response::Parts) -> Option<Pending<L::Future>> {
        #[cfg(feature = "rules")]
        if let Some((kept, receipt)) = self.admission.settlement(response, &self.decision) {
            self.cost = Some(kept);
            let op = Op::Settle(kept, receipt);
            return Some(self.admission.apply(self.demand.as_ref(), op));
        }
        let charged = self.charged();
        let assumed = if self.exceeds {
            self.demand.cost
        } else {
            charged
        };
        let cost = self.admission.final_cost(response, assumed);
        self.cost = Some(cost);
        let op = match self.exceeds {
            true if cost == 0 => return None,
            true => Op::Hit(cost),
            // Still something to be counted where responses start blocks.
            false if cost == charged && (cost == 0 || !self.admission.blocks()) => return None,
            false => Op::Settle(cost, self.decision.receipt()),
        };
        Some(self.admission.apply(self.demand.as_ref(), op))
    }

    fn hear(&mut self, answer: Result<Decision, LimiterError>) {
        let charged = self.charged();
        let decision = match answer {
            Ok(decision) => decision,
            Err(error) => return self.fail(&error),
        };
        let cost = self.cost.unwrap_or(charged);
        // The stand-in has answered, and knows nothing of what the store charged.
        if decision.is_degraded() && !self.decision.is_degraded() && cost < charged {
            let fault = "what the store charged was not given back, since it did not answer";
            return self.fail(&LimiterError::unavailable(fault));
        }
        // Units beyond the charge are taken down to exhaustion.
        let after = cost.min(charged.saturating_add(decision.charged()));
        // The request has passed, even if it took more than there was: no wait is to be shown.
        self.decision = match self.exceeds || decision.is_denied() {
            true => decision.into_excess(),
            false => decision,
        };
        self.told = true;
        let demand = self.demand.as_ref();
        self.admission
            .corrected(&self.decision, demand, (charged, after));
    }
}

impl<L, R> Reservation<L, R> {
    /// Tells that what was charged could not be corrected.
    fn fail(&mut self, error: &LimiterError) {
        self.told = true;
        let demand = self.demand.as_ref();
        self.admission
            .correction_failed(&self.decision, demand, self.charged(), error);
    }

    /// Tells that what was charged is still charged.
    fn tell(&mut self, charged: u64) {
        self.told = true;
        let demand = self.demand.as_ref();
        self.admission
            .corrected(&self.decision, demand, (charged, charged));
    }
}

impl<L, R> Drop for Reservation<L, R> {
    fn drop(&mut self) {
        if !self.told {
            self.tell(self.charged());
        }
    }
}

/// A response that waits for the limiter to correct what it cost.
pub(super) struct Correcting<P, L: Limiter, R> {
    answer: Pin<Box<PendingFuture<L::Future>>>,
    reservation: Box<Reservation<L, R>>,
    response: Option<P>,
}

impl<B, L: Limiter, R> Correcting<Response<B>, L, R> {
    /// The response, showing how the quota stands after the correction; if that failed, before it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Response<B>> {
        let answer = ready!(self.answer.as_mut().poll(cx));
        self.reservation.hear(answer);
        let mut response = self.response.take().expect("polled after it was ready");
        self.reservation.show(&mut response);
        Poll::Ready(response)
    }
}

/// Goes on with something that no request waits for.
#[cfg(feature = "rules")]
pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    #[cfg(feature = "redis")]
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(work);
    }
    #[cfg(not(feature = "redis"))]
    drop(work);
}
