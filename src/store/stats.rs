//! Counts of a store's calls.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::{
    call_times::{CallTimers, CallTimes},
    error::{StoreError, StoreErrorKind},
};
use crate::decision::Degradation;

/// Counters of a store's calls since it was created, for metrics. They never decrease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreStats {
    answered: u64,
    failures: [u64; StoreErrorKind::ALL.len()],
    connections: u64,
    breaker_openings: u64,
    degraded: [u64; Degradation::ALL.len()],
    script_loads: u64,
    times: CallTimes,
}

impl StoreStats {
    /// Calls with a response in time that was no error.
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// Calls that failed for this reason. [`StoreErrorKind::BreakerOpen`] counts calls that were
    /// not sent.
    pub const fn failures(&self, kind: StoreErrorKind) -> u64 {
        self.failures[kind as usize]
    }

    /// Failed calls by reason, without reasons that have not occurred.
    pub fn failures_by_kind(&self) -> impl Iterator<Item = (StoreErrorKind, u64)> {
        StoreErrorKind::ALL
            .into_iter()
            .zip(self.failures)
            .filter(|(_, count)| *count > 0)
    }

    /// Connections that were opened. All but the first are reconnections; a connection that was
    /// handed in is not counted.
    pub const fn connections(&self) -> u64 {
        self.connections
    }

    /// How often the breaker opened after failures in a row.
    pub const fn breaker_openings(&self) -> u64 {
        self.breaker_openings
    }

    /// Operations of all limiters that Redis did not decide, for this reason: the node decided them
    /// by its fallback, or they failed. One call can carry many operations.
    pub const fn degraded(&self, reason: Degradation) -> u64 {
        self.degraded[reason as usize]
    }

    /// Operations that Redis did not decide, by reason, without reasons that have not occurred.
    pub fn degraded_by_reason(&self) -> impl Iterator<Item = (Degradation, u64)> {
        Degradation::ALL
            .into_iter()
            .zip(self.degraded)
            .filter(|(_, count)| *count > 0)
    }

    /// How often a script was loaded into a server: when the server was new, restarted, or flushed.
    pub const fn script_loads(&self) -> u64 {
        self.script_loads
    }

    /// The time within which `percent` of the calls since `earlier` were answered, from when they were made: waits for a
    /// connection and for other calls are part of it. At most a quarter too long, at least 20 µs and at most 17 s.
    /// `None` if there was no such call.
    pub fn call_time(&self, percent: u32, earlier: &Self) -> Option<Duration> {
        self.times.percentile(percent, &earlier.times)
    }
}

/// The counters behind [`StoreStats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    answered: AtomicU64,
    failures: [AtomicU64; StoreErrorKind::ALL.len()],
    breaker_openings: AtomicU64,
    degraded: [AtomicU64; Degradation::ALL.len()],
    times: CallTimers,
}

impl Counters {
    /// Counts a call that took this long.
    pub(crate) fn count<T>(&self, outcome: &Result<T, StoreError>, time: Duration) {
        let counter = match outcome {
            Ok(_) => &self.answered,
            Err(error) => &self.failures[error.kind() as usize],
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if outcome.is_ok() {
            self.times.count(time);
        }
    }

    pub(crate) fn count_opening(&self) {
        self.breaker_openings.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_degraded(&self, reason: Degradation) {
        self.degraded[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, connections: u64, script_loads: u64) -> StoreStats {
        StoreStats {
            answered: self.answered.load(Ordering::Relaxed),
            failures: std::array::from_fn(|kind| self.failures[kind].load(Ordering::Relaxed)),
            connections,
            breaker_openings: self.breaker_openings.load(Ordering::Relaxed),
            degraded: std::array::from_fn(|reason| self.degraded[reason].load(Ordering::Relaxed)),
            script_loads,
            times: self.times.read(),
        }
    }
}
