//! Probes: calls, apart from those of limiters, that find out whether Redis works again.

use std::{
    sync::{LazyLock, atomic::Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use redis::{Cmd, Value};
use tokio::time::{Instant, timeout};

use super::{
    pipeline::{CallProgress, Pipeline, STEP_LIMIT},
    script_by_digest::Script,
};
use crate::{
    breaker::{Breaker, Guarded},
    error::StoreError,
    health::StoreHealth,
};
use tower_ratelimit_core::lock::unpoisoned;

/// The number of probe keys. Behind a proxy they belong to different servers, so that one failed
/// server does not keep the store down. A server of a cluster has a probe key of its own.
const PROBE_KEYS: u64 = 16;

/// The most keys tried to find one of a given server. Even a server with a single slot has one
/// among them, almost certainly.
const MOST_PROBE_KEYS: u64 = 500_000;

/// A script with the commands of limiters' scripts, except those that write.
static READ: LazyLock<Script> =
    LazyLock::new(|| Script::new("redis.call('TIME') return redis.call('GET', KEYS[1])"));

impl Guarded for Pipeline {
    fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    fn whole_health(&self) -> StoreHealth {
        match self.cluster() {
            Some(cluster) => cluster.health(),
            None => self.breaker.health(),
        }
    }

    async fn try_out(&self, connection: &mut u64) -> Result<(), StoreError> {
        let key = self.probe_key();
        let outcome = self.try_out_on(&key, connection).await;
        let redirect = outcome.as_ref().err().and_then(StoreError::redirect);
        if let (Some(cluster), Some(redirect)) = (self.cluster(), redirect) {
            // The server works; the key's slot belongs to another server now.
            cluster.record_redirect(self.host(), key.as_bytes(), redirect);
            return Ok(());
        }
        outcome
    }

    fn close_connection(&self, connection: u64) {
        self.link.discard(connection);
        if let Some(cluster) = self.cluster() {
            cluster.fetch_soon();
        }
    }
}

impl Pipeline {
    /// A key whose slot this server has.
    fn probe_key(&self) -> String {
        let key = |number: u64| format!("{}:trial:{number}", self.common.prefix);
        let member = self.cluster().zip(self.address());
        let own = member.and_then(|(cluster, address)| {
            cluster.first_of(address, &mut (0..MOST_PROBE_KEYS).map(key))
        });
        own.unwrap_or_else(|| key(self.trials.fetch_add(1, Ordering::Relaxed) % PROBE_KEYS))
    }

    /// Runs the commands that calls run, and loads the limiters' scripts. The write comes first and
    /// alone: not all servers report the error that a script's command met.
    async fn try_out_on(&self, key: &str, connection: &mut u64) -> Result<(), StoreError> {
        let read = READ.call::<&str>(&[key.as_bytes()], &[]);
        let mut write = redis::cmd("SET");
        write.arg(key).arg(1).arg("PX").arg(1000);

        // This step has a time limit of its own.
        self.link.live(connection).await?;
        let limit = self.common.deadline.max(STEP_LIMIT);
        self.step(&write, limit, connection).await?;
        self.step(&read, limit, connection).await?;
        within(limit, self.load_scripts(connection)).await?;
        // Uses the deadline of calls. With a longer one a slow server would pass its trials, and
        // the next calls would open the breaker again, over and over.
        self.step(&read, self.common.deadline, connection).await?;
        Ok(())
    }

    /// Runs a trial for a caller that waits. Its failure counts like that of a call. Behind a proxy
    /// it tries all probe keys, and fails if one fails: some server does not do what a limiter needs.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        if self.common.home.runtime().is_none() {
            return Err(StoreError::no_runtime());
        }
        let keys = if self.common.has_sharding_proxy {
            PROBE_KEYS
        } else {
            1
        };
        let each = (0..keys).map(|_| async {
            let mut connection = 0;
            let outcome = self.try_out(&mut connection).await;
            (connection, outcome)
        });
        let mut each = join_all(each).await;
        // As in a trial, one server that works keeps the breaker closed.
        each.sort_by_key(|(_, outcome)| outcome.is_err());
        if let Some((connection, outcome)) = each.first() {
            if let Err(error) = outcome {
                self.close_failed(error.kind(), *connection);
            }
            self.record_check(*connection, outcome);
        }
        each.into_iter().try_for_each(|(_, outcome)| outcome)
    }

    async fn step(
        &self,
        command: &Cmd,
        limit: Duration,
        connection: &mut u64,
    ) -> Result<Value, StoreError> {
        let mut progress = CallProgress::new((Instant::now(), None));
        let outcome = within(limit, self.run(&READ, command, &mut progress)).await;
        *connection = progress.connection;
        outcome
    }

    async fn load_scripts(&self, connection: &mut u64) -> Result<(), StoreError> {
        let live = self.link.live(connection).await?;
        let scripts = unpoisoned(self.common.scripts.lock()).clone();
        for script in scripts {
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
