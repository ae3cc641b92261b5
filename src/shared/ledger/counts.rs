//! The counts of what a limiter's leases do.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::mode::ModeStats;

/// Counts of rare events; the frequent ones are in the table.
#[derive(Debug, Default)]
pub(super) struct LeaseCounts {
    asked: AtomicU64,
    granted: AtomicU64,
    settled: AtomicU64,
    returned: AtomicU64,
    ended: AtomicU64,
    repeated: AtomicU64,
    stale: AtomicU64,
}

impl LeaseCounts {
    pub(super) fn ask(&self) {
        add(&self.asked, 1);
    }

    pub(super) fn grant(&self, units: u32) {
        add(&self.granted, units);
    }

    pub(super) fn settle(&self, spent: u32, back: u32) {
        add(&self.settled, spent);
        add(&self.returned, back);
    }

    pub(super) fn end(&self, units: u32) {
        add(&self.ended, units);
    }

    pub(super) fn repeat(&self) {
        add(&self.repeated, 1);
    }

    pub(super) fn stale(&self) {
        add(&self.stale, 1);
    }

    pub(super) fn with_local(&self, local: u64) -> ModeStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ModeStats {
            local,
            asked: read(&self.asked),
            granted: read(&self.granted),
            settled: read(&self.settled),
            returned: read(&self.returned),
            ended: read(&self.ended),
            repeated: read(&self.repeated),
            stale: read(&self.stale),
        }
    }
}

fn add(count: &AtomicU64, more: u32) {
    count.fetch_add(u64::from(more), Ordering::Relaxed);
}
