//! The guard of a store: counts results of calls, rejects calls while the store fails, and reports
//! health. Redis has one for each server, and each store of a user has one.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, timeout};

use super::{
    breaker::{Breaker, BreakerState, Change, Permission, SharedBreaker},
    error::{StoreError, StoreErrorKind},
    health::{STRAIN, StoreHealth},
    health_notifier::{Alarms, Listener, Notifier, Owner},
    runtime_thread::Home,
    stats::{Counters, StoreStats},
};
use crate::{decision::Degradation, lock::unpoisoned, single_background_task::Run};

/// The guard of one server, or of a store that has only one.
#[derive(Debug)]
pub(crate) struct Guard {
    breaker: SharedBreaker,
    watch: Arc<StoreWatch>,
    /// The server's address, if the store has several servers.
    server: Option<Box<str>>,
}

/// Counters and listeners of a store, shared by all of its servers.
#[derive(Debug)]
pub(crate) struct StoreWatch {
    /// Time and reason of the last decision that was made without a working store.
    strain: Mutex<Option<(Instant, Degradation)>>,
    alarms: Alarms,
    notifier: Notifier,
    counters: Counters,
    /// Held while a breaker changes, so that changes are noted in the order in which they happen.
    order: Mutex<()>,
}

impl StoreWatch {
    pub(crate) fn new(owner: Owner, listener: Option<Listener>) -> Self {
        Self {
            strain: Mutex::default(),
            alarms: Alarms::new(owner),
            notifier: Notifier::new(owner, listener),
            counters: Counters::default(),
            order: Mutex::default(),
        }
    }

    pub(crate) fn count<T>(&self, outcome: &Result<T, StoreError>, time: Duration) {
        self.counters.count(outcome, time);
    }

    /// Records that a decision was made without the store, or not at all, because of this error.
    /// `is_open` means that a breaker has reported the failure already.
    pub(crate) fn record_degraded(&self, error: &StoreError, is_open: bool) {
        let reason = error.degradation();
        self.counters.count_degraded(reason);
        if error.kind() == StoreErrorKind::ForeignData {
            self.alarms.foreign_value(error);
        } else if !is_open {
            let mut strain = unpoisoned(self.strain.lock());
            let before = strain.replace((Instant::now(), reason));
            drop(strain);
            self.alarms
                .strained(before.map(|(at, _)| at.elapsed()), error);
        }
    }

    /// Returns `Strained` if the breakers report `Up` although a decision was made without the
    /// store within the last second. Otherwise returns `health` unchanged.
    pub(crate) fn with_strain(&self, health: StoreHealth) -> StoreHealth {
        match health {
            StoreHealth::Up => self.strained().unwrap_or(StoreHealth::Up),
            health => health,
        }
    }

    pub(crate) fn stats(&self, connections: u64, script_loads: u64) -> StoreStats {
        self.counters.read(connections, script_loads)
    }

    fn strained(&self) -> Option<StoreHealth> {
        let strain = unpoisoned(self.strain.lock());
        let (at, by) = (*strain)?;
        (at.elapsed() < STRAIN).then_some(StoreHealth::Strained { by })
    }
}

impl Guard {
    /// Creates a guard without history, whose trials last at most `trial_limit`.
    pub(crate) fn new(owner: Owner, trial_limit: Duration, listener: Option<Listener>) -> Self {
        let watch = Arc::new(StoreWatch::new(owner, listener));
        Self::of_server(watch, trial_limit, None)
    }

    /// Creates the guard of one server of a store.
    pub(crate) fn of_server(
        watch: Arc<StoreWatch>,
        trial_limit: Duration,
        server: Option<Box<str>>,
    ) -> Self {
        Self {
            breaker: SharedBreaker::new(Breaker::new(trial_limit)),
            watch,
            server,
        }
    }

    /// Counts a call that took this long.
    pub(crate) fn count<T>(&self, outcome: &Result<T, StoreError>, time: Duration) {
        self.watch.count(outcome, time);
    }

    /// Records a successful call of this epoch.
    pub(crate) fn record_success(&self, epoch: u64) {
        if !self.breaker.summary().is_settled {
            self.breaker.with(|breaker| breaker.succeeded(epoch));
        }
    }

    /// Records that a decision was made without the store, or not at all, because of this error.
    pub(crate) fn record_degraded(&self, error: &StoreError) {
        self.watch.record_degraded(error, self.is_open());
    }

    pub(crate) fn health(&self) -> StoreHealth {
        self.watch.with_strain(self.state().into())
    }

    pub(crate) fn stats(&self, connections: u64, script_loads: u64) -> StoreStats {
        self.watch.stats(connections, script_loads)
    }

    /// Whether the guard rejects calls.
    pub(crate) fn is_open(&self) -> bool {
        self.breaker.summary().is_open
    }

    pub(crate) fn state(&self) -> BreakerState {
        self.breaker.with(|breaker| breaker.state())
    }

    /// The epoch of calls that start now.
    pub(crate) fn epoch(&self) -> u64 {
        self.breaker.summary().epoch
    }

