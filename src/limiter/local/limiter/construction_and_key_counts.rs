//! The tables of a limiter in this process: construction, and counts of keys.

use std::sync::{Arc, Mutex, OnceLock};

use super::{Inner, LocalLimiter};
use crate::{
    clock::SharedClock,
    error::{ConfigError, ConfigErrorKind},
    limiter::{
        local::{
            blocks::Blocks,
            capacity::Capacity,
            hash::KeyHasher,
            lock_free_bucket_table::{LockFree, LoneLimit},
            sharded::Sharded,
            store::LocalStore,
            swappable_limits::ChangingLimits,
        },
        tier_set::TierSet,
    },
    lock::unpoisoned,
};

impl LocalLimiter {
    pub(in super::super) fn from_parts(
        limits: TierSet,
        capacity: Capacity,
        clock: SharedClock,
        hasher: KeyHasher,
    ) -> Result<Self, ConfigError> {
        let limits = Arc::new(limits);
        let subjects = OnceLock::new();
        let stored = None;
        let instants = match limits.single_bucket() {
            Some(quota) => Some(LoneLimit {
                bucket: ChangingLimits::new(quota),
                table: LockFree::try_new(capacity, clock.now())?,
            }),
            None => {
                let made = Sharded::try_new(capacity, &limits)?;
                subjects.get_or_init(|| made);
                None
            }
        };
        Ok(Self(Arc::new(Inner {
            policies: limits.default_tier().policies.clone(),
            blocks: Blocks::default(),
            clock,
            hasher,
            capacity,
            limits: Mutex::new(limits),
            instants,
            subjects,
            stored,
        })))
    }

    /// A limiter that counts in a store.
    pub(in super::super) fn in_store(
        limits: TierSet,
        name: Option<&str>,
        store: &LocalStore,
    ) -> Self {
        let limits = Arc::new(limits);
        let limit = store.table().limit(name, Arc::clone(&limits));
        Self(Arc::new(Inner {
            policies: limits.default_tier().policies.clone(),
            blocks: Blocks::default(),
            clock: store.table().clock.clone(),
            hasher: store.table().hasher.clone(),
            capacity: Capacity::NONE,
            limits: Mutex::new(limits),
            instants: None,
            subjects: OnceLock::new(),
            stored: Some((store.clone(), limit)),
        }))
    }

    /// A limiter with these quotas and this clock, for another number of keys, with a table of its own.
    pub(crate) fn with_max_keys(&self, max_keys: usize) -> Result<Self, ConfigError> {
        let inner = &*self.0;
        if inner.stored.is_some() {
            return Err(ConfigError::new(
                ConfigErrorKind::Store,
                "max_keys of a limiter in a store is the store's: set it there",
            ));
        }
        let limits = unpoisoned(inner.limits.lock());
        let capacity = Capacity::checked(max_keys, inner.capacity.log_times)?;
        let hasher = KeyHasher::new(None);
        Self::from_parts(
            TierSet::clone(&limits),
            capacity,
            inner.clock.clone(),
            hasher,
        )
    }

    /// The number of keys that are not fresh.
    ///
    /// This walks the whole table, in about a millisecond for 262,144 keys: use it for a metrics scrape,
    /// not for every request. For a limiter in a store it is the [store's](LocalStore::tracked_keys)
    /// number.
    pub fn tracked_keys(&self) -> usize {
        if let Some((store, _)) = &self.0.stored {
            return store.tracked_keys();
        }
        let time = self.0.clock.read();
        match (self.0.subjects.get(), &self.0.instants) {
            (Some(subjects), _) => subjects.live_keys(time),
            (None, Some(lone)) => (lone.table).live_keys(&lone.bucket.read().measured.0, time.now),
            (None, None) => 0,
        }
    }

    /// The number of keys that were evicted before they were fresh, since the start. More than a few mean
    /// that `max_keys` is too small for the traffic, or that somebody floods it. For a limiter in a store
    /// it is the [store's](LocalStore::evictions) number.
    pub fn evictions(&self) -> u64 {
        if let Some((store, _)) = &self.0.stored {
            return store.evictions();
        }
        let instants = self.0.instants.as_ref();
        let instants = instants.map(|lone| lone.table.evictions());
        let subjects = self.0.subjects.get().map(Sharded::evictions);
        instants.unwrap_or(0) + subjects.unwrap_or(0)
    }
}
