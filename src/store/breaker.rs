//! The circuit breaker of a store: stops calls to a store that is failing.

#[cfg(test)]
mod tests;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::error::{StoreError, StoreErrorKind};
use crate::{
    lock::unpoisoned,
    single_background_task::{Run, Solo},
};

/// Failures in a row that open the breaker.
const FAILURES_TO_OPEN: u32 = 3;

/// Time from the opening to the first trial.
const FIRST_TRIAL: Duration = Duration::from_millis(100);

/// Time from the start of a trial to the start of the next.
const BETWEEN_TRIALS: Duration = Duration::from_millis(250);

/// The longest duration of a trial, unless the store sets another. A trial that takes longer runs
/// on a runtime that nobody drives any more.
const TRIAL_LIMIT: Duration = Duration::from_secs(2);

/// Stops calls to a store that is failing, and schedules trials that find out whether it works
/// again.
///
/// Has no clock: each method gets the time as an argument.
#[derive(Debug)]
pub(crate) struct Breaker {
    answered: bool,
    failures_in_a_row: u32,
    open: Option<Open>,
    /// Incremented when the breaker closes. Outcomes of calls of an earlier epoch are ignored.
    epoch: u64,
    /// Identifier of the connection whose end was counted last.
    broken: u64,
    trials: Solo,
    next_trial: Option<Instant>,
}

#[derive(Debug)]
struct Open {
    since: Instant,
    cause: StoreError,
}

/// Whether a call may be sent to the store.
#[derive(Debug)]
pub(crate) enum Permission {
    /// The call may be sent. The caller reports its outcome with this epoch.
    Pass { epoch: u64 },
    /// The call fails with this error. With `trial` the caller also runs a trial and reports its
    /// result.
    Stop {
        error: StoreError,
        trial: Option<Run>,
    },
}

/// State of the breaker.
#[derive(Debug, Clone)]
pub(crate) enum BreakerState {
    Untried,
    Works,
    Fails { since: Instant, cause: StoreError },
}

/// A change of the breaker: it opened or closed.
#[derive(Debug)]
pub(crate) enum Change {
    Opened {
        cause: StoreError,
    },
    Closed {
        after: Duration,
    },
    /// Another server has taken over its keys.
    Replaced {
        after: Duration,
    },
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new(TRIAL_LIMIT)
    }
}

impl Breaker {
    /// Creates a closed breaker. Its trials last at most `trial_limit`.
    pub(crate) fn new(trial_limit: Duration) -> Self {
        Self {
            answered: false,
            failures_in_a_row: 0,
            open: None,
            epoch: 0,
            broken: 0,
            trials: Solo::new(trial_limit),
            next_trial: None,
        }
    }

    /// Whether a trial has been running for longer than `trial_limit`, and so has lost its runtime.
    pub(crate) fn has_lost_trial(&self, now: Instant) -> bool {
        self.trials.is_lost(now)
    }

    pub(crate) fn admit(&mut self, now: Instant) -> Permission {
        let Some(open) = &self.open else {
            return Permission::Pass { epoch: self.epoch };
        };
        Permission::Stop {
            error: open.cause.not_called(),
            trial: self.begin_trial(now),
        }
    }

    /// Records a response in time, including an error that concerns one subject only.
    pub(crate) const fn succeeded(&mut self, epoch: u64) {
        if epoch == self.epoch {
            self.answered = true;
            self.failures_in_a_row = 0;
        }
    }

    /// Records a failed call. The end of one `connection` counts once, however many calls were
    /// waiting on it.
    pub(crate) fn failed(
        &mut self,
        epoch: u64,
        connection: u64,
        error: &StoreError,
        now: Instant,
    ) -> Option<Change> {
        if epoch != self.epoch || self.open.is_some() {
            return None;
        }
        self.count(connection, error, now)
    }

    /// Records the result of a health check. Checks run whether or not the breaker is open.
    pub(crate) fn checked(
        &mut self,
        connection: u64,
        outcome: Result<(), &StoreError>,
        now: Instant,
    ) -> Option<Change> {
        match outcome {
            Ok(()) => self.close(now),
            Err(error) if self.open.is_none() => self.count(connection, error, now),
            Err(_) => None,
        }
    }

