//! The trait of a user's store, which keeps the values of subjects.

use std::{future::Future, sync::Arc, time::Duration};

use super::wire::{Reply, StoreCall};
use tower_ratelimit_store::error::StoreError;

/// Keeps the bytes of a value for each subject, for a [`SharedLimiter`](super::SharedLimiter).
///
/// A store with locks or transactions calls [`StoreCall::apply`] between reading and writing. A store
/// that compares and swaps implements [`CompareAndSwap`](super::CompareAndSwap) instead.
///
/// ```
/// use std::{collections::HashMap, sync::Mutex};
/// use tower_ratelimit::{
///     clock::{Clock, OsClock},
///     shared::{StoreCall, Reply, Store},
///     store::StoreError,
/// };
///
/// #[derive(Default)]
/// struct Values(Mutex<HashMap<String, Vec<u8>>>);
///
/// impl Store for Values {
///     async fn transact(&self, key: &str, call: &StoreCall<'_>) -> Result<Reply, StoreError> {
///         let mut values = self.0.lock().expect("no panic");
///         let clock = OsClock::new();
///         let now = clock.wall(clock.now());
///         let applied = call.apply(values.get(key).map(Vec::as_slice), now)?;
///         if let Some(write) = applied.write {
///             values.insert(key.to_owned(), write.value);
///         }
///         Ok(applied.reply)
///     }
/// }
/// ```
pub trait Store: Send + Sync + 'static {
    /// Applies `call` to the value under `key` in one step: no other call changes the value between
    /// the read and the write, and the future completes after the write.
    ///
    /// Use the store's own time if possible, so that nodes need not agree about it. A limiter
    /// usually has one call of a key in flight; more for several tiers, or for a thousand
    /// operations at once. While the store fails, limiters call it about the key `rl:trial` only.
    fn transact(
        &self,
        key: &str,
        call: &StoreCall<'_>,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// The longest duration of a call, at most an hour. After that the limiter's
    /// [`on_failure`](super::RedisLimiterBuilder::on_failure) decides. A limiter reads it when it
    /// is built. Defaults to 250 milliseconds.
    fn deadline(&self) -> Duration {
        Duration::from_millis(250)
    }
}

impl<S: Store> Store for Arc<S> {
    fn transact(
        &self,
        key: &str,
        call: &StoreCall<'_>,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send {
        S::transact(self, key, call)
    }

    fn deadline(&self) -> Duration {
        S::deadline(self)
    }
}
