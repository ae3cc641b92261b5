//! The guard of a store: counts what its calls come to, keeps calls away from it while it fails, and
//! tells how it is doing. Redis has one, and each store of a user's own.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, timeout};

use super::{
    breaker::{Breaker, BreakerState, Change, Permission, SharedBreaker, Start},
    error::StoreError,
    health::{Alarms, Counters, Listener, Notifier, Owner, STRAIN, StoreHealth, StoreStats},
    home::Home,
};
use crate::{decision::Degradation, lock::unpoisoned, redis::store::error::StoreErrorKind};

/// The guard of one server, or of a store that is only one.
#[derive(Debug)]
pub(crate) struct Guard {
    breaker: SharedBreaker,
    watch: Arc<StoreWatch>,
    /// The server's address, where the store has several.
    server: Option<Box<str>>,
}

/// What is counted and observed of a store, however many servers it has.
#[derive(Debug)]
pub(crate) struct StoreWatch {
    /// The last decision that was made without a store that answers.
    strain: Mutex<Option<(Instant, Degradation)>>,
    alarms: Alarms,
    notifier: Notifier,
    counters: Counters,
    /// Held while a breaker changes, so that changes are noted in the order in which they come.
    order: Mutex<()>,
}

impl StoreWatch {
    pub(super) fn new(owner: Owner, listener: Option<Listener>) -> Self {
        Self {
            strain: Mutex::default(),
            alarms: Alarms::new(owner),
            notifier: Notifier::new(owner, listener),
            counters: Counters::default(),
            order: Mutex::default(),
        }
    }

    pub(crate) fn count<T>(&self, outcome: &Result<T, StoreError>) {
        self.counters.count(outcome);
    }

    /// Something is decided without the store, or not at all, because of this error. `is_open` where
    /// a breaker has reported that already.
    pub(super) fn go_without(&self, error: &StoreError, is_open: bool) {
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

    /// The health that the breakers tell, and whether something was decided without the store all
    /// the same.
    pub(super) fn with_strain(&self, health: StoreHealth) -> StoreHealth {
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
    /// One that has seen nothing, for trials that take no longer than this.
    pub(crate) fn new(owner: Owner, trial_limit: Duration, listener: Option<Listener>) -> Self {
        let watch = Arc::new(StoreWatch::new(owner, listener));
        Self::of_server(watch, trial_limit, None)
    }

    /// The guard of a server of a store.
    pub(super) fn of_server(
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

    pub(crate) fn count<T>(&self, outcome: &Result<T, StoreError>) {
        self.watch.count(outcome);
    }

    /// The store has answered a call of this epoch.
    pub(crate) fn praise(&self, epoch: u64) {
        if !self.breaker.summary().is_settled {
            self.breaker.with(|breaker| breaker.succeeded(epoch));
        }
    }

    /// Something is decided without the store, or not at all, because of this error.
    pub(crate) fn go_without(&self, error: &StoreError) {
        self.watch.go_without(error, self.is_open());
    }

    pub(crate) fn health(&self) -> StoreHealth {
        self.watch.with_strain(self.state().into())
    }

    pub(crate) fn stats(&self, connections: u64, script_loads: u64) -> StoreStats {
        self.watch.stats(connections, script_loads)
    }

    /// Whether calls are kept away.
    pub(super) fn is_open(&self) -> bool {
        self.breaker.summary().is_open
    }

    pub(super) fn state(&self) -> BreakerState {
        self.breaker.with(|breaker| breaker.state())
    }

    /// The epoch of calls that are made now.
    pub(super) fn epoch(&self) -> u64 {
        self.breaker.summary().epoch
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

    /// The health of the store, of which this may be a part.
    fn whole_health(&self) -> StoreHealth {
        self.guard().state().into()
    }

    /// Lets the breaker change, and tells of it. With an opening the connection is given up too:
    /// calls that time out on it would do so for ever.
    fn change(&self, change: impl FnOnce(&mut Breaker) -> Option<Change>, connection: u64) {
        let guard = self.guard();
        let watch = &guard.watch;
        let changed = {
            let _order = unpoisoned(watch.order.lock());
            let changed = guard.breaker.with(change);
            if let Some(change) = &changed {
                let health = self.whole_health();
                watch.notifier.note(health, change, guard.server.as_deref());
            }
            changed
        };
        let Some(change) = changed else { return };
        *unpoisoned(watch.strain.lock()) = None;
        if matches!(change, Change::Opened { .. }) {
            watch.counters.count_opening();
            self.give_up(connection);
        }
        watch.notifier.tell();
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
