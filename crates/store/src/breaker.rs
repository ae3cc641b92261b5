//! The circuit breaker of a store: counts the results of calls, stops calls to a store that is
//! failing, and tries it out until it works again. Redis has one for each server, and each store of
//! a user has one.
//!
//! In: a question before each call (`admit`), and its result after it (`record_success`, `record_failure`). Out: the epoch
//! of a call that may be sent, or an error at once.
//!
//! 1. Closed, it counts failures in a row. At the third it opens, and the connection is closed. The end of one connection
//!    counts once, however many calls waited on it.
//! 2. Open, it refuses calls with the error that opened it. A refused call starts a trial when one is due, in a task of
//!    its own: a store that hangs delays nobody. A trial that fails leaves it open.
//! 3. A trial that succeeds closes it, and begins an epoch: results of calls from before are ignored.
//! 4. Changes go to the health of the store (`health.rs`), which logs them and notifies the listener.
//!
//! Example: Redis restarts. Three calls fail and the breaker opens; the fallback decides. Each refused call may start the next
//! trial, and the first that has a response closes the breaker.

#[cfg(test)]
mod tests;

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use tokio::time::timeout;

use super::{
    error::{StoreError, StoreErrorKind},
    health::{Change, StoreHealth, StoreWatch},
    runtime_thread::Home,
};
use crate::single_background_task::{Run, Solo};
use tower_ratelimit_core::lock::unpoisoned;

const FAILURES_TO_OPEN: u32 = 3;

/// Time from the opening to the first trial.
const FIRST_TRIAL: Duration = Duration::from_millis(100);

/// Time from the start of a trial to the start of the next.
const BETWEEN_TRIALS: Duration = Duration::from_millis(250);

/// The breaker of one server, or of a store that has only one.
#[allow(missing_debug_implementations, reason = "hidden")]
pub struct Breaker {
    state: Mutex<State>,
    pub watch: Arc<StoreWatch>,
    /// The server's address, if the store has several servers.
    server: Option<Box<str>>,
    /// The runtime on which trials run.
    pub home: Home,
    /// The longest duration of a call.
    pub deadline: Duration,
}

/// Has no clock: each method gets the time as an argument.
struct State {
    answered: bool,
    failures_in_a_row: u32,
    open: Option<(Instant, StoreError)>,
    /// Incremented when the breaker closes. Outcomes of calls of an earlier epoch are ignored.
    epoch: u64,
    /// Identifier of the connection whose end was counted last.
    broken: u64,
    trials: Solo,
    next_trial: Option<Instant>,
}

/// The epoch of a call that may be sent, or the error of a rejected one with the trial that is due.
type Admission = Result<u64, (StoreError, Option<Run>)>;

impl Breaker {
    /// A trial that takes longer than `trial_limit` runs on a runtime that nobody drives any more.
    pub fn new(
        watch: Arc<StoreWatch>,
        (home, deadline): (Home, Duration),
        trial_limit: Duration,
        server: Option<Box<str>>,
    ) -> Self {
        Self {
            state: Mutex::new(State::new(trial_limit)),
            watch,
            server,
            home,
            deadline,
        }
    }

    /// Records a response in time, including an error that concerns one subject only.
    pub fn record_success(&self, epoch: u64) {
        self.lock().succeeded(epoch);
    }

    /// Whether calls are rejected.
    pub fn is_open(&self) -> bool {
        self.lock().open.is_some()
    }

    /// The epoch of calls that start now.
    pub(crate) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// The health as shown by the calls to this server.
    pub fn health(&self) -> StoreHealth {
        self.lock().health()
    }

    /// The last failure, if calls are rejected.
    pub(crate) fn cause(&self) -> Option<StoreError> {
        let state = self.lock();
        state.open.as_ref().map(|(_, cause)| cause.clone())
    }

