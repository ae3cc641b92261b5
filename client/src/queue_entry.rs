//! Entries of the queues of requests.

use std::sync::atomic::{AtomicUsize, Ordering};

/// An entry of the queue, removed when dropped.
pub(crate) struct QueueEntry<'s>(&'s AtomicUsize);

impl<'s> QueueEntry<'s> {
    /// Enters a queue of this length, unless it has `most` entries.
    pub(crate) fn enter(queued: &'s AtomicUsize, most: usize) -> Option<Self> {
        let increment = |waiting| (waiting < most).then_some(waiting + 1);
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let entered = queued.fetch_update(success, failure, increment);
        // `then_some` would drop an entry that was never made, and decrement the count.
        entered.is_ok().then(|| Self(queued))
    }
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
