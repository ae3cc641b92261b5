//! The world: time, a store in memory behind a network, and the record of events.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep_until};
use tower_ratelimit::{
    Decision, LimiterError, Priority,
    clock::{Clock, Timestamp},
    shared::{MemoryStore, NodeMessage, NodeReport, Reply, Store as _, StoreCall},
    store::StoreError,
};

use super::{
    Database, Distance, Mode, Setup,
    faults::Event,
    held_units::{Done, Holdings, Span},
    random::Random,
    simulated_store::Rows,
    workload::Arrival,
};
use crate::tokio_paused_clock::PausedClock;

/// How long nodes wait for the store.
pub(super) const DEADLINE: Duration = Duration::from_millis(50);

/// The events of a run that a failure prints.
pub(super) const KEPT: usize = 200;

/// The store's clock: tokio's time, and how far it is fast.
#[derive(Clone)]
pub(super) struct StoreClock(PausedClock, Arc<AtomicI64>);

impl StoreClock {
    pub(super) fn new() -> Self {
        Self(PausedClock::new(), Arc::default())
    }

    /// The time of a clock that is so many milliseconds fast.
    fn at(&self, fast: i64) -> Timestamp {
        let by = Duration::from_millis(fast.unsigned_abs());
        if fast < 0 {
            self.0.now().saturating_sub(by)
        } else {
            self.0.now().saturating_add(by)
        }
    }

    fn fast(&self) -> i64 {
        self.1.load(Ordering::Relaxed)
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        self.at(self.fast())
    }
}

/// One life of a node: a restarted node has another.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) node: usize,
    /// The number of the life, unique in a run.
    pub(super) number: u64,
    pub(super) is_dead: AtomicBool,
}

/// Time, the store's values, and the record of events.
pub(super) struct World {
    memory: MemoryStore,
    rows: Mutex<Rows>,
    pub(super) clock: StoreClock,
    pub(super) start: Instant,
    pub(super) setup: Setup,
    state: Mutex<State>,
    holdings: Mutex<Holdings>,
}

pub(super) struct State {
    random: Random,
    /// The number of calls that the store has run.
    order: u64,
    /// How often the store has lost values.
    epoch: u64,
    pub(super) calls: u64,
    /// The ends of the outage of the store, of each node's outage, and of each node's suspension.
    pub(super) outage_until: u64,
    partition_until: Vec<u64>,
    suspended_until: Vec<u64>,
    /// The place in order of a decision, by node, key and time.
    done: BTreeMap<(usize, u64, u64), (u64, u64)>,
    pub(super) admitted: Vec<Admitted>,
    /// Admitted units, less those that were returned.
    pub(super) passed: u64,
    pub(super) requests: u64,
    pub(super) failed: u64,
    pub(super) last_failure: u64,
    /// The waits of requests that waited.
    pub(super) waits: Vec<u64>,
    /// The units admitted in each ten milliseconds.
    pub(super) flow: Vec<u64>,
    pub(super) digest: Sha256,
    pub(super) log: Vec<String>,
}

/// An admitted request, and its place among all of them.
pub(super) struct Passed {
    pub(super) place: usize,
    pub(super) decision: Decision,
}

/// Admitted units, at their place in the order of the store.
pub(super) struct Admitted {
    pub(super) epoch: u64,
    pub(super) at: Timestamp,
    pub(super) order: u64,
    pub(super) key: u64,
    pub(super) units: u64,
    pub(super) class: Priority,
}

/// The fate of a call on the network.
pub(super) struct Passage {
    pub(super) there: Duration,
    pub(super) back: Duration,
    pub(super) request_is_lost: bool,
    pub(super) reply_is_lost: bool,
    /// The store runs it once more, and the second reply may be the one that arrives.
    pub(super) again_after: Option<Duration>,
    pub(super) replies_again: bool,
}

/// The subject of a key in the store; `None` for the key of the limiter's probes.
pub(super) fn subject(key: &str) -> Option<u64> {
    key.rsplit(':').next()?.parse().ok()
}

/// The message about a lease that a call carries, if any.
pub(super) fn lease<'a>(call: &StoreCall<'a>) -> Option<&'a NodeMessage> {
    // In eventual mode nothing is leased.
    call.message()
        .filter(|message| matches!(message.report, NodeReport::Lease { .. }))
}

