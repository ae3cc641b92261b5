//! The driver: the one task of a limiter on a runtime that sends its calls.

use std::{
    future::{Future, poll_fn},
    mem,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    runtime::Id,
    sync::Notify,
    task::unconstrained,
    time::{Instant, sleep_until},
};

use super::{
    ask::Ask,
    convoy::{Convoy, Departure, SubjectAnswer},
    hub::Hub,
    lanes::{Patience, View},
};
/// The shortest time for which operations wait for an answer to leave with.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(1);

/// Sends the calls of a limiter that were asked for on one runtime. When the task is dropped, nobody
/// waits in vain.
pub(super) struct Driver<A: Ask<P>, P: Send + Sync + 'static> {
    hub: Arc<Hub<A, P>>,
    runtime: Id,
    stirred: Arc<Notify>,
    /// Whether its lanes are no more.
    is_over: bool,
}

/// A call that is over, and the answer to each of its questions.
type Landed<P> = (Convoy<P>, Vec<SubjectAnswer>);

/// The next step of a driver.
enum DriverStep<P> {
    Leave {
        departure: Departure<P>,
        /// When to look again, unless something happens before.
        until: Option<Instant>,
    },
    Over,
}

impl<A: Ask<P>, P: Send + Sync + 'static> Driver<A, P> {
    pub(super) const fn new(hub: Arc<Hub<A, P>>, runtime: Id, stirred: Arc<Notify>) -> Self {
        Self {
            hub,
            runtime,
            stirred,
            is_over: false,
        }
    }

    pub(super) async fn run(mut self) {
        let mut flights = FuturesUnordered::new();
        let mut landed: Vec<Landed<P>> = Vec::new();
        loop {
            let until = match self.next(&landed) {
                DriverStep::Over => return deliver(&mut landed),
                DriverStep::Leave {
                    mut departure,
                    until,
                } => {
                    for (call, place) in self.places(&mut departure) {
                        flights.push(self.fly(call, place));
                    }
                    departure.turn_late_away();
                    until
                }
            };
            // Answers are handed out when what waited for them is on its way, so that the server is
            // busy while their requests go on.
            let mut handed_out = mem::take(&mut landed);
            send(&mut flights, &mut landed).await;
            deliver(&mut handed_out);
            if landed.is_empty() && !flights.is_empty() {
                self.wait(&mut flights, &mut landed, until).await;
            }
        }
    }

    fn next(&mut self, landed: &[Landed<P>]) -> DriverStep<P> {
        let asker = &self.hub.asker;
        let mut departure = Departure::new(asker.most_subjects());
        let view = View {
            now: Instant::now(),
            has_landed: !landed.is_empty(),
            most: asker.most_subjects(),
            patience: self.patience(),
        };
        let mut all = self.hub.lock();
        let Some(lanes) = all.get_mut(&self.runtime) else {
            return DriverStep::Over;
        };
        for (call, _) in landed {
            lanes.land(call);
        }
        let until = lanes.leave(&view, &mut departure);
        if lanes.is_empty() && departure.is_empty() {
            all.remove(&self.runtime);
            self.is_over = true;
            return DriverStep::Over;
        }
        DriverStep::Leave { departure, until }
    }

    /// The calls that have a place. Where there is none, nobody has to wait to hear of it.
    fn places(&self, departure: &mut Departure<P>) -> Vec<(Convoy<P>, A::Place)> {
        let now = Instant::now();
        let mut calls = Vec::with_capacity(departure.calls.len());
        for call in departure.calls.drain(..) {
            let last = call.last_deadline();
            let within = last.map_or(Duration::ZERO, |deadline| deadline - now);
            match self.hub.asker.enter(call.first(), call.size(), within) {
                Ok(place) => calls.push((call, place)),
                Err(error) => {
                    self.hub.land(self.runtime, &call);
                    call.fail(&error);
                }
            }
        }
        calls
    }

    /// One call, until its answer is there.
    fn fly(
        &self,
        call: Convoy<P>,
        place: A::Place,
    ) -> impl Future<Output = Landed<P>> + Send + use<A, P> {
        let hub = Arc::clone(&self.hub);
        async move {
            let Convoy {
                plan,
                tier,
                questions,
                ..
            } = &call;
            let answers = hub.asker.ask(place, plan, *tier, questions).await;
            (call, answers)
        }
    }

    fn patience(&self) -> Patience {
        let asker = &self.hub.asker;
        let deadline = asker.deadline();
        let Some(expected) = asker.expected() else {
            return Patience {
                for_others: SHORTEST_PATIENCE,
                for_own: None,
            };
        };
        // Whoever leaves after a quarter of the time that an answer spares has most of it left for
        // delays. An answer that takes long all at once is not known to until it is late, so even
        // where answers come at once nobody waits for one without end.
        let spare = deadline.saturating_sub(expected) / 4;
        Patience {
            for_others: (expected / 8).max(SHORTEST_PATIENCE),
            for_own: Some(spare.max(SHORTEST_PATIENCE)),
        }
    }

    async fn wait(
        &self,
        flights: &mut FuturesUnordered<impl Future<Output = Landed<P>>>,
        landed: &mut Vec<Landed<P>>,
        until: Option<Instant>,
    ) {
        let mut stirred = pin!(self.stirred.notified());
        let mut alarm = pin!(until.map(sleep_until));
        poll_fn(|cx| {
            while let Poll::Ready(Some(flight)) = flights.poll_next_unpin(cx) {
                landed.push(flight);
            }
            if !landed.is_empty() {
                return Poll::Ready(());
            }
            if let Some(alarm) = alarm.as_mut().as_pin_mut()
                && alarm.poll(cx).is_ready()
            {
                return Poll::Ready(());
            }
            stirred.as_mut().poll(cx)
        })
        .await;
    }
}

/// Has all that was not sent yet sent, in order.
async fn send<P>(
    flights: &mut FuturesUnordered<impl Future<Output = Landed<P>>>,
    landed: &mut Vec<Landed<P>>,
) {
    let send = poll_fn(|cx| {
        while let Poll::Ready(Some(flight)) = flights.poll_next_unpin(cx) {
            landed.push(flight);
        }
        Poll::Ready(())
    });
    // A task that has done much would leave some of them for later, behind others.
    unconstrained(send).await;
}

fn deliver<P>(landed: &mut Vec<Landed<P>>) {
    for (call, answers) in landed.drain(..) {
        call.deliver(answers);
    }
}

impl<A: Ask<P>, P: Send + Sync + 'static> Drop for Driver<A, P> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // The runtime was shut down. Those who wait hear of it when their lanes are dropped, which
        // may wake them, so not under the lock.
        let lanes = self.hub.lock().remove(&self.runtime);
        drop(lanes);
    }
}
