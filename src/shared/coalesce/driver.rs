//! Drivers: one task for each busy subject, which sends its calls.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    mem,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{
    batch::{Batch, Call, Row, Waiter, deliver},
    lanes::{Ask, Lane, Lanes},
};
use crate::redis::store::error::StoreError;

/// The most calls of one subject that leave while others are under way, other than with an answer.
const MAX_FLIGHTS: usize = 32;

/// The shortest time between two of them.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(1);

/// The one task that asks about a subject. When it is dropped, nobody waits in vain.
pub(super) struct Driver<A: Ask<P>, P: Send + Sync + 'static> {
    lanes: Arc<Lanes<A, P>>,
    subject: Arc<str>,
    number: u64,
    stirred: Arc<Notify>,
    /// Whether the lane is gone, or another driver's.
    is_over: bool,
}

/// A call that is over: who waits, and what came of it.
type Landed = (VecDeque<Waiter>, Result<Vec<Row>, StoreError>);

/// What a driver does next.
enum Next<P> {
    Leave(Vec<Batch<P>>),
    /// Until then, or until something happens.
    Wait(Option<Instant>),
    Over,
}

impl<A: Ask<P>, P: Send + Sync + 'static> Driver<A, P> {
    pub(super) fn new(lanes: &Arc<Lanes<A, P>>, subject: Arc<str>, lane: &Lane<P>) -> Self {
        Self {
            lanes: Arc::clone(lanes),
            subject,
            number: lane.driver,
            stirred: Arc::clone(&lane.stirred),
            is_over: false,
        }
    }

    pub(super) async fn run(mut self, first: Option<(Call<P>, A::Place)>) {
        let mut flights = FuturesUnordered::new();
        if let Some((call, place)) = first {
            flights.push(self.fly(call, place));
        }
        let mut landed: Vec<Landed> = Vec::new();
        loop {
            let is_free = flights.is_empty() || !landed.is_empty();
            let (leaves, until) = match self.next(is_free, flights.len()) {
                Next::Over => return land(&mut landed),
                Next::Wait(until) => (false, until),
                Next::Leave(batches) => {
                    for (call, place) in self.calls(batches) {
                        flights.push(self.fly(call, place));
                    }
                    (true, None)
                }
            };
            // Answers are handed out when what waited for them is on its way, so that the server is
            // busy while their requests go on.
            let mut handed_out = mem::take(&mut landed);
            send(&mut flights, &mut landed).await;
            land(&mut handed_out);
            if landed.is_empty() && !leaves {
                self.wait(&mut flights, &mut landed, until).await;
            }
        }
    }

    /// The calls that carry all of these, oldest first, each with a place. Where there is no place,
    /// nobody has to wait to hear of it.
    fn calls(&self, batches: Vec<Batch<P>>) -> Vec<(Call<P>, A::Place)> {
        let now = Instant::now();
        let mut calls = Vec::new();
        for mut batch in batches {
            while let Some(call) = batch.next_call(now) {
                let last = call.waiters.back().map(|waiter| waiter.deadline);
                let within = last.map_or(Duration::ZERO, |deadline| deadline - now);
                match self.lanes.asker.enter(call.rows.len(), within) {
                    Ok(place) => calls.push((call, place)),
                    Err(error) => deliver(call.waiters, Err(error)),
                }
            }
        }
        calls
    }

    /// One call, until its answer is there.
    fn fly(
        &self,
        call: Call<P>,
        place: A::Place,
    ) -> impl Future<Output = Landed> + Send + use<A, P> {
        let lanes = Arc::clone(&self.lanes);
        let subject = Arc::clone(&self.subject);
        async move {
            let Call {
                plan,
                tier,
                rows,
                waiters,
            } = call;
            let asker = &lanes.asker;
            let answer = asker.ask(place, &subject, &plan, tier, &rows).await;
            (waiters, answer)
        }
    }

    /// `is_free` when nothing is under way that could be waited for, or an answer has just come.
    fn next(&mut self, is_free: bool, flights: usize) -> Next<P> {
        let mut locked = self.lanes.lock(&self.subject);
        let own = locked.get_mut(&self.subject);
        let Some(lane) = own.filter(|lane| lane.driver == self.number) else {
            self.is_over = true;
            return if flights == 0 {
                Next::Over
            } else {
                Next::Wait(None)
            };
        };
        let Some(first) = lane.first_deadline() else {
            if flights > 0 {
                return Next::Wait(None);
            }
            locked.remove(&self.subject);
            self.is_over = true;
            return Next::Over;
        };
        if !is_free {
            let Some(patience) = self.patience().filter(|_| flights < MAX_FLIGHTS) else {
                return Next::Wait(None);
            };
            let since = first - self.lanes.asker.deadline();
            let leave_at = since + patience;
            if Instant::now() < leave_at {
                return Next::Wait(Some(leave_at));
            }
        }
        Next::Leave(mem::take(&mut lane.waiting))
    }

    /// How long an operation may wait for an answer before it leaves in a call of its own; `None`
    /// when there is time for two answers one after another.
    fn patience(&self) -> Option<Duration> {
        let asker = &self.lanes.asker;
        let (expected, deadline) = (asker.expected()?, asker.deadline());
        if expected * 4 <= deadline {
            return None;
        }
        let spare = deadline.saturating_sub(expected) / 4;
        Some(spare.max(SHORTEST_PATIENCE))
    }

    async fn wait(
        &self,
        flights: &mut FuturesUnordered<impl Future<Output = Landed>>,
        landed: &mut Vec<Landed>,
        until: Option<Instant>,
    ) {
        let mut stirred = pin!(self.stirred.notified());
        let mut alarm = pin!(until.map(sleep_until));
        poll_fn(|cx| {
            if let Poll::Ready(Some(flight)) = flights.poll_next_unpin(cx) {
                landed.push(flight);
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
async fn send(
    flights: &mut FuturesUnordered<impl Future<Output = Landed>>,
    landed: &mut Vec<Landed>,
) {
    poll_fn(|cx| {
        while let Poll::Ready(Some(flight)) = flights.poll_next_unpin(cx) {
            landed.push(flight);
        }
        Poll::Ready(())
    })
    .await;
}

fn land(landed: &mut Vec<Landed>) {
    for (waiters, answer) in landed.drain(..) {
        deliver(waiters, answer);
    }
}

impl<A: Ask<P>, P: Send + Sync + 'static> Drop for Driver<A, P> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // The runtime was shut down: who waits is told by the sender that goes away.
        let mut lanes = self.lanes.lock(&self.subject);
        let own = lanes
            .get(&self.subject)
            .is_some_and(|lane| lane.driver == self.number);
        if own {
            lanes.remove(&self.subject);
        }
    }
}
