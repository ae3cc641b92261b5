//! Compare and swap: the trait [`CompareAndSwap`], and the store [`Cas`] on top of it.

use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use siphasher::sip::SipHasher13;
use tokio::time::{Instant, sleep};

use super::{
    last_written_value_cache::{CachedVersion, StoreClock, VersionCache},
    user_store::Store,
    wire::{Call, Reply, Write},
};
use crate::{
    clock::Timestamp,
    hash_seed::keyed_hash,
    store::error::{StoreError, StoreErrorKind},
};

/// The most attempts to read and write a value before the call fails.
const MOST_TRIES: u32 = 8;

/// The longest pause after the first try; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// A value of a [`CompareAndSwap`], with its version.
pub type Versioned<V> = Option<(Vec<u8>, V)>;

/// A database that writes a value only if its version has not changed. A [`Cas`] makes it a
/// [`Store`].
pub trait CompareAndSwap: Send + Sync + 'static {
    /// The version of a value. Each write sets a version that the key never had before, even if the
    /// value has expired and been removed in between: a sequence or a random number, not a count of
    /// writes that can start again.
    type Version: Send;

    /// Returns the value under `key` with its version, `None` if it does not exist or has expired;
    /// and the time, preferably the database's own.
    fn load(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<(Versioned<Self::Version>, Timestamp), StoreError>> + Send;

    /// Writes the value if the one under `key` still has the version `old`, or still does not exist
    /// if `old` is `None`. Returns the version of the written value, or `None` if another node was
    /// first.
    fn swap(
        &self,
        key: &str,
        old: Option<Self::Version>,
        new: &Write,
    ) -> impl Future<Output = Result<Option<Self::Version>, StoreError>> + Send;

    /// The longest duration of a call, including all tries. Defaults to 250 milliseconds.
    fn deadline(&self) -> Duration {
        Duration::from_millis(250)
    }
}

/// A [`Store`] made of a [`CompareAndSwap`].
///
/// A decision costs one statement as long as no other node writes the key. This process caches the
/// values that it wrote last, for up to 8,192 keys and up to 1 KiB each. An allowed request is then
/// a swap. A denial is a load, since it writes nothing that would detect a stale cache. If other
/// nodes write the key, too, a decision is a load and a swap.
///
/// If another node writes the value between load and swap, the call starts again: eight tries at
/// most, with pauses of random length. Then it fails with
/// [`Contended`](StoreErrorKind::Contended).
///
/// The time is that of the last load, at most a second ago, plus the time since then: no later than
/// the database's, and earlier by less than that load took.
#[derive(Debug)]
pub struct Cas<S: CompareAndSwap> {
    values: S,
    last: VersionCache<S::Version>,
    time: StoreClock,
    /// Hashes keys for the cache, and generates the lengths of pauses.
    hash: SipHasher13,
    pauses: AtomicU64,
    loads_always: bool,
}

impl<S: CompareAndSwap> Cas<S> {
    /// Creates the store on this database.
    pub fn new(values: S) -> Self {
        Self {
            values,
            last: VersionCache::new(),
            time: StoreClock::default(),
            hash: keyed_hash(None),
            pauses: AtomicU64::new(0),
            loads_always: false,
        }
    }

    /// The seed of the lengths of pauses, for simulations. Random by default.
    #[doc(hidden)]
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.hash = keyed_hash(Some(seed));
        self
    }

    /// Caches no value, for tests of a database whose time stands still.
    #[doc(hidden)]
    #[must_use]
    pub const fn load_always(mut self) -> Self {
        self.loads_always = true;
        self
    }

    /// The database.
    pub const fn get_ref(&self) -> &S {
        &self.values
    }

    /// The outcome of the call on the cached value, if the swap detects that the value is stale. An
    /// outcome that writes nothing has no swap, so the value must be loaded.
    fn expect(&self, call: &Call<'_>, last: &CachedVersion<S::Version>) -> Option<(Reply, Write)> {
        // A node measures its lease from the time of the call, so the store's time must be later.
        let may_expect = !last.is_shared && !self.loads_always && call.message().is_none();
        let now = self.time.now().filter(|_| may_expect)?;
        let applied = call.apply(Some(&last.value), now).ok()?;
        Some((applied.reply, applied.write?))
    }

    async fn load(&self, key: &str) -> Result<(Versioned<S::Version>, Timestamp), StoreError> {
        let sent_at = Instant::now();
        let (found, now) = self.values.load(key).await?;
        self.time.learn(sent_at, now);
        Ok((found, now))
    }

    /// Loads the value and swaps in the new one, until no other node writes in between. `is_shared`
    /// returns whether other nodes write a loaded value, too.
    async fn load_and_swap(
        &self,
        key: &str,
        call: &Call<'_>,
        is_shared: impl Fn(&[u8]) -> bool,
    ) -> Result<Reply, StoreError> {
        for tries in 0..MOST_TRIES {
            let (found, now) = self.load(key).await?;
            let (value, version) = found.unzip();
            let is_shared = tries > 0 || value.as_deref().is_some_and(&is_shared);
            let applied = call.apply(value.as_deref(), now)?;
            let Some(write) = applied.write else {
                if let Some((value, version)) = value.zip(version) {
                    self.cache_value(key, value, version, is_shared);
                }
                return Ok(applied.reply);
            };
            if let Some(version) = self.values.swap(key, version, &write).await? {
                self.cache_value(key, write.value, version, is_shared);
                return Ok(applied.reply);
            }
            if tries + 1 < MOST_TRIES {
                sleep(self.pause(tries)).await;
            }
        }
        Err(StoreError::new(
            StoreErrorKind::Contended,
            format!("{MOST_TRIES} tries, each time others had written the value meanwhile"),
        ))
    }

    fn cache_value(&self, key: &str, value: Vec<u8>, version: S::Version, is_shared: bool) {
        self.last.put(&self.hash, key, value, version, is_shared);
    }

    fn pause(&self, tries: u32) -> Duration {
        let longest = FIRST_PAUSE * (1 << tries);
        let pause = self.pauses.fetch_add(1, Ordering::Relaxed);
        let share = self.hash.hash(&pause.to_ne_bytes()) >> 32;
        let nanos = (longest.as_nanos() as u64).saturating_mul(share) >> 32;
        Duration::from_nanos(nanos)
    }
}

impl<S: CompareAndSwap> Store for Cas<S> {
    async fn transact(&self, key: &str, call: &Call<'_>) -> Result<Reply, StoreError> {
        let Some(last) = self.last.take(&self.hash, key) else {
            return self.load_and_swap(key, call, |_| false).await;
        };
        let Some((reply, write)) = self.expect(call, &last) else {
            let is_shared = |value: &[u8]| *value != *last.value;
            return self.load_and_swap(key, call, is_shared).await;
        };
        match self.values.swap(key, Some(last.version), &write).await? {
            Some(version) => {
                self.cache_value(key, write.value, version, false);
                Ok(reply)
            }
            None => self.load_and_swap(key, call, |_| true).await,
        }
    }

    fn deadline(&self) -> Duration {
        self.values.deadline()
    }
}
