//! The requests that are in flight, counted in this process, and the bodies of their responses, which hold the permits.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasherDefault, Hash, Hasher},
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, ready},
};

use http_body::{Body, Frame};
use siphasher::sip::SipHasher13;

use tower_ratelimit_core::{
    hash::{KnownHash, keyed_hash},
    key::Key,
    lock::unpoisoned,
};
pub(crate) use tower_ratelimit_layer::middleware::wrapped_bodies::{Follow, Followed};

/// The number of locks. Threads seldom contend for one, unless they serve the same key.
const SHARDS: usize = 64;

/// A shard with room for this many keys or fewer keeps it.
const SHARD_ROOM: usize = 16;

/// The number of requests in flight by key; at least 1.
#[doc(hidden)]
#[allow(missing_debug_implementations, reason = "hidden")]
pub struct InFlight {
    hasher: SipHasher13,
    shards: [Mutex<InFlightShard>; SHARDS],
}

type InFlightShard = HashMap<HashedKey, u64, BuildHasherDefault<KnownHash>>;

/// A key and its hash, which is computed once for each request.
#[derive(Clone, PartialEq, Eq)]
struct HashedKey {
    hash: u64,
    key: Key,
}

impl Hash for HashedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The right of one request to be in flight; released when it is dropped.
#[doc(hidden)]
pub struct Permit {
    key: HashedKey,
    in_flight: Arc<InFlight>,
    /// A value that is dropped with the permit.
    _attached: Option<Attached>,
}

type Attached = Box<dyn Send + Sync>;

