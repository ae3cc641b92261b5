//! Leases: permits that expire if the process that holds them dies, and the registry that renews them.
//!
//! In: a key that needs a permit. Out: a `Lease` to hold, or a refusal. The server keeps a list of leases for each subject.
//!
//! 1. `Leases` names the lease, notes it in the registry of this process (`Registry`), and calls the script
//!    `permit_leases.lua`, which drops expired leases of the subject and adds this one if it fits.
//! 2. One task renews the leases in use: each after a third of its length, so two renewals may fail.
//! 3. A dropped lease wakes the task, which releases it. A release that fails is sent again. The drop itself never
//!    waits, so a lease may be dropped on any thread.
//! 4. The task ends when the registry is empty; the next lease starts another one. While the breaker is open it sends
//!    nothing that is due.
//!
//! Example: a process is killed with three permits of a key. Nobody renews them, so the server drops them when they expire,
//! at the next request for a permit of that key.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::{
        Arc, LazyLock, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::Value;
use siphasher::sip::SipHasher13;
use tokio::{
    sync::{Notify, futures::Notified},
    time::{Instant, Sleep, sleep_until},
};

use tower_ratelimit_core::{hash::keyed_hash, key::Key, lock::unpoisoned};
use tower_ratelimit_store::{
    LUA_MAX_INT,
    error::{StoreError, StoreErrorKind},
    key_name,
    redis::{RedisStore, script::Script},
    single_background_task::{Run, Solo},
};

/// The part of the key at the position of a rate limit's plan. It has six letters, a plan's has
/// four.
const PLAN_ID: &str = "leases";

/// A lease of one request, acquired or not. Dropping it releases it, on any thread.
pub(crate) struct Lease {
    leases: Arc<Leases>,
    subject: Arc<str>,
    name: LeaseName,
}

impl Lease {
    /// Acquires the lease, if fewer than `part` of the limit's leases are held.
    ///
    /// After an error, and when the future is dropped, the server may have granted it all the same.
    pub(crate) async fn acquire(&self, part: u64) -> Result<Acquired, StoreError> {
        self.leases.registry().set_requested(self.name, true);
        let requested_at = Instant::now();
        let answer = self.leases.acquire(&self.subject, self.name, part).await;
        match &answer {
            Ok(Acquired::Granted(_)) => self.renew_at(self.leases.renewal(requested_at)),
            Ok(Acquired::Refused { .. }) => self.leases.registry().remove(self.name),
            Err(error) if may_have_run(error.kind()) => {}
            Err(_) => self.leases.registry().set_requested(self.name, false),
        }
        answer
    }

    /// Keeps the lease although the server has not granted it. The next renewal reports it.
    pub(crate) fn hold(&self) {
        self.renew_at(Instant::now());
    }

    fn renew_at(&self, at: Instant) {
        self.leases.registry().hold(self.name, at);
        self.leases.keep();
    }
}

/// Whether the server may have run a call that failed with this error. Errors of all other kinds
/// mean that it has not.
const fn may_have_run(kind: StoreErrorKind) -> bool {
    matches!(
        kind,
        StoreErrorKind::Timeout | StoreErrorKind::Disconnected | StoreErrorKind::Other
    )
}

impl Drop for Lease {
    fn drop(&mut self) {
        let now = Instant::now();
        let is_dropped = self.leases.registry().drop_lease(self.name, now);
        if is_dropped {
            self.leases.dropped.notify_one();
            self.leases.keep();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases")
            .field("keyspace", &self.keyspace)
            .finish_non_exhaustive()
    }
}
/// The longest time between two scans for due steps: failed steps are soon repeated.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The most calls in flight at the same time, one for each subject.
const MAX_CALLS_AT_ONCE: usize = 64;

static LEASES: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("permit_leases.lua")));

/// The server's answer to a request for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// The lease, and so many more fit.
    Granted(u64),
    /// The limit is reached, or the part of it that the request may use alone.
    Refused { shed: bool },
}

