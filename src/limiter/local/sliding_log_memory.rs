//! The memory budget that all logs of a table share.

use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

/// The number of shards that a request searches to make room for its log.
const SHARDS_SEARCHED: usize = 4;

/// The most entries, and the most logs among them, that a request searches in a shard to make room for
/// its own log: enough to find one with little usage, and few enough to be fast.
pub(super) const ENTRIES_SEARCHED: usize = 512;
pub(super) const LOGS_SEARCHED: usize = 16;

/// The number of times that all logs of a table have memory for, and its bound.
#[derive(Debug)]
pub(super) struct LogBudget {
    /// The number of times. Briefly negative if, of two changes of one log, the second is added first.
    held: AtomicIsize,
    most: usize,
    /// The shard at which the next search for logs begins.
    hand: AtomicUsize,
}

impl LogBudget {
    pub(super) fn new(most: usize) -> Self {
        Self {
            held: AtomicIsize::new(0),
            most,
            hand: AtomicUsize::new(0),
        }
    }

    /// Adds the difference after a change of logs, and returns whether they hold more than before.
    pub(super) fn count(&self, before: usize, after: usize) -> bool {
        // Most states are not logs, and most requests on a full log change nothing.
        if after > before {
            let more = (after - before).cast_signed();
            self.held.fetch_add(more, Ordering::Relaxed);
        } else if after < before {
            let less = (before - after).cast_signed();
            self.held.fetch_sub(less, Ordering::Relaxed);
        }
        after > before
    }

    /// Whether a request whose log grew has to search for fresh logs.
    pub(super) fn is_tight(&self) -> bool {
        self.held() > self.most / 8 * 7
    }

    fn held(&self) -> usize {
        usize::try_from(self.held.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn is_overdrawn(&self) -> bool {
        self.held() > self.most
    }

    /// Makes room when all logs together hold too much: evicts fresh logs first, and beyond the bound
    /// those with little usage. `evict` evicts a log in one of `shards`, a live one only if it must,
    /// and returns the number of times that this frees. A request searches a part of a few shards.
    #[cold]
    pub(super) fn relieve(
        &self,
        shards: usize,
        mut evict: impl FnMut(usize, bool) -> Option<usize>,
    ) {
        for _ in 0..SHARDS_SEARCHED.min(shards) {
            let place = self.hand.fetch_add(1, Ordering::Relaxed) % shards;
            if let Some(times) = evict(place, self.is_overdrawn()) {
                self.count(times, 0);
            }
            if !self.is_overdrawn() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A negative sum must not count as a huge one: otherwise all logs, also live ones, would be evicted
    /// until the other change is added.
    #[test]
    fn a_change_that_is_noted_before_an_earlier_one_makes_nothing_tight() {
        let budget = LogBudget::new(100);
        budget.count(9, 0);
        assert!(!budget.is_tight() && !budget.is_overdrawn());
        budget.relieve(8, |_, must| {
            assert!(!must);
            None
        });
        budget.count(0, 9);
        budget.count(0, 100);
        assert!(budget.is_tight() && !budget.is_overdrawn());
        budget.count(100, 101);
        assert!(budget.is_overdrawn());
    }
}
