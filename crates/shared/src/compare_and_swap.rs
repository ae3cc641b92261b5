//! Compare and swap: the trait [`CompareAndSwap`], and the store [`Cas`] on top of it.

use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use siphasher::sip::SipHasher13;
use tokio::time::sleep;

use super::{
    store_trait::Store,
    wire::{Reply, StoreCall, Write},
};
use tower_ratelimit_core::{clock::Timestamp, hash::keyed_hash};
use tower_ratelimit_store::error::{StoreError, StoreErrorKind};

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

/// A [`Store`] made of a [`CompareAndSwap`]: a decision is a load and a swap, and a denial a load, as it
/// writes nothing.
///
/// If another node writes the value between load and swap, the call starts again: eight tries at
/// most, with pauses of random length. Then it fails with
/// [`Contended`](StoreErrorKind::Contended).
#[derive(Debug)]
pub struct Cas<S> {
    values: S,
    /// Generates the lengths of pauses.
    hash: SipHasher13,
    pauses: AtomicU64,
}

impl<S: CompareAndSwap> Cas<S> {
    /// Creates the store on this database.
    pub fn new(values: S) -> Self {
        Self {
            values,
            hash: keyed_hash(None),
            pauses: AtomicU64::new(0),
        }
    }

    /// The seed of the lengths of pauses, for simulations. Random by default.
    #[doc(hidden)]
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.hash = keyed_hash(Some(seed));
        self
    }

    /// The database.
    pub const fn get_ref(&self) -> &S {
        &self.values
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
    async fn transact(&self, key: &str, call: &StoreCall<'_>) -> Result<Reply, StoreError> {
        for tries in 0..MOST_TRIES {
            let (found, now) = self.values.load(key).await?;
            let (value, version) = found.unzip();
            let applied = call.apply(value.as_deref(), now)?;
            let Some(write) = applied.write else {
                return Ok(applied.reply);
            };
            if self.values.swap(key, version, &write).await?.is_some() {
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

    fn deadline(&self) -> Duration {
        self.values.deadline()
    }
}