/// A limit of leases for each subject, and those of this process.
pub(crate) struct Leases {
    store: RedisStore,
    /// The common beginning of all subjects' keys.
    keyspace: String,
    names: SipHasher13,
    count: AtomicU64,
    limit: u64,
    lease: Duration,
    registry: Mutex<Registry>,
    /// Wakes the task when leases were dropped.
    dropped: Notify,
    task: Solo,
}

impl Leases {
    /// Creates a limit of `limit` leases for each subject. A lease expires after `lease` unless it
    /// is renewed. Limits of one `name` on one server are counted together. Nodes of one simulation
    /// need a `seed` each.
    pub(crate) fn new(
        store: &RedisStore,
        name: &str,
        limit: u64,
        lease: Duration,
        seed: Option<u64>,
    ) -> Self {
        store.use_script(&LEASES);
        Self {
            store: store.clone(),
            keyspace: key_name::keyspace(store.prefix(), name, PLAN_ID),
            names: keyed_hash(seed),
            count: AtomicU64::new(0),
            limit,
            lease,
            registry: Mutex::default(),
            dropped: Notify::new(),
            task: Solo::every(pause(lease)),
        }
    }

    /// Returns the error with which a call about this key would fail at once, if any.
    pub(crate) fn refusal(&self, key: &Key) -> Option<StoreError> {
        let subject = key_name::of_subject(&self.keyspace, key);
        self.store.refusal(subject.as_bytes())
    }

    /// Records that a decision was made without the server, because of this error.
    pub(crate) fn record_degraded(&self, error: &StoreError) {
        self.store.record_degraded(error);
    }

    pub(crate) fn lease(self: &Arc<Self>, key: &Key) -> Lease {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        // 64 random bits: two equal names among millions of leases of one subject are unlikely.
        let name = self.names.hash(&number.to_ne_bytes());
        let lease = Lease {
            leases: Arc::clone(self),
            subject: key_name::of_subject(&self.keyspace, key).into(),
            name: name.to_be_bytes(),
        };
        self.registry().begin(lease.name, &lease.subject);
        lease
    }

