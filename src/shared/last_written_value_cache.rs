//! The cache of values that this process wrote last, and of the database's time. With both a
//! decision needs no read.

use std::{
    fmt,
    sync::{Mutex, OnceLock},
    time::Duration,
};

use siphasher::sip::SipHasher13;
use tokio::time::Instant;

use crate::{clock::Timestamp, lock::unpoisoned};

/// The most cached keys. Two keys with the same place replace each other.
const PLACES: usize = 8_192;

/// The longest cached value, in bytes: long logs would fill the memory.
const LONGEST_VALUE: usize = 1_024;

/// How long a reply's time is used: two clocks drift apart by less than the duration of a reply
/// meanwhile.
const FRESH: Duration = Duration::from_secs(1);

/// The value that this process wrote or read last.
pub(super) struct CachedVersion<V> {
    key: Box<str>,
    pub(super) value: Vec<u8>,
    pub(super) version: V,
    /// Whether other processes write it. Then it is read before each write.
    pub(super) is_shared: bool,
}

/// The last values of some keys. The places are made for the first of them.
pub(super) struct VersionCache<V>(OnceLock<Box<[CachedPlace<V>]>>);

type CachedPlace<V> = Mutex<Option<CachedVersion<V>>>;

impl<V> VersionCache<V> {
    pub(super) fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Takes the value of a key out, so that no other call uses it. The caller inserts the next
    /// one.
    pub(super) fn take(&self, hash: &SipHasher13, key: &str) -> Option<CachedVersion<V>> {
        let mut place = unpoisoned(self.place(hash, key).lock());
        place.take_if(|cached| *cached.key == *key)
    }

    pub(super) fn put(
        &self,
        hash: &SipHasher13,
        key: &str,
        value: Vec<u8>,
        version: V,
        is_shared: bool,
    ) {
        if value.len() > LONGEST_VALUE {
            return;
        }
        let cached = CachedVersion {
            key: key.into(),
            value,
            version,
            is_shared,
        };
        *unpoisoned(self.place(hash, key).lock()) = Some(cached);
    }

    fn place(&self, hash: &SipHasher13, key: &str) -> &CachedPlace<V> {
        let empty = || (0..PLACES).map(|_| Mutex::default()).collect();
        let hash = hash.hash(key.as_bytes());
        &self.0.get_or_init(empty)[hash as usize % PLACES]
    }
}

/// The time of a database: never later than its clock, and earlier by less than the duration of a
/// reply.
#[derive(Debug, Default)]
pub(super) struct StoreClock(Mutex<Option<(Instant, Timestamp)>>);

impl StoreClock {
    /// The database's time, unless its last reply is too old.
    pub(super) fn now(&self) -> Option<Timestamp> {
        let (at, time) = (*unpoisoned(self.0.lock()))?;
        let elapsed = at.elapsed();
        (elapsed < FRESH).then(|| time.saturating_add(elapsed))
    }

    /// Learns the time in the reply to a call sent at `sent_at`.
    pub(super) fn learn(&self, sent_at: Instant, reported: Timestamp) {
        let now = Instant::now();
        let latest = reported.saturating_add(now - sent_at);
        let mut known = unpoisoned(self.0.lock());
        let expected = known.map(|(at, time)| time.saturating_add(now - at));
        // A slow reply is less exact than an earlier one, if they agree.
        let agreed = expected.filter(|time| (reported..=latest).contains(time));
        *known = Some((now, agreed.unwrap_or(reported)));
    }
}

impl<V> fmt::Debug for VersionCache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionCache").finish_non_exhaustive()
    }
}
