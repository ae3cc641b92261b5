//! The limiter that all nodes share through a store of your own: [`SharedLimiter`].

use std::{fmt, sync::Arc};

use super::{answer::RedisFuture, mode::ModeStats, nodes::NodesLimiter, store::Store};
use crate::{
    decision::{Op, Policy},
    error::ConfigError,
    key::Key,
    limiter::{Limiter, Pending, Tier, handle::handle_methods},
    quota::OwnedQuota,
    redis::store::health::{StoreHealth, StoreStats},
};

/// A limit that all nodes share, through a [`Store`] of your own.
///
/// It decides as a [`RedisLimiter`](crate::RedisLimiter) does and keeps the same values. Operations on one
/// subject that arrive while a call about it is under way travel together in the next one, and
/// denials are remembered, so a store is asked at most once at a time about a subject. When
/// the store does not answer within its [deadline](Store::deadline), or fails, the
/// [`OnFailure`](crate::OnFailure) decides. After several failures in a row requests no longer wait
/// for the store, until a trial every 250 milliseconds finds that it works again; both are logged.
///
/// A clone is a handle to the same limiter.
pub struct SharedLimiter<S> {
    nodes: NodesLimiter,
    store: Arc<S>,
}

impl<S: Store> SharedLimiter<S> {
    pub(super) const fn new(nodes: NodesLimiter, store: Arc<S>) -> Self {
        Self { nodes, store }
    }

    /// Changes the quota of this name in the default tier, as
    /// [`RedisLimiter::set_quota`](crate::RedisLimiter::set_quota) does.
    ///
    /// # Errors
    ///
    /// When the quota makes no sense, see [`Quota::check`](crate::Quota::check), or has another
    /// name, or there is none of this name.
    pub fn set_quota(&self, name: &str, quota: impl Into<OwnedQuota>) -> Result<(), ConfigError> {
        self.nodes.set_quota(name, quota)
    }

    /// How the store is doing, as far as this limiter's requests have found out.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        self.nodes.store().health()
    }

    /// Counts of this limiter's calls so far, for metrics.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        self.nodes.store().stats()
    }

    /// How many decisions were made without the store, and what became of the units that were leased,
    /// see [`Mode`](crate::shared::Mode).
    #[must_use]
    pub fn mode_stats(&self) -> ModeStats {
        self.nodes.mode_stats()
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.store
    }
}

handle_methods!(SharedLimiter<S> where S: Store);

impl<S: Store> Limiter for SharedLimiter<S> {
    type Future = RedisFuture;

    fn apply(&self, key: &Key, op: Op) -> Pending<RedisFuture> {
        self.nodes.apply(key, op)
    }

    fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Pending<RedisFuture> {
        self.nodes.apply_in(tier, key, op)
    }

    fn policies(&self) -> &[Policy] {
        self.nodes.policies()
    }

    fn supports(&self, op: &Op) -> bool {
        self.nodes.supports(op)
    }

    fn blocks(&self) -> bool {
        self.nodes.blocks()
    }

    fn identity(&self) -> Option<usize> {
        self.nodes.identity()
    }

    fn epoch(&self, limit: usize) -> u32 {
        self.nodes.epoch(limit)
    }
}

impl<S> Clone for SharedLimiter<S> {
    fn clone(&self) -> Self {
        Self {
            nodes: self.nodes.clone(),
            store: Arc::clone(&self.store),
        }
    }
}

impl<S> fmt::Debug for SharedLimiter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("SharedLimiter");
        self.nodes.debug(&mut debug);
        debug.finish_non_exhaustive()
    }
}