    /// Locks the registry. Each change is one step, so the registry is valid even after a panic.
    fn registry(&self) -> MutexGuard<'_, Registry> {
        unpoisoned(self.registry.lock())
    }

    /// Acquires a lease, if fewer than `part` of the limit's leases are held.
    async fn acquire(
        &self,
        subject: &Arc<str>,
        name: LeaseName,
        part: u64,
    ) -> Result<Acquired, StoreError> {
        let (batch, repeated) = {
            let mut registry = self.registry();
            (registry.releases_of(subject), registry.releasing(subject))
        };
        let repeated = repeated.into_iter().map(|name| (b"r", name));
        let steps = batch.steps.iter().map(Step::argument).chain(repeated);
        let steps: Vec<_> = steps.chain([(b"a", name)]).collect();
        let mut releases = self.in_flight(batch);
        let until = Instant::now() + self.store.deadline();
        let reply = self.send(Some(until), subject, steps, part).await;
        releases.end(reply.as_ref().err());
        match reply?.last() {
            Some(Value::Int(left)) => Ok(match u64::try_from(*left) {
                Ok(left) => Acquired::Granted(left),
                Err(_) => Acquired::Refused { shed: *left == -2 },
            }),
            _ => Err(StoreError::foreign("not the script's reply")),
        }
    }

    /// Sends steps; without `until`, however many calls are in flight.
    async fn send(
        &self,
        until: Option<Instant>,
        subject: &str,
        steps: impl IntoIterator<Item = (&'static [u8; 1], LeaseName)>,
        part: u64,
    ) -> Result<Vec<Value>, StoreError> {
        let [limit, part] = [self.limit, part].map(|number| number.min(LUA_MAX_INT));
        let limit = if part < limit {
            format!("{limit}/{part}")
        } else {
            limit.to_string()
        };
        let mut arguments = vec![
            limit.into_bytes(),
            self.lease.as_micros().to_string().into_bytes(),
        ];
        for (letter, name) in steps {
            arguments.extend([letter.to_vec(), name.to_vec()]);
        }
        let keys = [subject.as_bytes()];
        match self.store.call(until, &LEASES, &keys, &arguments).await? {
            Value::Array(values) => Ok(values),
            _ => Err(StoreError::foreign("not the script's reply")),
        }
    }

    /// The time of the next renewal for a lease granted or renewed at `now`. It is a third of the
    /// lease: two renewals may fail before the lease expires.
    fn renewal(&self, now: Instant) -> Instant {
        now + self.lease / 3
    }

    /// Starts the task, unless it runs. Without a runtime the next request starts it.
    fn keep(self: &Arc<Self>) {
        let runtime = || self.store.home().runtime();
        let task = |run| Arc::clone(self).run(run);
        self.task.keep(Instant::now().into_std(), runtime, task);
    }

    /// Renews and releases until the registry is empty.
    async fn run(self: Arc<Self>, run: Run) {
        let mut backlog = Backlog::default();
        let mut calls = FuturesUnordered::new();
        let length = pause(self.lease);
        let mut pause = pin!(sleep_until(Instant::now() + length));
        let mut dropped = pin!(self.dropped.notified());
        loop {
            while calls.len() < MAX_CALLS_AT_ONCE
                && let Some(batch) = next_of(&mut backlog)
            {
                calls.push(BatchInFlight::run(batch));
            }
            if calls.is_empty() {
                let registry = self.registry();
                if registry.is_empty() {
                    // Ends while the registry is locked: whatever is inserted later is for the next
                    // task.
                    run.end();
                    return;
                }
            }
            let is_free = backlog.iter().all(VecDeque::is_empty);
            match next(&mut calls, pause.as_mut(), dropped.as_mut(), is_free).await {
                Wake::Done => {}
                Wake::Due => {
                    let now = Instant::now();
                    if !run.renew(now.into_std()) {
                        return;
                    }
                    pause.as_mut().reset(now + length);
                    self.add(self.due(now), &mut backlog);
                }
                Wake::Dropped => {
                    dropped.set(self.dropped.notified());
                    let due = Due {
                        releases: self.registry().releases(),
                        ..Due::default()
                    };
                    self.add(due, &mut backlog);
                }
            }
        }
    }

    fn in_flight(&self, batch: LeaseBatch) -> BatchInFlight<'_> {
        BatchInFlight {
            leases: self,
            batch: Some(batch),
        }
    }

    /// Takes the batches that are due. Takes none while the breaker is open: each subject would
    /// find that out with a call of its own.
    fn due(&self, now: Instant) -> Due {
        let mut registry = self.registry();
        registry.drop_expired(now, self.lease);
        match self.store.refusal_of_all() {
            None => registry.due(now),
            Some(_) => Due::default(),
        }
    }

    fn add<'a>(&'a self, due: Due, backlog: &mut Backlog<'a>) {
        for (batches, backlog) in [due.renewals, due.releases].into_iter().zip(backlog) {
            backlog.extend(batches.into_iter().map(|batch| self.in_flight(batch)));
        }
    }
}

fn pause(lease: Duration) -> Duration {
    LONGEST_PAUSE.min(lease / 3)
}

/// A batch that is being sent. It counts as failed until it is done, also when the runtime shuts
/// down midway.
struct BatchInFlight<'a> {
    leases: &'a Leases,
    batch: Option<LeaseBatch>,
}

impl BatchInFlight<'_> {
    async fn run(mut self) {
        let Some(batch) = &self.batch else { return };
        let now = Instant::now();
        let steps = batch.steps.iter().map(Step::argument);
        let leases = self.leases;
        let sent = leases.send(None, &batch.subject, steps, leases.limit);
        let outcome = sent.await;
        if outcome.is_ok() {
            leases.registry().done(batch, leases.renewal(now));
        }
        self.end(outcome.err().as_ref());
    }

    /// Ends the batch unless it failed. If something else has overwritten the leases, there is
    /// nothing left to release.
    fn end(&mut self, error: Option<&StoreError>) {
        if error.is_none_or(|error| error.kind() == StoreErrorKind::ForeignData)
            && let Some(batch) = self.batch.take()
        {
            self.leases.registry().ended(&batch);
        }
    }
}

