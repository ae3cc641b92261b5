//! The connection's slot: made when it is first needed, and again after it broke.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
    time::Duration,
};

use crate::lock::unpoisoned;
use futures_util::future::{FutureExt, Shared};
use tokio::{
    sync::oneshot,
    time::{self, timeout_at},
};

use super::{
    common::StoreCommon, common::Totals, connector::Connector, error::StoreError, home::Home,
    script::Loads, transport::Transport,
};

/// The one connection of a store, made when it is first needed and again after it broke.
pub(super) struct Connection {
    opener: Connector,
    /// The runtime that a connection is made on, and lives on.
    home: Home,
    state: Mutex<State>,
    totals: Arc<Totals>,
}

#[derive(Default)]
struct State {
    live: Option<Live>,
    attempt: Option<Attempt>,
    /// Attempts so far: the number of the latest.
    attempts: u64,
}

/// A connection that works, as far as is known, and its number.
#[derive(Debug, Clone)]
pub(super) struct Live {
    pub(super) number: u64,
    pub(super) wire: Arc<Transport>,
    /// How long it took to make.
    pub(super) opening: Duration,
    pub(super) loads: Arc<Loads>,
}

/// A connection in the making, which any number of calls wait for.
type LiveFuture = Shared<oneshot::Receiver<Result<Live, StoreError>>>;

#[derive(Clone)]
struct Attempt {
    number: u64,
    started_at: time::Instant,
    /// By then it has ended, unless nobody drives the runtime that it runs on.
    expires_at: time::Instant,
    outcome: LiveFuture,
}

impl Connection {
    pub(super) fn new(opener: Connector, common: &StoreCommon) -> Self {
        Self {
            opener,
            home: common.home.clone(),
            state: Mutex::default(),
            totals: Arc::clone(&common.totals),
        }
    }

    /// The connection, once there is one. `number` tells which one was waited for, even if the
    /// caller gives up waiting. Connecting goes on without the caller.
    pub(super) async fn live(self: &Arc<Self>, number: &mut u64) -> Result<Live, StoreError> {
        loop {
            let attempt = {
                let state = self.lock();
                if let Some(live) = &state.live {
                    *number = live.number;
                    return Ok(live.clone());
                }
                state.attempt.clone()
            };
            let attempt = attempt.unwrap_or_else(|| self.attempt());
            *number = attempt.number;
            match timeout_at(attempt.expires_at, attempt.outcome).await {
                Ok(outcome) => return outcome.unwrap_or_else(|_| Err(StoreError::abandoned())),
                Err(_) => self.expire(attempt.number),
            }
        }
    }

    /// Whether there is a connection.
    pub(super) fn is_live(&self) -> bool {
        self.lock().live.is_some()
    }

    /// How long a connection has been in the making.
    pub(super) fn attempting_for(&self) -> Option<Duration> {
        let state = self.lock();
        state
            .attempt
            .as_ref()
            .map(|attempt| attempt.started_at.elapsed())
    }

    /// How long a connection may be in the making at most.
    pub(super) const fn attempt_limit(&self) -> Duration {
        self.opener.limit().saturating_mul(2)
    }

    /// Lets others connect in place of an attempt that never ended.
    fn expire(&self, number: u64) {
        self.lock()
            .attempt
            .take_if(|attempt| attempt.number == number);
    }

    /// Gives the connection up, if it is still this one. One that was handed in goes on under
    /// another number, so that its next end is told from this one.
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

    /// Starts to connect, or joins an attempt that has just started.
    fn attempt(self: &Arc<Self>) -> Attempt {
        let (tell, outcome) = oneshot::channel();
        let attempt = {
            let mut state = self.lock();
            if let Some(attempt) = &state.attempt {
                return attempt.clone();
            }
            state.attempts += 1;
            let started_at = time::Instant::now();
            let attempt = Attempt {
                number: state.attempts,
                started_at,
                expires_at: started_at + self.attempt_limit(),
                outcome: outcome.shared(),
            };
            state.attempt = Some(attempt.clone());
            attempt
        };
        let opening = Connecting {
            link: Arc::clone(self),
            number: attempt.number,
            started_at: attempt.started_at,
            tell: Some(tell),
        };
        // Not while the state is locked: a runtime that is shutting down drops the task at once.
        self.home.spawn(opening.run());
        attempt
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

/// The task that connects. When it is dropped, the next call starts another.
struct Connecting {
    link: Arc<Connection>,
    number: u64,
    started_at: time::Instant,
    tell: Option<oneshot::Sender<Result<Live, StoreError>>>,
}

impl Connecting {
    async fn run(mut self) {
        let outcome = self.link.opener.open().await;
        let outcome = outcome.map(|wire| Live {
            number: self.number,
            wire: Arc::new(wire),
            opening: self.started_at.elapsed(),
            loads: Loads::new(Arc::clone(&self.link.totals.loads)),
        });
        {
            let mut state = self.link.lock();
            let own = state
                .attempt
                .take_if(|attempt| attempt.number == self.number);
            if let Ok(live) = &outcome {
                if !self.link.is_given() {
                    self.link.totals.connections.fetch_add(1, Ordering::Relaxed);
                }
                // An attempt that took this one's place has a connection of a runtime that is
                // driven.
                if own.is_some() {
                    state.live = Some(live.clone());
                }
            }
        }
        if let Some(tell) = self.tell.take() {
            // Nobody may be waiting any more.
            let _ = tell.send(outcome);
        }
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if self.tell.is_some() {
            self.link.expire(self.number);
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("live", &self.lock().live)
            .finish_non_exhaustive()
    }
}
