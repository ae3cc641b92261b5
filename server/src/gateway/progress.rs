//! The progress of an exchange, and the silence that ends it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// The parts of an exchange that came in either direction. A clone is a handle to the same.
#[derive(Clone)]
pub(super) struct Progress(Arc<Inner>);

struct Inner {
    begun: Instant,
    /// The microseconds from then to the last part.
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

    /// Notes that a part has come.
    pub(super) fn note(&self) {
        let micros = self.0.begun.elapsed().as_micros();
        let micros = u64::try_from(micros).unwrap_or(u64::MAX);
        self.0.last.store(micros, Ordering::Relaxed);
        self.0.parts.fetch_add(1, Ordering::Relaxed);
    }

    /// How many parts have come.
    pub(super) fn parts(&self) -> u64 {
        self.0.parts.load(Ordering::Relaxed)
    }

    /// Notes whether the client has to send a part before anything else can happen.
    pub(super) fn set_awaited(&self, is_awaited: bool) {
        self.0.is_awaited.store(is_awaited, Ordering::Relaxed);
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.0.is_awaited.load(Ordering::Relaxed)
    }

    /// Waits until no part has come for so long.
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

/// The instant so much later, or one that nobody lives to see.
pub(super) fn later(instant: Instant, time: Duration) -> Instant {
    const AGES: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    instant.checked_add(time).unwrap_or(instant + AGES)
}
