use std::{
    sync::{Arc, LazyLock, atomic::Ordering},
    time::Duration,
};

use redis::Value;
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};

use super::{breaker::Breaker, fault::StoreError, script::Script, shared::Shared};

/// A step of a trial may take longer than a call: nobody waits for it.
const STEP_LIMIT: Duration = Duration::from_millis(200);

/// Trials go through this many keys, which in a cluster belong to different servers: one that is
/// down must not keep all of it from being used.
const KEYS: u64 = 16;

/// What the limiters' scripts need permission for, except for writing.
static READ: LazyLock<Script> =
    LazyLock::new(|| Script::new("redis.call('TIME') return redis.call('GET', KEYS[1])"));

/// The task that finds out whether Redis works again.
struct Trial(Option<Arc<Shared>>);

impl Trial {
    async fn run(mut self) {
        let Some(shared) = &self.0 else { return };
        let mut connection = 0;
        let outcome = shared.try_out(&mut connection).await;
        if let Some(shared) = self.0.take() {
            shared.trial_ended(connection, outcome.as_ref().err());
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.gate.with(Breaker::trial_lost);
        }
    }
}

impl Shared {
    pub(super) fn start_trial(self: &Arc<Self>) {
        tokio::spawn(Trial(Some(Arc::clone(self))).run());
    }

    fn trial_ended(&self, connection: u64, error: Option<&StoreError>) {
        if error.is_some() {
            self.link.discard(connection);
        }
        let now = Instant::now().into_std();
        let outcome = error.map_or(Ok(()), Err);
        self.change(|breaker| breaker.trial_ended(outcome, now), connection);
    }

    /// What a trial does, for somebody who waits for it. Its failure counts like a call's.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        if Handle::try_current().is_err() {
            return Err(StoreError::no_runtime());
        }
        let mut connection = 0;
        let outcome = self.try_out(&mut connection).await;
        let (error, now) = (outcome.as_ref().err(), Instant::now().into_std());
        if let Some(error) = error {
            self.mistrust(error.kind(), connection);
        }
        let checked = error.map_or(Ok(()), Err);
        self.change(
            |breaker| breaker.checked(connection, checked, now),
            connection,
        );
        outcome
    }

    /// Does what calls do. The write goes first and by itself: not all servers say with which error
    /// a script's command met.
    async fn try_out(&self, connection: &mut u64) -> Result<(), StoreError> {
        let number = self.trials.fetch_add(1, Ordering::Relaxed) % KEYS;
        let key = format!("{}:trial:{number}", self.prefix);
        let read = READ.call::<&str>(key.as_bytes(), &[]);
        let mut write = redis::cmd("SET");
        write.arg(key).arg(1).arg("PX").arg(1000);

        // This has a limit of its own.
        self.link.live(connection).await?;
        let limit = self.deadline.max(STEP_LIMIT);
        within(limit, self.run(&READ, &write, connection)).await?;
        within(limit, self.run(&READ, &read, connection)).await?;
        // What calls are held to. Otherwise a slow server would be tried with success and given
        // up again by the next calls, over and over.
        within(self.deadline, self.run(&READ, &read, connection)).await?;
        Ok(())
    }
}

async fn within(
    limit: Duration,
    step: impl Future<Output = Result<Value, StoreError>>,
) -> Result<Value, StoreError> {
    match timeout(limit, step).await {
        Ok(outcome) => outcome,
        Err(_) => Err(StoreError::timeout(limit)),
    }
}