    /// Records an error that does not show whether the store works. Returns the trial to start, if
    /// one is due.
    pub(crate) fn inconclusive(&mut self, epoch: u64, now: Instant) -> Option<Run> {
        let is_news = epoch == self.epoch && self.open.is_none();
        is_news.then(|| self.begin_trial(now)).flatten()
    }

    /// Records the result of a trial that this breaker started. One failed trial opens the breaker.
    /// The result of an expired trial is ignored.
    pub(crate) fn trial_ended(
        &mut self,
        trial: Run,
        outcome: Result<(), &StoreError>,
        now: Instant,
    ) -> Option<Change> {
        if !trial.end() {
            return None;
        }
        match (outcome, &mut self.open) {
            (Ok(()), _) => self.close(now),
            (Err(error), Some(open)) => {
                open.cause = error.clone();
                None
            }
            (Err(error), None) => Some(self.open(error, now)),
        }
    }

    /// Closes the breaker without a successful call: this server gets no calls any more.
    pub(crate) fn closed(&mut self, now: Instant) -> Option<Change> {
        self.close(now)
    }

    /// Records that another server has taken over the keys, so calls go to that one.
    pub(crate) fn replaced(&mut self, now: Instant) -> Option<Change> {
        match self.close(now)? {
            Change::Closed { after } => Some(Change::Replaced { after }),
            change => Some(change),
        }
    }

    pub(crate) fn state(&self) -> BreakerState {
        match &self.open {
            Some(Open { since, cause }) => BreakerState::Fails {
                since: *since,
                cause: cause.clone(),
            },
            None if self.answered => BreakerState::Works,
            None => BreakerState::Untried,
        }
    }

    pub(crate) const fn summary(&self) -> Summary {
        Summary {
            epoch: self.epoch,
            is_open: self.open.is_some(),
            is_settled: self.answered && self.failures_in_a_row == 0,
        }
    }

    fn count(&mut self, connection: u64, error: &StoreError, now: Instant) -> Option<Change> {
        if error.kind() == StoreErrorKind::Disconnected {
            if self.broken == connection {
                return None;
            }
            self.broken = connection;
        }
        self.failures_in_a_row += 1;
        (self.failures_in_a_row >= FAILURES_TO_OPEN).then(|| self.open(error, now))
    }

    fn begin_trial(&mut self, now: Instant) -> Option<Run> {
        let is_early = self.next_trial.is_some_and(|at| now < at);
        if is_early && !self.has_lost_trial(now) {
            return None;
        }
        let trial = self.trials.begin(now)?;
        self.next_trial = Some(now + BETWEEN_TRIALS);
        Some(trial)
    }

    fn open(&mut self, cause: &StoreError, now: Instant) -> Change {
        self.open = Some(Open {
            since: now,
            cause: cause.clone(),
        });
        self.next_trial = Some(now + FIRST_TRIAL);
        Change::Opened {
            cause: cause.clone(),
        }
    }

    fn close(&mut self, now: Instant) -> Option<Change> {
        self.answered = true;
        self.failures_in_a_row = 0;
        let open = self.open.take()?;
        self.epoch += 1;
        Some(Change::Closed {
            after: now.saturating_duration_since(open.since),
        })
    }
}

/// The breaker, shared by threads. While the store works no call takes the lock.
#[derive(Debug)]
pub(crate) struct SharedBreaker {
    breaker: Mutex<Breaker>,
    /// A [`Summary`] as a number. A call may read it a moment late, just as if it had come a moment
    /// earlier.
    summary: AtomicU64,
}

/// The part of the breaker's state that every call reads while the store works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) epoch: u64,
    pub(crate) is_open: bool,
    /// Whether another success would change nothing.
    pub(crate) is_settled: bool,
}

impl SharedBreaker {
    pub(crate) fn new(breaker: Breaker) -> Self {
        Self {
            breaker: Mutex::new(breaker),
            summary: AtomicU64::new(0),
        }
    }

    /// Changes the breaker under its lock. All changes go through this function.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Breaker) -> T) -> T {
        let mut breaker = unpoisoned(self.breaker.lock());
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

    pub(crate) fn summary(&self) -> Summary {
        let packed = self.summary.load(Ordering::Acquire);
        Summary {
            epoch: packed >> 2,
            is_open: packed & 2 != 0,
            is_settled: packed & 1 != 0,
        }
    }
}
