//! The breaker: keeps calls away from a Redis that is failing.

use crate::lock::unpoisoned;
use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::error::{StoreError, StoreErrorKind};

/// Failures in a row after which the breaker opens.
const FAILURES_TO_OPEN: u32 = 3;

/// From the opening to the first trial.
const FIRST_TRIAL: Duration = Duration::from_millis(100);

/// From the start of a trial to the start of the next.
const BETWEEN_TRIALS: Duration = Duration::from_millis(250);

/// How long a trial may take, unless the store says otherwise. One that takes longer runs on a
/// runtime that nobody drives any more.
const TRIAL_LIMIT: Duration = Duration::from_secs(2);

/// Keeps calls away from a Redis that is failing, and says when to try whether it works again.
///
/// Holds no clock: the caller says what time it is.
#[derive(Debug)]
pub(crate) struct Breaker {
    answered: bool,
    failures_in_a_row: u32,
    open: Option<Open>,
    /// Goes up whenever the breaker closes: outcomes of calls from before then no longer count.
    epoch: u64,
    /// The connection whose end was counted last.
    broken: u64,
    trial: Option<PendingProbe>,
    /// Probes so far: the number of the latest.
    trials: u64,
    trial_limit: Duration,
    next_trial: Option<Instant>,
}

/// A trial that has not ended.
#[derive(Debug)]
struct PendingProbe {
    number: u64,
    expires_at: Instant,
}

#[derive(Debug)]
struct Open {
    since: Instant,
    cause: StoreError,
}

/// Whether a call may ask Redis.
#[derive(Debug)]
pub(super) enum Permission {
    /// The call may; the epoch goes with its outcome.
    Pass { epoch: u64 },
    /// The call fails with this error. With `trial` the caller starts the one of this number, and
    /// reports its end.
    Stop {
        error: StoreError,
        trial: Option<Start>,
    },
}

/// A trial is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub(super) number: u64,
    /// Whether the one before never came back, so that somebody should wait for this one: else its
    /// runtime might not be driven, either.
    pub(super) replaces: bool,
}

/// The breaker's knowledge of Redis.
#[derive(Debug, Clone)]
pub(super) enum BreakerState {
    Untried,
    Works,
    Fails { since: Instant, cause: StoreError },
}

/// The breaker has just opened or closed.
#[derive(Debug)]
pub(crate) enum Change {
    Opened {
        cause: StoreError,
    },
    Closed {
        after: Duration,
    },
    /// Another server has its keys.
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
    /// A closed one, whose trials take no longer than this.
    pub(super) const fn new(trial_limit: Duration) -> Self {
        Self {
            answered: false,
            failures_in_a_row: 0,
            open: None,
            epoch: 0,
            broken: 0,
            trial: None,
            trials: 0,
            trial_limit,
            next_trial: None,
        }
    }

    /// Whether a trial has been under way for longer than any could take.
    pub(super) fn has_lost_trial(&self, now: Instant) -> bool {
        self.trial
            .as_ref()
            .is_some_and(|trial| now >= trial.expires_at)
    }

    pub(super) fn admit(&mut self, now: Instant) -> Permission {
        let Some(open) = &self.open else {
            return Permission::Pass { epoch: self.epoch };
        };
        Permission::Stop {
            error: open.cause.not_asked(),
            trial: self.begin_trial(now),
        }
    }

    /// Redis answered a call in time, if only with an error that concerns one subject.
    pub(super) const fn succeeded(&mut self, epoch: u64) {
        if epoch == self.epoch {
            self.answered = true;
            self.failures_in_a_row = 0;
        }
    }

    /// A call failed. The end of `connection` counts once, however many calls were waiting on it.
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

    /// Somebody asked whether Redis works, whether or not calls may be made.
    pub(super) fn checked(
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

    /// Redis answered with an error that says nothing about its health: the trial to start.
    pub(super) fn doubted(&mut self, epoch: u64, now: Instant) -> Option<Start> {
        let is_news = epoch == self.epoch && self.open.is_none();
        is_news.then(|| self.begin_trial(now)).flatten()
    }

    /// A trial that this started. Unlike a call's, its failure is enough. One that has expired is
    /// not heard.
    pub(super) fn trial_ended(
        &mut self,
        number: u64,
        outcome: Result<(), &StoreError>,
        now: Instant,
    ) -> Option<Change> {
        if !self.trial_lost(number) {
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

    /// The trial's task ended without an outcome, together with its runtime; whether it was the
    /// latest.
    pub(super) fn trial_lost(&mut self, number: u64) -> bool {
        let ended = self.trial.take_if(|trial| trial.number == number);
        ended.is_some()
    }

    /// It is not asked any more, because something else answers in its place.
    pub(super) fn closed(&mut self, now: Instant) -> Option<Change> {
        self.close(now)
    }

    /// Another server is asked from now on.
    pub(super) fn replaced(&mut self, now: Instant) -> Option<Change> {
        match self.close(now)? {
            Change::Closed { after } => Some(Change::Replaced { after }),
            change => Some(change),
        }
    }

    pub(super) fn state(&self) -> BreakerState {
        match &self.open {
            Some(Open { since, cause }) => BreakerState::Fails {
                since: *since,
                cause: cause.clone(),
            },
            None if self.answered => BreakerState::Works,
            None => BreakerState::Untried,
        }
    }

    pub(super) const fn summary(&self) -> Summary {
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

    fn begin_trial(&mut self, now: Instant) -> Option<Start> {
        let replaces = self.has_lost_trial(now);
        if !replaces && (self.trial.is_some() || self.next_trial.is_some_and(|at| now < at)) {
            return None;
        }
        self.trials += 1;
        self.next_trial = Some(now + BETWEEN_TRIALS);
        self.trial = Some(PendingProbe {
            number: self.trials,
            expires_at: now + self.trial_limit,
        });
        Some(Start {
            number: self.trials,
            replaces,
        })
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

/// The breaker, shared by threads. While Redis works nobody locks it.
#[derive(Debug)]
pub(super) struct SharedBreaker {
    breaker: Mutex<Breaker>,
    /// What [`Summary`] holds. It may be read a moment late: then a call comes before what has
    /// just happened to another, which it might have done anyway.
    summary: AtomicU64,
}

/// The part of the breaker's state that calls need as long as nothing goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) epoch: u64,
    pub(super) is_open: bool,
    /// Another success would be no news.
    pub(super) is_settled: bool,
}

impl SharedBreaker {
    pub(super) fn new(breaker: Breaker) -> Self {
        Self {
            breaker: Mutex::new(breaker),
            summary: AtomicU64::new(0),
        }
    }

    /// The one way to change the breaker.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Breaker) -> T) -> T {
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

    pub(super) fn summary(&self) -> Summary {
        let packed = self.summary.load(Ordering::Acquire);
        Summary {
            epoch: packed >> 2,
            is_open: packed & 2 != 0,
            is_settled: packed & 1 != 0,
        }
    }
}
