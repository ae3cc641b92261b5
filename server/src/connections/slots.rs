//! The connection slots of a listener: limits the connections in all and of each client, and evicts idle ones.

use std::{
    collections::HashMap,
    net::IpAddr,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
pub(super) struct Slots {
    permits: Arc<Semaphore>,
    per_client: Option<PerClient>,
    begun: Instant,
    inner: Mutex<Inner>,
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
    slots: Arc<Slots>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Slots {
    pub(super) fn new(most: usize, per_client: Option<PerClient>) -> Arc<Self> {
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            per_client,
            begun: Instant::now(),
            inner: Mutex::default(),
        })
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