impl World {
    pub(super) fn new(setup: &Setup, random: Random) -> Arc<Self> {
        let clock = StoreClock::new();
        let holdings = Holdings::new(
            setup.limit.capacity(),
            setup.max_leases,
            setup.classes.len(),
        );
        Arc::new(Self {
            memory: MemoryStore::with_clock(clock.clone()),
            rows: Mutex::default(),
            clock,
            start: Instant::now(),
            setup: setup.clone(),
            state: Mutex::new(State::new(setup.nodes, random)),
            holdings: Mutex::new(holdings),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    pub(super) fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().expect("no panic")
    }

    pub(super) fn holdings(&self) -> MutexGuard<'_, Holdings> {
        self.holdings.lock().expect("no panic")
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).expect("a short run")
    }

    pub(super) async fn until(&self, millis: u64) {
        sleep_until(self.start + Duration::from_millis(millis)).await;
    }

    /// The end of the suspension of a node, if it is suspended.
    pub(super) fn suspended_until(&self, node: usize) -> Option<u64> {
        let until = self.state().suspended_until[node];
        (self.millis() < until).then_some(until)
    }

    /// Waits while the node is suspended.
    pub(super) async fn awake(&self, node: usize) {
        while let Some(until) = self.suspended_until(node) {
            self.until(until).await;
        }
    }

    pub(super) fn is_reachable(&self, life: &Life) -> bool {
        let (now, state) = (self.millis(), self.state());
        let is_away = now < state.outage_until || now < state.partition_until[life.node];
        !is_away && !life.is_dead.load(Ordering::Relaxed)
    }

    pub(super) fn passage(&self) -> Passage {
        let faults = self.setup.faults;
        let (least, mean) = match self.setup.distance {
            // Rounding to whole milliseconds adds half of one on average.
            Distance::Near => (0, 0.91),
            Distance::Usual => (1, 1.5),
        };
        let mut state = self.state();
        state.calls += 1;
        let random = &mut state.random;
        let mut way = || Duration::from_millis(least + random.exponential(mean) as u64);
        let (there, back) = (way(), way());
        let is_double = random.chance(faults.duplicates);
        Passage {
            there,
            back,
            request_is_lost: random.chance(faults.lost_requests),
            reply_is_lost: random.chance(faults.lost_replies),
            again_after: is_double.then(|| Duration::from_millis(random.below(30) as u64)),
            replies_again: random.chance(0.5),
        }
    }

    /// The delay after which a late copy of a call arrives.
    pub(super) fn late(&self) -> Option<Duration> {
        let (late, random) = (self.setup.faults.late, &mut self.state().random);
        let is_late = late > 0.0 && random.chance(late);
        is_late.then(|| Duration::from_millis(20 + random.below(2_000) as u64))
    }

    pub(super) async fn execute(
        &self,
        life: &Life,
        key: &str,
        call: &StoreCall<'_>,
    ) -> (Result<Reply, StoreError>, Done) {
        let (now, fast, node) = (self.clock.now(), self.clock.fast(), life.node);
        let reply = self.memory.transact(key, call).await;
        let mut state = self.state();
        state.order += 1;
        let (epoch, order) = (state.epoch, state.order);
        if let Some(subject) = subject(key) {
            let call_id = (node, subject, now.as_micros());
            state.done.insert(call_id, (epoch, order));
        }
        if let Ok(reply) = &reply {
            state.digest.update(format!("{reply:?}"));
        }
        let (millis, done_at) = (self.millis(), now.as_micros());
        state.note(millis, format_args!("{node} asks of {key} at {done_at}"));
        drop(state);
        let done = Done {
            at: Instant::now(),
            span: Span { epoch, fast },
        };
        if let (Some(subject), Some(clause), Ok(reply)) = (subject(key), lease(call), &reply)
            && let Some(answer) = reply.to_message()
        {
            let who = (life.number, subject);
            self.holdings().done(who, clause, &answer, done);
        }
        (reply, done)
    }

    /// Records the answer to a request of a node.
    pub(super) fn answered(
        &self,
        life: &Life,
        arrival: &Arrival,
        answer: Result<Decision, LimiterError>,
    ) -> Option<Passed> {
        let now = self.millis();
        let Arrival { node, key, at, .. } = *arrival;
        let leased = answer.as_ref().ok().filter(|decision| decision.is_leased());
        let span = leased.map(|decision| {
            let units = decision.charged();
            let mut holdings = self.holdings();
            match self.setup.mode {
                Mode::Eventual => None,
                _ => Some(holdings.spend((life.number, key), units, Instant::now())),
            }
        });
        let mut state = self.state();
        if now > at {
            state.waits.push(now - at);
        }
        let Ok(decision) = answer else {
            state.failed += 1;
            state.last_failure = now;
            state.note(now, format_args!("{node} {key} fails"));
            return None;
        };
        let charged = decision.charged();
        let units = if decision.is_allowed() { charged } else { 0 };
        let time = self.place(&mut state, span, (node, key), &decision);
        let place = state.admitted.len();
        state.pass(now, arrival, units, time);
        (units > 0).then_some(Passed { place, decision })
    }

