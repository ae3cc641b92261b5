//! The keys that are denied most often, in constant memory.

mod counters;

use std::{
    fmt,
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
};

use siphasher::sip::SipHasher13;

pub use self::counters::TopKey;
use self::counters::{KeyCounters, Tag};
use super::event::{Event, Observer};
use crate::{
    clock::{Clock, OsClock, Timestamp},
    decision::Label,
    key::Key,
    lock::unpoisoned,
    seed::keyed_hash,
};

/// Locks, so that threads seldom meet at one.
const SHARDS: usize = 8;

/// What is counted is kept for one to two of these: five minutes.
const HALF_MICROS: u64 = 300_000_000;

/// An observer that knows the keys that are denied most often: who is it that floods us?
///
/// It has a fixed number of counters, by the space-saving algorithm (Metwally, Agrawal, El Abbadi,
/// *Efficient Computation of Frequent and Top-k Elements in Data Streams*, 2005), so its memory does
/// not grow with the clients: at most 4,096 pairs of a key and the policy that denied it. Every pair
/// that has more than one in 256 of the [denials](TopKeysReport::denials) is among those that
/// [`report`](Self::report) lists, and at most [`error`](TopKey::error) of its count are another's.
///
/// A report is about the last five to ten minutes. A denial that another thread is in the way of is
/// not waited for but [skipped](TopKeysReport::skipped), and is in no number. Requests that a shadow
/// would deny count. Where limits with a key each are charged together, the key is that of the limit
/// that binds.
///
/// It holds the keys themselves. `Debug` of a [`Key`] hides its content, and
/// [`Key::reveal`] shows it.
///
/// ```
/// use std::sync::Arc;
/// use http::{Request, Response};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_ratelimit::{Header, Quota, RateLimitLayer, observe::TopKeys};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let top = Arc::new(TopKeys::new());
/// let layer = RateLimitLayer::new(Quota::per_hour(1), Header::new("x-api-key"))
///     .observer(Arc::clone(&top));
///
/// let service = layer.layer(service_fn(async |_: Request<String>| {
///     Ok::<_, std::io::Error>(Response::new(String::new()))
/// }));
/// for user in ["ann", "bob", "bob", "bob"] {
///     let request = Request::builder().header("x-api-key", user).body(String::new())?;
///     service.clone().oneshot(request).await?;
/// }
///
/// let report = top.report(10);
/// assert_eq!(report.keys().len(), 1);
/// assert_eq!(report.keys()[0].count(), 2);
/// assert_eq!(report.keys()[0].key().reveal().to_string(), "\"bob\"");
/// # Ok(())
/// # }
/// ```
pub struct TopKeys<C = OsClock> {
    shards: [Mutex<Shard>; SHARDS],
    hasher: SipHasher13,
    skipped: AtomicU64,
    clock: C,
}

/// The counters of this half and of the one before.
#[derive(Default)]
struct Shard {
    halves: [KeyCounters; 2],
    /// The number of this half since the epoch.
    half: u64,
}

/// The keys that were denied most often lately.
#[derive(Debug, Clone)]
pub struct TopKeysReport {
    keys: Vec<TopKey>,
    denials: u64,
    skipped: u64,
}

impl TopKeys {
    /// Counts by the operating system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(OsClock)
    }
}

impl Default for TopKeys {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> TopKeys<C> {
    /// The same by another clock, such as a test's.
    #[must_use]
    pub fn with_clock(clock: C) -> Self {
        Self {
            shards: Default::default(),
            hasher: keyed_hash(None),
            skipped: AtomicU64::new(0),
            clock,
        }
    }

    /// The `most` keys that were denied most often in the last five to ten minutes, the first one
    /// first; of equals, the one whose number is surer.
    #[must_use]
    pub fn report(&self, most: usize) -> TopKeysReport {
        let now = self.clock.now();
        let mut keys = Vec::new();
        let mut denials = 0;
        for shard in &self.shards {
            let halves = {
                let mut shard = unpoisoned(shard.lock());
                shard.turn(now);
                shard.halves.clone()
            };
            denials += halves.iter().map(KeyCounters::total).sum::<u64>();
            keys.extend(keys_of(&halves));
        }
        keys.sort_by_key(|key| (u64::MAX - key.count, key.error));
        keys.truncate(most);
        TopKeysReport {
            keys,
            denials,
            skipped: self.skipped.load(Ordering::Relaxed),
        }
    }

    /// Counts a denial of this key by the policy of this name that no layer tells of, such as one by
    /// a limiter that the application asks itself.
    pub fn denied(&self, key: &Key, policy: impl Into<Arc<str>>) {
        self.count(key, &Label::Owned(policy.into()));
    }

    fn count(&self, key: &Key, policy: &Label) {
        let hash = self.hasher.hash(key.as_bytes());
        let shard = &self.shards[(hash >> 61) as usize];
        // The clock is the application's: it may be slow, and it may panic.
        let now = self.clock.now();
        // A flood must not make requests wait for one another.
        let mut shard = match shard.try_lock() {
            Ok(shard) => shard,
            Err(TryLockError::Poisoned(shard)) => shard.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.skipped.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        shard.turn(now);
        shard.halves[0].count(Tag::new(hash), key, policy);
    }
}

impl<C: Clock> Observer for TopKeys<C> {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Decided(decided) = event
            && decided.decision().is_denied()
        {
            let policy = decided.decision().binding().label();
            self.count(&decided.binding_key(), &policy);
        }
    }
}

impl<C> fmt::Debug for TopKeys<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopKeys").finish_non_exhaustive()
    }
}

impl Shard {
    /// Begins a new half, or two, if it is time.
    fn turn(&mut self, now: Timestamp) {
        let half = now.as_micros() / HALF_MICROS;
        if half == self.half {
            return;
        }
        self.halves.swap(0, 1);
        self.halves[0].clear();
        // After a gap, and after a clock that stepped back.
        if half != self.half + 1 {
            self.halves[1].clear();
        }
        self.half = half;
    }
}

/// The keys of both halves. A key that has no counter in one of them may have been denied there as
/// often as the rarest that has.
fn keys_of([this, before]: &[KeyCounters; 2]) -> Vec<TopKey> {
    let mut keys: Vec<TopKey> = this.keys().to_vec();
    for key in &mut keys {
        key.add(before.most_of(key));
    }
    let known = keys.len();
    for key in before.keys() {
        if !keys[..known].iter().any(|other| other.is_same(key)) {
            let mut key = key.clone();
            key.add(this.most_of(&key));
            keys.push(key);
        }
    }
    keys
}

impl TopKeysReport {
    /// The keys, the one that was denied most often first.
    #[must_use]
    pub fn keys(&self) -> &[TopKey] {
        &self.keys
    }

    /// All denials that were counted in this time, of keys that are listed and of others.
    #[must_use]
    pub const fn denials(&self) -> u64 {
        self.denials
    }

    /// Denials since the beginning that were not counted, because other threads counted one.
    #[must_use]
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }
}
