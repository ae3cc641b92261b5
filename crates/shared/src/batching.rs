//! Batching: operations that arrive while calls are in flight share the next call.
//!
//! In: an operation on a subject, with its plan, its tier and a deadline. Out: its answer, through a channel. In between
//! are calls, which a `CallSender` makes; that of a limiter is in `limiter.rs`.
//!
//! 1. `submit` adds the operation to the queues at the store's home (`queues.rs`). Each subject has a batch for each tier
//!    and plan, in which equal operations that follow one another are one run with a count.
//! 2. A caller that finds its queue idle begins its call. The dispatcher at the home sends all others, in rounds. A round
//!    begins when an operation arrives that is not covered by the next one, when a call ends, or at the time that the last
//!    round has set. It sends subjects that have no call in flight: all of them while the server is hardly busy or has just answered, else those that fill calls.
//!    A subject that has waited too long for an answer about itself leaves in a further call.
//! 3. `batched_calls.rs` distributes the batches: subjects share a call if they have the plan and the tier in common, up to its
//!    bounds of subjects, runs and operations. Operations whose deadline passed while they waited fail unsent.
//! 4. A call ends with one answer for each subject. The next round is sent before the answers are delivered, so that the
//!    server works while the answered requests continue.
//!
//! Example: a thousand equal requests of one key arrive at once. The first leaves alone. The others become one run of 999,
//! and leave in one call when it is answered.

mod batched_calls;
mod queues;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    future::{Future, poll_fn, ready},
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, future::lazy, stream::FuturesUnordered};
use tokio::{
    runtime::{Handle, Id},
    sync::{Notify, oneshot},
    task::unconstrained,
    time::{Instant, sleep_until},
};

pub(super) use self::batched_calls::{
    BatchCall, CallSender, CallWindow, NewOp, OpReply, SubjectOps,
};
use self::{
    batched_calls::{BegunCall, CallBuilder, FinishedCall, Waiter},
    queues::{Round, SubjectQueues},
};
use super::hashed_key_names::SubjectName;
use tower_ratelimit_core::lock::unpoisoned;

/// The shortest time that operations wait for an answer before they are sent without it.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Queues operations by subject, and sends them in batches.
///
/// The first operation of a subject is sent at once while few subjects are in flight. Otherwise it
/// waits for the next answer, and shares one call with the other subjects that wait. Operations on
/// a subject with a call in flight wait for its answer and then leave together, in order of arrival
/// within each tier; equal consecutive operations are one run. If two answers in a row would take
/// nearly the deadline, further calls are sent meanwhile. The server runs the calls of a subject in
/// the order in which they are sent, so no answer is guessed. A waiting operation costs the memory
/// of its waker only, and any number can wait.
///
/// Calls are sent by a dispatcher at the home of the store: its own thread, which has one queue for all callers. The caller
/// that finds its queue idle begins the call itself. A store without a thread lives on the runtimes of its callers. Each of
/// them then has a queue, as nobody else drives it.
pub(super) struct Batcher<S> {
    sender: S,
    /// One entry for each runtime with a dispatcher.
    queues: Mutex<HashMap<Id, SubjectQueues>>,
}

