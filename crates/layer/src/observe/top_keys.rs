//! The keys that are denied most often, in constant memory.

use std::{
    fmt,
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
};

use siphasher::sip::SipHasher13;

use super::event::{Event, Observer};
use tower_ratelimit_core::{
    clock::{Clock, OsClock, Timestamp},
    decision::Name,
    hash::keyed_hash,
    key::Key,
    lock::unpoisoned,
};

/// The number of locks: threads seldom contend for one.
const SHARDS: usize = 8;

/// Half of the reported time, five minutes. A count is kept for one to two of these.
const HALF_MICROS: u64 = 300_000_000;

/// The most keys that have a counter in a half of a shard.
const MOST: usize = 256;

/// An observer that reports the keys that are denied most often.
///
/// It has a fixed number of counters, by the space-saving algorithm (Metwally, Agrawal, El Abbadi,
/// *Efficient Computation of Frequent and Top-k Elements in Data Streams*, 2005), so its memory does
/// not grow with the clients: at most 4,096 pairs of a key and the policy that denied it. Every pair
/// with more than one in 256 of the [denials](TopKeysReport::denials) is in the
/// [`report`](Self::report), and at most [`error`](TopKey::error) of its count belong to other pairs.
///
/// A report covers the last five to ten minutes. If another thread holds the lock, a denial is
/// [skipped](TopKeysReport::skipped) without waiting, and is in no count. Denied requests that passed in shadow mode or
/// as overflow are counted apart, see [`TopKey::passed_anyway`]. If limits with a key each are charged together, the key
/// is that of the binding limit.
///
/// The observer holds the keys themselves. `Debug` of a [`Key`] hides its content, and
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

#[derive(Default)]
struct Shard {
    halves: [KeyCounters; 2],
    half: u64,
}

/// A key, a policy, and the number of denials of the key by the policy. Denied requests that passed anyway are counted
/// apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopKey {
    key: Key,
    policy: Name,
    passed_anyway: bool,
    count: u64,
    error: u64,
}

/// The keys that were denied most often in the last five to ten minutes.
#[derive(Debug, Clone)]
pub struct TopKeysReport {
    keys: Vec<TopKey>,
    denials: u64,
    skipped: u64,
}

impl TopKeys {
    /// An empty observer that counts by the operating system's clock.
    pub fn new() -> Self {
        Self::with_clock(OsClock::default())
    }
}

impl Default for TopKeys {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> TopKeys<C> {
    /// An empty observer that counts by another clock, such as a test's.
    pub fn with_clock(clock: C) -> Self {
        Self {
            shards: Default::default(),
            hasher: keyed_hash(None),
            skipped: AtomicU64::new(0),
            clock,
        }
    }

    /// The `most` keys with the most denials in the last five to ten minutes, in descending order; of
    /// equals, the key with the smaller error comes first.
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
            denials += halves.iter().map(|half| half.total).sum::<u64>();
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

    /// Counts a denial of this key by the policy of this name. For denials that no layer observes,
    /// such as those of a limiter that the application calls itself.
    pub fn denied(&self, key: &Key, policy: impl Into<Arc<str>>) {
        self.count(key, &Name::Owned(Arc::new(policy.into())), false);
    }

    /// Counts a denial as [`denied`](Self::denied), of a request that [passed anyway](TopKey::passed_anyway).
    pub fn denied_and_passed(&self, key: &Key, policy: impl Into<Arc<str>>) {
        self.count(key, &Name::Owned(Arc::new(policy.into())), true);
    }

    fn count(&self, key: &Key, policy: &Name, passed_anyway: bool) {
        let hash = self.hasher.hash(key.as_bytes());
        let shard = &self.shards[(hash >> 61) as usize];
        // Read before the lock is taken: the application's clock may be slow or panic.
        let now = self.clock.now();
        // Requests of a flood must not wait for one another.
        let mut shard = match shard.try_lock() {
            Ok(shard) => shard,
            Err(TryLockError::Poisoned(shard)) => shard.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.skipped.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        shard.turn(now);
        shard.halves[0].count(hash as u32, key, policy, passed_anyway);
    }
}

impl<C: Clock> Observer for TopKeys<C> {
    fn observe(&self, event: &Event<'_>) {
        let (decided, passed_anyway) = match event {
            Event::Decided(decided) if decided.decision().is_denied() => {
                (decided, decided.is_shadow())
            }
            Event::Overflowed(decided) => (decided, true),
            _ => return,
        };
        let policy = decided.decision().binding().label();
        self.count(decided.key(), &policy, passed_anyway);
    }
}

impl<C> fmt::Debug for TopKeys<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopKeys").finish_non_exhaustive()
    }
}

