//! An atomic for loom that tries all orders of accesses.

use loom::sync::atomic::{AtomicU64 as Value, Ordering};

/// Loom 0.7 records only the last access of each atomic, and searches races with that one
/// (tokio-rs/loom#166). If a thread loads and then swaps, as all threads here do, its own load hides
/// those of other threads, and schedules in which these come later are never tried. Therefore each
/// access first changes a second atomic, which conflicts with every other change of it. This change is
/// relaxed, so it orders nothing, and a load still finds old values.
#[derive(Debug, Default)]
pub(in super::super) struct AtomicU64 {
    value: Value,
    turn: Value,
}

impl AtomicU64 {
    pub(in super::super) fn new(value: u64) -> Self {
        Self {
            value: Value::new(value),
            turn: Value::new(0),
        }
    }

    fn take_turn(&self) {
        self.turn.fetch_add(1, Ordering::Relaxed);
    }

    pub(in super::super) fn load(&self, order: Ordering) -> u64 {
        self.take_turn();
        self.value.load(order)
    }

    pub(in super::super) fn store(&self, value: u64, order: Ordering) {
        self.take_turn();
        self.value.store(value, order);
    }

    pub(in super::super) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.take_turn();
        self.value.fetch_add(value, order)
    }

    pub(in super::super) fn compare_exchange(
        &self,
        old: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.take_turn();
        self.value.compare_exchange(old, new, success, failure)
    }

    pub(in super::super) fn compare_exchange_weak(
        &self,
        old: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.take_turn();
        self.value.compare_exchange_weak(old, new, success, failure)
    }
}
