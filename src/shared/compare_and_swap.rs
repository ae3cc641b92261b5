//! Stores that compare and swap: [`CompareAndSwap`], and the store that is made of one.

use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use siphasher::sip::SipHasher13;
use tokio::time::sleep;

use super::{
    call::{Call, Reply, Write},
    store::Store,
};
use crate::{
    clock::Timestamp,
    redis::store::error::{StoreError, StoreErrorKind},
    seed::keyed_hash,
};

/// How often a value is read and written before the call is given up.
const MOST_TRIES: u32 = 8;

/// The longest pause after the first try; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// A value of a [`CompareAndSwap`], with its version.
pub type Versioned<V> = Option<(Vec<u8>, V)>;

/// A database that writes a value only if nobody else has meanwhile. A [`Cas`] makes a
/// [`Store`] of it.
pub trait CompareAndSwap: Send + Sync + 'static {
    /// The version of a value, which changes with each write.
    type Version: Send;

    /// The value under `key` with its version, `None` if there is none or it is over; and the time,
    /// best the database's own.
    fn load(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<(Versioned<Self::Version>, Timestamp), StoreError>> + Send;

    /// Writes the value if the one under `key` still has the version `old`, or if there still is none;
    /// says whether it did.
    fn swap(
        &self,
        key: &str,
        old: Option<Self::Version>,
        new: &Write,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// How long a call takes at most, all tries included. Defaults to 250 milliseconds.
    fn deadline(&self) -> Duration {
        Duration::from_millis(250)
    }
}

/// A [`Store`] made of a [`CompareAndSwap`].
///
/// A value that somebody else writes meanwhile is read again: eight times at most, after pauses of a
/// random length. Then the call fails with [`Contended`](StoreErrorKind::Contended).
#[derive(Debug)]
pub struct Cas<S> {
    values: S,
    /// Makes the lengths of pauses.
    jitter: SipHasher13,
    pauses: AtomicU64,
}

impl<S: CompareAndSwap> Cas<S> {
    /// The store that keeps its values there.
    pub fn new(values: S) -> Self {
        Self {
            values,
            jitter: keyed_hash(None),
            pauses: AtomicU64::new(0),
        }
    }

    /// Where the lengths of pauses come from in a simulation; at random without one.
    #[doc(hidden)]
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.jitter = keyed_hash(Some(seed));
        self
    }

    /// The database.
    pub const fn get_ref(&self) -> &S {
        &self.values
    }

    fn pause(&self, tries: u32) -> Duration {
        let longest = FIRST_PAUSE * (1 << tries);
        let pause = self.pauses.fetch_add(1, Ordering::Relaxed);
        let share = self.jitter.hash(&pause.to_ne_bytes()) >> 32;
        let nanos = (longest.as_nanos() as u64).saturating_mul(share) >> 32;
        Duration::from_nanos(nanos)
    }
}

impl<S: CompareAndSwap> Store for Cas<S> {
    async fn transact(&self, key: &str, call: &Call<'_>) -> Result<Reply, StoreError> {
        for tries in 0..MOST_TRIES {
            let (found, now) = self.values.load(key).await?;
            let (value, version) = found.unzip();
            let applied = call.apply(value.as_deref(), now)?;
            let Some(write) = applied.write else {
                return Ok(applied.reply);
            };
            if self.values.swap(key, version, &write).await? {
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
