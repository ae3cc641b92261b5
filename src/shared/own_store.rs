//! A store of a user's own, behind its guard.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout};

use super::{
    arguments::Plan,
    call::{Call, Reply},
    store::AnyStore,
};
use crate::{
    decision::Op,
    limiter::{
        Tier,
        limits::{Chosen, Limits},
    },
    quota::{IntoQuotas, Quota},
    redis::store::{
        error::{StoreError, StoreErrorKind},
        guard::{Guard, Guarded},
        health::Owner,
        home::Home,
    },
};

/// The longest deadline: sums of several of them are still instants.
const MAX_DEADLINE: Duration = Duration::from_secs(60 * 60);

/// A trial may take this long before it counts as lost, or twice the deadline.
const TRIAL_LIMIT: Duration = Duration::from_secs(2);

/// The key of trials.
const TRIAL_KEY: &str = "rl:trial";

/// A store that is asked about one subject in a call, and its guard.
pub(super) struct OwnStore {
    store: Arc<dyn AnyStore>,
    deadline: Duration,
    guard: Guard,
    home: Home,
    /// The breaker counts the end of a connection once. Here each call is one of its own.
    calls: AtomicU64,
    /// The quotas of trials.
    trial: Plan,
}

impl OwnStore {
    pub(super) fn new(store: Arc<dyn AnyStore>) -> Self {
        let deadline = store.deadline().min(MAX_DEADLINE);
        // A value that is soon over, and never so full that nothing would be written.
        let quota = Quota::per_second(1_000_000).into_quotas();
        let limits = Limits::new(vec![(Tier::DEFAULT, quota)], None);
        Self {
            store,
            deadline,
            guard: Guard::new(Owner::User, TRIAL_LIMIT.max(2 * deadline), None),
            home: Home::of_callers(),
            calls: AtomicU64::new(0),
            trial: Plan::new(&limits.expect("a quota that makes sense")),
        }
    }

    /// Has the store do the call, all within the deadline, and learns from the outcome.
    pub(super) async fn call(
        self: &Arc<Self>,
        key: &str,
        call: &Call<'_>,
    ) -> Result<Reply, StoreError> {
        let outcome = match self.admit_after_trial().await {
            Ok(epoch) => {
                let outcome = self.transact(key, call).await;
                self.learn(epoch, outcome.as_ref().err());
                outcome
            }
            Err(error) => Err(error),
        };
        self.guard.count(&outcome);
        outcome
    }

    async fn transact(&self, key: &str, call: &Call<'_>) -> Result<Reply, StoreError> {
        match timeout(self.deadline, self.store.transact(key, call)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(StoreError::timeout(self.deadline).of_a_store()),
        }
    }

    fn learn(self: &Arc<Self>, epoch: u64, error: Option<&StoreError>) {
        use StoreErrorKind::{BreakerOpen, Crowded, NoRuntime, Other};
        let Some(error) = error.filter(|error| !is_about_one_key(error)) else {
            return self.guard.praise(epoch);
        };
        match error.kind() {
            // Nothing was asked.
            Crowded | BreakerOpen | NoRuntime => {}
            Other => self.doubt(epoch),
            _ => {
                let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
                let now = Instant::now().into_std();
                self.change(|breaker| breaker.failed(epoch, call, error, now), call);
            }
        }
    }
}

/// Whether a store that answers so works.
fn is_about_one_key(error: &StoreError) -> bool {
    matches!(
        error.kind(),
        StoreErrorKind::Contended | StoreErrorKind::ForeignData
    )
}

impl Guarded for OwnStore {
    fn guard(&self) -> &Guard {
        &self.guard
    }

    fn home(&self) -> &Home {
        &self.home
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Reads and writes a value as a call does.
    async fn try_out(&self, _: &mut u64) -> Result<(), StoreError> {
        let rows = [(Op::Hit(1), 1)];
        let call = Call::new(&self.trial, Chosen::Tier(0), &rows);
        match self.transact(TRIAL_KEY, &call).await {
            Err(error) if !is_about_one_key(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn give_up(&self, _: u64) {}
}
