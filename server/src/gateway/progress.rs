//! Progress of an exchange, and its silence timeout.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// The parts that arrived in either direction. Clones share the count.
#[derive(Clone)]
pub(super) struct Progress(Arc<Inner>);

struct Inner {
    begun: Instant,
    /// The microseconds from the start to the last part.
    last: AtomicU64,
    parts: AtomicU64,
    is_awaited: AtomicBool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            begun: Instant::now(),
            last: AtomicU64::new(0),
            parts: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
        }))
    }

    /// Records a part.
    pub(super) fn note(&self) {
        let micros = u64::try_from(self.0.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.0.last.store(micros, Ordering::Relaxed);
        self.0.parts.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of parts so far.
    pub(super) fn parts(&self) -> u64 {
        self.0.parts.load(Ordering::Relaxed)
    }

    /// Sets whether the exchange waits for a part of the client.
    pub(super) fn set_awaited(&self, is_awaited: bool) {
        self.0.is_awaited.store(is_awaited, Ordering::Relaxed);
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.0.is_awaited.load(Ordering::Relaxed)
    }

    /// Completes when no part has arrived for this long.
    pub(super) async fn silence(self, limit: Duration) {
        loop {
            let last = Duration::from_micros(self.0.last.load(Ordering::Relaxed));
            let until = later(self.0.begun, last.saturating_add(limit));
            if Instant::now() >= until {
                return;
            }
            sleep_until(until).await;
        }
    }
}

/// The instant after this time, or one in the far future.
pub(super) fn later(instant: Instant, time: Duration) -> Instant {
    const AGES: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    instant.checked_add(time).unwrap_or(instant + AGES)
}