    /// Returns the epoch of a call that may be sent, or the error of a rejected one with the trial
    /// that is due.
    fn admission(&self, home: &Home) -> Result<u64, (StoreError, Option<Run>)> {
        if !home.has_runtime() {
            return Err((StoreError::no_runtime(), None));
        }
        let summary = self.breaker.summary();
        if !summary.is_open {
            return Ok(summary.epoch);
        }
        let now = Instant::now().into_std();
        match self.breaker.with(|breaker| breaker.admit(now)) {
            Permission::Pass { epoch } => Ok(epoch),
            Permission::Stop { error, trial } => Err((error, trial)),
        }
    }

    fn has_lost_trial(&self, home: &Home) -> bool {
        let now = Instant::now().into_std();
        home.has_runtime() && self.breaker.with(|breaker| breaker.has_lost_trial(now))
    }
}

/// A store behind a guard.
pub(crate) trait Guarded: Send + Sync + Sized + 'static {
    fn guard(&self) -> &Guard;

    /// The runtime on which trials run.
    fn home(&self) -> &Home;

    /// The longest duration of a call.
    fn deadline(&self) -> Duration;

    /// Runs a trial call to the store. If the store has several connections, writes the one used to
    /// `connection`.
    fn try_out(&self, connection: &mut u64) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Closes this connection: it is of no use any more.
    fn close_connection(&self, connection: u64);

    /// The health of the whole store, which may have further servers.
    fn whole_health(&self) -> StoreHealth {
        self.guard().state().into()
    }

    /// Applies a change to the breaker and reports it. An opening also closes the connection: calls
    /// that timed out on it would time out for ever.
    fn change(&self, change: impl FnOnce(&mut Breaker) -> Option<Change>, connection: u64) {
        let guard = self.guard();
        let watch = &guard.watch;
        let changed = {
            let _order = unpoisoned(watch.order.lock());
            let changed = guard.breaker.with(change);
            if let Some(change) = &changed {
                let health = self.whole_health();
                watch
                    .notifier
                    .enqueue(health, change, guard.server.as_deref());
            }
            changed
        };
        let Some(change) = changed else { return };
        *unpoisoned(watch.strain.lock()) = None;
        if matches!(change, Change::Opened { .. }) {
            watch.counters.count_opening();
            self.close_connection(connection);
        }
        watch.notifier.report();
    }

    /// The error with which a call would fail at once, if any.
    fn refusal(self: &Arc<Self>) -> Option<StoreError> {
        let guard = self.guard();
        // The next call starts a trial of its own and waits for it.
        if guard.breaker.summary().is_open && guard.has_lost_trial(self.home()) {
            return None;
        }
        let error = self.admit().err()?;
        guard.count(&Err::<(), _>(error.clone()), Duration::ZERO);
        Some(error)
    }

    /// Returns the epoch of a call that may be sent. Otherwise fails, and starts a trial when one
    /// is due.
    fn admit(self: &Arc<Self>) -> Result<u64, StoreError> {
        self.guard()
            .admission(self.home())
            .map_err(|(error, trial)| {
                if let Some(trial) = trial {
                    self.start_trial(trial);
                }
                error
            })
    }

    /// As `admit`, but waits for the trial that replaces a lost one. A runtime that is driven only
    /// while somebody waits would lose the replacement as well.
    fn admit_after_trial(self: &Arc<Self>) -> impl Future<Output = Result<u64, StoreError>> + Send {
        async {
            match self.guard().admission(self.home()) {
                Ok(epoch) => Ok(epoch),
                Err((_, Some(trial))) if trial.replaces_lost() => {
                    // A trial that takes longer than the deadline has ended.
                    let _ = timeout(self.deadline(), self.carry_out(trial)).await;
                    self.admit()
                }
                Err((error, trial)) => {
                    if let Some(trial) = trial {
                        self.start_trial(trial);
                    }
                    Err(error)
                }
            }
        }
    }

    /// Records an error response that does not show whether the store works.
    fn record_inconclusive(self: &Arc<Self>, epoch: u64) {
        let now = Instant::now().into_std();
        let breaker = &self.guard().breaker;
        if let Some(trial) = breaker.with(|breaker| breaker.inconclusive(epoch, now)) {
            self.start_trial(trial);
        }
    }

    /// Starts a task that runs the trial.
    fn start_trial(self: &Arc<Self>, trial: Run) {
        self.home().spawn(self.carry_out(trial));
    }

    /// Runs a trial within the caller's task.
    fn carry_out(self: &Arc<Self>, trial: Run) -> impl Future<Output = ()> + Send + 'static {
        let store = Arc::clone(self);
        async move {
            let mut connection = 0;
            let outcome = Box::pin(store.try_out(&mut connection)).await;
            let error = outcome.as_ref().err();
            if error.is_some() {
                store.close_connection(connection);
            }
            let (now, outcome) = (Instant::now().into_std(), error.map_or(Ok(()), Err));
            store.change(
                |breaker| breaker.trial_ended(trial, outcome, now),
                connection,
            );
        }
    }
}
