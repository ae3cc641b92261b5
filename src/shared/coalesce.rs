//! Coalescing: operations that come while others are under way travel together.

mod ask;
mod batch;
mod convoy;
mod driver;
mod hub;
mod lanes;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    future::Future,
    sync::Arc,
    task::{Context, Waker},
};

use tokio::{runtime::Handle, sync::oneshot, time::Instant};

pub(super) use self::{
    ask::Ask,
    batch::Row,
    convoy::{AnsweredOps, SubjectAnswer, SubjectOps},
};
use self::{
    batch::{Asked, OpReply, WaitingOp},
    driver::Driver,
    hub::Hub,
    lanes::Lanes,
};
use super::subject::SubjectName;
use crate::{decision::Op, limiter::tier_set::Chosen, store::error::StoreError};

/// Operations that are under way to the server, and those that wait to follow them.
///
/// The first operation of a subject leaves at once, as long as the server has little to do;
/// otherwise with the next answer, and others with it in one call. Operations on a subject that
/// has a call under way wait for its answer and then leave together, in order of arrival within
/// each tier, alike operations as one row; where two answers one after another would come near the
/// deadline, further calls leave meanwhile. The server does the calls of a subject in the order in
/// which they leave, so no answer is guessed. A waiting operation takes room for its waker alone,
/// and any number may wait.
///
/// Operations travel with others of their runtime alone, by a driver that is a task of it: so
/// whoever waits for an answer has the driver run, and a runtime that nobody drives keeps nobody
/// else waiting.
pub(super) struct Coalescer<A, P>(Arc<Hub<A, P>>);

impl<A: Ask<P>, P: Send + Sync + 'static> Coalescer<A, P> {
    pub(super) fn new(asker: A) -> Self {
        Self(Arc::new(Hub::new(asker)))
    }

    /// Has `op` done, within a tokio runtime, or fails at once when no answer can be expected in
    /// time. It is done even if nobody waits for the answer; but not if its time was over before it
    /// could be sent. `until` is a deadline from now.
    pub(super) fn submit(
        &self,
        subject: SubjectName,
        plan: Arc<P>,
        tier: Chosen,
        op: Op,
        until: Instant,
    ) -> Result<oneshot::Receiver<OpReply>, StoreError> {
        let hub = &self.0;
        let (answer, receiver) = oneshot::channel();
        let deadline = hub.asker.deadline();
        let now = until - deadline;
        let waiter = WaitingOp::new(until, answer);
        let asked = Asked {
            is_simple: hub.asker.is_simple(&plan, tier, &subject, &op, now),
            plan,
            tier,
            op,
        };
        let runtime = Handle::current().id();
        let mut all = hub.lock();
        let known = all.get(&runtime);
        if known.is_none_or(|lanes| !lanes.has(&subject)) {
            hub.asker.expect(&subject, known.map_or(0, Lanes::due))?;
        }
        let is_driven = known.is_some();
        let lanes = all.entry(runtime).or_insert_with(Lanes::new);
        let has_begun = lanes.add(subject, asked, waiter, now);
        let stirred = Arc::clone(&lanes.stirred);
        drop(all);
        if !is_driven {
            start(Driver::new(Arc::clone(hub), runtime, stirred).run());
        } else if has_begun {
            stirred.notify_one();
        }
        Ok(receiver)
    }
}

/// Has a driver begin at once, so that its call leaves before whatever else the runtime has to do,
/// and go on as a task.
fn start(driver: impl Future<Output = ()> + Send + 'static) {
    let mut driver = Box::pin(driver);
    let mut nobody = Context::from_waker(Waker::noop());
    if driver.as_mut().poll(&mut nobody).is_pending() {
        // Its first poll as a task leaves the waker that counts.
        tokio::spawn(driver);
    }
}

impl<A, P> fmt::Debug for Coalescer<A, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coalescer").finish_non_exhaustive()
    }
}
