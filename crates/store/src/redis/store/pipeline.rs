//! The pipeline to one server: breaker, connection, deadline and window, and how outcomes change
//! them.

use std::{
    future::poll_fn,
    io,
    pin::pin,
    sync::{Arc, Weak, atomic::AtomicU64},
    task::Poll,
    time::Duration,
};

use redis::{Cmd, RedisResult, Value};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{
    connection::{Connection, Live, StoreCommon},
    connector::Connector,
    in_flight::{CallPlace, InFlight},
    script_by_digest::{Script, failure_within, is_unknown},
};
use crate::{
    breaker::{Breaker, Guarded as _},
    error::{Redirect, ServerAddress, StoreError, StoreErrorKind},
    health::StoreHealth,
};

/// While a connection has been opening for less than this, calls that time out waiting for it do
/// not count as failures.
const CONNECTING_GRACE: Duration = Duration::from_millis(200);

/// The longest duration of one step of a trial. Longer than that of a call is harmless, since no
/// request waits.
pub(super) const STEP_LIMIT: Duration = Duration::from_millis(200);

/// Steps of a trial that wait for the server, without the connection.
const STEPS: u32 = 5;

/// The longest duration of a trial on a runtime that is driven.
fn trial_limit(deadline: Duration, link: &Connection) -> Duration {
    let step = deadline.max(STEP_LIMIT);
    link.attempt_limit()
        .saturating_add(step.saturating_mul(STEPS))
}

/// The pipeline to a server, or to a proxy before several: its connection, window and breaker.
pub(super) struct Pipeline {
    pub(super) common: Arc<StoreCommon>,
    pub(super) link: Arc<Connection>,
    calls: Arc<InFlight>,
    pub(super) breaker: Breaker,
    pub(super) trials: AtomicU64,
    membership: Option<Membership>,
}

impl Pipeline {
    pub(super) fn new(
        common: Arc<StoreCommon>,
        opener: Connector,
        membership: Option<Membership>,
    ) -> Self {
        let link = Arc::new(Connection::new(opener, Arc::clone(&common)));
        let calls = InFlight::new(common.deadline);
        let address = membership.as_ref().and_then(|own| own.address.as_ref());
        let breaker = Breaker::new(
            Arc::clone(&common.watch),
            (common.home.clone(), common.deadline),
            trial_limit(common.deadline, &link),
            address.map(|address| address.to_string().into()),
        );
        Self {
            common,
            link,
            calls,
            breaker,
            trials: AtomicU64::new(0),
            membership,
        }
    }

    /// The address of a server in a cluster.
    pub(super) fn address(&self) -> Option<&ServerAddress> {
        self.membership.as_ref()?.address.as_ref()
    }

    pub(super) fn host(&self) -> Option<&str> {
        self.address().map(|address| &*address.host)
    }

    pub(super) fn cluster(&self) -> Option<Arc<dyn Siblings>> {
        self.membership.as_ref()?.cluster.upgrade()
    }

