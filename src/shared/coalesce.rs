//! Coalescing: the operations of one subject that come while others are under way travel together.

mod batch;
mod driver;
mod lanes;
#[cfg(test)]
mod tests;

use std::{
    collections::hash_map::Entry,
    fmt,
    future::Future,
    sync::Arc,
    task::{Context, Waker},
};

use tokio::{sync::oneshot, time::Instant};

pub(super) use self::{batch::Row, lanes::Ask};
use self::{
    batch::{Batch, Reply, Waiter},
    driver::Driver,
    lanes::{Lane, Lanes},
};
use crate::{decision::Op, limiter::limits::Chosen, redis::store::error::StoreError};

/// Operations that are under way to the server, and those that wait to follow them.
///
/// The first operation of a subject leaves at once. What comes while a call is under way waits for
/// its answer and then leaves together, in order of arrival within each tier, alike operations as one
/// row; where two answers one after another would come near the deadline, further calls leave
/// meanwhile. The server does the calls of a subject in the order in which they leave, so no answer
/// is guessed. What waits takes room for its waker alone, and there is no limit to it.
pub(super) struct Coalescer<A, P>(Arc<Lanes<A, P>>);

impl<A: Ask<P>, P: Send + Sync + 'static> Coalescer<A, P> {
    pub(super) fn new(asker: A) -> Self {
        Self(Arc::new(Lanes::new(asker)))
    }

    /// Has `op` done, within a tokio runtime, or fails at once when no answer can be expected in
    /// time. It is done even if nobody waits for the answer; but not if its time was over before it
    /// could be sent.
    pub(super) fn submit(
        &self,
        subject: String,
        plan: Arc<P>,
        tier: Chosen,
        op: Op,
    ) -> Result<oneshot::Receiver<Reply>, StoreError> {
        let lanes = &self.0;
        let (answer, receiver) = oneshot::channel();
        let now = Instant::now();
        let waiter = Waiter {
            deadline: now + lanes.asker.deadline(),
            answer,
        };
        let mut locked = lanes.lock(&subject);
        match locked.entry(subject.into()) {
            Entry::Occupied(mut lane) => {
                let subject = Arc::clone(lane.key());
                let lane = lane.get_mut();
                let is_still = lane.is_still(now);
                lane.add(plan, tier, op, waiter);
                if is_still {
                    lane.driver = lanes.next_driver();
                    let driver = Driver::new(lanes, subject, lane);
                    drop(locked);
                    start(driver.run(None));
                }
            }
            Entry::Vacant(place) => {
                let mut batch = Batch::new(plan, tier);
                batch.add(op, waiter);
                let entered = lanes.asker.enter(1, lanes.asker.deadline())?;
                let subject = Arc::clone(place.key());
                let lane = place.insert(Lane::new(lanes.next_driver()));
                let driver = Driver::new(lanes, subject, lane);
                drop(locked);
                start(driver.run(batch.next_call(now).map(|call| (call, entered))));
            }
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
