//! Counters of a limiter's mode.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::shared::mode::ModeStats;

/// Counters of rare events. The frequent ones are in the table.
#[derive(Debug, Default)]
pub(in crate::shared) struct LeaseStats {
    asked: AtomicU64,
    granted: AtomicU64,
    settled: AtomicU64,
    returned: AtomicU64,
    ended: AtomicU64,
    repeated: AtomicU64,
    stale: AtomicU64,
}

impl LeaseStats {
    pub(in crate::shared) fn ask(&self) {
        add(&self.asked, 1);
    }

    pub(in crate::shared) fn grant(&self, units: u32) {
        add(&self.granted, units);
    }

    pub(in crate::shared) fn settle(&self, spent: u32, back: u32) {
        add(&self.settled, spent);
        add(&self.returned, back);
    }

    pub(in crate::shared) fn end(&self, units: u32) {
        add(&self.ended, units);
    }

    pub(in crate::shared) fn repeat(&self) {
        add(&self.repeated, 1);
    }

    pub(in crate::shared) fn stale(&self) {
        add(&self.stale, 1);
    }

    pub(in crate::shared) fn with_local(&self, local: u64) -> ModeStats {
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
