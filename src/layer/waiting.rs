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
    /// Nobody waits unless this is set.
    pub(super) longest: Option<Duration>,
    pub(super) most: usize,
    waiting: Arc<AtomicUsize>,
}

impl WaitingRoom {
    pub(super) fn new() -> Self {
        Self {
            longest: None,
            most: 1_024,
            waiting: Arc::default(),
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.longest.is_some()
    }

    /// A place for one that has to wait this much longer, after having waited that much.
    pub(super) fn enter(
        &self,
        wait: Option<Duration>,
        waited: Duration,
    ) -> Option<(Duration, Seat)> {
        let (wait, longest) = (wait?, self.longest?);
        if waited.saturating_add(wait) > longest {
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
