//! The sampled state of the live page, and its viewers.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use axum::body::Bytes;
use tokio::sync::{Semaphore, watch};

use tower_ratelimit::store::StoreStats;

use super::history::Histories;
use crate::decision_counts::DecisionCounts;

/// The most viewers at a time.
pub(super) const MAX_VIEWERS: usize = 16;

/// A number in use, and the most of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) name: &'static str,
    pub(crate) used: usize,
    pub(crate) most: usize,
}

/// The numbers of the process that the page shows beside its limits.
#[derive(Clone)]
pub(crate) struct LiveSources {
    /// The counts of the rules of requests.
    pub(crate) counts: Arc<DecisionCounts>,
    /// Numbers with a most, such as requests in flight.
    pub(crate) rooms: Arc<dyn Fn() -> Vec<Room> + Send + Sync>,
    /// Whether the process is stopping, so that streams end.
    pub(crate) is_draining: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// The sampled state, and its viewers.
pub(in crate::admin) struct Live {
    pub(super) sources: LiveSources,
    pub(super) started_at: Instant,
    sampled: Mutex<Sampled>,
    pub(super) viewers: Arc<Semaphore>,
    /// The newest event; empty once the process is stopping.
    pub(super) events: watch::Sender<Bytes>,
}

#[derive(Default)]
pub(super) struct Sampled {
    pub(super) histories: Histories,
    /// The decisions without the store up to the last sample, and in the second before it.
    pub(super) degraded: u64,
    pub(super) degraded_now: u64,
    /// The store's counts half a minute to a minute ago, and those of the last half minute's begin.
    pub(super) store: [StoreStats; 2],
    seconds: u64,
}

/// The seconds between two changes of [`Sampled::store`].
const HALF_MINUTE: u64 = 30;

impl Sampled {
    /// Adds a second.
    pub(super) fn sample_store(&mut self, stats: StoreStats) {
        let degraded = stats.degraded_by_reason().map(|(_, count)| count).sum();
        self.degraded_now = u64::saturating_sub(degraded, self.degraded);
        self.degraded = degraded;
        if self.seconds.is_multiple_of(HALF_MINUTE) {
            self.store = [self.store[1], stats];
        }
        self.seconds += 1;
    }
}

impl Live {
    pub(in crate::admin) fn new(sources: LiveSources) -> Self {
        Self {
            sources,
            started_at: Instant::now(),
            sampled: Mutex::default(),
            viewers: Arc::new(Semaphore::new(MAX_VIEWERS)),
            events: watch::Sender::new(Bytes::new()),
        }
    }

    pub(super) fn sampled(&self) -> MutexGuard<'_, Sampled> {
        self.sampled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_viewers(&self) -> bool {
        self.viewers.available_permits() < MAX_VIEWERS
    }
}
