//! A clock whose wall time jumps beside a monotonic one that does not.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use tower_ratelimit::clock::{Clock, ManualClock, Timestamp};

/// A clock that does not step, and how much the wall is ahead of it.
#[derive(Debug, Clone)]
pub struct BothClocks {
    pub monotone: ManualClock,
    ahead: Arc<AtomicI64>,
}

impl BothClocks {
    pub fn at(second: u64) -> Self {
        Self {
            monotone: ManualClock::at(Timestamp::from_secs(second)),
            ahead: Arc::default(),
        }
    }

    /// The wall clock is set. A sleep of the machine is the same as a step ahead: the other clock stands still.
    pub fn step(&self, hours: i64) {
        let micros = hours * 3_600_000_000;
        self.ahead.fetch_add(micros, Ordering::SeqCst);
    }

    /// The wall's time in seconds.
    pub fn wall_now(&self) -> u64 {
        self.wall(self.now()).as_micros() / 1_000_000
    }
}

impl Clock for BothClocks {
    fn now(&self) -> Timestamp {
        self.monotone.now()
    }

    fn wall(&self, now: Timestamp) -> Timestamp {
        let ahead = self.ahead.load(Ordering::SeqCst);
        Timestamp::from_micros(now.as_micros().saturating_add_signed(ahead))
    }
}
