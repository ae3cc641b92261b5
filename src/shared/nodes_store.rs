//! The store of a limiter, be it Redis or another.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;

use super::own_store::OwnStore;
use crate::redis::store::{
    error::StoreError,
    guard::Guarded,
    handle::RedisStore,
    health::{StoreHealth, StoreStats},
    pace::{CallPlace, CallSize},
};

/// The beginning of all names in a store that is not Redis.
const PREFIX: &str = "rl";

/// The store of a limiter.
#[derive(Clone)]
pub(super) enum NodesStore {
    /// Which is sent scripts, for many subjects at once.
    Redis(RedisStore),
    /// Which is asked about one subject in a call.
    Other(Arc<OwnStore>),
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

    /// The runtime that calls are driven on.
    pub(super) fn runtime(&self) -> Option<Handle> {
        match self {
            Self::Redis(store) => store.home().runtime(),
            Self::Other(store) => store.home().runtime(),
        }
    }

    /// How long a call takes at most.
    pub(super) fn deadline(&self) -> Duration {
        match self {
            Self::Redis(store) => store.deadline(),
            Self::Other(store) => Guarded::deadline(&**store),
        }
    }

    /// Why a call about this subject would fail at once.
    pub(super) fn refusal(&self, subject: &str) -> Option<StoreError> {
        match self {
            Self::Redis(store) => store.refusal(subject.as_bytes()),
            Self::Other(store) => store.refusal(),
        }
    }

    /// Something is decided without the store, because of this error, which then names the store.
    pub(super) fn go_without(&self, error: StoreError) -> StoreError {
        match self {
            Self::Redis(store) => {
                store.go_without(&error);
                error
            }
            Self::Other(store) => {
                let error = error.of_a_store();
                store.guard().go_without(&error);
                error
            }
        }
    }

    pub(super) fn health(&self) -> StoreHealth {
        match self {
            Self::Redis(store) => store.health(),
            Self::Other(store) => store.guard().health(),
        }
    }

    pub(super) fn stats(&self) -> StoreStats {
        match self {
            Self::Redis(store) => store.stats(),
            Self::Other(store) => store.guard().stats(0, 0),
        }
    }

    pub(super) fn expect(&self, subject: &str, waiting: usize) -> Result<(), StoreError> {
        let expect = |store: &RedisStore| store.expect(subject.as_bytes(), waiting);
        self.redis().map_or(Ok(()), expect)
    }

    /// A place among the calls that are under way, where they are counted, for one whose first
    /// subject is this.
    pub(super) fn enter(
        &self,
        subject: &str,
        size: CallSize,
        within: Duration,
    ) -> Result<Option<CallPlace>, StoreError> {
        let Self::Redis(store) = self else {
            return Ok(None);
        };
        store.enter(subject.as_bytes(), size, within).map(Some)
    }

    pub(super) fn may_travel_together(&self) -> bool {
        self.redis().is_some_and(RedisStore::may_travel_together)
    }

    /// How long an answer takes at present, if that is known.
    pub(super) fn expected(&self) -> Option<Duration> {
        self.redis()?.expected()
    }
}