    fn admission(&self) -> Admission {
        if self.home.runtime().is_none() {
            return Err((StoreError::no_runtime(), None));
        }
        self.lock().admit(now)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A store behind a breaker.
pub trait Guarded: Send + Sync + Sized + 'static {
    fn breaker(&self) -> &Breaker;

    /// Runs a trial call to the store. If the store has several connections, writes the one used to
    /// `connection`.
    fn try_out(&self, connection: &mut u64) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Closes this connection: it is of no use any more.
    fn close_connection(&self, _connection: u64) {}

    fn whole_health(&self) -> StoreHealth {
        self.breaker().health()
    }

    /// The error with which a call would fail at once, if any.
    fn refusal(self: &Arc<Self>) -> Option<StoreError> {
        let breaker = self.breaker();
        if breaker.lock().has_lost_trial(now) && breaker.home.runtime().is_some() {
            // The next call starts a trial of its own and waits for it.
            return None;
        }
        let error = self.admitted(breaker.admission()).err()?;
        breaker
            .watch
            .counters
            .count(&Err::<(), _>(error.clone()), Duration::ZERO);
        Some(error)
    }

    /// Returns the epoch of a call that may be sent. Otherwise fails, and starts a trial when one is
    /// due. Waits for a trial that replaces a lost one: a runtime that is driven only while somebody
    /// waits would lose the replacement as well.
    fn admit(self: &Arc<Self>) -> impl Future<Output = Result<u64, StoreError>> + Send {
        async {
            let breaker = self.breaker();
            match breaker.admission() {
                Err((_, Some(trial))) if trial.replaces_lost() => {
                    // A trial that takes longer than the deadline has ended.
                    let _ = timeout(breaker.deadline, self.carry_out(trial)).await;
                    self.admitted(breaker.admission())
                }
                admission => self.admitted(admission),
            }
        }
    }

    /// Starts the trial that is due, if any.
    fn admitted(self: &Arc<Self>, admission: Admission) -> Result<u64, StoreError> {
        admission.map_err(|(error, trial)| {
            if let Some(trial) = trial {
                self.breaker().home.spawn(self.carry_out(trial));
            }
            error
        })
    }

    /// Records a failed call. The end of one `connection` counts once, however many calls were
    /// waiting on it.
    fn record_failure(&self, epoch: u64, connection: u64, error: &StoreError) {
        change(self, connection, |state| {
            state.failed(epoch, connection, error, now())
        });
    }

    /// Records the result of a health check. Checks run whether or not the breaker is open.
    fn record_check(&self, connection: u64, outcome: &Result<(), StoreError>) {
        change(self, connection, |state| match outcome {
            Ok(()) => state.close(now()),
            Err(error) if state.open.is_none() => state.count(connection, error, now()),
            Err(_) => None,
        });
    }

    /// Records an error response that does not show whether the store works: a trial will.
    fn record_inconclusive(self: &Arc<Self>, epoch: u64) {
        let trial = self.breaker().lock().inconclusive(epoch, now());
        if let Some(trial) = trial {
            self.breaker().home.spawn(self.carry_out(trial));
        }
    }

    /// Closes the breaker without a successful call: this server gets no calls any more, as another
    /// one `has_replaced` it, or as it was only the way to the others.
    fn retire(&self, has_replaced: bool) {
        change(self, 0, |state| match state.close(now())? {
            Change::Closed { after } if has_replaced => Some(Change::Replaced { after }),
            change => Some(change),
        });
    }

    /// Runs a trial within the caller's task.
    fn carry_out(self: &Arc<Self>, trial: Run) -> impl Future<Output = ()> + Send + 'static {
        let store = Arc::clone(self);
        async move {
            let mut connection = 0;
            let outcome = Box::pin(store.try_out(&mut connection)).await;
            if outcome.is_err() {
                store.close_connection(connection);
            }
            change(&*store, connection, |state| {
                state.trial_ended(trial, &outcome, now())
            });
        }
    }
}

/// Changes the breaker and reports it. An opening also closes the connection: calls that timed out
/// on it would time out for ever.
fn change<S: Guarded>(
    store: &S,
    connection: u64,
    change: impl FnOnce(&mut State) -> Option<Change>,
) {
    let Breaker { watch, server, .. } = store.breaker();
    let changed = watch.note(server.as_deref(), || {
        let change = change(&mut store.breaker().lock())?;
        Some((change, store.whole_health()))
    });
    match changed {
        Some(Change::Opened { .. }) => store.close_connection(connection),
        Some(_) => {}
        None => return,
    }
    watch.report();
}

impl State {
    fn new(trial_limit: Duration) -> Self {
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

    fn health(&self) -> StoreHealth {
        match &self.open {
            Some((since, cause)) => StoreHealth::Down {
                since: *since,
                cause: cause.kind(),
            },
            None if self.answered => StoreHealth::Up,
            None => StoreHealth::Untried,
        }
    }

    /// Whether a trial has been running for longer than its limit, and so has lost its runtime.
    fn has_lost_trial(&self, now: impl FnOnce() -> Instant) -> bool {
        self.open.is_some() && self.trials.is_lost(now())
    }

    fn admit(&mut self, now: impl FnOnce() -> Instant) -> Admission {
        let Some((_, cause)) = &self.open else {
            return Ok(self.epoch);
        };
        Err((cause.not_called(), self.begin_trial(now())))
    }

    fn succeeded(&mut self, epoch: u64) {
        if epoch == self.epoch {
            self.answered = true;
            self.failures_in_a_row = 0;
        }
    }

    fn failed(
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

    fn inconclusive(&mut self, epoch: u64, now: Instant) -> Option<Run> {
        let is_news = epoch == self.epoch && self.open.is_none();
        is_news.then(|| self.begin_trial(now)).flatten()
    }

    /// Records the result of a trial that this breaker started. One failed trial opens the breaker.
    /// The result of an expired trial is ignored.
    fn trial_ended(
        &mut self,
        trial: Run,
        outcome: &Result<(), StoreError>,
        now: Instant,
    ) -> Option<Change> {
        if !trial.end() {
            return None;
        }
        match (outcome, &mut self.open) {
            (Ok(()), _) => self.close(now),
            (Err(error), Some((_, cause))) => {
                *cause = error.clone();
                None
            }
            (Err(error), None) => Some(self.open(error, now)),
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
        if is_early && !self.trials.is_lost(now) {
            return None;
        }
        let trial = self.trials.begin(now)?;
        self.next_trial = Some(now + BETWEEN_TRIALS);
        Some(trial)
    }

    fn open(&mut self, cause: &StoreError, now: Instant) -> Change {
        self.open = Some((now, cause.clone()));
        self.next_trial = Some(now + FIRST_TRIAL);
        Change::Opened {
            cause: cause.clone(),
        }
    }

    fn close(&mut self, now: Instant) -> Option<Change> {
        self.answered = true;
        self.failures_in_a_row = 0;
        let (since, _) = self.open.take()?;
        self.epoch += 1;
        Some(Change::Closed {
            after: now.saturating_duration_since(since),
        })
    }
}
