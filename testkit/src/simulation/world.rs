//! The world: a store in memory behind a network, and the nodes that share it.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep, sleep_until};
use tower_ratelimit::{
    AnyLimiter, Clock, Decision, Key, Limiter as _, LimiterError, LocalLimiter, OnFailure, Op,
    StoreError, Timestamp,
    limiter::Pending,
    shared::{Call, Cas, MemoryStore, Reply, SharedLimiter, Store as _},
};

use super::{
    Database, Setup,
    database::{Rows, SimStore},
    faults::Event,
    judge::Judge,
    random::Random,
    workload::Arrival,
};
use crate::clock::PausedClock;

/// How long nodes wait for the store.
pub(super) const DEADLINE: Duration = Duration::from_millis(50);

/// The events of a run that a failure prints.
const KEPT: usize = 200;

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// The units that were asked for, those that were admitted, and those that one limiter would
    /// have admitted that hears of each request at once.
    pub asked: u64,
    pub admitted: u64,
    pub central: u64,
    /// The requests, those that the store did not decide, and the store's calls.
    pub requests: u64,
    pub failed: u64,
    pub calls: u64,
    /// By how many units more than the bound were admitted at most.
    pub excess: u64,
    /// When the last request failed, and the last outage ended, in milliseconds.
    pub last_failure: u64,
    pub last_outage: u64,
    /// How long requests waited, in milliseconds, in order.
    pub waits: Vec<u64>,
    /// Of all events: the same for the same setup.
    pub digest: String,
    /// The last events.
    pub log: Vec<String>,
}

/// The store's clock: tokio's time, and by how much it was stepped.
#[derive(Clone)]
pub(super) struct StoreClock(PausedClock, Arc<AtomicI64>);

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        let steps = self.1.load(Ordering::Relaxed);
        let by = Duration::from_millis(steps.unsigned_abs());
        match steps < 0 {
            true => self.0.now().saturating_sub(by),
            false => self.0.now().saturating_add(by),
        }
    }
}

/// Time, the store's values, and what has come to pass.
pub(super) struct World {
    memory: MemoryStore,
    rows: Mutex<Rows>,
    pub(super) clock: StoreClock,
    start: Instant,
    setup: Setup,
    state: Mutex<State>,
}

struct State {
    random: Random,
    /// The calls so far, as the store did them.
    order: u64,
    /// How often the store has forgotten what the judge knows.
    epoch: u64,
    calls: u64,
    /// Until when nobody reaches the store, and each node does not.
    outage_until: u64,
    partition_until: Vec<u64>,
    /// The place in order of what a node was told, by node, key and time.
    done: BTreeMap<(usize, u64, u64), (u64, u64)>,
    admitted: Vec<Admitted>,
    requests: u64,
    failed: u64,
    last_failure: u64,
    waits: Vec<u64>,
    digest: Sha256,
    log: Vec<String>,
}

/// Units that passed, where the store has them in its order.
struct Admitted {
    order: (u64, u64),
    at: Timestamp,
    key: u64,
    units: u64,
}

/// What the network does with a call.
pub(super) struct Passage {
    pub(super) there: Duration,
    pub(super) back: Duration,
    pub(super) request_is_lost: bool,
    pub(super) reply_is_lost: bool,
    pub(super) again_after: Option<Duration>,
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    pub(super) fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().expect("no panic")
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).expect("a short run")
    }

    fn note(&self, event: fmt::Arguments<'_>) {
        let now = self.millis();
        self.state().note(now, event);
    }

    pub(super) fn is_reachable(&self, node: usize) -> bool {
        let (now, state) = (self.millis(), self.state());
        now >= state.outage_until && now >= state.partition_until[node]
    }

    pub(super) fn passage(&self) -> Passage {
        let faults = self.setup.faults;
        let mut state = self.state();
        state.calls += 1;
        let random = &mut state.random;
        let mut way = || Duration::from_millis(1 + random.exponential(1.5) as u64);
        let (there, back) = (way(), way());
        let is_double = random.chance(faults.duplicates);
        Passage {
            there,
            back,
            request_is_lost: random.chance(faults.lost_requests),
            reply_is_lost: random.chance(faults.lost_replies),
            again_after: is_double.then(|| Duration::from_millis(random.below(30) as u64)),
        }
    }

    pub(super) async fn execute(
        &self,
        node: usize,
        key: &str,
        call: &Call<'_>,
    ) -> Result<Reply, StoreError> {
        let now = self.clock.now();
        let reply = self.memory.transact(key, call).await;
        let mut state = self.state();
        state.order += 1;
        let place = (state.epoch, state.order);
        // The store's trials have a key of another kind.
        let subject = key.rsplit(':').next().and_then(|key| key.parse().ok());
        if let Some(subject) = subject {
            state.done.insert((node, subject, now.as_micros()), place);
        }
        let millis = self.millis();
        if let Ok(reply) = &reply {
            state.digest.update(reply.as_bytes());
        }
        let done_at = now.as_micros();
        state.note(millis, format_args!("{node} asks of {key} at {done_at}"));
        reply
    }

    /// A request of a node was answered.
    fn answered(&self, arrival: Arrival, answer: Result<Decision, LimiterError>) {
        let now = self.millis();
        let mut state = self.state();
        let Arrival { node, key, at, .. } = arrival;
        state.waits.push(now - at);
        let Ok(decision) = answer else {
            state.failed += 1;
            state.last_failure = now;
            return state.note(now, format_args!("{node} {key} fails"));
        };
        let units = decision.charged();
        if units > 0 && decision.is_allowed() {
            let at = decision.receipt().charged_at();
            let told = state.done.get(&(node, key, at.as_micros()));
            let order = match self.setup.database {
                Database::Transacts => *told.expect("an answer of the store's"),
                // Each swap is later than those before it, also by the time of its call.
                Database::Swaps => (0, at.as_micros()),
            };
            state.admitted.push(Admitted {
                order,
                at,
                key,
                units,
            });
        }
        state.note(now, format_args!("{node} {key} gets {units}"));
    }

    fn happens(&self, event: Event) {
        let mut state = self.state();
        match event {
            Event::Partition { node, until } => state.partition_until[node] = until,
            Event::Outage { until } => state.outage_until = until,
            Event::Restart => {
                self.memory.clear();
                state.epoch += u64::from(!self.setup.faults.forgets);
            }
            Event::Step(by) => {
                self.clock.1.fetch_add(by, Ordering::Relaxed);
                // Time that comes again is given out again, at most once.
                state.epoch += u64::from(by < 0);
            }
            Event::Replace(_) => {}
        }
        drop(state);
        self.note(format_args!("{event:?}"));
    }
}