impl<S> Batcher<S> {
    pub(super) fn new(sender: S) -> Arc<Self> {
        Arc::new(Self {
            sender,
            queues: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Id, SubjectQueues>> {
        unpoisoned(self.queues.lock())
    }
}

impl<S: CallSender> Batcher<S> {
    /// Queues `op` within a tokio runtime. The operation is done even if nobody waits for the answer, unless its deadline
    /// passes before it is sent.
    pub(super) fn submit(
        self: &Arc<Self>,
        subject: SubjectName,
        op: NewOp,
        now: Instant,
    ) -> oneshot::Receiver<OpReply> {
        let (reply, receiver) = oneshot::channel();
        let waiter = Waiter::new(now + self.sender.window().deadline(), reply);
        let runtime = Handle::current().id();
        let mut all = self.lock();
        let has_dispatcher = all.contains_key(&runtime);
        let queues = all.entry(runtime).or_default();
        let most_subjects = self.sender.window().most_subjects();
        let was_idle = queues.is_empty();
        let has_work = queues.add((subject, op), waiter, now, most_subjects);
        let mut first = None;
        if was_idle {
            queues.batcher = Some(Arc::clone(self) as _);
            first = queues.dispatch_first(now);
        }
        let mut arrival = has_work.then(|| Arc::clone(&queues.arrival));
        drop(all);
        if let Some(call) = first {
            let begun = self.begin(call);
            // The dispatcher may have ended by a panic meanwhile, and another one may have begun.
            if let Some(queues) = self.lock().get_mut(&runtime) {
                queues.begun.push(begun);
                arrival = Some(Arc::clone(&queues.arrival));
            }
        }
        if let Some(arrival) = arrival {
            arrival.notify_one();
            if !has_dispatcher {
                let dispatcher = Dispatcher {
                    batcher: Arc::downgrade(self),
                    runtime,
                    arrival,
                };
                tokio::spawn(dispatcher.run());
            }
        }
        receiver
    }

    /// Polls a call once, so that it leaves now, with the node's message of this moment.
    fn begin(self: &Arc<Self>, call: BatchCall) -> BegunCall {
        let mut begun = send(Arc::clone(self), call).boxed();
        // The dispatcher registers the waker that counts. A caller that has used up its budget would send nothing.
        let mut no_waker = Context::from_waker(Waker::noop());
        let poll = || pin!(unconstrained(begun.as_mut())).poll(&mut no_waker);
        let poll = AssertUnwindSafe(poll);
        match catch_unwind(poll) {
            Ok(Poll::Ready(finished)) => ready(finished).boxed(),
            Ok(Poll::Pending) => begun,
            // The dispatcher ends with it, as it does when a store panics later.
            Err(panic) => lazy(|_| -> FinishedCall { resume_unwind(panic) }).boxed(),
        }
    }
}

impl<S> Drop for Batcher<S> {
    /// Ends the dispatchers.
    fn drop(&mut self) {
        for queues in self.lock().values() {
            queues.arrival.notify_one();
        }
    }
}

/// Sends the calls of a limiter that were submitted on one runtime, until the limiter is dropped. Fails all waiters when
/// the task is dropped.
struct Dispatcher<S: CallSender> {
    batcher: Weak<Batcher<S>>,
    runtime: Id,
    arrival: Arc<Notify>,
}

impl<S: CallSender> Dispatcher<S> {
    async fn run(self) {
        let mut calls = CallBuilder::default();
        let mut in_flight = FuturesUnordered::new();
        let (mut finished, mut answered) = (Vec::new(), Vec::new());
        loop {
            // While nothing waits and no call is in flight, the limiter can end.
            self.arrival.notified().await;
            let Some(batcher) = self.batcher.upgrade() else {
                return;
            };
            loop {
                let until = self.round(&batcher, &finished, (&mut calls, &mut in_flight));
                for call in calls.calls.drain(..) {
                    in_flight.push(send(Arc::clone(&batcher), call).boxed());
                }
                calls.fail_expired();
                // The next calls are sent before the answers are delivered, so that the server works
                // while the answered requests continue.
                mem::swap(&mut finished, &mut answered);
                poll_all(&mut in_flight, &mut finished).await;
                for (call, answers) in answered.drain(..) {
                    call.deliver(answers);
                }
                if !finished.is_empty() {
                    continue;
                }
                // A call that is leaving may be with its caller, while operations behind it wait already.
                if in_flight.is_empty() && until.is_none() {
                    break;
                }
                self.wait(&mut in_flight, &mut finished, until).await;
            }
        }
    }

    /// Moves what can be sent now into `calls`. Returns the time of the next round, unless something happens before.
    fn round(
        &self,
        batcher: &Batcher<S>,
        finished: &[FinishedCall],
        (calls, in_flight): (&mut CallBuilder, &mut FuturesUnordered<BegunCall>),
    ) -> Option<Instant> {
        let window = batcher.sender.window();
        let mut round = Round {
            has_finished: !finished.is_empty(),
            most_subjects: window.most_subjects(),
            for_others: SHORTEST_WAIT,
            for_own: None,
        };
        if let Some(expected) = window.expected() {
            // After a quarter of the deadline that an answer leaves over, most of the rest remains for
            // delays. A sudden delay shows only when an answer is late, so the wait is bounded even if
            // answers have been immediate so far.
            let spare = window.deadline().saturating_sub(expected) / 4;
            round.for_others = (expected / 8).max(SHORTEST_WAIT);
            round.for_own = Some(spare.max(SHORTEST_WAIT));
        }
        let mut all = batcher.lock();
        let queues = all.get_mut(&self.runtime)?;
        for (call, _) in finished {
            queues.finish(call);
        }
        let until = queues.dispatch(&round);
        mem::swap(&mut queues.calls, calls);
        in_flight.extend(queues.begun.drain(..));
        if queues.is_empty() {
            queues.batcher = None;
        }
        until
    }

    /// Waits until a call ends, there may be a call to send, or the time is `until`.
    async fn wait(
        &self,
        in_flight: &mut FuturesUnordered<impl Future<Output = FinishedCall>>,
        finished: &mut Vec<FinishedCall>,
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

async fn send<S: CallSender>(batcher: Arc<Batcher<S>>, call: BatchCall) -> FinishedCall {
    let answers = batcher.sender.send(&call).await;
    (call, answers)
}

/// Polls every call once, so that new ones are sent, in order.
async fn poll_all(
    in_flight: &mut FuturesUnordered<impl Future<Output = FinishedCall>>,
    finished: &mut Vec<FinishedCall>,
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

impl<S: CallSender> Drop for Dispatcher<S> {
    fn drop(&mut self) {
        // The runtime was shut down, or a store has panicked. Dropping the queues fails their waiters
        // and may wake them, so the lock is released first.
        let batcher = self.batcher.upgrade();
        let queues = batcher.and_then(|batcher| batcher.lock().remove(&self.runtime));
        drop(queues);
    }
}
