//! The pipeline to one server: breaker, connection, deadline and window, and how outcomes change
//! them.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    io,
    pin::pin,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use futures_util::future::join_all;
use redis::{Cmd, RedisResult, Value};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use super::{
    connection::{Connection, Connector, Live, StoreCommon},
    script::{Script, failure_within, is_unknown},
};
use crate::{
    breaker::{Breaker, Guarded},
    error::{Redirect, ServerAddress, StoreError, StoreErrorKind},
    health::StoreHealth,
};
use tower_ratelimit_core::lock::unpoisoned;

/// While a connection has been opening for less than this, calls that time out waiting for it do
/// not count as failures.
const CONNECTING_GRACE: Duration = Duration::from_millis(200);

/// The longest duration of one step of a trial. Longer than that of a call is harmless, since no
/// request waits.
const STEP_LIMIT: Duration = Duration::from_millis(200);

/// Steps of a trial that wait for the server, without the connection.
const STEPS: u32 = 5;

/// The pipeline to a server, or to a proxy before several: its connection, window and breaker.
pub(super) struct Pipeline {
    common: Arc<StoreCommon>,
    pub(super) link: Arc<Connection>,
    calls: Arc<InFlight>,
    breaker: Breaker,
    trials: AtomicU64,
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
        // The longest duration of a trial on a runtime that is driven.
        let steps = common.deadline.max(STEP_LIMIT).saturating_mul(STEPS);
        let trial_limit = link.attempt_limit().saturating_add(steps);
        let address = membership.as_ref().and_then(|own| own.address.as_ref());
        let breaker = Breaker::new(
            Arc::clone(&common.watch),
            (common.home.clone(), common.deadline),
            trial_limit,
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
    async fn run(
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

    fn close_failed(&self, kind: StoreErrorKind, connection: u64) {
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
    connection: u64,
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
    let known = live.ended_load(script);
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
            live.load(script, known).await?;
            // The call has a place already, so it fails only if nobody waits any more.
            if progress.send().is_err() {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            if live.common.has_sharding_proxy {
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
        self.fetch_map();
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
            let load = live.load(&script, None).await;
            load.map_err(|error| StoreError::replied(&error))?;
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

/// The most calls in flight, each with up to 32 subjects. Others wait for a place.
const MOST: usize = 64;

/// With so many others in flight a late response may only be waiting behind theirs.
const CROWD: usize = 8;

struct InFlight {
    places: Arc<Semaphore>,
    state: Mutex<State>,
    /// The longest wait for a call's response; twice that for a call behind others.
    deadline: Duration,
}

#[derive(Default)]
struct State {
    /// The places that are taken, each with the time from which it is free in any case: nobody
    /// drives its caller's task any more.
    taken: BTreeMap<(Instant, u64), OwnedSemaphorePermit>,
    last: u64,
    /// How long responses take: rises at once and falls soon.
    recent: Duration,
    last_answer: Option<Instant>,
}

/// A call's place among those in flight, until it is dropped.
struct CallPlace {
    calls: Arc<InFlight>,
    taken: (Instant, u64),
    /// Whether it may be behind others at the server.
    is_queued: bool,
}

impl InFlight {
    fn new(deadline: Duration) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(MOST)),
            state: Mutex::default(),
            deadline,
        })
    }

    /// Waits for a place from `now`, within the runtime of the store. `None` if none is free until then, or too
    /// late for a response: a call that waited is behind others at the server, too, so its response
    /// takes as long as theirs.
    async fn enter(self: &Arc<Self>, now: Instant, until: Instant) -> Option<CallPlace> {
        // They free their places outside the lock.
        let lost = self.lock().take_expired(now);
        drop(lost);
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            let is_queued = self.places.available_permits() + CROWD < MOST;
            return Some(self.place(permit, now, is_queued));
        }
        // A task, as a caller that nobody drives any more would keep the place that it is given.
        let calls = Arc::clone(self);
        let waiting = tokio::spawn(async move {
            let permit = timeout_at(until, Arc::clone(&calls.places).acquire_owned()).await;
            let permit = permit.ok()?.ok()?;
            let now = Instant::now();
            let is_in_time = now + calls.expected() <= until;
            is_in_time.then(|| calls.place(permit, now, true))
        });
        waiting.await.ok().flatten()
    }

    fn place(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
        now: Instant,
        is_queued: bool,
    ) -> CallPlace {
        let most = self.deadline.saturating_mul(if is_queued { 2 } else { 1 });
        let mut state = self.lock();
        state.last += 1;
        let taken = (now + most + self.deadline / 4, state.last);
        state.taken.insert(taken, permit);
        CallPlace {
            calls: Arc::clone(self),
            taken,
            is_queued,
        }
    }

    /// Records the response to a call that was sent at this time.
    fn answered(&self, sent_at: Instant) {
        let now = Instant::now();
        let took = now - sent_at;
        let mut state = self.lock();
        state.recent = took.max(state.recent - state.recent.saturating_sub(took) / 8);
        state.last_answer = Some(now);
    }

    /// Whether any response has arrived since `time`, or at most `before` earlier.
    fn answered_since(&self, time: Instant, before: Duration) -> bool {
        let answered = self.lock().last_answer;
        answered.is_some_and(|at| at + before > time)
    }

    /// How long a response takes, by the recent ones.
    fn expected(&self) -> Duration {
        self.lock().recent
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

impl State {
    fn take_expired(&mut self, now: Instant) -> Vec<OwnedSemaphorePermit> {
        let mut expired = Vec::new();
        while let Some(first) = self.taken.first_entry()
            && first.key().0 <= now
        {
            expired.push(first.remove());
        }
        expired
    }
}

impl Drop for CallPlace {
    fn drop(&mut self) {
        let permit = self.calls.lock().taken.remove(&self.taken);
        drop(permit);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::ready,
        sync::{Mutex, atomic::AtomicBool, mpsc},
        thread,
    };

    use futures_util::FutureExt as _;
    use testkit::fake_redis::FakeServer;
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::{
        health::{Owner, StoreWatch},
        redis::{RedisStore, Servers, connection::Transport},
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
        let deadline = Duration::from_secs(10);
        let common = Arc::new(StoreCommon {
            address: String::new(),
            prefix: String::new(),
            deadline,
            connect_timeout: deadline,
            credentials: Arc::default(),
            has_sharding_proxy: false,
            is_split: AtomicBool::new(false),
            home,
            scripts: Mutex::default(),
            watch: StoreWatch::new(Owner::Redis, None),
        });
        let opener = Connector::Given(Transport::Given(Arc::new(server)));
        let pipeline = Pipeline::new(Arc::clone(&common), opener, None);
        let store = RedisStore {
            common,
            servers: Servers::One(Arc::new(pipeline)),
        };
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

    const DEADLINE: Duration = Duration::from_millis(50);

    async fn full() -> (Arc<InFlight>, Vec<CallPlace>) {
        let calls = InFlight::new(DEADLINE);
        let until = Instant::now() + DEADLINE;
        let places = join_all((0..MOST).map(|_| calls.enter(Instant::now(), until))).await;
        (calls, places.into_iter().flatten().collect())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_beyond_the_bound_waits_for_a_place_until_its_deadline() {
        let (calls, mut places) = full().await;
        assert_eq!(places.len(), MOST);
        assert!(!places[0].is_queued && places[MOST - 1].is_queued);
        let until = Instant::now() + DEADLINE;
        assert!(calls.enter(Instant::now(), until).await.is_none());
        assert_eq!(Instant::now(), until);

        let waiting = tokio::spawn({
            let calls = Arc::clone(&calls);
            async move {
                calls
                    .enter(Instant::now(), Instant::now() + DEADLINE)
                    .await
                    .is_some()
            }
        });
        sleep(DEADLINE / 2).await;
        places.pop();
        assert!(waiting.await.unwrap());
    }

    /// The responses to those in flight take longer than its callers still wait.
    #[tokio::test(start_paused = true)]
    async fn a_place_that_is_free_too_late_for_a_response_is_given_to_the_next() {
        let (calls, mut places) = full().await;
        let sent_at = Instant::now();
        let (first, next) = (sent_at + DEADLINE, sent_at + 2 * DEADLINE);
        let waiting = [first, next].map(|until| {
            let calls = Arc::clone(&calls);
            tokio::spawn(async move { calls.enter(Instant::now(), until).await.is_some() })
        });
        sleep(DEADLINE * 3 / 4).await;
        calls.answered(sent_at);
        places.pop();
        let [first, next] = waiting.map(|one| async { one.await.unwrap() });
        assert_eq!((first.await, next.await), (false, true));
    }

    /// The runtime of the waiting callers is not driven any more.
    #[tokio::test(start_paused = true)]
    async fn a_place_whose_task_is_not_driven_is_free_soon_after_its_deadline() {
        let (calls, lost) = full().await;
        advance(DEADLINE).await;
        assert!(calls.enter(Instant::now(), Instant::now()).await.is_none());
        advance(DEADLINE / 4).await;
        let place = calls
            .enter(Instant::now(), Instant::now())
            .now_or_never()
            .flatten();
        assert!(place.is_some());
        drop(lost);
        drop(place);
        advance(2 * DEADLINE).await;
        assert_eq!(calls.places.available_permits(), MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn the_expected_time_rises_at_once_and_falls_soon() {
        let calls = InFlight::new(DEADLINE);
        let answered = async |after| {
            let sent_at = Instant::now();
            sleep(after).await;
            calls.answered(sent_at);
            calls.expected()
        };
        let (short, long) = (DEADLINE / 50, DEADLINE / 2);
        assert_eq!(answered(short).await, short);
        assert_eq!(answered(long).await, long);
        let mut times = 0;
        while answered(short).await > 2 * short {
            times += 1;
            assert!(times < 32);
        }
    }
}
