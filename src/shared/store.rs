//! Stores: where the values of subjects are kept.

use std::{future::Future, sync::Arc, time::Duration};

use super::wire::call::{Call, Reply};
use crate::store::error::StoreError;

/// Keeps a value of bytes for each subject, for a [`SharedLimiter`](super::SharedLimiter).
///
/// A store that can change a value under a lock, or in a transaction, calls [`Call::apply`] in
/// between. One that can compare and swap is a [`CompareAndSwap`](super::CompareAndSwap).
///
/// ```
/// use std::{collections::HashMap, sync::Mutex};
/// use tower_ratelimit::{Clock, OsClock, StoreError, shared::{Call, Reply, Store}};
///
/// #[derive(Default)]
/// struct Values(Mutex<HashMap<String, Vec<u8>>>);
///
/// impl Store for Values {
///     async fn transact(&self, key: &str, call: &Call<'_>) -> Result<Reply, StoreError> {
///         let mut values = self.0.lock().expect("no panic");
///         let applied = call.apply(values.get(key).map(Vec::as_slice), OsClock::new().now())?;
///         if let Some(write) = applied.write {
///             values.insert(key.to_owned(), write.value);
///         }
///         Ok(applied.reply)
///     }
/// }
/// ```
pub trait Store: Send + Sync + 'static {
    /// Applies `call` to the value under `key` in one step: nobody else changes the value between
    /// the reading and the writing, and the answer is given when the value is written.
    ///
    /// The time is best the store's own, so that nodes need not agree about it. A limiter has mostly
    /// one call of a key under way; more for several tiers, or a thousand operations at once. While
    /// the store fails it is called about the key `rl:trial` alone.
    fn transact(
        &self,
        key: &str,
        call: &Call<'_>,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// How long a call takes at most, after which the limiter's
    /// [`on_failure`](super::RedisLimiterBuilder::on_failure) decides: at most an hour. A limiter
    /// reads it when it is made. Defaults to 250 milliseconds.
    fn deadline(&self) -> Duration {
        Duration::from_millis(250)
    }
}

impl<S: Store> Store for Arc<S> {
    fn transact(
        &self,
        key: &str,
        call: &Call<'_>,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send {
        S::transact(self, key, call)
    }

    fn deadline(&self) -> Duration {
        S::deadline(self)
    }
}
