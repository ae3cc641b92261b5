//! Stores: where the values of subjects are kept.

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, FutureExt};

use super::call::{Call, Reply};
use crate::redis::store::{
    error::StoreError,
    handle::RedisStore,
    pace::{CallPlace, CallSize},
};

/// The beginning of all names in a store that is not Redis.
const PREFIX: &str = "rl";

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
    /// one call of a key under way; more for several tiers, or a thousand operations at once.
    fn transact(
        &self,
        key: &str,
        call: &Call<'_>,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// How long a call takes at most, after which the limiter's
    /// [`on_failure`](super::RedisLimiterBuilder::on_failure) decides. Defaults to 250 milliseconds.
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

/// A store whose type does not matter.
pub(super) trait AnyStore: Send + Sync {
    fn transact<'a>(
        &'a self,
        key: &'a str,
        call: &'a Call<'_>,
    ) -> BoxFuture<'a, Result<Reply, StoreError>>;

    fn deadline(&self) -> Duration;
}

impl<S: Store> AnyStore for S {
    fn transact<'a>(
        &'a self,
        key: &'a str,
        call: &'a Call<'_>,
    ) -> BoxFuture<'a, Result<Reply, StoreError>> {
        Store::transact(self, key, call).boxed()
    }

    fn deadline(&self) -> Duration {
        Store::deadline(self)
    }
}

/// The store of a limiter.
#[derive(Clone)]
pub(super) enum NodesStore {
    /// Which is sent scripts, for many subjects at once.
    Redis(RedisStore),
    /// Which is asked about one subject in a call.
    Other(Arc<dyn AnyStore>),
}

impl NodesStore {
    pub(super) const fn redis(&self) -> Option<&RedisStore> {
        match self {
            Self::Redis(store) => Some(store),
            Self::Other(_) => None,
        }
    }

    /// The beginning of all keys' names.
    pub(super) fn prefix(&self) -> &str {
        self.redis().map_or(PREFIX, RedisStore::prefix)
    }

    /// How long a call takes at most.
    pub(super) fn deadline(&self) -> Duration {
        match self {
            Self::Redis(store) => store.deadline(),
            Self::Other(store) => store.deadline(),
        }
    }

    /// Why a call would fail at once.
    pub(super) fn refusal(&self) -> Option<StoreError> {
        self.redis()?.refusal()
    }

    /// Something is decided without the store, because of this error.
    pub(super) fn go_without(&self, error: &StoreError) {
        if let Self::Redis(store) = self {
            store.go_without(error);
        }
    }

    /// The error of a call that was not answered by its deadline.
    pub(super) fn timeout(&self) -> StoreError {
        let error = StoreError::timeout(self.deadline());
        match self {
            Self::Redis(_) => error,
            Self::Other(_) => error.of_a_store(),
        }
    }

    pub(super) fn expect(&self, size: CallSize) -> Result<(), StoreError> {
        self.redis().map_or(Ok(()), |store| store.expect(size))
    }

    /// A place among the calls that are under way, where they are counted.
    pub(super) fn enter(
        &self,
        size: CallSize,
        within: Duration,
    ) -> Result<Option<CallPlace>, StoreError> {
        let Self::Redis(store) = self else {
            return Ok(None);
        };
        store.enter(size, within).map(Some)
    }

    pub(super) fn may_travel_together(&self) -> bool {
        self.redis().is_some_and(RedisStore::may_travel_together)
    }

    /// How long an answer takes at present, if that is known.
    pub(super) fn expected(&self) -> Option<Duration> {
        self.redis()?.expected()
    }
}
