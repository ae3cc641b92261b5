//! The guard of a store: counts what its calls come to, keeps calls away from it while it fails, and
//! tells how it is doing. Redis has one, and each store of a user's own.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, timeout};

use super::{
    breaker::{Breaker, Change, Permission, SharedBreaker, Start},
    error::StoreError,
    health::{Alarms, Counters, Listener, Notifier, Owner, STRAIN, StoreHealth, StoreStats},
    home::Home,
};
use crate::{decision::Degradation, lock::unpoisoned, redis::store::error::StoreErrorKind};

/// The knowledge about a store that all its calls share.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(super) breaker: SharedBreaker,
    /// The last decision that was made without a store that answers.
    strain: Mutex<Option<(Instant, Degradation)>>,
    alarms: Alarms,
    notifier: Notifier,
    counters: Counters,
}

impl Guard {
    /// One that has seen nothing, for trials that take no longer than this.
    pub(crate) fn new(owner: Owner, trial_limit: Duration, listener: Option<Listener>) -> Self {
        Self {
            breaker: SharedBreaker::new(Breaker::new(trial_limit)),
            strain: Mutex::default(),
            alarms: Alarms::new(owner),
            notifier: Notifier::new(owner, listener),
            counters: Counters::default(),
        }
    }

    pub(crate) fn count<T>(&self, outcome: &Result<T, StoreError>) {
        self.counters.count(outcome);
    }

    /// The store has answered a call of this epoch.
    pub(crate) fn praise(&self, epoch: u64) {
        if !self.breaker.summary().is_settled {
            self.breaker.with(|breaker| breaker.succeeded(epoch));
        }
    }

    /// Something is decided without the store, or not at all, because of this error.
    pub(crate) fn go_without(&self, error: &StoreError) {
        let reason = error.degradation();
        self.counters.count_degraded(reason);
        if error.kind() == StoreErrorKind::ForeignData {
            self.alarms.foreign_value(error);
        } else if !self.breaker.summary().is_open {
            let mut strain = unpoisoned(self.strain.lock());
            let before = strain.replace((Instant::now(), reason));
            drop(strain);
            self.alarms
                .strained(before.map(|(at, _)| at.elapsed()), error);
        }
    }

    pub(crate) fn health(&self) -> StoreHealth {
        match self.breaker.with(|breaker| breaker.state()).into() {
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

    /// The epoch of a call that may be made, or why it may not, with a trial that is due.
    fn admission(&self, home: &Home) -> Result<u64, (StoreError, Option<Start>)> {
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

    /// The runtime of its trials.
    fn home(&self) -> &Home;

    /// How long a call takes at most.
    fn deadline(&self) -> Duration;

    /// Tries out whether the store works, and says over which connection, if it has several.
    fn try_out(&self, connection: &mut u64) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// This connection is of no use any more.
    fn give_up(&self, connection: u64);

    /// Lets the breaker change, and tells of it. With an opening the connection is given up too:
    /// calls that time out on it would do so for ever.
    fn change(&self, change: impl FnOnce(&mut Breaker) -> Option<Change>, connection: u64) {
        let guard = self.guard();
        let changed = guard.breaker.with(|breaker| {
            let change = change(breaker)?;
            guard
                .notifier
                .note(StoreHealth::from(breaker.state()), &change);
            Some(change)
        });
        let Some(change) = changed else { return };
        *unpoisoned(guard.strain.lock()) = None;
        if matches!(change, Change::Opened { .. }) {
            guard.counters.count_opening();
            self.give_up(connection);
        }
        guard.notifier.tell();
    }

    /// Why a call would fail at once.
    fn refusal(self: &Arc<Self>) -> Option<StoreError> {
        let guard = self.guard();
        // The next call starts a trial of its own, and waits for it.
        if guard.breaker.summary().is_open && guard.has_lost_trial(self.home()) {
            return None;
        }
        let error = self.admit().err()?;
        guard.count(&Err::<(), _>(error.clone()));
        Some(error)
    }

    /// Whether the store may be asked; otherwise starts a trial when one is due.
    fn admit(self: &Arc<Self>) -> Result<u64, StoreError> {
        self.guard()
            .admission(self.home())
            .map_err(|(error, trial)| {
                if let Some(trial) = trial {
                    self.start_trial(trial.number);
                }
                error
            })
    }

    /// As `admit`, but waits for the trial that comes in place of one that was lost: where a
    /// runtime is driven only while somebody waits, it would be lost, too.
    fn admit_after_trial(self: &Arc<Self>) -> impl Future<Output = Result<u64, StoreError>> + Send {
        async {
            match self.guard().admission(self.home()) {
                Ok(epoch) => Ok(epoch),
                Err((_, Some(trial))) if trial.replaces => {
                    // A trial that takes longer is over.
                    let _ = timeout(self.deadline(), self.carry_out(trial.number)).await;
                    self.admit()
                }
                Err((error, trial)) => {
                    if let Some(trial) = trial {
                        self.start_trial(trial.number);
                    }
                    Err(error)
                }
            }
        }
    }

    /// The store answered a call with an error that says nothing about its health.
    fn doubt(self: &Arc<Self>, epoch: u64) {
        let now = Instant::now().into_std();
        let breaker = &self.guard().breaker;
        if let Some(trial) = breaker.with(|breaker| breaker.doubted(epoch, now)) {
            self.start_trial(trial.number);
        }
    }

    /// Has a task try out whether the store works again.
    fn start_trial(self: &Arc<Self>, number: u64) {
        self.home().spawn(self.carry_out(number));
    }

    /// Carries a trial out within the caller's task.
    fn carry_out(self: &Arc<Self>, number: u64) -> impl Future<Output = ()> + Send + 'static {
        let trial = Probe {
            store: Some(Arc::clone(self)),
            number,
        };
        trial.run()
    }
}

/// A trial that has begun, until its end is told.
struct Probe<G: Guarded> {
    store: Option<Arc<G>>,
    number: u64,
}

impl<G: Guarded> Probe<G> {
    async fn run(mut self) {
        let Some(store) = &self.store else { return };
        let mut connection = 0;
        let outcome = store.try_out(&mut connection).await;
        if let Some(store) = self.store.take() {
            let error = outcome.as_ref().err();
            if error.is_some() {
                store.give_up(connection);
            }
            let (now, outcome) = (Instant::now().into_std(), error.map_or(Ok(()), Err));
            store.change(
                |breaker| breaker.trial_ended(self.number, outcome, now),
                connection,
            );
        }
    }
}

impl<G: Guarded> Drop for Probe<G> {
    fn drop(&mut self) {
        if let Some(store) = &self.store {
            let breaker = &store.guard().breaker;
            breaker.with(|breaker| breaker.trial_lost(self.number));
        }
    }
}
