//! Stores that compare and swap: [`CompareAndSwap`], and the store that is made of one.

use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use siphasher::sip::SipHasher13;
use tokio::time::{Instant, sleep};

use super::{
    store::Store,
    version_cache::{CachedVersion, StoreClock, VersionCache},
    wire::call::{Call, Reply, Write},
};
use crate::{
    clock::Timestamp,
    seed::keyed_hash,
    store::error::{StoreError, StoreErrorKind},
};

/// The most attempts to read and write a value before the call fails.
const MOST_TRIES: u32 = 8;

/// The longest pause after the first try; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// A value of a [`CompareAndSwap`], with its version.
pub type Versioned<V> = Option<(Vec<u8>, V)>;

/// A database that writes a value only if nobody else has meanwhile. A [`Cas`] makes a
/// [`Store`] of it.
pub trait CompareAndSwap: Send + Sync + 'static {
    /// The version of a value: another one with each write, and none that its key has had before,
    /// though the value may have been over and removed meanwhile. A sequence or a random number,
    /// rather than a count of writes that begins anew.
    type Version: Send;

    /// The value under `key` with its version, `None` if there is none or it is over; and the time,
    /// best the database's own.
    fn load(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<(Versioned<Self::Version>, Timestamp), StoreError>> + Send;

    /// Writes the value if the one under `key` still has the version `old`, or if there still is none;
    /// gives the version of the written one, or `None` if others were first.
    fn swap(
        &self,
        key: &str,
        old: Option<Self::Version>,
        new: &Write,
    ) -> impl Future<Output = Result<Option<Self::Version>, StoreError>> + Send;

    /// How long a call takes at most, all tries included. Defaults to 250 milliseconds.
    fn deadline(&self) -> Duration {
        Duration::from_millis(250)
    }
}

/// A [`Store`] made of a [`CompareAndSwap`].
///
/// A decision costs one statement as long as no other node writes the key: the value that this
/// process wrote last is remembered, of up to 8,192 keys and up to 1 KiB each, so an admission is a
/// swap and a denial, which is never told from memory, a load. Where others write it too, a decision
/// is a load and a swap.
///
/// A value that somebody else writes meanwhile is read again: eight times at most, after pauses of a
/// random length. Then the call fails with [`Contended`](StoreErrorKind::Contended).
///
/// Time is that of the last load, at most a second ago, and what has passed since: no later than the
/// database's, and earlier by less than that load took.
#[derive(Debug)]
pub struct Cas<S: CompareAndSwap> {
    values: S,
    last: VersionCache<S::Version>,
    time: StoreClock,
    /// Finds the places of keys, and makes the lengths of pauses.
    hash: SipHasher13,
    pauses: AtomicU64,
    loads_always: bool,
}

impl<S: CompareAndSwap> Cas<S> {
    /// The store that keeps its values there.
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

    /// Where the lengths of pauses come from in a simulation; at random without one.
    #[doc(hidden)]
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.hash = keyed_hash(Some(seed));
        self
    }

    /// Remembers no value, for tests of a database whose time stands still.
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

    /// The call's outcome on the value that was written last, if it can be told without reading.
    /// An outcome that writes nothing cannot: nobody would notice that the value is another one.
    fn expect(&self, call: &Call<'_>, last: &CachedVersion<S::Version>) -> Option<(Reply, Write)> {
        // A node counts the time of its lease from the question on, so the time must be read after it.
        let may_expect = !last.is_shared && !self.loads_always && call.message().is_none();
        let now = self.time.now().filter(|_| may_expect)?;
        let applied = call.apply(Some(&last.value), now).ok()?;
        Some((applied.reply, applied.write?))
    }

    async fn load(&self, key: &str) -> Result<(Versioned<S::Version>, Timestamp), StoreError> {
        let asked_at = Instant::now();
        let (found, now) = self.values.load(key).await?;
        self.time.learn(asked_at, now);
        Ok((found, now))
    }

    /// Reads the value and writes the new one, until nobody else comes in between. `is_shared` says
    /// of a value that was read whether others write it, too.
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
                    self.remember(key, value, version, is_shared);
                }
                return Ok(applied.reply);
            };
            if let Some(version) = self.values.swap(key, version, &write).await? {
                self.remember(key, write.value, version, is_shared);
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

    fn remember(&self, key: &str, value: Vec<u8>, version: S::Version, is_shared: bool) {
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
                self.remember(key, write.value, version, false);
                Ok(reply)
            }
            None => self.load_and_swap(key, call, |_| true).await,
        }
    }

    fn deadline(&self) -> Duration {
        self.values.deadline()
    }
}