    /// Runs a command of `script` within the deadline, and learns from the outcome: on the store's own thread if it has
    /// one, as `run` relies on it.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        script: &Script,
        command: Arc<Cmd>,
        progress: CallProgress,
    ) -> Result<Value, StoreError> {
        if self.common.home.is_here() != Some(false) {
            return self.attempt_here(script, command, progress).await;
        }
        let (shared, script) = (Arc::clone(self), script.clone());
        // Its task ends with the caller's future.
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { shared.attempt_here(&script, command, progress).await });
        match tasks.join_next().await {
            Some(Ok(outcome)) => outcome,
            _ => Err(StoreError::abandoned()),
        }
    }

    async fn attempt_here(
        self: &Arc<Self>,
        script: &Script,
        command: Arc<Cmd>,
        mut progress: CallProgress,
    ) -> Result<Value, StoreError> {
        let epoch = self.admit().await?;
        let until = progress.began_at + self.common.deadline;
        if let Some(needed_until) = progress.needed_until {
            let place = self.calls.enter(progress.began_at, needed_until.min(until));
            progress.place = Some(place.await.ok_or_else(StoreError::crowded)?);
        }
        if progress.place.as_ref().is_some_and(|place| place.is_queued) {
            return self
                .call_behind_others(epoch, script.clone(), command, progress, until)
                .await;
        }
        let outcome = self.run_until(until, script, &command, &mut progress).await;
        self.learn_from(epoch, &progress, &outcome);
        outcome
    }

    async fn run_until(
        &self,
        until: Instant,
        script: &Script,
        call: &Cmd,
        progress: &mut CallProgress,
    ) -> Result<Value, StoreError> {
        progress.until = until;
        match timeout_at(until, self.run(script, call, progress)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(StoreError::timeout(self.common.deadline)),
        }
    }

    /// Runs a call behind others, for a caller that waits `until` then. If it was sent by then,
    /// a response after the deadline is still received: it shows that the server works.
    async fn call_behind_others(
        self: &Arc<Self>,
        epoch: u64,
        script: Script,
        call: Arc<Cmd>,
        mut progress: CallProgress,
        until: Instant,
    ) -> Result<Value, StoreError> {
        let shared = Arc::clone(self);
        progress.needed_until = Some(progress.needed_until.map_or(until, |at| at.min(until)));
        let mut work = Box::pin(async move {
            let patience = until + shared.common.deadline;
            let outcome = shared
                .run_until(patience, &script, &call, &mut progress)
                .await;
            shared.learn_from(epoch, &progress, &outcome);
            outcome
        });
        match timeout_at(until, work.as_mut()).await {
            Ok(outcome) => outcome,
            Err(_) => {
                tokio::spawn(work);
                Err(StoreError::timeout(self.common.deadline))
            }
        }
    }

    /// Runs a command. `script` is the script that it calls, if any.
    pub(super) async fn run(
        &self,
        script: &Script,
        command: &Cmd,
        progress: &mut CallProgress,
    ) -> Result<Value, StoreError> {
        let live = self.link.live(&mut progress.connection).await?;
        progress.send()?;
        let answer = {
            let mut answer = pin!(send_command(&live, script, command, progress));
            match poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
                // The connection had ended before, as idle ones do, so nothing was sent and the
                // call can be repeated: the thread that polls here drives the connection, so what
                // was handed over by this poll cannot have been written yet. Only probes are polled
                // by other threads, and may be sent twice.
                Poll::Ready(Err(error))
                    if error.is_io_error() && self.common.home.is_here().is_some() =>
                {
                    None
                }
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => Some(answer.await),
            }
        };
        let answer = match answer {
            Some(answer) => answer,
            None => {
                self.link.discard(live.number);
                let live = self.link.live(&mut progress.connection).await?;
                progress.send()?;
                send_command(&live, script, command, progress).await
            }
        };
        let outcome = answer.map_err(|error| StoreError::replied(&error));
        let kind = outcome.as_ref().err().map(StoreError::kind);
        if !matches!(
            kind,
            Some(StoreErrorKind::Disconnected | StoreErrorKind::Timeout)
        ) {
            self.calls
                .answered(progress.sent_at.unwrap_or(progress.began_at));
        }
        outcome
    }

    fn learn_from(
        self: &Arc<Self>,
        epoch: u64,
        progress: &CallProgress,
        outcome: &Result<Value, StoreError>,
    ) {
        let within = outcome.as_ref().ok().and_then(failure_within);
        let Some(error) = outcome.as_ref().err().or(within.as_ref()) else {
            return self.breaker.record_success(epoch);
        };
        let is_member = self.membership.is_some();
        match error.kind() {
            // The server works: the error is about one value, or about the limits of the calendar.
            StoreErrorKind::ForeignData | StoreErrorKind::ClockApart => {
                self.breaker.record_success(epoch);
            }
            // Later calls carry one subject each.
            StoreErrorKind::Cluster if error.names_many_servers() => {
                self.breaker.record_success(epoch)
            }
            // The server works, and names another one.
            StoreErrorKind::Cluster if is_member && error.redirect().is_some() => {
                self.breaker.record_success(epoch);
            }
            // The call is repeated, and may still succeed.
            StoreErrorKind::Cluster if is_member && error.is_of_moving_slot() => {}
            // The server works, and has no part in it: every server answers so for an unserved slot.
            StoreErrorKind::Cluster if is_member && error.is_of_unserved_slot() => {
                self.breaker.record_success(epoch);
                self.fetch_map();
            }
            // The call was not sent.
            StoreErrorKind::Crowded => {}
            StoreErrorKind::Other => self.record_inconclusive(epoch),
            kind => {
                let connection = progress.connection;
                self.close_failed(kind, connection);
                if kind == StoreErrorKind::Timeout && self.is_excused(progress) {
                    return;
                }
                self.record_failure(epoch, connection, &self.with_lost_servers(error));
            }
        }
    }

    fn with_lost_servers(&self, error: &StoreError) -> StoreError {
        match self.cluster() {
            Some(cluster) if error.is_of_cluster_down() => error.with_lost_servers(&cluster.lost()),
            _ => error.clone(),
        }
    }

    /// Records a call that failed for good, after repeated attempts in the cluster.
    pub(super) fn record_final_failure(self: &Arc<Self>, error: &StoreError) {
        self.record_failure(self.breaker.epoch(), 0, error);
    }

    /// Whether a timeout does not count against the server: the server has responded to other calls
    /// since, or the connection is still opening.
    fn is_excused(&self, progress: &CallProgress) -> bool {
        match progress.sent_at {
            Some(at) if self.calls.answered_since(at, Duration::ZERO) => true,
            // This process is so busy that responses may have arrived unread. That excuse holds for
            // a limited time only.
            Some(at) => {
                let is_late = progress.until.elapsed() > self.common.deadline / 10;
                is_late && self.calls.answered_since(at, 4 * self.common.deadline)
            }
            None => {
                let patience = CONNECTING_GRACE.max(self.common.deadline);
                let attempting = self.link.attempting_for();
                attempting.is_some_and(|time| time < patience)
            }
        }
    }

    pub(super) fn close_failed(&self, kind: StoreErrorKind, connection: u64) {
        use StoreErrorKind::{Cluster, Disconnected, ReadOnly, Timeout};
        if matches!(kind, Disconnected | ReadOnly) {
            self.link.discard(connection);
        }
        if matches!(kind, Cluster | Disconnected | ReadOnly | Timeout) {
            // A replica may have replaced the server.
            self.fetch_map();
        }
    }

    fn fetch_map(&self) {
        if let Some(cluster) = self.cluster() {
            cluster.fetch_soon();
        }
    }

    /// How long a response takes now; `None` without a connection.
    pub(super) fn expected(&self) -> Option<Duration> {
        self.link.is_live().then(|| self.calls.expected())
    }
}

