//! Batching: operations that arrive while calls are in flight share the next call.
//!
//! In: an operation on a subject, with its plan, its tier and a deadline. Out: its answer, through a channel. In between
//! are calls, which a `CallSender` makes; that of a limiter is in `shared/limiter/store_calls.rs`.
//!
//! 1. `submit` adds the operation to the queues of the current runtime (`queues.rs`). Each subject has a batch for each tier
//!    and plan, in which equal operations that follow one another are one row with a count.
//! 2. The dispatcher of that runtime (`dispatcher.rs`) works in rounds. A round begins when an operation arrives that is
//!    not covered by the next one, when a call ends, or at the time that the last round has set. It sends subjects that
//!    have no call in flight: all of them while the server is hardly busy or has just answered, else those that fill calls.
//!    A subject that has waited too long for an answer about itself leaves in a further call.
//! 3. `calls.rs` distributes the batches: subjects share a call if they have the plan and the tier in common, up to its
//!    bounds of subjects, rows and operations. Operations whose deadline passed while they waited fail unsent.
//! 4. A call ends with one answer for each subject. The next round is sent before the answers are delivered, so that the
//!    server works while the answered requests continue.
//!
//! Example: a thousand equal requests of one key arrive at once. The first leaves alone. The others become one row of 999,
//! and leave in one call when it is answered.

mod calls;
mod dispatcher;
mod queues;
#[cfg(test)]
mod tests;

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Waker},
};

use tokio::{runtime::Handle, sync::oneshot, time::Instant};

pub(super) use self::calls::{
    AnsweredOps, CallSender, CallWindow, NewOp, OpReply, Row, SubjectAnswer, SubjectOps,
};
use self::{
    calls::Waiter,
    dispatcher::{BatcherState, Dispatcher},
    queues::SubjectQueues,
};
use super::hashed_key_names::SubjectName;

/// Queues operations by subject, and sends them in batches.
///
/// The first operation of a subject is sent at once while few subjects are in flight. Otherwise it
/// waits for the next answer, and shares one call with the other subjects that wait. Operations on
/// a subject with a call in flight wait for its answer and then leave together, in order of arrival
/// within each tier; equal consecutive operations are one row. If two answers in a row would take
/// nearly the deadline, further calls are sent meanwhile. The server runs the calls of a subject in
/// the order in which they are sent, so no answer is guessed. A waiting operation costs the memory
/// of its waker only, and any number can wait.
///
/// Each runtime has queues of its own and a dispatcher that is a task of it. Whoever waits for an
/// answer drives that dispatcher, and a runtime that nobody drives delays no other runtime.
pub(super) struct Batcher<S, P>(Arc<BatcherState<S, P>>);

impl<S: CallSender<P>, P: Send + Sync + 'static> Batcher<S, P> {
    pub(super) fn new(sender: S) -> Self {
        Self(Arc::new(BatcherState::new(sender)))
    }

    /// Queues `op` within a tokio runtime. The operation is done even if nobody waits for the answer, unless its deadline passes before it
    /// is sent. `until` is a deadline from now.
    pub(super) fn submit(
        &self,
        subject: SubjectName,
        op: NewOp<P>,
        until: Instant,
    ) -> oneshot::Receiver<OpReply> {
        let state = &self.0;
        let (reply, receiver) = oneshot::channel();
        let now = until - state.window().deadline();
        let waiter = Waiter::new(until, reply);
        let runtime = Handle::current().id();
        let mut all = state.lock();
        let has_dispatcher = all.contains_key(&runtime);
        let queues = all.entry(runtime).or_insert_with(SubjectQueues::new);
        let most_subjects = state.window().most_subjects();
        let has_work = queues.add((subject, op), waiter, now, most_subjects);
        let arrival = Arc::clone(&queues.arrival);
        drop(all);
        if !has_dispatcher {
            start(Dispatcher::new(Arc::clone(state), runtime, arrival).run());
        } else if has_work {
            arrival.notify_one();
        }
        receiver
    }
}

/// Polls a dispatcher once, so that it sends its call before the runtime runs other tasks, and then
/// spawns it.
fn start(dispatcher: impl Future<Output = ()> + Send + 'static) {
    let mut dispatcher = Box::pin(dispatcher);
    let mut no_waker = Context::from_waker(Waker::noop());
    if dispatcher.as_mut().poll(&mut no_waker).is_pending() {
        // Its first poll as a task registers the waker that counts.
        tokio::spawn(dispatcher);
    }
}
