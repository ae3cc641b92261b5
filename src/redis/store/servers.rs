//! The servers of a store: one, or those of a cluster.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use redis::{Cmd, Value};

use super::{
    call::CallProgress,
    cluster::Cluster,
    common::StoreCommon,
    core::Core,
    error::{StoreError, StoreErrorKind},
    guard::Guarded as _,
    health::StoreHealth,
    membership::Siblings as _,
    pace::{CallPlace, CallSize},
    script::Script,
};

/// The state that all handles to one store share.
#[derive(Debug)]
pub(super) struct StoreState {
    pub(super) address: String,
    pub(super) common: Arc<StoreCommon>,
    pub(super) servers: Servers,
    /// Whether the server takes no calls that carry many subjects.
    pub(super) is_split: AtomicBool,
}

/// The servers that calls go to.
#[derive(Debug)]
pub(super) enum Servers {
    One(Arc<Core>),
    Cluster(Arc<Cluster>),
}

impl Servers {
    /// The server that has the key.
    fn of(&self, key: &[u8]) -> Arc<Core> {
        match self {
            Self::One(server) => Arc::clone(server),
            Self::Cluster(cluster) => cluster.server_of(key),
        }
    }

    pub(super) const fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Why a call about this key would fail at once.
    pub(super) fn refusal(&self, key: &[u8]) -> Option<StoreError> {
        self.of(key).refusal()
    }

    /// Why every call would fail at once.
    pub(super) fn refusal_of_all(&self) -> Option<StoreError> {
        match self {
            Self::One(server) => server.refusal(),
            Self::Cluster(cluster) => {
                let servers = cluster.servers();
                let refusals: Option<Vec<_>> =
                    servers.iter().map(|server| server.refusal()).collect();
                refusals?.pop()
            }
        }
    }

    /// A place for a call of this size, the first of whose keys is this one.
    pub(super) fn enter(
        &self,
        key: &[u8],
        size: CallSize,
        within: Duration,
    ) -> Result<CallPlace, StoreError> {
        self.of(key).enter(size, within)
    }

    /// A place whether or not an answer can be expected in time.
    pub(super) fn insist(&self, key: &[u8], size: CallSize) -> CallPlace {
        self.of(key).insist(size)
    }

    /// An error if this key got no place in a call after all that wait. In a cluster those are
    /// spread over its servers.
    pub(super) fn expect(&self, key: &[u8], waiting: usize) -> Result<(), StoreError> {
        let waiting = match self {
            Self::One(_) => waiting,
            Self::Cluster(cluster) => waiting / cluster.servers().len().max(1),
        };
        self.of(key).expect(CallSize {
            subjects: waiting + 1,
            rows: waiting + 1,
        })
    }

    /// Runs a command of `script`, the first of whose keys is this one, within the deadline.
    pub(super) async fn call(
        &self,
        script: &Script,
        command: Cmd,
        key: &[u8],
        (place, within): (CallPlace, Option<Duration>),
    ) -> Result<Value, StoreError> {
        let command = Arc::new(command);
        match self {
            Self::One(server) => {
                let progress = CallProgress::new(place, within);
                server.attempt(script, command, progress).await
            }
            Self::Cluster(cluster) => cluster.call(script, command, key, (place, within)).await,
        }
    }

    pub(super) fn health(&self) -> StoreHealth {
        match self {
            Self::One(server) => server.guard().state().into(),
            Self::Cluster(cluster) => cluster.health(),
        }
    }

    /// Whether the breaker has reported that calls fail as this one did.
    pub(super) fn has_reported(&self, error: &StoreError) -> bool {
        match self {
            Self::One(server) => server.guard().is_open(),
            Self::Cluster(_) => error.kind() == StoreErrorKind::BreakerOpen,
        }
    }

    pub(super) fn expected(&self) -> Option<Duration> {
        match self {
            Self::One(server) => server.expected(),
            Self::Cluster(cluster) => cluster.expected(),
        }
    }

    pub(super) async fn check(&self) -> Result<(), StoreError> {
        match self {
            Self::One(server) => server.check().await,
            Self::Cluster(cluster) => cluster.check().await,
        }
    }
}
