//! Waits: deadlines that stay as near as they were when the clock steps back, random numbers that spread the waits of many
//! clients, and the timer of the current runtime.

use std::{
    hash::{BuildHasher, RandomState},
    panic::catch_unwind,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::{runtime::Handle, time::sleep};
use tower_ratelimit::clock::Timestamp;

/// A future instant, with its distance when it was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline {
    at: Timestamp,
    length: Duration,
}

impl Deadline {
    pub(crate) fn after(now: Timestamp, length: Duration) -> Self {
        Self {
            at: now.saturating_add(length),
            length,
        }
    }

    /// This deadline, `by` later.
    pub(crate) fn later(self, by: Duration) -> Self {
        Self {
            at: self.at.saturating_add(by),
            length: self.length.saturating_add(by),
        }
    }

    pub(crate) const fn at(self) -> Timestamp {
        self.at
    }

    /// This deadline at the time `now`: at most as far ahead as when it was set.
    pub(crate) fn clamped_at(self, now: Timestamp) -> Self {
        let at = self.at.min(now.saturating_add(self.length));
        Self { at, ..self }
    }
}

/// The longest backoff.
pub(crate) const MAX_BACKOFF: Duration = Duration::from_secs(20);

/// A generator of random numbers (SplitMix64). An attacker may guess them without harm.
#[derive(Debug)]
pub(crate) struct Jitter(AtomicU64);

impl Jitter {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        Self(AtomicU64::new(seed))
    }

    /// A number in [0, 1).
    pub(crate) fn fraction(&self) -> f64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

        let state = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let bits = (mixed ^ (mixed >> 31)) >> 11;
        bits as f64 / (1_u64 << 53) as f64
    }
}

/// A random wait below `first` · 2^`doublings`, at most 20 s.
pub(crate) fn jittered_backoff(first: Duration, doublings: u32, fraction: f64) -> Duration {
    let longest = first.saturating_mul(2_u32.saturating_pow(doublings));
    longest.min(MAX_BACKOFF).mul_f64(fraction.clamp(0.0, 1.0))
}

/// Whether the current task can wait.
pub(crate) fn has_timer() -> bool {
    // Tokio panics where it has no timer, and no function of it checks that.
    Handle::try_current().is_ok() && catch_unwind(|| sleep(Duration::ZERO)).is_ok()
}

/// The time between two instants; zero if `then` is past.
pub(crate) fn between(now: Timestamp, then: Timestamp) -> Duration {
    Duration::from_micros(then.as_micros().saturating_sub(now.as_micros()))
}