impl Step {
    const fn argument(&self) -> (&'static [u8; 1], LeaseName) {
        match self {
            Self::Renew(name) => (b"k", *name),
            Self::Release(dropped) => (b"r", dropped.name),
        }
    }
}

impl Drop for BatchInFlight<'_> {
    fn drop(&mut self) {
        if let Some(batch) = self.batch.take() {
            self.leases.registry().failed(batch);
        }
    }
}

/// Batches that wait for a free call: renewals, and then releases. A late release keeps a permit unused, a late renewal
/// lets another request take a permit in use.
type Backlog<'a> = [VecDeque<BatchInFlight<'a>>; 2];

fn next_of<'a>(backlog: &mut Backlog<'a>) -> Option<BatchInFlight<'a>> {
    backlog.iter_mut().find_map(VecDeque::pop_front)
}

enum Wake {
    Due,
    Done,
    Dropped,
}

/// Waits for the next event. The timer has priority, so that a stream of other events cannot delay
/// renewals.
async fn next(
    calls: &mut FuturesUnordered<impl Future<Output = ()>>,
    mut pause: Pin<&mut Sleep>,
    mut dropped: Pin<&mut Notified<'_>>,
    is_free: bool,
) -> Wake {
    poll_fn(|cx: &mut Context<'_>| {
        if pause.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Wake::Due);
        }
        if let Poll::Ready(Some(())) = calls.poll_next_unpin(cx) {
            return Poll::Ready(Wake::Done);
        }
        if is_free && dropped.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Wake::Dropped);
        }
        Poll::Pending
    })
    .await
}

/// The most steps of one call, so that it does not block the server for long.
const MAX_STEPS_PER_CALL: usize = 256;

/// Identifies a lease among all leases of one subject, on all nodes.
type LeaseName = [u8; 8];

#[derive(Debug, Default)]
struct Registry {
    /// All leases, renewed in the order of their names.
    leases: BTreeMap<LeaseName, LeaseRecord>,
    /// Leases to release at once.
    dropped: Vec<Dropped>,
    /// Leases whose release failed; released again when the server works.
    unreleased: Vec<Dropped>,
    /// Releases that the task has taken out. They may not have been sent yet.
    releasing: Vec<(Arc<str>, LeaseName)>,
}

#[derive(Debug)]
struct LeaseRecord {
    subject: Arc<str>,
    is_requested: bool,
    /// The time of the next renewal; `None` until the lease's request runs.
    renew_at: Option<Instant>,
    is_renewing: bool,
}

/// A lease whose request has ended.
#[derive(Debug)]
struct Dropped {
    subject: Arc<str>,
    name: LeaseName,
    dropped_at: Instant,
}

/// The steps of one call: renewals or releases of one subject's leases.
#[derive(Debug)]
struct LeaseBatch {
    subject: Arc<str>,
    steps: Vec<Step>,
}

#[derive(Debug, Default)]
struct Due {
    renewals: Vec<LeaseBatch>,
    releases: Vec<LeaseBatch>,
}

#[derive(Debug)]
enum Step {
    Renew(LeaseName),
    Release(Dropped),
}

impl Registry {
    fn begin(&mut self, name: LeaseName, subject: &Arc<str>) {
        let entry = LeaseRecord {
            subject: Arc::clone(subject),
            is_requested: false,
            renew_at: None,
            is_renewing: false,
        };
        self.leases.insert(name, entry);
    }

    /// Records whether the server may have the lease: from the call on it may, after a refusal it
    /// does not.
    fn set_requested(&mut self, name: LeaseName, is_requested: bool) {
        if let Some(entry) = self.leases.get_mut(&name) {
            entry.is_requested = is_requested;
        }
    }

