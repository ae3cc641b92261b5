//! The budget of a table's logs, which all of them share.

use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

/// How many shards a request looks at to make room for its log.
const SHARDS_LOOKED_AT: usize = 4;

/// How many entries, and how many logs among them, a request looks at in a shard to make room for
/// its own log: enough to find one with little to forget, few enough not to be felt.
pub(super) const ENTRIES_LOOKED_AT: usize = 512;
pub(super) const LOGS_LOOKED_AT: usize = 16;

/// For how many times all logs of a table hold memory together, and for how many they may.
#[derive(Debug)]
pub(super) struct LogBudget {
    /// Below nothing for a moment, when of two changes of one log the second is noted first.
    held: AtomicIsize,
    most: usize,
    /// The shard in which the search for logs to give up goes on.
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

    /// Notes what logs hold after a change, and says whether that is more than before.
    pub(super) fn count(&self, before: usize, after: usize) -> bool {
        // Most states are no logs, and most requests of a log that is full change nothing.
        if after > before {
            let more = (after - before).cast_signed();
            self.held.fetch_add(more, Ordering::Relaxed);
        } else if after < before {
            let less = (before - after).cast_signed();
            self.held.fetch_sub(less, Ordering::Relaxed);
        }
        after > before
    }

    /// Whether a request whose log grew has to look for others with nothing to forget.
    pub(super) fn is_tight(&self) -> bool {
        self.held() > self.most / 8 * 7
    }

    fn held(&self) -> usize {
        usize::try_from(self.held.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn is_overdrawn(&self) -> bool {
        self.held() > self.most
    }

    /// Makes room when all logs together hold too much: those with nothing left to remember go
    /// first, and beyond the bound those with little. `give_up` gives up a log of one of `shards`,
    /// a live one only if it must, and says how many times that frees. A request looks at a few
    /// shards, and at a part of each.
    #[cold]
    pub(super) fn relieve(
        &self,
        shards: usize,
        mut give_up: impl FnMut(usize, bool) -> Option<usize>,
    ) {
        for _ in 0..SHARDS_LOOKED_AT.min(shards) {
            let place = self.hand.fetch_add(1, Ordering::Relaxed) % shards;
            if let Some(times) = give_up(place, self.is_overdrawn()) {
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

    /// Otherwise every log would be given up until the other change is noted, live ones too.
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