impl Shard {
    /// Starts a new half when the current one is over; two after a gap.
    fn turn(&mut self, now: Timestamp) {
        let half = now.as_micros() / HALF_MICROS;
        if half == self.half {
            return;
        }
        self.halves.swap(0, 1);
        self.halves[0] = KeyCounters::default();
        // After a gap, or after the clock stepped back.
        if half != self.half + 1 {
            self.halves[1] = KeyCounters::default();
        }
        self.half = half;
    }
}

/// The keys of both halves. A key without a counter in one half may have been denied there as often as
/// the smallest count of that half.
fn keys_of([this, before]: &[KeyCounters; 2]) -> Vec<TopKey> {
    let mut keys: Vec<TopKey> = this.counters.clone();
    for key in &mut keys {
        key.add(before.most_of(key));
    }
    let known = keys.len();
    for key in &before.counters {
        if !keys[..known].iter().any(|other| other.is_same(key)) {
            let mut key = key.clone();
            key.add(this.most_of(&key));
            keys.push(key);
        }
    }
    keys
}

impl TopKeysReport {
    /// The keys, in descending order of denials.
    pub fn keys(&self) -> &[TopKey] {
        &self.keys
    }

    /// The denials counted in this time, of all keys, also those not listed.
    pub const fn denials(&self) -> u64 {
        self.denials
    }

    /// Denials since the start that were not counted, because another thread held the lock.
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }
}

/// At most [`MOST`] counters. A key without a counter takes over the smallest one, with its count: no
/// count is too small, and the count taken over is the error.
#[derive(Debug, Clone, Default)]
struct KeyCounters {
    /// A part of each key's hash, which finds its counter; in a vector of their own because a search scans all of them.
    tags: Vec<u32>,
    counters: Vec<TopKey>,
    total: u64,
}

impl KeyCounters {
    fn count(&mut self, tag: u32, key: &Key, policy: &Name, passed_anyway: bool) {
        self.total += 1;
        if let Some(place) = self.place(tag, (key, policy, passed_anyway)) {
            self.counters[place].count += 1;
            return;
        }
        let counter = TopKey {
            key: key.clone(),
            policy: policy.clone(),
            passed_anyway,
            count: 1,
            error: 0,
        };
        if self.counters.len() < MOST {
            self.tags.push(tag);
            self.counters.push(counter);
            return;
        }
        let place = self.smallest();
        let error = self.counters[place].count;
        self.tags[place] = tag;
        self.counters[place] = TopKey {
            count: error + 1,
            error,
            ..counter
        };
    }

    /// The count of a key and its error. Without a counter, both are the most that the key may have
    /// been denied.
    fn most_of(&self, key: &TopKey) -> (u64, u64) {
        let mut counters = self.counters.iter();
        match counters.find(|counter| counter.is_same(key)) {
            Some(counter) => (counter.count, counter.error),
            None if self.counters.len() < MOST => (0, 0),
            None => (self.smallest_count(), self.smallest_count()),
        }
    }

    fn place(&self, tag: u32, of: (&Key, &Name, bool)) -> Option<usize> {
        let mut places = self.tags.iter().zip(&self.counters);
        places.position(|(own, counter)| *own == tag && counter.is_of(of))
    }

    /// The index of a smallest counter, if there is one.
    fn smallest(&self) -> usize {
        let places = 0..self.counters.len();
        let smallest = places.min_by_key(|place| self.counters[*place].count);
        smallest.unwrap_or_default()
    }

    fn smallest_count(&self) -> u64 {
        let counts = self.counters.iter().map(|counter| counter.count);
        counts.min().unwrap_or_default()
    }
}

impl TopKey {
    /// The key. Its `Debug` hides the content.
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// The name of the policy that denied it.
    pub fn policy(&self) -> &str {
        self.policy.as_str()
    }

    /// Whether the denied requests passed anyway, in shadow mode or as overflow.
    pub const fn passed_anyway(&self) -> bool {
        self.passed_anyway
    }

    /// The number of denials, without skipped ones. The true number may be less, by at most the
    /// [error](Self::error).
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The largest possible error of the [count](Self::count), which is never too small: the denials of
    /// keys that had the counter before.
    pub const fn error(&self) -> u64 {
        self.error
    }

    const fn add(&mut self, (count, error): (u64, u64)) {
        self.count += count;
        self.error += error;
    }

    fn is_same(&self, other: &Self) -> bool {
        self.is_of((&other.key, &other.policy, other.passed_anyway))
    }

    fn is_of(&self, (key, policy, passed_anyway): (&Key, &Name, bool)) -> bool {
        self.passed_anyway == passed_anyway && self.key == *key && self.policy == *policy
    }
}
