use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Who waits for a denial to end, and how many may.
#[derive(Debug, Clone)]
pub(super) struct WaitingRoom {
    pub(super) longest: Duration,
    pub(super) most: usize,
    waiting: Arc<AtomicUsize>,
}

impl WaitingRoom {
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "nothing can wait"))]
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            longest,
            most: 1_024,
            waiting: Arc::default(),
        }
    }

    /// A place for one that has to wait this much longer, after having waited that much.
    pub(super) fn enter(
        &self,
        wait: Option<Duration>,
        waited: Duration,
    ) -> Option<(Duration, Seat)> {
        let wait = wait?;
        if waited.saturating_add(wait) > self.longest {
            return None;
        }
        let taken = self.waiting.fetch_add(1, Ordering::AcqRel);
        let seat = Seat(Arc::clone(&self.waiting));
        (taken < self.most).then_some((wait, seat))
    }
}

/// A place in the waiting room, free again when it is dropped.
#[derive(Debug)]
pub(super) struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
