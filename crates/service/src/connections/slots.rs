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

/// How often a full listener looks for an idle connection.
const SEARCH: Duration = Duration::from_millis(100);

/// The connection limit of each client.
#[derive(Clone)]
pub struct PerClient {
    pub most: NonZeroUsize,
    /// The client's key for an address; `None` for an address without a limit. Loopback addresses have none.
    pub key: Arc<dyn Fn(IpAddr) -> Option<Key> + Send + Sync>,
}

impl PerClient {
    /// The client's key, unless the address has no limit.
    fn key_of(&self, address: IpAddr) -> Option<Key> {
        let address = address.to_canonical();
        (!address.is_loopback()).then(|| (self.key)(address))?
    }
}

/// The connections of a listener.
pub struct ConnectionSlots {
    most: usize,
    permits: Arc<Semaphore>,
    per_client: Option<PerClient>,
    /// The connections of each client that has a limit.
    clients: Arc<KeyCounts>,
    begun: Instant,
    inner: Mutex<Inner>,
    /// Closed at once, since their clients had their maximum.
    refused: AtomicU64,
    /// Closed for the room of others.
    evicted: AtomicU64,
}

/// The connections of a listener, and those that it closed so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// With a request or a WebSocket.
    pub busy: usize,
    pub idle: usize,
    pub(crate) refused: u64,
    pub(crate) evicted: u64,
}

#[derive(Default)]
struct Inner {
    next: u64,
    connections: HashMap<u64, Connection>,
}

struct Connection {
    activity: Arc<Activity>,
    /// The task that serves the connection, once it has started.
    task: Option<AbortHandle>,
}

/// The slot of a connection, released on drop.
pub(super) struct Slot {
    pub(super) id: u64,
    pub(super) activity: Arc<Activity>,
    slots: Arc<ConnectionSlots>,
    /// One of the connections of its client, if that has a limit.
    _of_client: Option<KeyCount>,
    permit: Option<OwnedSemaphorePermit>,
}

impl ConnectionSlots {
    pub fn new(most: usize, per_client: Option<PerClient>) -> Arc<Self> {
        Arc::new(Self {
            most,
            permits: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            per_client,
            clients: Arc::default(),
            begun: Instant::now(),
            inner: Mutex::default(),
            refused: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        })
    }

    /// The most connections.
    pub const fn most(&self) -> usize {
        self.most
    }

    pub fn counts(&self) -> ConnectionCounts {
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
        let mut of_client = None;
        if let Some(limit) = &self.per_client
            && let Some(client) = limit.key_of(address)
        {
            of_client = self.clients.enter(client, limit.most.get());
            if of_client.is_none() {
                self.refused.fetch_add(1, Relaxed);
                return None;
            }
        }
        let activity = Arc::new(Activity::new(self.begun));
        let mut inner = self.inner();
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
            slots: Arc::clone(self),
            _of_client: of_client,
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

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.inner().connections.remove(&self.id);
    }
}

/// How many each key has of something, for those that have any.
#[derive(Default)]
pub struct KeyCounts(pub(super) Mutex<HashMap<Key, usize>>);

/// One of those that a key has, until it drops.
pub struct KeyCount {
    counts: Arc<KeyCounts>,
    key: Key,
}

impl KeyCounts {
    /// One more for a key; `None` if it has this many.
    pub fn enter(self: &Arc<Self>, key: Key, most: usize) -> Option<KeyCount> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.get(&key).copied().unwrap_or_default() >= most {
            return None;
        }
        *counts.entry(key.clone()).or_default() += 1;
        let counts = Arc::clone(self);
        Some(KeyCount { counts, key })
    }
}

impl Drop for KeyCount {
    fn drop(&mut self) {
        let Self { counts, key } = self;
        let mut counts = counts.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(key);
            }
        }
    }
}

/// One active request, in the upper bits.
const REQUEST: u64 = 1 << 48;
/// The connection closes to free its slot, and serves no more requests.
const CLOSING: u64 = 1 << 47;
/// The connection has served a request.
const SERVED: u64 = 1 << 46;
/// The milliseconds from the listener's start to the last change; while there is no request, the start of the idle
/// time.
const SINCE: u64 = SERVED - 1;

/// How many milliseconds a new connection has for its first request before it closes ahead of served ones.
const FIRST_REQUEST: u64 = 2_000;

/// The activity of one connection. The listener's slots read it.
#[derive(Debug)]
pub(super) struct Activity {
    begun: Instant,
    state: AtomicU64,
}

/// A state as read from the atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u64);

/// The order of eviction; the least closes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// It is closing already.
    Closing,
    /// It sent no request within [`FIRST_REQUEST`].
    Silent(u64),
    Served(u64),
    New(u64),
}

impl Activity {
    /// The activity of a new connection of a listener that started at this instant.
    pub(crate) fn new(begun: Instant) -> Self {
        Self {
            begun,
            state: AtomicU64::new(since(begun)),
        }
    }

    /// Adds a request. False if the connection is closing: the request must not be served.
    pub(crate) fn begin(&self) -> bool {
        self.update(|state| (state + REQUEST) | SERVED) & CLOSING == 0
    }

    /// Removes a request.
    pub(crate) fn end(&self) {
        let now = since(self.begun);
        self.update(|state| ((state - REQUEST) & !SINCE) | now);
    }

    /// Marks the connection as a tunnel, which is never evicted.
    pub(super) fn keep(&self) {
        self.update(|state| state + REQUEST);
    }

    pub(super) fn state(&self) -> State {
        State(self.state.load(Relaxed))
    }

    /// Marks the connection as closing, unless its state has changed since `read`.
    pub(super) fn close(&self, State(read): State) -> bool {
        let state = &self.state;
        state
            .compare_exchange(read, read | CLOSING, Relaxed, Relaxed)
            .is_ok()
    }

    fn update(&self, change: impl Fn(u64) -> u64) -> u64 {
        let changed = |state| Some(change(state));
        let updated = self.state.fetch_update(Relaxed, Relaxed, changed);
        updated.unwrap_or_default()
    }
}

impl State {
    /// The rank of an idle connection; `None` while it has requests.
    pub(super) fn rank(self, begun: Instant) -> Option<Rank> {
        let Self(state) = self;
        let at = state & SINCE;
        match state {
            state if state >= REQUEST => None,
            state if state & CLOSING != 0 => Some(Rank::Closing),
            state if state & SERVED != 0 => Some(Rank::Served(at)),
            _ if since(begun).saturating_sub(at) < FIRST_REQUEST => Some(Rank::New(at)),
            _ => Some(Rank::Silent(at)),
        }
    }
}

fn since(begun: Instant) -> u64 {
    let millis = u64::try_from(begun.elapsed().as_millis());
    millis.unwrap_or(SINCE).min(SINCE)
}
