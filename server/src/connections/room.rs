//! The room of a listener: how many connections there may be, of one client and in all, and which of them closes for
//! another.

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

use super::standing::{Rank, Standing};

/// How often a full room is searched for a connection that has become idle.
const SEARCH: Duration = Duration::from_millis(100);

/// The limit of each client's connections.
#[derive(Clone)]
pub(crate) struct PerClient {
    pub(crate) most: NonZeroUsize,
    /// The key that an address is counted by; `None` for an address without a limit. Loopback addresses have none.
    pub(crate) key: Arc<dyn Fn(IpAddr) -> Option<Key> + Send + Sync>,
}

impl PerClient {
    /// The key that the address is counted by, if it is.
    fn key_of(&self, address: IpAddr) -> Option<Key> {
        let address = address.to_canonical();
        (!address.is_loopback()).then(|| (self.key)(address))?
    }
}

/// The connections of a listener.
pub(super) struct Room {
    permits: Arc<Semaphore>,
    per_client: Option<PerClient>,
    begun: Instant,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    next: u64,
    connections: HashMap<u64, Connection>,
    /// The connections of each client that is connected and has a limit.
    clients: HashMap<Key, usize>,
}

struct Connection {
    standing: Arc<Standing>,
    /// The task that serves it, once there is one.
    task: Option<AbortHandle>,
}

/// The place of a connection, which is free again when this is dropped.
pub(super) struct Slot {
    id: u64,
    standing: Arc<Standing>,
    client: Option<Key>,
    room: Arc<Room>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Room {
    pub(super) fn new(most: usize, per_client: Option<PerClient>) -> Arc<Self> {
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            per_client,
            begun: Instant::now(),
            inner: Mutex::default(),
        })
    }

    /// A place for a connection from this address; `None` if its client has as many as it may have.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Slot> {
        let limit = self.per_client.as_ref();
        let limited = limit.and_then(|limit| Some((limit.most.get(), limit.key_of(address)?)));
        let standing = Arc::new(Standing::new(self.begun));
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
            standing: Arc::clone(&standing),
            task: None,
        };
        inner.connections.insert(id, connection);
        Some(Slot {
            id,
            standing,
            client: limited.map(|(_, client)| client),
            room: Arc::clone(self),
            permit: None,
        })
    }

    /// Waits until there is room for one more. Where there is none, the connection closes that has been without a request
    /// for longest.
    pub(super) async fn wait(&self, place: &mut Slot) {
        while place.permit.is_none() {
            let permit = Arc::clone(&self.permits).try_acquire_owned();
            place.permit = match permit {
                Ok(permit) => Some(permit),
                Err(_) => {
                    self.close_one();
                    let freed = Arc::clone(&self.permits).acquire_owned();
                    timeout(SEARCH, freed).await.ok().and_then(Result::ok)
                }
            };
        }
    }

    /// Notes which task serves a connection.
    pub(super) fn set_task(&self, id: u64, task: AbortHandle) {
        if let Some(connection) = self.inner().connections.get_mut(&id) {
            connection.task = Some(task);
        }
    }

    /// Closes the connection that has been without a request for longest, unless all have requests or one closes already.
    fn close_one(&self) {
        let task = {
            let inner = self.inner();
            let idle = inner.connections.iter().filter_map(|(id, connection)| {
                let task = connection.task.as_ref()?;
                let state = connection.standing.state();
                Some(((state.rank(self.begun)?, id), state, connection, task))
            });
            let longest = idle.min_by_key(|(rank, ..)| *rank);
            longest.and_then(|((rank, _), state, connection, task)| {
                let closes = rank != Rank::Closing && connection.standing.close(state);
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

    pub(super) fn standing(&self) -> Arc<Standing> {
        Arc::clone(&self.standing)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut inner = self.room.inner();
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
