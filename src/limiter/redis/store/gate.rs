use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use super::breaker::Breaker;

/// The breaker, shared by threads. While Redis works nobody locks it.
#[derive(Debug)]
pub(super) struct Gate {
    breaker: Mutex<Breaker>,
    /// What [`Summary`] holds. It may be read a moment late: then a call comes before what has
    /// just happened to another, which it might have done anyway.
    summary: AtomicU64,
}

/// What calls need to know of the breaker as long as nothing goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) epoch: u64,
    pub(super) is_open: bool,
    /// Another success would be no news.
    pub(super) is_settled: bool,
}

impl Gate {
    pub(super) fn new(breaker: Breaker) -> Self {
        Self {
            breaker: Mutex::new(breaker),
            summary: AtomicU64::new(0),
        }
    }

    /// What may change the breaker goes through here.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Breaker) -> T) -> T {
        let mut breaker = self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = act(&mut breaker);
        let Summary {
            epoch,
            is_open,
            is_settled,
        } = breaker.summary();
        let packed = epoch << 2 | u64::from(is_open) << 1 | u64::from(is_settled);
        self.summary.store(packed, Ordering::Release);
        outcome
    }

    pub(super) fn summary(&self) -> Summary {
        let packed = self.summary.load(Ordering::Acquire);
        Summary {
            epoch: packed >> 2,
            is_open: packed & 2 != 0,
            is_settled: packed & 1 != 0,
        }
    }
}
