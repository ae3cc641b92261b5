//! Probes: calls beside those of limiters, which find out whether Redis works again.

use std::{
    sync::{LazyLock, atomic::Ordering},
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::time::{Instant, timeout};

use super::{
    call::CallProgress,
    connection::Connection,
    core::Core,
    error::StoreError,
    guard::{Guard, Guarded},
    home::Home,
    pace::CallSize,
    script::Script,
};

/// A step of a trial may take longer than a call: nobody waits for it.
const STEP_LIMIT: Duration = Duration::from_millis(200);

/// The steps of a trial that wait for the server, not counting the connection.
const STEPS: u32 = 5;

/// Probes go through this many keys, which in a cluster belong to different servers: one that is
/// down must not keep all of it from being used.
const PROBE_KEYS: u64 = 16;

/// A script with the commands that limiters' scripts use, except for writing.
static READ: LazyLock<Script> =
    LazyLock::new(|| Script::new("redis.call('TIME') return redis.call('GET', KEYS[1])"));

/// How long a trial can take on a runtime that is driven.
pub(super) fn limit(deadline: Duration, link: &Connection) -> Duration {
    let step = deadline.max(STEP_LIMIT);
    link.attempt_limit()
        .saturating_add(step.saturating_mul(STEPS))
}

impl Guarded for Core {
    fn guard(&self) -> &Guard {
        &self.guard
    }

    fn home(&self) -> &Home {
        &self.link.home
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Does what calls do, and leaves the scripts loaded that they run. The write goes first and by
    /// itself: not all servers say with which error a script's command met.
    async fn try_out(&self, connection: &mut u64) -> Result<(), StoreError> {
        let number = self.trials.fetch_add(1, Ordering::Relaxed) % PROBE_KEYS;
        let key = format!("{}:trial:{number}", self.prefix);
        let read = READ.call::<&str>(&[key.as_bytes()], &[]);
        let mut write = redis::cmd("SET");
        write.arg(key).arg(1).arg("PX").arg(1000);

        // This has a limit of its own.
        self.link.live(connection).await?;
        let limit = self.deadline.max(STEP_LIMIT);
        self.step(&write, limit, connection).await?;
        self.step(&read, limit, connection).await?;
        within(limit, self.load_scripts(connection)).await?;
        // The deadline of calls. Otherwise a slow server would be tried with success and given
        // up again by the next calls, over and over.
        self.step(&read, self.deadline, connection).await?;
        Ok(())
    }

    fn give_up(&self, connection: u64) {
        self.link.discard(connection);
    }
}

impl Core {
    /// Runs a trial for a caller that waits. Its failure counts like a call's.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        if !self.link.home.has_runtime() {
            return Err(StoreError::no_runtime());
        }
        let mut connection = 0;
        let outcome = self.link.home.within(self.try_out(&mut connection)).await;
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

    async fn step(
        &self,
        command: &Cmd,
        limit: Duration,
        connection: &mut u64,
    ) -> Result<Value, StoreError> {
        let mut progress = CallProgress::new(self.insist(CallSize::ONE), None);
        let outcome = within(limit, self.run(&READ, command, &mut progress)).await;
        *connection = progress.connection;
        outcome
    }

    /// Loads the scripts of the store's limiters that have not been loaded over this connection.
    async fn load_scripts(&self, connection: &mut u64) -> Result<(), StoreError> {
        let live = self.link.live(connection).await?;
        for script in self.scripts() {
            let load = live.loads.load(&script, &live.wire, 0);
            load.await.map_err(|error| StoreError::replied(&error))?;
        }
        Ok(())
    }
}

async fn within<T>(
    limit: Duration,
    step: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match timeout(limit, step).await {
        Ok(outcome) => outcome,
        Err(_) => Err(StoreError::timeout(limit)),
    }
}
