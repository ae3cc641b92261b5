//! Coalescing: the operations of one subject that come while others are under way travel together.

mod batch;
mod driver;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    future::Future,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

pub(super) use self::batch::Row;
use self::{
    batch::{Batch, Waiter},
    driver::Driver,
};
use crate::{
    decision::Decision, decision::Op, limiter::limits::Chosen, redis::store::error::StoreError,
};

/// So many locks that threads seldom meet at one.
const SHARDS: usize = 32;

/// How long a driver may leave operations waiting whose time is over. Its runtime is then not driven
/// any more.
const STILL: Duration = Duration::from_millis(100);

/// Asks the server about one subject.
pub(super) trait Ask<P>: Send + Sync + 'static {
    /// A call's place among those that are under way.
    type Place: Send + 'static;

    /// A place for a call that carries so many rows; an error at once when an answer `within` this
    /// time is not to be expected.
    fn enter(&self, rows: usize, within: Duration) -> Result<Self::Place, StoreError>;

    /// Has the server do `rows` one after another for `subject` by the quotas of one tier. The rows
    /// of the answer may be shorter and more.
    fn ask(
        &self,
        place: Self::Place,
        subject: &str,
        plan: &P,
        tier: Chosen,
        rows: &[(Op, usize)],
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;

    /// How long an answer takes at present; `None` when that is not known.
    fn expected(&self) -> Option<Duration>;

    /// How long an operation waits at most.
    fn deadline(&self) -> Duration;
}

/// Operations that are under way to the server, and those that wait to follow them.
///
/// The first operation of a subject leaves at once. What comes while a call is under way waits for
/// its answer and then leaves together, in order of arrival within each tier, alike operations as one
/// row; where two answers one after another would come near the deadline, further calls leave
/// meanwhile. The server does the calls of a subject in the order in which they leave, so no answer
/// is guessed. What waits takes room for its waker alone, and there is no limit to it.
pub(super) struct Coalescer<A, P> {
    asker: A,
    random: RandomState,
    shards: [Mutex<Lanes<P>>; SHARDS],
    /// The drivers so far. No two have one number, or a lane that is begun again would also be that
    /// of a driver which stood still before.
    drivers: AtomicU64,
}

/// The subjects that have anything under way.
type Lanes<P> = HashMap<Arc<str>, Lane<P>>;

/// What waits to follow the calls of one subject that are under way.
struct Lane<P> {
    /// One batch for each tier and plan. Each was begun before the next.
    waiting: Vec<Batch<P>>,
    /// The number of the driver that sees to it.
    driver: u64,
    /// Tells the driver that something waits.
    stirred: Arc<Notify>,
}

/// What the server says, or why it says nothing.
pub(super) type Answer = Result<Decision, StoreError>;

impl<A: Ask<P>, P: Send + Sync + 'static> Coalescer<A, P> {
    pub(super) fn new(asker: A) -> Self {
        Self {
            asker,
            random: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            drivers: AtomicU64::new(0),
        }
    }

    /// Has `op` done, within a tokio runtime, or fails at once when no answer can be expected in
    /// time. It is done even if nobody waits for the answer; but not if its time was over before it
    /// could be sent.
    pub(super) fn submit(
        self: &Arc<Self>,
        subject: String,
        plan: Arc<P>,
        tier: Chosen,
        op: Op,
    ) -> Result<oneshot::Receiver<Answer>, StoreError> {
        let (answer, receiver) = oneshot::channel();
        let now = Instant::now();
        let waiter = Waiter {
            deadline: now + self.asker.deadline(),
            answer,
        };
        let mut lanes = self.lanes(&subject);
        match lanes.entry(subject.into()) {
            Entry::Occupied(mut lane) => {
                let subject = Arc::clone(lane.key());
                let lane = lane.get_mut();
                let is_still = lane.is_still(now);
                lane.add(plan, tier, op, waiter);
                if is_still {
                    lane.driver = self.next_driver();
                    let driver = Driver::new(self, subject, lane);
                    drop(lanes);
                    start(driver.run(None));
                }
            }
            Entry::Vacant(place) => {
                let mut batch = Batch::new(plan, tier);
                batch.add(op, waiter);
                let entered = self.asker.enter(1, self.asker.deadline())?;
                let subject = Arc::clone(place.key());
                let lane = place.insert(Lane::new(self.next_driver()));
                let driver = Driver::new(self, subject, lane);
                drop(lanes);
                start(driver.run(batch.next_call(now).map(|call| (call, entered))));
            }
        }
        Ok(receiver)
    }

    fn next_driver(&self) -> u64 {
        self.drivers.fetch_add(1, Ordering::Relaxed)
    }

    fn lanes(&self, subject: &str) -> MutexGuard<'_, Lanes<P>> {
        let hash = self.random.hash_one(subject) as usize;
        let shard = &self.shards[hash % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
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

impl<P> Lane<P> {
    fn new(driver: u64) -> Self {
        Self {
            waiting: Vec::new(),
            driver,
            stirred: Arc::default(),
        }
    }

    fn add(&mut self, plan: Arc<P>, tier: Chosen, op: Op, waiter: Waiter) {
        if self.waiting.is_empty() {
            self.stirred.notify_one();
        }
        let known = self
            .waiting
            .iter_mut()
            .find(|batch| batch.is_of(&plan, tier));
        match known {
            Some(batch) => batch.add(op, waiter),
            None => {
                let mut batch = Batch::new(plan, tier);
                batch.add(op, waiter);
                self.waiting.push(batch);
            }
        }
    }

    /// Until when the operation waits that has waited longest.
    fn first_deadline(&self) -> Option<Instant> {
        self.waiting.first().and_then(Batch::first_deadline)
    }

    /// Whether nobody sees to it any more.
    fn is_still(&self, now: Instant) -> bool {
        let over = self.first_deadline().map(|deadline| deadline + STILL);
        over.is_some_and(|over| over < now)
    }
}

impl<A, P> fmt::Debug for Coalescer<A, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coalescer").finish_non_exhaustive()
    }
}
