//! The state that all turns of a pacer share, independent of its limiter; and the events that its observer receives.

use std::{iter::repeat_n, sync::Arc, time::Duration};

use tokio::runtime::Handle;
use tower_ratelimit::{
    AnyLimiter, Decision, Key, Limiter, LimiterError,
    clock::Clock,
    limiter::{Call, Charge, OpRef, Pending},
};

use crate::{
    deadlines_and_jitter::Jitter,
    destination_state::Destinations,
    error::PacerErrorKind,
    request_cost::{Cost, Unit},
    response_signals::{Learn, SignalSource},
};

pub(crate) type Observer = dyn Fn(&PacerEvent) + Send + Sync;

/// The unit of one of several declared limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LimitUnit {
    pub(crate) unit: Unit,
    /// The number of the limit's quotas.
    pub(crate) quotas: usize,
}

/// Charges each of several limits.
#[cold]
fn charge_each(
    limiter: &AnyLimiter,
    limits: &[LimitUnit],
    key: &Key,
    cost: Cost<'_>,
    late: Duration,
) -> Pending<<AnyLimiter as Limiter>::Future> {
    let charges = limits.iter().enumerate().map(|(at, limit)| {
        let op = OpRef::Acquire(cost.of(limit.unit));
        Charge::new(key, op).limit(at)
    });
    limiter.call(&Call::of(&charges.collect::<Vec<_>>()).late(late))
}

/// The state of a pacer without its limiter.
pub(crate) struct PacerState {
    pub(crate) destinations: Destinations,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) jitter: Jitter,
    pub(crate) learn: Learn,
    pub(crate) observer: Option<Arc<Observer>>,
    pub(crate) max_queue: usize,
    pub(crate) max_wait: Duration,
    /// The margin, if it changed a declared quota.
    pub(crate) margin: Option<Duration>,
    /// The unit of each declared limit; `None` if there is one limit, or none.
    pub(crate) units_of_limits: Option<Box<[LimitUnit]>>,
}

impl PacerState {
    pub(crate) fn report(&self, event: PacerEvent) {
        if let Some(observer) = &self.observer {
            observer(&event);
        }
    }

    /// Charges the declared limits, for a request whose wait has ended `late` ago.
    #[inline]
    pub(crate) fn charge(
        &self,
        limiter: &AnyLimiter,
        key: &Key,
        cost: Cost<'_>,
        late: Duration,
    ) -> Pending<<AnyLimiter as Limiter>::Future> {
        match &self.units_of_limits {
            None => {
                let charge = Charge::new(key, OpRef::Acquire(cost.requests));
                limiter.call(&Call::of(&[charge]).late(late))
            }
            Some(limits) => charge_each(limiter, limits, key, cost, late),
        }
    }

    /// The amount of the unit that the denying limit counts.
    pub(crate) fn cost_of_denied(&self, denial: &Decision, cost: Cost<'_>) -> u64 {
        let limits = self.units_of_limits.as_deref().unwrap_or_default();
        let mut units = limits
            .iter()
            .flat_map(|limit| repeat_n(limit.unit, limit.quotas));
        let mut quotas = denial.quotas();
        let denied = quotas.position(|quota| quota.name() == denial.binding().name());
        let unit = denied.and_then(|at| units.nth(at));
        unit.map_or(cost.requests, |unit| cost.of(unit))
    }

    /// Settles a charge on the current runtime: nobody waits for it.
    pub(crate) fn settle_later(&self, settlement: <AnyLimiter as Limiter>::Future) {
        let Ok(runtime) = Handle::try_current() else {
            self.report(PacerEvent::Unsettled);
            return;
        };
        let observer = self.observer.clone();
        runtime.spawn(async move {
            let answer = settlement.await;
            if let Some(observer) = observer
                && !is_settled(&answer)
            {
                observer(&PacerEvent::Unsettled);
            }
        });
    }
}

/// Whether all limits have settled their charges.
pub(crate) fn is_settled(answer: &Result<Decision, LimiterError>) -> bool {
    let settled = answer.as_ref().ok();
    settled.is_some_and(|decision| decision.parts().all(|part| part.error().is_none()))
}

/// Something that happened to a request, for [`observer`](crate::PacerBuilder::observer). No event
/// contains a host: labels of metrics stay few.
///
/// Each attempt of a call is `Sent` or `Refused`, the former after `Queued` if it had to wait. A response
/// may add `Throttled`, and a further attempt begins with `Retried`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacerEvent {
    /// The request has to wait: in the queue, for a pause, for the limiter or for a place among the requests
    /// in flight. Reported once for each attempt.
    Queued,
    /// The request has its turn, and is sent now.
    Sent {
        /// The time that the attempt waited for its turn; zero if it did not wait.
        waited: Duration,
    },
    /// The destination refused a request because of its limit.
    Throttled {
        /// The pause of the destination: the requested one, or a random one of at most 20 s if the response
        /// requested none.
        wait: Duration,
        /// The field that requested the pause.
        source: SignalSource,
    },
    /// A request will be sent again, after a refusal or a failure.
    Retried {
        /// The wait before the retry. The turn may come later.
        wait: Duration,
    },
    /// The limiter failed to settle the charge of a response, which stays as it was.
    Unsettled,
    /// The request was not sent, and its call fails with a [`PacerError`](crate::PacerError) of this kind.
    Refused {
        /// The reason.
        kind: PacerErrorKind,
    },
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tower_ratelimit::LimiterError;

    use super::PacerEvent;
    use crate::pacer::Pacer;

    #[tokio::test]
    async fn a_settlement_that_fails_is_an_event() {
        let seen = Arc::new(AtomicUsize::new(0));
        let events = Arc::clone(&seen);
        let pacer = Pacer::learning_builder().observer(move |event| {
            assert_eq!(*event, PacerEvent::Unsettled);
            events.fetch_add(1, Ordering::SeqCst);
        });
        let pacer = pacer.build().unwrap();
        let failed = async { Err(LimiterError::unavailable("no connection")) };
        pacer.state().settle_later(Box::pin(failed));
        while seen.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        // Without a runtime nothing can settle it.
        let state = Arc::clone(pacer.state());
        let failed = async { Err(LimiterError::unavailable("no connection")) };
        std::thread::spawn(move || state.settle_later(Box::pin(failed)))
            .join()
            .unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), 2);
    }
}