    /// Starts renewals: the lease's request runs.
    fn hold(&mut self, name: LeaseName, renew_at: Instant) {
        if let Some(entry) = self.leases.get_mut(&name) {
            entry.renew_at = Some(renew_at);
            entry.is_renewing = false;
        }
    }

    /// Removes a lease that the server did not grant.
    fn remove(&mut self, name: LeaseName) {
        self.leases.remove(&name);
    }

    /// Ends a lease whose request is over. Returns whether there is a release to send: the server
    /// cannot have a lease that no call was sent for.
    fn drop_lease(&mut self, name: LeaseName, dropped_at: Instant) -> bool {
        let entry = self.leases.remove(&name);
        let Some(entry) = entry.filter(|entry| entry.is_requested) else {
            return false;
        };
        self.dropped.push(Dropped {
            subject: entry.subject,
            name,
            dropped_at,
        });
        true
    }

    fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.dropped.is_empty() && self.unreleased.is_empty()
    }

    fn releases(&mut self) -> Vec<LeaseBatch> {
        let dropped = mem::take(&mut self.dropped);
        self.release(dropped)
    }

    fn release(&mut self, dropped: Vec<Dropped>) -> Vec<LeaseBatch> {
        let names = dropped
            .iter()
            .map(|dropped| (Arc::clone(&dropped.subject), dropped.name));
        self.releasing.extend(names);
        let steps = dropped.into_iter();
        batches(steps.map(|dropped| (Arc::clone(&dropped.subject), Step::Release(dropped))))
    }

    /// Takes the releases of one subject, for a call that acquires another lease of it. So a
    /// request can use the permits that earlier ones have released.
    fn releases_of(&mut self, subject: &Arc<str>) -> LeaseBatch {
        let own = |dropped: &mut Dropped| dropped.subject == *subject;
        let released = self.dropped.extract_if(.., own).take(MAX_STEPS_PER_CALL);
        LeaseBatch {
            subject: Arc::clone(subject),
            steps: released.map(Step::Release).collect(),
        }
    }

    /// Returns the releases of one subject that the task is sending. A call that acquires another
    /// lease repeats them, since it may overtake the task's call. A repeated release has no effect.
    fn releasing(&self, subject: &Arc<str>) -> Vec<LeaseName> {
        let own = self.releasing.iter().filter(|(of, _)| of == subject);
        own.map(|(_, name)| *name)
            .take(MAX_STEPS_PER_CALL)
            .collect()
    }

    /// Drops releases that kept failing for the length of a `lease`: those leases have expired.
    fn drop_expired(&mut self, now: Instant, lease: Duration) {
        self.unreleased
            .retain(|dropped| now.duration_since(dropped.dropped_at) <= lease);
    }

    /// Takes all steps that are due at `now`: renewals, failed releases, and new releases.
    fn due(&mut self, now: Instant) -> Due {
        let mut dropped = mem::take(&mut self.dropped);
        dropped.append(&mut self.unreleased);
        let releases = self.release(dropped);
        let renewals = self.leases.iter_mut().filter_map(|(name, entry)| {
            entry.renew_at.filter(|at| *at <= now)?;
            if entry.is_renewing {
                return None;
            }
            entry.is_requested = true;
            entry.is_renewing = true;
            Some((Arc::clone(&entry.subject), Step::Renew(*name)))
        });
        Due {
            renewals: batches(renewals),
            releases,
        }
    }

    fn done(&mut self, batch: &LeaseBatch, renew_at: Instant) {
        for step in &batch.steps {
            if let Step::Renew(name) = step {
                self.hold(*name, renew_at);
            }
        }
    }

    /// Records that a batch has ended, whether or not the server has done it.
    fn ended(&mut self, batch: &LeaseBatch) {
        for step in &batch.steps {
            if let Step::Release(dropped) = step {
                self.releasing.retain(|(_, name)| *name != dropped.name);
            }
        }
    }

    /// Records that a batch failed: the server may not have done it.
    fn failed(&mut self, batch: LeaseBatch) {
        self.ended(&batch);
        for step in batch.steps {
            match step {
                Step::Release(dropped) => self.unreleased.push(dropped),
                Step::Renew(name) => {
                    if let Some(entry) = self.leases.get_mut(&name) {
                        entry.is_renewing = false;
                    }
                }
            }
        }
    }
}