impl State {
    fn note(&mut self, millis: u64, event: fmt::Arguments<'_>) {
        let mut line = String::new();
        writeln!(line, "{millis} {event}").expect("a text takes all");
        self.digest.update(&line);
        if self.log.len() >= 2 * KEPT {
            self.log.drain(..KEPT);
        }
        self.log.push(line);
    }
}

/// A node's limiter. One that takes the place of another has other hashes.
fn node(world: &Arc<World>, node: usize, generation: u64) -> AnyLimiter {
    let setup = &world.setup;
    let seed = setup.seed ^ (generation << 32 | node as u64);
    let builder = SharedLimiter::builder(setup.limit.quotas())
        .name("simulated")
        .on_failure(OnFailure::deny())
        .seed(seed);
    let builder = setup.mode.apply(builder);
    let store = SimStore {
        world: Arc::clone(world),
        node,
    };
    let limiter = match setup.database {
        Database::Transacts => builder.build_on(store).map(AnyLimiter::new),
        Database::Swaps => builder
            .build_on(Cas::new(store).seed(seed))
            .map(AnyLimiter::new),
    };
    limiter.expect("a limit that makes sense")
}

pub(super) async fn run(setup: &Setup) -> Report {
    let mut random = Random::new(setup.seed);
    let arrivals = setup.workload.arrivals(setup, &mut random);
    let mut events = setup
        .faults
        .events(setup, &mut random)
        .into_iter()
        .peekable();
    let clock = StoreClock(PausedClock::new(), Arc::default());
    let world = Arc::new(World {
        memory: MemoryStore::with_clock(clock.clone()),
        rows: Mutex::default(),
        clock: clock.clone(),
        start: Instant::now(),
        setup: setup.clone(),
        state: Mutex::new(State::new(setup, random)),
    });
    let mut nodes: Vec<_> = (0..setup.nodes).map(|at| node(&world, at, 0)).collect();
    let central = LocalLimiter::builder(setup.limit.quotas()).clock(clock);
    let central = central.build().expect("a limit that makes sense");
    let (mut asked, mut admitted_centrally) = (0, 0);
    for arrival in arrivals {
        while let Some((at, event)) = events.next_if(|(at, _)| *at <= arrival.at) {
            sleep_until(world.start + Duration::from_millis(at)).await;
            world.happens(event);
            if let Event::Replace(at) = event {
                nodes[at] = node(&world, at, arrival.at + 1);
            }
        }
        sleep_until(world.start + Duration::from_millis(arrival.at)).await;
        asked += arrival.cost;
        let key = Key::from(arrival.key);
        admitted_centrally += central.acquire(&key, arrival.cost).charged();
        ask(&world, &nodes[arrival.node], arrival);
    }
    sleep(2 * DEADLINE).await;
    world.report(asked, admitted_centrally)
}

fn ask(world: &Arc<World>, node: &AnyLimiter, arrival: Arrival) {
    world.state().requests += 1;
    match node.apply(&Key::from(arrival.key), Op::Acquire(arrival.cost)) {
        Pending::Ready(answer) => world.answered(arrival, answer),
        Pending::Later(answer) => {
            let world = Arc::clone(world);
            tokio::spawn(async move { world.answered(arrival, answer.await) });
        }
    }
}

impl State {
    fn new(setup: &Setup, random: Random) -> Self {
        Self {
            random,
            order: 0,
            epoch: 0,
            calls: 0,
            outage_until: 0,
            partition_until: vec![0; setup.nodes],
            done: BTreeMap::new(),
            admitted: Vec::new(),
            requests: 0,
            failed: 0,
            last_failure: 0,
            waits: Vec::new(),
            digest: Sha256::new(),
            log: Vec::new(),
        }
    }
}

impl World {
    fn report(&self, asked: u64, central: u64) -> Report {
        let mut state = self.state();
        state.admitted.sort_by_key(|admitted| admitted.order);
        let mut judges = BTreeMap::new();
        let excess = state.admitted.iter().map(|admitted| {
            let subject = (admitted.key, admitted.order.0);
            let judge = judges
                .entry(subject)
                .or_insert_with(|| Judge::new(&self.setup.limit));
            judge.admit(admitted.at, admitted.units)
        });
        let excess = excess.max().unwrap_or(0);
        let admitted = state.admitted.iter().map(|admitted| admitted.units).sum();
        state.waits.sort_unstable();
        let digest = state.digest.clone().finalize();
        let kept = state.log.len().saturating_sub(KEPT);
        Report {
            asked,
            admitted,
            central,
            requests: state.requests,
            failed: state.failed,
            last_failure: state.last_failure,
            last_outage: state.outage_until,
            calls: state.calls,
            excess,
            waits: state.waits.clone(),
            digest: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            log: state.log[kept..].to_vec(),
        }
    }
}
