//! The servers of a store: one, or those of a cluster.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use futures_util::future::join_all;
use redis::{Cmd, Value};
use tokio::time::Instant;

use super::{
    call::CallProgress, cluster::Cluster, cluster_membership::Siblings as _, pipeline::Pipeline,
    script_by_digest::Script, shared_store_state::StoreCommon,
};
use crate::store::{
    breaker::Guarded as _,
    error::{StoreError, StoreErrorKind},
    health::StoreHealth,
};

/// The state shared by all handles to one store.
pub(super) struct StoreState {
    pub(super) address: String,
    pub(super) common: Arc<StoreCommon>,
    pub(super) servers: Servers,
    /// Whether keys are spread over servers behind the address, so that each call carries one
    /// subject.
    pub(super) is_split: AtomicBool,
}

/// The servers of a store.
pub(super) enum Servers {
    One(Arc<Pipeline>),
    Cluster(Arc<Cluster>),
}

impl Servers {
    /// Returns the server that owns the key's slot.
    fn of(&self, key: &[u8]) -> Arc<Pipeline> {
        match self {
            Self::One(server) => Arc::clone(server),
            Self::Cluster(cluster) => cluster.server_of(key),
        }
    }

    pub(super) const fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Returns the error with which a call about this key would fail at once, if any.
    pub(super) fn refusal(&self, key: &[u8]) -> Option<StoreError> {
        self.of(key).refusal()
    }

    /// Returns the error with which every call would fail at once, if any.
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

    /// Runs a command of `script` whose first key is `key`, within the deadline. It waits
    /// for a place among those in flight unless `needed_until` is `None`.
    pub(super) async fn call(
        &self,
        script: &Script,
        command: Cmd,
        key: &[u8],
        needed_until: Option<Instant>,
    ) -> Result<Value, StoreError> {
        let command = Arc::new(command);
        match self {
            Self::One(server) => {
                let progress = CallProgress::new(needed_until);
                server.attempt(script, command, progress).await
            }
            Self::Cluster(cluster) => cluster.call(script, command, key, needed_until).await,
        }
    }

    pub(super) fn health(&self) -> StoreHealth {
        match self {
            Self::One(server) => server.breaker().health(),
            Self::Cluster(cluster) => cluster.health(),
        }
    }

    /// Whether the breaker has reported the failure of calls with this error.
    pub(super) fn has_reported(&self, error: &StoreError) -> bool {
        match self {
            Self::One(server) => server.breaker().is_open(),
            Self::Cluster(_) => error.kind() == StoreErrorKind::BreakerOpen,
        }
    }

    pub(super) fn expected(&self) -> Option<Duration> {
        match self {
            Self::One(server) => server.expected(),
            Self::Cluster(cluster) => cluster.expected(),
        }
    }

    pub(super) async fn reconnect(&self) -> Result<(), StoreError> {
        let servers = match self {
            Self::One(server) => vec![Arc::clone(server)],
            Self::Cluster(cluster) => cluster.servers(),
        };
        let each = join_all(servers.iter().map(|server| server.link.renew())).await;
        each.into_iter().try_for_each(|outcome| outcome)
    }

    pub(super) async fn check(&self) -> Result<(), StoreError> {
        match self {
            Self::One(server) => server.check().await,
            Self::Cluster(cluster) => cluster.check().await,
        }
    }
}
