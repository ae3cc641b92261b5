//! The connection of a server: opened with the first call, and again after it failed.

use std::{
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
    time::Duration,
};

use futures_util::future::{FutureExt, Shared};
use tokio::{
    sync::oneshot,
    time::{self, timeout_at},
};

use super::{
    connector::{Connector, Transport},
    script_by_digest::{Loads, Script},
};
use crate::{
    error::StoreError,
    health::StoreWatch,
    runtime_thread::Home,
    single_background_task::{Run, Solo},
};
use tower_ratelimit_core::lock::unpoisoned;

/// The single connection of a server, opened with the first call and again after it failed.
pub(super) struct Connection {
    opener: Connector,
    common: Arc<StoreCommon>,
    state: Mutex<State>,
    attempts: Solo,
}

#[derive(Default)]
struct State {
    live: Option<Live>,
    /// The latest attempt to connect; it has ended unless its task still runs.
    attempt: Option<Attempt>,
}

/// An open connection that has shown no failure, and its number.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) number: u64,
    pub(super) wire: Arc<Transport>,
    pub(super) loads: Arc<Loads>,
}

/// An attempt to connect; any number of calls wait for it.
type LiveFuture = Shared<oneshot::Receiver<Result<Live, StoreError>>>;

#[derive(Clone)]
struct Attempt {
    number: u64,
    started_at: time::Instant,
    /// The attempt has ended by then, unless nobody drives its runtime.
    expires_at: time::Instant,
    outcome: LiveFuture,
}

impl Connection {
    pub(super) fn new(opener: Connector, common: Arc<StoreCommon>) -> Self {
        Self {
            attempts: Solo::new(opener.attempt_limit()),
            opener,
            common,
            state: Mutex::default(),
        }
    }

    /// Returns the connection, and opens it if necessary. Writes its number to `number` first, so
    /// that a caller knows which connection it waited for even if its own time limit ends the wait.
    /// The attempt continues without the caller.
    pub(super) async fn live(self: &Arc<Self>, number: &mut u64) -> Result<Live, StoreError> {
        loop {
            if let Some(live) = &self.lock().live {
                *number = live.number;
                return Ok(live.clone());
            }
            let attempt = self.attempt();
            *number = attempt.number;
            // A later outcome is that of a stalled runtime: the next attempt replaces this one.
            if let Ok(outcome) = timeout_at(attempt.expires_at, attempt.outcome).await {
                return outcome.unwrap_or_else(|_| Err(StoreError::abandoned()));
            }
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.lock().live.is_some()
    }

    /// Opens a new connection in place of the open one, which stays if that fails. Without an open
    /// one there is nothing to do: the next call opens one.
    pub(super) async fn renew(self: &Arc<Self>) -> Result<(), StoreError> {
        if !self.is_live() {
            return Ok(());
        }
        let attempt = self.attempt();
        match timeout_at(attempt.expires_at, attempt.outcome).await {
            Ok(Ok(outcome)) => outcome.map(drop),
            _ => Err(StoreError::abandoned()),
        }
    }

    pub(super) fn attempting_for(&self) -> Option<Duration> {
        let now = time::Instant::now();
        let state = self.lock();
        let attempt = state.attempt.as_ref();
        let attempt = attempt.filter(|_| self.attempts.is_running(now.into_std()));
        attempt.map(|attempt| now - attempt.started_at)
    }

    pub(super) const fn attempt_limit(&self) -> Duration {
        self.opener.attempt_limit()
    }

    /// Closes the connection if it still has this number. A connection that was handed in stays,
    /// under another number, so that its next failure counts anew.
    pub(super) fn discard(&self, number: u64) {
        let mut state = self.lock();
        if state
            .live
            .as_ref()
            .is_some_and(|live| live.number == number)
        {
            state.live = None;
        }
    }

    const fn is_given(&self) -> bool {
        matches!(self.opener, Connector::Given(_))
    }

    /// Starts an attempt to connect, or joins the running one.
    fn attempt(self: &Arc<Self>) -> Attempt {
        let (sender, outcome) = oneshot::channel();
        let started_at = time::Instant::now();
        let (attempt, run) = {
            let mut state = self.lock();
            if let Some(attempt) = &state.attempt
                && self.attempts.is_running(started_at.into_std())
            {
                return attempt.clone();
            }
            let run = self.attempts.replace(started_at.into_std());
            let attempt = Attempt {
                number: run.number(),
                started_at,
                expires_at: started_at + self.attempt_limit(),
                outcome: outcome.shared(),
            };
            state.attempt = Some(attempt.clone());
            (attempt, run)
        };
        // Outside the lock: a runtime that is shutting down drops the task at once.
        let link = Arc::clone(self);
        self.common.home.spawn(link.connect(run, sender));
        attempt
    }

    async fn connect(self: Arc<Self>, run: Run, sender: oneshot::Sender<Result<Live, StoreError>>) {
        let common = &self.common;
        let outcome = self.opener.open().await.map(|wire| Live {
            number: run.number(),
            wire: Arc::new(wire),
            loads: Loads::new(Arc::clone(&common.watch), common.has_sharding_proxy),
        });
        if outcome.is_ok() && !self.is_given() {
            let counters = &common.watch.counters;
            counters.connections.fetch_add(1, Ordering::Relaxed);
        }
        {
            let mut state = self.lock();
            // A replacement attempt's connection is preferred: its runtime is driven.
            if run.end()
                && let Ok(live) = &outcome
            {
                state.live = Some(live.clone());
            }
        }
        // Fails if nobody waits any more.
        let _ = sender.send(outcome);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

/// The settings of a store, and the counters and listeners for all of its servers.
pub(super) struct StoreCommon {
    pub(super) prefix: String,
    pub(super) deadline: Duration,
    /// Whether the address is a proxy that sends each command to the server of its first key. `SCRIPT
    /// LOAD`, which has no key, would reach one server only.
    pub(super) has_sharding_proxy: bool,
    /// The runtime on which connections are opened and live.
    pub(super) home: Home,
    /// The scripts used by the store's limiters.
    pub(super) scripts: Mutex<Vec<Script>>,
    pub(super) watch: Arc<StoreWatch>,
}
