//! The way of a call: breaker, connection, deadline, and what its end tells the breaker.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
    task::Poll,
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::time::{Instant, timeout};

use super::{
    call::{CallProgress, ask},
    connection::Connection,
    error::{StoreError, StoreErrorKind},
    guard::{Guard, Guarded as _},
    health::StoreStats,
    pace::{CallPlace, CallSize, Full, Pace},
    script::{Script, failure_within},
};
use crate::lock::unpoisoned;

/// A connection may take this long to make before calls that wait for it count as failures.
const CONNECTING_GRACE: Duration = Duration::from_millis(200);

/// The state that all handles to one store share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) address: String,
    pub(super) prefix: String,
    pub(super) deadline: Duration,
    pub(super) link: Arc<Connection>,
    pub(super) pace: Arc<Pace>,
    /// The scripts that the store's limiters use.
    pub(super) scripts: Mutex<Vec<Script>>,
    pub(super) guard: Guard,
    pub(super) trials: AtomicU64,
    /// Whether the server takes no calls that carry many subjects.
    pub(super) is_split: AtomicBool,
}

impl Core {
    /// A place for a call of this size, if its answer can be expected `within` this time.
    pub(super) fn enter(&self, size: CallSize, within: Duration) -> Result<CallPlace, StoreError> {
        let now = Instant::now().into_std();
        let place = self.pace.enter(size, now, self.without_margin(within));
        place.map_err(|Full| self.crowded())
    }

    /// An error if a call of this size would get no place.
    pub(super) fn expect(&self, size: CallSize) -> Result<(), StoreError> {
        let now = Instant::now().into_std();
        let within = self.without_margin(self.deadline);
        match self.pace.has_room(size, now, within) {
            true => Ok(()),
            false => Err(self.crowded()),
        }
    }

    /// A margin for delays that nobody foresees.
    fn without_margin(&self, within: Duration) -> Duration {
        within.saturating_sub(self.deadline / 20)
    }

    fn crowded(&self) -> StoreError {
        let error = StoreError::crowded();
        self.guard.count(&Err::<(), _>(error.clone()));
        error
    }

    /// A limiter of this store uses the script.
    pub(super) fn use_script(&self, script: &Script) {
        let mut scripts = unpoisoned(self.scripts.lock());
        if !scripts.iter().any(|known| known.is_same(script)) {
            scripts.push(script.clone());
        }
    }

    /// The scripts of this store's limiters.
    pub(super) fn scripts(&self) -> Vec<Script> {
        unpoisoned(self.scripts.lock()).clone()
    }

    /// A place whether or not an answer can be expected in time.
    pub(super) fn insist(&self, size: CallSize) -> CallPlace {
        self.pace.insist(size, Instant::now().into_std())
    }

    /// Runs `call` of `script`, all within the deadline, and learns from the outcome.
    pub(super) async fn call(
        self: &Arc<Self>,
        script: &Script,
        call: Cmd,
        place: CallPlace,
        within: Option<Duration>,
    ) -> Result<Value, StoreError> {
        let progress = CallProgress::new(place, within);
        let work = async {
            let epoch = self.admit_after_trial().await?;
            self.call_now(epoch, script.clone(), call, progress).await
        };
        let outcome = self.link.home.within(work).await;
        self.guard.count(&outcome);
        outcome
    }

    async fn call_now(
        self: &Arc<Self>,
        epoch: u64,
        script: Script,
        call: Cmd,
        mut progress: CallProgress,
    ) -> Result<Value, StoreError> {
        let left = self.deadline.saturating_sub(progress.began_at.elapsed());
        if progress.place.is_queued() {
            return self
                .call_behind_others(epoch, script, call, progress, left)
                .await;
        }
        let outcome = self.run_for(left, &script, &call, &mut progress).await;
        self.learn_from(epoch, &progress, &outcome);
        outcome
    }

    async fn run_for(
        &self,
        time: Duration,
        script: &Script,
        call: &Cmd,
        progress: &mut CallProgress,
    ) -> Result<Value, StoreError> {
        progress.until = Instant::now() + time;
        match timeout(time, self.run(script, call, progress)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(StoreError::timeout(self.deadline)),
        }
    }

    /// Runs a call behind others, for a caller that waits for the time that is `left`. The fate of
    /// the others tells more than the deadline, so a late answer is still heard.
    async fn call_behind_others(
        self: &Arc<Self>,
        epoch: u64,
        script: Script,
        call: Cmd,
        mut progress: CallProgress,
        left: Duration,
    ) -> Result<Value, StoreError> {
        let shared = Arc::clone(self);
        let mut work = Box::pin(async move {
            let patience = left + shared.deadline;
            let outcome = shared
                .run_for(patience, &script, &call, &mut progress)
                .await;
            shared.learn_from(epoch, &progress, &outcome);
            outcome
        });
        match timeout(left, work.as_mut()).await {
            Ok(outcome) => outcome,
            Err(_) => {
                tokio::spawn(work);
                Err(StoreError::timeout(self.deadline))
            }
        }
    }

