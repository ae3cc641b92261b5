//! The dispatcher: the task that sends a batcher's calls on one runtime.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    mem,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
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
    calls::{BatchCall, CallBuilder, CallSender, CallWindow as _, SubjectAnswer},
    queues::{MaxWaits, Round, SubjectQueues},
};
use crate::lock::unpoisoned;

/// The shortest time that operations wait for an answer before they are sent without it.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Sends the calls of a limiter that were submitted on one runtime. Fails all waiters when the task
/// is dropped.
pub(super) struct Dispatcher<S: CallSender<P>, P: Send + Sync + 'static> {
    state: Arc<BatcherState<S, P>>,
    runtime: Id,
    arrival: Arc<Notify>,
    /// Whether the queues of the runtime have been removed.
    is_done: bool,
}

type FinishedCall<P> = (BatchCall<P>, Vec<SubjectAnswer>);

enum DispatcherStep<P> {
    Send {
        calls: CallBuilder<P>,
        /// The time of the next round, unless something happens before.
        until: Option<Instant>,
    },
    Done,
}

impl<S: CallSender<P>, P: Send + Sync + 'static> Dispatcher<S, P> {
    pub(super) const fn new(
        state: Arc<BatcherState<S, P>>,
        runtime: Id,
        arrival: Arc<Notify>,
    ) -> Self {
        Self {
            state,
            runtime,
            arrival,
            is_done: false,
        }
    }

    pub(super) async fn run(mut self) {
        let mut in_flight = FuturesUnordered::new();
        let mut finished: Vec<FinishedCall<P>> = Vec::new();
        loop {
            let until = match self.next(&finished) {
                DispatcherStep::Done => return deliver(&mut finished),
                DispatcherStep::Send { mut calls, until } => {
                    for call in calls.calls.drain(..) {
                        in_flight.push(self.send(call));
                    }
                    calls.fail_expired();
                    until
                }
            };
            // The next calls are sent before the answers are delivered, so that the server works
            // while the answered requests continue.
            let mut answered = mem::take(&mut finished);
            poll_all(&mut in_flight, &mut finished).await;
            deliver(&mut answered);
            if finished.is_empty() && !in_flight.is_empty() {
                self.wait(&mut in_flight, &mut finished, until).await;
            }
        }
    }

    fn next(&mut self, finished: &[FinishedCall<P>]) -> DispatcherStep<P> {
        let most_subjects = self.state.window().most_subjects();
        let mut calls = CallBuilder::new(most_subjects);
        let round = Round {
            now: Instant::now(),
            has_finished: !finished.is_empty(),
            most_subjects,
            max_waits: self.max_waits(),
        };
        let mut all = self.state.lock();
        let Some(queues) = all.get_mut(&self.runtime) else {
            return DispatcherStep::Done;
        };
        for (call, _) in finished {
            queues.finish(call);
        }
        let until = queues.dispatch(&round, &mut calls);
        if queues.is_empty() && calls.is_empty() {
            all.remove(&self.runtime);
            self.is_done = true;
            return DispatcherStep::Done;
        }
        DispatcherStep::Send { calls, until }
    }

    fn send(&self, call: BatchCall<P>) -> impl Future<Output = FinishedCall<P>> + Send + use<S, P> {
        let state = Arc::clone(&self.state);
        async move {
            let (until, tier) = (call.last_deadline(), call.tier);
            let sent = state.sender.send(until, &call.plan, tier, &call.subjects);
            let answers = sent.await;
            (call, answers)
        }
    }

    fn max_waits(&self) -> MaxWaits {
        let window = self.state.window();
        let Some(expected) = window.expected() else {
            return MaxWaits {
                for_others: SHORTEST_WAIT,
                for_own: None,
            };
        };
        // After a quarter of the deadline that an answer leaves over, most of the rest remains for
        // delays. A sudden delay shows only when an answer is late, so the wait is bounded even if
        // answers have been immediate so far.
        let spare = window.deadline().saturating_sub(expected) / 4;
        MaxWaits {
            for_others: (expected / 8).max(SHORTEST_WAIT),
            for_own: Some(spare.max(SHORTEST_WAIT)),
        }
    }

    /// Waits until a call ends, there may be a call to send, or the time is `until`.
    async fn wait(
        &self,
        in_flight: &mut FuturesUnordered<impl Future<Output = FinishedCall<P>>>,
        finished: &mut Vec<FinishedCall<P>>,
        until: Option<Instant>,
    ) {
        let mut arrival = pin!(self.arrival.notified());
        let mut timer = pin!(until.map(sleep_until));
        poll_fn(|cx| {
            while let Poll::Ready(Some(call)) = in_flight.poll_next_unpin(cx) {
                finished.push(call);
            }
            if !finished.is_empty() {
                return Poll::Ready(());
            }
            if let Some(timer) = timer.as_mut().as_pin_mut()
                && timer.poll(cx).is_ready()
            {
                return Poll::Ready(());
            }
            arrival.as_mut().poll(cx)
        })
        .await;
    }
}

/// Polls every call once, so that new ones are sent, in order.
async fn poll_all<P>(
    in_flight: &mut FuturesUnordered<impl Future<Output = FinishedCall<P>>>,
    finished: &mut Vec<FinishedCall<P>>,
) {
    let poll = poll_fn(|cx| {
        while let Poll::Ready(Some(call)) = in_flight.poll_next_unpin(cx) {
            finished.push(call);
        }
        Poll::Ready(())
    });
    // A task that has used up its budget would send some of them later, behind other calls.
    unconstrained(poll).await;
}

fn deliver<P>(finished: &mut Vec<FinishedCall<P>>) {
    for (call, answers) in finished.drain(..) {
        call.deliver(answers);
    }
}

impl<S: CallSender<P>, P: Send + Sync + 'static> Drop for Dispatcher<S, P> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // The runtime was shut down. Dropping the queues fails their waiters and may wake them, so
        // the lock is released first.
        let queues = self.state.lock().remove(&self.runtime);
        drop(queues);
    }
}

type RuntimeQueues<P> = HashMap<Id, SubjectQueues<P>>;

pub(super) struct BatcherState<S, P> {
    sender: S,
    queues: Mutex<RuntimeQueues<P>>,
}

impl<S, P> BatcherState<S, P> {
    pub(super) fn new(sender: S) -> Self {
        Self {
            sender,
            queues: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RuntimeQueues<P>> {
        unpoisoned(self.queues.lock())
    }
}

impl<S: CallSender<P>, P> BatcherState<S, P> {
    pub(super) fn window(&self) -> &S::Window {
        self.sender.window()
    }
}
