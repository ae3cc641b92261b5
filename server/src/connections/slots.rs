//! The connection slots of a listener: limits the connections in all and of each client, and evicts idle ones.

use std::{
    collections::HashMap,
    net::IpAddr,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
    time::{Instant, timeout},
};
use tower_ratelimit::Key;

use super::activity::{Activity, Rank};

/// How often a full listener looks for an idle connection.
const SEARCH: Duration = Duration::from_millis(100);

/// The connection limit of each client.
#[derive(Clone)]
pub(crate) struct PerClient {
    pub(crate) most: NonZeroUsize,
    /// The client's key for an address; `None` for an address without a limit. Loopback addresses have none.
    pub(crate) key: Arc<dyn Fn(IpAddr) -> Option<Key> + Send + Sync>,
}

impl PerClient {
    /// The client's key, unless the address has no limit.
    fn key_of(&self, address: IpAddr) -> Option<Key> {
        let address = address.to_canonical();
        (!address.is_loopback()).then(|| (self.key)(address))?
    }
}

/// The connections of a listener.
pub(crate) struct ConnectionSlots {
    most: usize,
    permits: Arc<Semaphore>,
    per_client: Option<PerClient>,
    begun: Instant,
    inner: Mutex<Inner>,
    /// Closed at once, since their clients had their maximum.
    refused: AtomicU64,
    /// Closed for the room of others.
    evicted: AtomicU64,
}

/// The connections of a listener, and those that it closed so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionCounts {
    /// With a request or a WebSocket.
    pub(crate) busy: usize,
    pub(crate) idle: usize,
    pub(crate) refused: u64,
    pub(crate) evicted: u64,
}

#[derive(Default)]
struct Inner {
    next: u64,
    connections: HashMap<u64, Connection>,
    /// The number of connections of each client that has a limit and at least one connection.
    clients: HashMap<Key, usize>,
}

struct Connection {
    activity: Arc<Activity>,
    /// The task that serves the connection, once it has started.
    task: Option<AbortHandle>,
}

/// The slot of a connection, released on drop.
pub(super) struct Slot {
    id: u64,
    activity: Arc<Activity>,
    client: Option<Key>,
    slots: Arc<ConnectionSlots>,
    permit: Option<OwnedSemaphorePermit>,
}

impl ConnectionSlots {
    pub(crate) fn new(most: usize, per_client: Option<PerClient>) -> Arc<Self> {
        Arc::new(Self {
            most,
            permits: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            per_client,
            begun: Instant::now(),
            inner: Mutex::default(),
            refused: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        })
    }

    /// The most connections.
    pub(crate) const fn most(&self) -> usize {
        self.most
    }

    pub(crate) fn counts(&self) -> ConnectionCounts {
        let (all, idle) = {
            let inner = self.inner();
            let states = inner.connections.values();
            let states = states.map(|connection| connection.activity.state());
            let idle = states.filter(|state| state.rank(self.begun).is_some());
            (inner.connections.len(), idle.count())
        };
        ConnectionCounts {
            busy: all - idle,
            idle,
            refused: self.refused.load(Relaxed),
            evicted: self.evicted.load(Relaxed),
        }
    }

    /// A slot for a connection from this address; `None` if its client has its maximum.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Slot> {
        let limit = self.per_client.as_ref();
        let limited = limit.and_then(|limit| Some((limit.most.get(), limit.key_of(address)?)));
        let activity = Arc::new(Activity::new(self.begun));
        let mut inner = self.inner();
        if let Some((most, client)) = &limited {
            let count = inner.clients.entry(client.clone()).or_default();
            if *count >= *most {
                self.refused.fetch_add(1, Relaxed);
                return None;
            }
            *count += 1;
        }
        let id = inner.next;
        inner.next += 1;
        let connection = Connection {
            activity: Arc::clone(&activity),
            task: None,
        };
        inner.connections.insert(id, connection);
        Some(Slot {
            id,
            activity,
            client: limited.map(|(_, client)| client),
            slots: Arc::clone(self),
            permit: None,
        })
    }

    /// Waits for a permit. While the listener is full, evicts the connection that has been idle longest.
    pub(super) async fn wait(&self, slot: &mut Slot) {
        while slot.permit.is_none() {
            let permit = Arc::clone(&self.permits).try_acquire_owned();
            slot.permit = match permit {
                Ok(permit) => Some(permit),
                Err(_) => {
                    self.close_one();
                    let freed = Arc::clone(&self.permits).acquire_owned();
                    timeout(SEARCH, freed).await.ok().and_then(Result::ok)
                }
            };
        }
    }

    /// Stores the task that serves a connection.
    pub(super) fn set_task(&self, id: u64, task: AbortHandle) {
        if let Some(connection) = self.inner().connections.get_mut(&id) {
            connection.task = Some(task);
        }
    }

    /// Closes the connection that has been idle longest, unless none is idle or one is closing already.
    fn close_one(&self) {
        let task = {
            let inner = self.inner();
            let idle = inner.connections.iter().filter_map(|(id, connection)| {
                let task = connection.task.as_ref()?;
                let state = connection.activity.state();
                Some(((state.rank(self.begun)?, id), state, connection, task))
            });
            let longest = idle.min_by_key(|(rank, ..)| *rank);
            longest.and_then(|((rank, _), state, connection, task)| {
                let closes = rank != Rank::Closing && connection.activity.close(state);
                closes.then(|| task.clone())
            })
        };
        if let Some(task) = task {
            self.evicted.fetch_add(1, Relaxed);
            task.abort();
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn activity(&self) -> Arc<Activity> {
        Arc::clone(&self.activity)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut inner = self.slots.inner();
        inner.connections.remove(&self.id);
        if let Some(client) = &self.client
            && let Some(count) = inner.clients.get_mut(client)
        {
            *count -= 1;
            if *count == 0 {
                inner.clients.remove(client);
            }
        }
    }
}
