use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, atomic::AtomicU64},
    task::Poll,
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};

use super::{
    breaker::{Admission, Breaker, Change},
    fault::{StoreError, StoreErrorKind},
    gate::Gate,
    health::{Counters, Herald, StoreHealth, StoreStats},
    link::Link,
    script::Script,
};

/// What all handles to one store share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) address: String,
    pub(super) prefix: String,
    pub(super) deadline: Duration,
    pub(super) link: Arc<Link>,
    pub(super) gate: Gate,
    pub(super) herald: Herald,
    pub(super) counters: Counters,
    pub(super) trials: AtomicU64,
}

impl Shared {
    /// Runs `call` of `script`, all within the deadline, and learns from the outcome.
    pub(super) async fn call(
        self: &Arc<Self>,
        script: &Script,
        call: &Cmd,
    ) -> Result<Value, StoreError> {
        let outcome = match self.admit() {
            Ok(epoch) => {
                let mut connection = 0;
                let work = self.run(script, call, &mut connection);
                let outcome = match timeout(self.deadline, work).await {
                    Ok(outcome) => outcome,
                    Err(_) => Err(StoreError::timeout(self.deadline)),
                };
                self.learn(epoch, connection, outcome.as_ref().err());
                outcome
            }
            Err(error) => Err(error),
        };
        self.counters.count(&outcome);
        outcome
    }

    /// Runs a command, which is a call of `script` or no call of a script at all.
    pub(super) async fn run(
        &self,
        script: &Script,
        command: &Cmd,
        connection: &mut u64,
    ) -> Result<Value, StoreError> {
        let live = self.link.live(connection).await?;
        let mut answer = pin!(script.run(&live.wire, command));
        let at_once = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await;
        let answer = match at_once {
            // The connection had ended before, as idle ones do, so nothing was sent: no reason to
            // let the request fail. An answer to what was sent cannot be there yet.
            Poll::Ready(Err(error)) if error.is_io_error() && live.wire.is_node() => {
                self.link.discard(live.number);
                let live = self.link.live(connection).await?;
                script.run(&live.wire, command).await
            }
            Poll::Ready(answer) => answer,
            Poll::Pending => answer.await,
        };
        answer.map_err(|error| StoreError::replied(&error))
    }

    /// Why a call would fail at once.
    pub(super) fn refusal(self: &Arc<Self>) -> Option<StoreError> {
        let error = self.admit().err()?;
        self.counters.count(&Err::<(), _>(error.clone()));
        Some(error)
    }

    /// Whether Redis may be asked; otherwise starts a trial when one is due.
    fn admit(self: &Arc<Self>) -> Result<u64, StoreError> {
        if Handle::try_current().is_err() {
            return Err(StoreError::no_runtime());
        }
        let summary = self.gate.summary();
        if !summary.is_open {
            return Ok(summary.epoch);
        }
        let now = Instant::now().into_std();
        let admission = self.gate.with(|breaker| breaker.admit(now));
        match admission {
            Admission::Pass { epoch } => Ok(epoch),
            Admission::Stop { error, trial } => {
                if trial {
                    self.start_trial();
                }
                Err(error)
            }
        }
    }

    fn learn(self: &Arc<Self>, epoch: u64, connection: u64, error: Option<&StoreError>) {
        let Some(error) = error else {
            return self.praise(epoch);
        };
        let now = Instant::now().into_std();
        match error.kind() {
            StoreErrorKind::ForeignData => self.praise(epoch),
            StoreErrorKind::Other => {
                if self.gate.with(|breaker| breaker.doubted(epoch, now)) {
                    self.start_trial();
                }
            }
            kind => {
                self.mistrust(kind, connection);
                self.change(
                    |breaker| breaker.failed(epoch, connection, error, now),
                    connection,
                );
            }
        }
    }

    fn praise(&self, epoch: u64) {
        if !self.gate.summary().is_settled {
            self.gate.with(|breaker| breaker.succeeded(epoch));
        }
    }

    /// Decides what becomes of a connection on which a call failed.
    pub(super) fn mistrust(&self, kind: StoreErrorKind, connection: u64) {
        use StoreErrorKind::{Cluster, Disconnected, ReadOnly, Timeout};
        if !self.link.is_cluster() {
            if matches!(kind, Disconnected | ReadOnly) {
                self.link.discard(connection);
            }
        } else if matches!(kind, Disconnected | ReadOnly | Timeout | Cluster) {
            // It reconnects to its servers by itself, but does not notice all that happens to them.
            self.link.renew(connection, Instant::now().into_std());
        }
    }

    /// Lets the breaker change, and tells of it. With an opening the connection is given up too:
    /// calls that time out on it would do so for ever.
    pub(super) fn change(
        &self,
        change: impl FnOnce(&mut Breaker) -> Option<Change>,
        connection: u64,
    ) {
        let changed = self.gate.with(|breaker| {
            let change = change(breaker)?;
            self.herald
                .note(StoreHealth::from(breaker.verdict()), &change);
            Some(change)
        });
        let Some(change) = changed else { return };
        if matches!(change, Change::Opened { .. }) {
            self.counters.count_opening();
            self.link.discard(connection);
        }
        self.herald.tell();
    }

    pub(super) fn health(&self) -> StoreHealth {
        self.gate.with(|breaker| breaker.verdict()).into()
    }

    pub(super) fn stats(&self) -> StoreStats {
        self.counters.read(self.link.connections())
    }
}
