use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use siphasher::sip::SipHasher13;

use crate::rate_conversions::Rate;

/// The floor of any limiter with a keyed hash in one process: the clock, the hash, one cache
/// line, one compare-and-swap. It distinguishes keys only by their place.
pub struct Floor<C> {
    lines: Box<[Line]>,
    hasher: SipHasher13,
    clock: C,
    interval: u64,
    tolerance: u64,
}

#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

/// Reads nanoseconds.
pub trait ReadClock: Sync {
    fn nanos(&self) -> u64;
}

pub struct OsNanos(pub Instant);

impl ReadClock for OsNanos {
    fn nanos(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

pub struct TscNanos(pub quanta::Clock, pub quanta::Instant);

impl ReadClock for TscNanos {
    fn nanos(&self) -> u64 {
        self.0.now().duration_since(self.1).as_nanos() as u64
    }
}

impl<C: ReadClock> Floor<C> {
    /// As many lines as our own table has for so many keys.
    pub fn new(rate: Rate, keys: u32, clock: C) -> Self {
        let lines = (keys as usize * 15 / 8).div_ceil(4).max(2);
        let random = RandomState::new();
        let interval = rate.interval.as_nanos() as u64;
        Self {
            lines: (0..lines).map(|_| Line::default()).collect(),
            hasher: SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1)),
            clock,
            interval,
            tolerance: interval * u64::from(rate.burst - 1),
        }
    }

    #[inline]
    pub fn take(&self, key: &[u8]) -> bool {
        let hash = self.hasher.hash(key);
        let now = self.clock.nanos();
        let line = (u128::from(hash) * self.lines.len() as u128) >> 64;
        let state = &self.lines[line as usize].0;
        let mut old = state.load(Ordering::Acquire);
        loop {
            let begin = old.max(now);
            if begin - now > self.tolerance {
                return false;
            }
            let new = begin + self.interval;
            match state.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(changed) => old = changed,
            }
        }
    }
}