fn batches(steps: impl Iterator<Item = (Arc<str>, Step)>) -> Vec<LeaseBatch> {
    let mut open: BTreeMap<Arc<str>, Vec<Step>> = BTreeMap::new();
    let mut batches = Vec::new();
    for (subject, step) in steps {
        let steps = open.entry(Arc::clone(&subject)).or_default();
        steps.push(step);
        if steps.len() == MAX_STEPS_PER_CALL {
            let steps = mem::take(steps);
            batches.push(LeaseBatch { subject, steps });
        }
    }
    let rest = open.into_iter().filter(|(_, steps)| !steps.is_empty());
    batches.extend(rest.map(|(subject, steps)| LeaseBatch { subject, steps }));
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_renewals_go_before_all_releases() {
        let store = RedisStore::connect("redis://127.0.0.1:1").expect("an address");
        let leases = Leases::new(&store, "", 1, Duration::from_secs(3), None);
        let now = Instant::now();
        for number in 0..200_u64 {
            let (name, subject) = (number.to_be_bytes(), number.to_string().into());
            let mut registry = leases.registry();
            registry.begin(name, &subject);
            registry.set_requested(name, true);
            registry.hold(name, now);
            if number % 2 == 0 {
                registry.drop_lease(name, now);
            }
        }
        let mut backlog = Backlog::default();
        leases.add(leases.due(now), &mut backlog);
        let mut renewals = Vec::new();
        while let Some(BatchInFlight { batch, .. }) = &mut next_of(&mut backlog) {
            let batch = batch.take().expect("it has not ended");
            renewals.push(matches!(batch.steps[..], [Step::Renew(_)]));
        }
        let expected = [[true; 100], [false; 100]].concat();
        assert_eq!(renewals, expected);
    }

    const LEASE: Duration = Duration::from_secs(3);

    fn held(registry: &mut Registry, name: u8, subject: &str, renew_at: Instant) -> LeaseName {
        let name = [name; 8];
        registry.begin(name, &Arc::from(subject));
        registry.set_requested(name, true);
        registry.hold(name, renew_at);
        name
    }

    #[test]
    fn renewals_are_in_the_order_of_names() {
        let (mut registry, now) = (Registry::default(), Instant::now());
        for name in [7, 1, 200, 3, 40] {
            let subject = if name % 2 == 0 { "even" } else { "odd" };
            held(&mut registry, name, subject, now);
        }
        let due = registry.due(now);
        let names = |batch: &LeaseBatch| -> Vec<u8> {
            let name = |step: &Step| match step {
                Step::Renew(name) => name[0],
                Step::Release(dropped) => dropped.name[0],
            };
            batch.steps.iter().map(name).collect()
        };
        let order: Vec<_> = due.renewals.iter().map(names).collect();
        assert_eq!(order, [vec![40, 200], vec![1, 3, 7]]);
    }

    #[test]
    fn a_lease_that_was_never_requested_is_not_released() {
        let mut registry = Registry::default();
        for name in [[1; 8], [2; 8]] {
            registry.begin(name, &Arc::from("a"));
        }
        registry.set_requested([2; 8], true);
        registry.set_requested([2; 8], false);
        assert!(!registry.drop_lease([1; 8], Instant::now()));
        assert!(!registry.drop_lease([2; 8], Instant::now()));
        assert!(registry.releases().is_empty());
        assert!(registry.is_empty());
    }

    #[test]
    fn a_lease_is_renewed_when_due_while_its_request_runs() {
        let mut registry = Registry::default();
        let start = Instant::now();
        registry.begin([1; 8], &Arc::from("a"));
        let name = held(&mut registry, 2, "a", start + LEASE / 3);
        assert!(registry.due(start).renewals.is_empty());
        let due = registry.due(start + LEASE / 3).renewals;
        assert!(
            matches!(&due[..], [batch] if matches!(batch.steps[..], [Step::Renew(it)] if it == name))
        );

        registry.done(&due[0], start + LEASE);
        assert!(registry.due(start + LEASE / 2).renewals.is_empty());
        assert!(registry.drop_lease(name, start));
        assert!(matches!(
            registry.releases()[0].steps[..],
            [Step::Release(_)]
        ));
        let due = registry.due(start + LEASE);
        assert!(due.renewals.is_empty() && due.releases.is_empty());
    }

    #[test]
    fn a_renewal_is_repeated_only_after_it_has_failed() {
        let mut registry = Registry::default();
        let start = Instant::now();
        held(&mut registry, 1, "a", start);
        let due = registry.due(start).renewals;
        assert_eq!(due.len(), 1);
        let again = registry.due(start + LEASE);
        assert!(again.renewals.is_empty(), "it is under way");
        due.into_iter().for_each(|batch| registry.failed(batch));
        assert_eq!(registry.due(start).renewals.len(), 1);
    }

    #[test]
    fn a_failed_release_is_repeated_until_the_lease_has_expired() {
        let mut registry = Registry::default();
        let start = Instant::now();
        let name = held(&mut registry, 1, "a", start);
        assert!(registry.drop_lease(name, start));
        for _ in 0..3 {
            registry.drop_expired(start + LEASE, LEASE);
            let due = registry.due(start + LEASE).releases;
            assert_eq!(due.len(), 1);
            due.into_iter().for_each(|batch| registry.failed(batch));
            assert!(registry.releases().is_empty(), "not at once");
            assert!(!registry.is_empty());
        }
        registry.drop_expired(start + LEASE * 2, LEASE);
        assert!(registry.due(start + LEASE * 2).releases.is_empty());
        assert!(registry.is_empty());
    }

    #[test]
    fn batches_have_one_subject_and_a_bounded_length() {
        let mut registry = Registry::default();
        let now = Instant::now();
        for number in 0..600_u64 {
            let subject = if number < 590 { "hot" } else { "cold" };
            registry.begin(number.to_be_bytes(), &Arc::from(subject));
            registry.set_requested(number.to_be_bytes(), true);
            registry.drop_lease(number.to_be_bytes(), now);
        }
        let batches = registry.releases();
        let mut lengths: Vec<_> = batches
            .iter()
            .map(|batch| (&*batch.subject, batch.steps.len()))
            .collect();
        lengths.sort_unstable();
        assert_eq!(
            lengths,
            [("cold", 10), ("hot", 78), ("hot", 256), ("hot", 256)]
        );
    }

    /// The task's call is in flight, or has not been sent yet.
    #[test]
    fn a_release_in_flight_is_repeated_by_a_call_that_may_overtake_it() {
        let (mut registry, now) = (Registry::default(), Instant::now());
        let subject: Arc<str> = Arc::from("a");
        let [one, other] = [1, 2].map(|name| held(&mut registry, name, "a", now + LEASE));
        registry.drop_lease(one, now);
        let in_flight = registry.releases();
        registry.drop_lease(other, now);
        assert_eq!(registry.releases_of(&subject).steps.len(), 1);
        assert_eq!(registry.releasing(&subject), [one]);
        assert!(registry.releasing(&Arc::from("b")).is_empty());
        in_flight
            .into_iter()
            .for_each(|batch| registry.failed(batch));
        assert!(registry.releasing(&subject).is_empty());
        let due = registry.due(now).releases;
        assert_eq!(registry.releasing(&subject), [one]);
        due.iter().for_each(|batch| registry.ended(batch));
        assert!(registry.releasing(&subject).is_empty());
    }
}