impl InFlight {
    #[doc(hidden)]
    pub fn new() -> Self {
        Self {
            // Clients choose keys, and must not be able to make them collide.
            hasher: keyed_hash(None),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// One of `limit` permits, and how many are left. Returns the key, and how many are taken, if none is
    /// left.
    #[doc(hidden)]
    pub fn acquire(self: &Arc<Self>, key: Key, limit: u64) -> Result<(Permit, u64), (Key, u64)> {
        let key = self.hashed(key);
        match self.enter(&key, limit) {
            Ok(left) => Ok((self.permit(key), left)),
            Err(taken) => Err((key.key, taken)),
        }
    }

    fn hashed(&self, key: Key) -> HashedKey {
        let hash = self.hasher.hash(key.as_bytes());
        HashedKey { hash, key }
    }

    fn permit(self: &Arc<Self>, key: HashedKey) -> Permit {
        Permit {
            key,
            in_flight: Arc::clone(self),
            _attached: None,
        }
    }

    fn enter(&self, key: &HashedKey, limit: u64) -> Result<u64, u64> {
        let mut shard = self.shard(key);
        let taken = match shard.get_mut(key) {
            Some(taken) if *taken >= limit => return Err(*taken),
            Some(taken) => {
                *taken += 1;
                *taken
            }
            None => {
                shard.insert(key.clone(), 1);
                1
            }
        };
        Ok(limit - taken)
    }

    fn leave(&self, key: &HashedKey) {
        let mut shard = self.shard(key);
        match shard.get_mut(key) {
            Some(taken) if *taken > 1 => *taken -= 1,
            _ => {
                shard.remove(key);
                // Releases memory after a burst of keys. Room for twice as many keys stays, so that it is seldom done.
                if shard.capacity() > SHARD_ROOM && shard.len() < shard.capacity() / 4 {
                    let room = (shard.len() * 2).max(SHARD_ROOM / 2);
                    shard.shrink_to(room);
                }
            }
        }
    }

    #[doc(hidden)]
    pub fn of(&self, key: &Key) -> u64 {
        let key = self.hashed(key.clone());
        self.shard(&key).get(&key).copied().unwrap_or_default()
    }

    /// The number of requests of all keys.
    pub fn total(&self) -> u64 {
        let shards = self.shards.iter();
        shards.map(|shard| lock(shard).values().sum::<u64>()).sum()
    }

    pub(super) fn keys(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    fn shard(&self, key: &HashedKey) -> MutexGuard<'_, InFlightShard> {
        // The maps use the lowest and the highest bits.
        lock(&self.shards[(key.hash >> 32) as usize % SHARDS])
    }
}

/// Locks a shard. Counts change in one step, so they are right even after a panic.
fn lock(shard: &Mutex<InFlightShard>) -> MutexGuard<'_, InFlightShard> {
    unpoisoned(shard.lock())
}

impl Permit {
    pub(super) const fn key(&self) -> &Key {
        &self.key.key
    }
}

#[cfg(feature = "redis")]
impl InFlight {
    /// A permit from another source.
    pub(super) fn add(self: &Arc<Self>, key: Key) -> Permit {
        let key = self.hashed(key);
        let _ = self.enter(&key, u64::MAX);
        self.permit(key)
    }
}

#[cfg(feature = "redis")]
impl Permit {
    pub(super) fn with(mut self, attached: impl Send + Sync + 'static) -> Self {
        self._attached = Some(Box::new(attached));
        self
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.in_flight.leave(&self.key);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

/// The body of a response, which counts as in flight until it ends or is dropped.
pub type ConcurrencyBody<B> = Followed<B, HeldPermits>;

impl<B: Body> Follow<B> for HeldPermits {
    type Error = B::Error;

    fn poll_frame(
        &mut self,
        mut inner: Pin<&mut B>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(inner.as_mut().poll_frame(cx));
        // A caller that checks `is_end_stream` does not poll again after the last frame.
        if !matches!(frame, Some(Ok(_))) || inner.is_end_stream() {
            self.release();
        }
        Poll::Ready(frame)
    }

    fn complete(&mut self) {
        self.release();
    }

    fn is_over(&self) -> bool {
        self.is_empty()
    }
}

/// The permits of a request for an upgrade, in the extensions of the request.
///
/// A service that upgrades the connection keeps it until the connection ends, which is after the end of the response's
/// body. Clones hold the same permits.
#[derive(Debug, Clone)]
pub struct RequestPermits {
    _permits: Arc<HeldPermits>,
}

/// The permits that a request holds; released when this is dropped. The first needs no heap.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct HeldPermits {
    first: Option<Permit>,
    more: Option<Box<Self>>,
    /// The permits that an upgraded connection holds, too.
    shared: Option<RequestPermits>,
}

impl HeldPermits {
    #[doc(hidden)]
    pub fn push(&mut self, permit: Permit) {
        match &self.first {
            None => self.first = Some(permit),
            Some(_) => self.more.get_or_insert_default().push(permit),
        }
    }

    #[doc(hidden)]
    pub const fn is_empty(&self) -> bool {
        if self.shared.is_some() {
            return false;
        }
        self.first.is_none()
    }

    #[doc(hidden)]
    pub fn share(&mut self) -> RequestPermits {
        let permits = RequestPermits {
            _permits: Arc::new(mem::take(self)),
        };
        self.shared = Some(permits.clone());
        permits
    }

    #[doc(hidden)]
    pub fn release(&mut self) {
        drop(mem::take(self));
    }
}

impl From<Option<Permit>> for HeldPermits {
    fn from(first: Option<Permit>) -> Self {
        Self {
            first,
            more: None,
            shared: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_released_after_a_burst_of_keys() {
        let in_flight = Arc::new(InFlight::new());
        let room = || -> usize {
            let shards = in_flight.shards.iter();
            shards.map(|shard| lock(shard).capacity()).sum()
        };
        let acquire = |n: u64| {
            in_flight
                .acquire(Key::from(n), 1)
                .expect("each has its own")
        };
        let crowd: Vec<_> = (0..100_000).map(acquire).collect();
        assert_eq!(in_flight.keys(), 100_000);
        assert!(room() >= 100_000);

        drop(crowd);
        assert_eq!(in_flight.keys(), 0);
        assert!(room() <= 2 * SHARD_ROOM * SHARDS, "{}", room());
    }
}