    /// Runs a command, which is a call of `script` or no call of a script at all.
    pub(super) async fn run(
        &self,
        script: &Script,
        command: &Cmd,
        progress: &mut CallProgress,
    ) -> Result<Value, StoreError> {
        let live = self.link.live(&mut progress.connection).await?;
        progress.send(&live)?;
        let answer = {
            let mut answer = pin!(ask(&live, script, command, progress));
            match poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
                // The connection had ended before, as idle ones do, so nothing was sent: no reason
                // to let the request fail. An answer to what was sent cannot be there yet.
                Poll::Ready(Err(error)) if error.is_io_error() && live.wire.is_node() => None,
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => Some(answer.await),
            }
        };
        let answer = match answer {
            Some(answer) => answer,
            None => {
                self.link.discard(live.number);
                let live = self.link.live(&mut progress.connection).await?;
                progress.send(&live)?;
                ask(&live, script, command, progress).await
            }
        };
        let outcome = answer.map_err(|error| StoreError::replied(&error));
        let kind = outcome.as_ref().err().map(StoreError::kind);
        if !matches!(
            kind,
            Some(StoreErrorKind::Disconnected | StoreErrorKind::Timeout)
        ) {
            progress.place.answered(Instant::now().into_std());
        }
        outcome
    }

    fn learn_from(
        self: &Arc<Self>,
        epoch: u64,
        progress: &CallProgress,
        outcome: &Result<Value, StoreError>,
    ) {
        match outcome {
            Ok(reply) => self.learn(epoch, progress, failure_within(reply).as_ref()),
            Err(error) => self.learn(epoch, progress, Some(error)),
        }
    }

    fn learn(self: &Arc<Self>, epoch: u64, progress: &CallProgress, error: Option<&StoreError>) {
        let Some(error) = error else {
            return self.guard.praise(epoch);
        };
        let now = Instant::now().into_std();
        match error.kind() {
            StoreErrorKind::ForeignData => self.guard.praise(epoch),
            // The next calls carry one subject each.
            StoreErrorKind::Cluster if error.names_many_servers() => self.guard.praise(epoch),
            // Nothing was sent.
            StoreErrorKind::Crowded => {}
            StoreErrorKind::Other => self.doubt(epoch),
            kind => {
                let connection = progress.connection;
                self.mistrust(kind, connection);
                if kind == StoreErrorKind::Timeout && self.is_excused(progress) {
                    return;
                }
                self.change(
                    |breaker| breaker.failed(epoch, connection, error, now),
                    connection,
                );
            }
        }
    }

    /// Whether a call that was not answered in time says nothing against the server: because that
    /// has answered others since, or because the connection is still being made.
    fn is_excused(&self, progress: &CallProgress) -> bool {
        match progress.sent_at {
            // A cluster has other servers that go on answering.
            Some(_) if self.link.is_cluster() => false,
            Some(at) if self.has_answered_since(at, Duration::ZERO) => true,
            // This process has so much to do that answers may be there and nobody has seen them.
            // But not for long.
            Some(at) => {
                let is_late = progress.until.elapsed() > self.deadline / 10;
                is_late && self.has_answered_since(at, 4 * self.deadline)
            }
            None => {
                let patience = CONNECTING_GRACE.max(self.deadline);
                let attempting = self.link.attempting_for();
                attempting.is_some_and(|time| time < patience)
            }
        }
    }

    fn has_answered_since(&self, time: Instant, before: Duration) -> bool {
        self.pace.answered_since(time.into_std(), before)
    }

    /// Decides what becomes of a connection on which a call failed.
    pub(super) fn mistrust(&self, kind: StoreErrorKind, connection: u64) {
        use StoreErrorKind::{Cluster, Disconnected, ReadOnly, Timeout};
        if !self.link.is_cluster() {
            if matches!(kind, Disconnected | ReadOnly) {
                self.link.discard(connection);
            }
        } else if matches!(kind, Disconnected | ReadOnly | Timeout | Cluster) {
            // A cluster's connection reconnects by itself, but does not notice all that happens to
            // servers.
            self.link.renew(connection, Instant::now().into_std());
        }
    }

    pub(super) fn expected(&self) -> Option<Duration> {
        let now = Instant::now().into_std();
        self.link.is_live().then(|| self.pace.expected(now))
    }

    pub(super) fn stats(&self) -> StoreStats {
        self.guard.stats(self.link.connections(), self.link.loads())
    }
}