pub(super) struct CallProgress {
    pub(super) connection: u64,
    /// `None` for a call that is sent however many are in flight.
    place: Option<CallPlace>,
    sent_at: Option<Instant>,
    began_at: Instant,
    /// When the caller stops waiting for the response.
    until: Instant,
    /// When the last caller stops waiting. A call is not sent from then on: its operations were
    /// decided without the server. `None` for a call that is sent in any case.
    needed_until: Option<Instant>,
    /// Whether the key's slot is moving to the server, so that `ASKING` is needed.
    pub(super) is_asking: bool,
}

impl CallProgress {
    /// A call that began at the first time, and is of no use any more after the second.
    pub(super) const fn new((began_at, needed_until): (Instant, Option<Instant>)) -> Self {
        Self {
            connection: 0,
            needed_until,
            place: None,
            sent_at: None,
            began_at,
            until: began_at,
            is_asking: false,
        }
    }

    fn send(&mut self) -> Result<(), StoreError> {
        let now = Instant::now();
        if self.needed_until.is_some_and(|at| at <= now) {
            return Err(StoreError::crowded());
        }
        self.sent_at = Some(now);
        Ok(())
    }
}

/// Sends a command, and sends it again if the server does not know the script: after loading it, or
/// with its text.
async fn send_command(
    live: &Live,
    script: &Script,
    command: &Cmd,
    progress: &mut CallProgress,
) -> RedisResult<Value> {
    let loads = live.loads.done();
    let is_asking = progress.is_asking;
    let send = async |command: &Cmd| {
        if is_asking {
            live.wire.send_asking(command).await
        } else {
            live.wire.send(command).await
        }
    };
    match send(command).await {
        Err(error) if is_unknown(&error) => {
            live.loads.load(script, &live.wire, loads).await?;
            // The call has a place already, so it fails only if nobody waits any more.
            if progress.send().is_err() {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            if live.loads.are_needless {
                return send(&script.with_text(command)).await;
            }
            send(command).await
        }
        answer => answer,
    }
}

/// The cluster, as seen by its servers.
pub(super) trait Siblings: Send + Sync {
    /// Starts a fetch of the slot map: a replica may have replaced a server.
    fn fetch_soon(&self);

    /// The first of these keys whose slot the server at this address owns. Computes none if it owns no slot.
    fn first_of(
        &self,
        address: &ServerAddress,
        keys: &mut dyn Iterator<Item = String>,
    ) -> Option<String>;

    fn record_redirect(&self, host: Option<&str>, key: &[u8], redirect: &Redirect);

    /// The addresses of the servers whose breakers are open because they do not respond.
    fn lost(&self) -> Vec<String>;

    /// The health of all servers together.
    fn health(&self) -> StoreHealth;
}

pub(super) struct Membership {
    pub(super) cluster: Weak<dyn Siblings>,
    /// `None` for the entry, which leads to any of the servers.
    pub(super) address: Option<ServerAddress>,
}

#[cfg(test)]
mod tests {
    use std::{
        future::ready,
        sync::{Mutex, atomic::AtomicBool, mpsc},
        thread,
    };

    use testkit::fake_redis::FakeServer;

    use super::*;
    use crate::{
        health::{Owner, StoreWatch},
        redis::store::{
            connector::Transport,
            redis_store::{RedisStore, Servers, StoreState},
        },
        runtime_thread::Home,
    };

    /// The threads on which a call is sent that finds its connection ended, and its outcome.
    async fn senders(home: Home) -> (Vec<String>, StoreErrorKind) {
        let (sender, threads) = mpsc::channel();
        let server = FakeServer::replying(move |_| {
            let name = thread::current().name().unwrap_or_default().to_owned();
            sender.send(name).expect("the test waits");
            Box::pin(ready(
                Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
            ))
        });
        let common = Arc::new(StoreCommon {
            prefix: String::new(),
            deadline: Duration::from_secs(10),
            has_sharding_proxy: false,
            home,
            scripts: Mutex::default(),
            watch: StoreWatch::new(Owner::Redis, None),
        });
        let opener = Connector::Given(Transport::Given(Arc::new(server)));
        let pipeline = Pipeline::new(Arc::clone(&common), opener, None);
        let store = RedisStore::new(StoreState {
            address: String::new(),
            common,
            servers: Servers::One(Arc::new(pipeline)),
            is_split: AtomicBool::new(false),
        });
        let script = Script::new("return 1");
        let outcome = store.call(None, &script, &[b"a"], &["1"]).await;
        let kind = outcome.expect_err("the connection has ended").kind();
        (threads.try_iter().collect(), kind)
    }

    /// That thread drives the connection. On another one a call may be written, and its connection may end, before its
    /// first poll returns.
    #[tokio::test]
    async fn a_call_is_sent_again_by_the_thread_of_the_store_and_by_no_other() {
        let home = "tower-ratelimit".to_owned();
        let repeated = (vec![home.clone(), home], StoreErrorKind::Disconnected);
        assert_eq!(senders(Home::own()).await, repeated);
        let (threads, kind) = senders(Home::of_callers()).await;
        assert_eq!((threads.len(), kind), (1, StoreErrorKind::Disconnected));
    }
}
