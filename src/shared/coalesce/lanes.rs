//! Lanes: the subjects that have anything under way, and what waits to follow it.

use std::{
    collections::HashMap,
    future::Future,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::batch::{Batch, Row, Waiter};
use crate::{
    decision::Op, limiter::limits::Chosen, lock::unpoisoned, redis::store::error::StoreError,
};

/// Locks of the lanes: enough for threads to seldom meet at one.
const SHARDS: usize = 32;

/// How long a driver may leave operations waiting whose time is over. Its runtime is then not driven
/// any more.
pub(super) const STILL: Duration = Duration::from_millis(100);

/// Asks the server about one subject.
pub(in crate::shared) trait Ask<P>: Send + Sync + 'static {
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

/// All lanes, and the server that they lead to.
pub(super) struct Lanes<A, P> {
    pub(super) asker: A,
    random: RandomState,
    pub(super) shards: [Mutex<LaneShard<P>>; SHARDS],
    /// The drivers so far. No two have one number, or a lane that is begun again would also be that
    /// of a driver which stood still before.
    drivers: AtomicU64,
}

/// The lanes of some subjects, under one lock.
pub(super) type LaneShard<P> = HashMap<Arc<str>, Lane<P>>;

/// What waits to follow the calls of one subject that are under way.
pub(super) struct Lane<P> {
    /// One batch for each tier and plan. Each was begun before the next.
    pub(super) waiting: Vec<Batch<P>>,
    /// The number of the driver that sends it.
    pub(super) driver: u64,
    /// Tells the driver that something waits.
    pub(super) stirred: Arc<Notify>,
}

impl<A, P> Lanes<A, P> {
    pub(super) fn new(asker: A) -> Self {
        Self {
            asker,
            random: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            drivers: AtomicU64::new(0),
        }
    }

    pub(super) fn next_driver(&self) -> u64 {
        self.drivers.fetch_add(1, Ordering::Relaxed)
    }

    /// The lanes among which that of `subject` is.
    pub(super) fn lock(&self, subject: &str) -> MutexGuard<'_, LaneShard<P>> {
        let hash = self.random.hash_one(subject) as usize;
        let shard = &self.shards[hash % SHARDS];
        unpoisoned(shard.lock())
    }
}

impl<P> Lane<P> {
    pub(super) fn new(driver: u64) -> Self {
        Self {
            waiting: Vec::new(),
            driver,
            stirred: Arc::default(),
        }
    }

    pub(super) fn add(&mut self, plan: Arc<P>, tier: Chosen, op: Op, waiter: Waiter) {
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

    /// The deadline of the operation that has waited longest.
    pub(super) fn first_deadline(&self) -> Option<Instant> {
        self.waiting.first().and_then(Batch::first_deadline)
    }

    /// Whether its driver has stopped.
    pub(super) fn is_still(&self, now: Instant) -> bool {
        let over = self.first_deadline().map(|deadline| deadline + STILL);
        over.is_some_and(|over| over < now)
    }
}
