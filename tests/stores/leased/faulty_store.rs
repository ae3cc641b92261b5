//! A store behind a wire: each call takes two milliseconds, and can go wrong.

use std::{
    collections::VecDeque,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::sleep;
use tower_ratelimit::{
    clock::{Clock, Timestamp, TokioClock},
    shared::{MemoryStore, Reply, Store, StoreCall},
    store::{StoreError, StoreErrorKind},
};

/// A fault of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// It never arrives.
    LostRequest,
    /// It is executed, and the answer never arrives.
    LostReply,
    /// It is executed once more this much later, and answered then.
    Again(Duration),
    /// It fails at once.
    Fails,
}

/// A store whose clones are handles.
#[derive(Clone)]
pub(crate) struct Wire(Arc<Inner>);

struct Inner {
    store: MemoryStore,
    clock: TokioClock,
    next: Mutex<VecDeque<Option<Fault>>>,
    all: Mutex<Option<Fault>>,
    calls: AtomicU64,
}

impl Wire {
    pub(crate) fn new() -> Self {
        let clock = TokioClock::new();
        Self(Arc::new(Inner {
            store: MemoryStore::with_clock(clock),
            clock,
            next: Mutex::default(),
            all: Mutex::default(),
            calls: AtomicU64::new(0),
        }))
    }

    /// The store's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    pub(crate) fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::Relaxed)
    }

    /// Sets the faults of the next calls, one after another.
    pub(crate) fn next(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.0.next.lock().unwrap().extend(faults);
    }

    /// Sets the fault of all calls after those.
    pub(crate) fn all(&self, fault: Option<Fault>) {
        *self.0.all.lock().unwrap() = fault;
    }

    fn fault(&self) -> Option<Fault> {
        let next = self.0.next.lock().unwrap().pop_front();
        next.unwrap_or_else(|| *self.0.all.lock().unwrap())
    }
}

impl Store for Wire {
    async fn transact(&self, key: &str, call: &StoreCall<'_>) -> Result<Reply, StoreError> {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        let fault = self.fault();
        if let Some(Fault::Fails) = fault {
            return Err(StoreError::new(StoreErrorKind::Other, "down"));
        }
        sleep(Duration::from_millis(1)).await;
        if let Some(Fault::LostRequest) = fault {
            return pending().await;
        }
        let mut reply = self.0.store.transact(key, call).await?;
        match fault {
            Some(Fault::LostReply) => return pending().await,
            Some(Fault::Again(after)) => {
                sleep(after).await;
                reply = self.0.store.transact(key, call).await?;
            }
            _ => {}
        }
        sleep(Duration::from_millis(1)).await;
        Ok(reply)
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(50)
    }
}