    /// Records returned units of an admitted request: they count as never taken.
    pub(super) fn takes_back(&self, place: usize, units: u64) {
        let now = self.millis();
        let mut state = self.state();
        let admitted = &mut state.admitted[place];
        admitted.units = admitted.units.saturating_sub(units);
        let key = admitted.key;
        state.note(now, format_args!("{key} gets {units} back"));
    }

    /// Records units that a node with a timer has admitted, or none.
    pub(super) fn passed(&self, arrival: &Arrival, units: u64) {
        let (now, mut state) = (self.millis(), self.state());
        let place = (0, self.clock.now(), state.next());
        state.pass(now, arrival, units, place);
    }

    /// The time of admitted units. Units admitted by the store have the time of its call. Leased units
    /// have the time of the node, by the store's clock at the time of the lease; other units the time of
    /// the node.
    fn place(
        &self,
        state: &mut State,
        span: Option<Option<Span>>,
        (node, key): (usize, u64),
        decision: &Decision,
    ) -> (u64, Timestamp, u64) {
        let at = decision.receipt().charged_at();
        if let Some(span) = span {
            let Span { epoch, fast } = span.unwrap_or(Span {
                epoch: state.epoch,
                fast: self.clock.fast(),
            });
            return (epoch, self.clock.at(fast), state.next());
        }
        let done = state.done.get(&(node, key, at.as_micros()));
        match (self.setup.database, done) {
            (Database::Transacts, Some((epoch, order))) => (*epoch, at, *order),
            // Each swap is later than the previous ones, also by the time of its call.
            _ => (0, at, state.next()),
        }
    }

    pub(super) fn happens(&self, event: Event) {
        let now = self.millis();
        let mut state = self.state();
        match event {
            Event::Partition { node, until } => state.partition_until[node] = until,
            Event::Outage { until } => state.outage_until = until,
            Event::Suspend { node, until } => state.suspended_until[node] = until,
            Event::Restart => {
                self.memory.clear();
                state.epoch += u64::from(!self.setup.faults.forgets);
            }
            Event::Clock(fast) => {
                let before = self.clock.1.swap(fast, Ordering::Relaxed);
                // A repeated time is used at most once more.
                state.epoch += u64::from(fast < before);
            }
            Event::Replace { .. } => {}
        }
        state.note(now, format_args!("{event:?}"));
    }
}

impl State {
    fn new(nodes: usize, random: Random) -> Self {
        Self {
            random,
            order: 0,
            epoch: 0,
            calls: 0,
            outage_until: 0,
            partition_until: vec![0; nodes],
            suspended_until: vec![0; nodes],
            done: BTreeMap::new(),
            admitted: Vec::new(),
            passed: 0,
            requests: 0,
            failed: 0,
            last_failure: 0,
            waits: Vec::new(),
            flow: Vec::new(),
            digest: Sha256::new(),
            log: Vec::new(),
        }
    }

    fn next(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    fn pass(&mut self, now: u64, arrival: &Arrival, units: u64, place: (u64, Timestamp, u64)) {
        let (epoch, at, order) = place;
        let Arrival {
            node, key, class, ..
        } = *arrival;
        if units > 0 {
            self.passed += units;
            self.admitted.push(Admitted {
                epoch,
                at,
                order,
                key,
                units,
                class,
            });
            self.flows(now, units);
        }
        self.note(now, format_args!("{node} {key} gets {units}"));
    }

    fn flows(&mut self, now: u64, units: u64) {
        let at = now as usize / 10;
        if self.flow.len() <= at {
            self.flow.resize(at + 1, 0);
        }
        self.flow[at] += units;
    }

    fn note(&mut self, millis: u64, event: fmt::Arguments<'_>) {
        let mut line = String::new();
        writeln!(line, "{millis} {event}").expect("a text takes all");
        self.digest.update(&line);
        self.log.push(line);
    }

    /// Drops events that no failure would print.
    pub(super) fn trim(&mut self) {
        let old = self.log.len().saturating_sub(KEPT);
        self.log.drain(..old);
    }
}
