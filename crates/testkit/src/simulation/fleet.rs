//! The fleet: nodes with a limiter each, and their requests.

use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::sleep;
use tower_ratelimit::{
    AnyLimiter, Key, Limiter as _, LocalLimiter, OnFailure, Priority,
    decision::Op,
    limiter::{Pending, Tier},
    shared::{Cas, ModeStats, SharedLimiter},
};

use super::{
    Database, Mode, Setup,
    faults::Event,
    periodic_exchange::{TimerNode, Totals},
    random::Random,
    report::{Report, Sums},
    simulated_store::SimStore,
    workload::Arrival,
    world::{DEADLINE, Life, Passed, World},
};

/// The nodes.
struct Fleet {
    world: Arc<World>,
    nodes: Vec<Node>,
    totals: Arc<Totals>,
    lives: u64,
}

/// A node, until another one takes its place.
#[derive(Clone)]
struct Node {
    life: Arc<Life>,
    decides: Decides,
}

#[derive(Clone)]
enum Decides {
    Limiter(AnyLimiter, Arc<dyn Fn() -> ModeStats + Send + Sync>),
    Timer(Arc<TimerNode>),
}

impl Fleet {
    fn new(world: &Arc<World>) -> Self {
        let mut fleet = Self {
            world: Arc::clone(world),
            nodes: Vec::new(),
            totals: Arc::default(),
            lives: 0,
        };
        fleet.nodes = (0..world.setup.nodes).map(|at| fleet.begin(at)).collect();
        fleet
    }

    /// A new node without units. Its hashes differ from those of its predecessor.
    fn begin(&mut self, node: usize) -> Node {
        self.lives += 1;
        let life = Arc::new(Life {
            node,
            number: self.lives,
            is_dead: AtomicBool::new(false),
        });
        let decides = match self.world.setup.mode {
            Mode::Timer => {
                let life = Arc::clone(&life);
                Decides::Timer(TimerNode::start(&self.world, life, &self.totals))
            }
            _ => self.limiter(&life),
        };
        Node { life, decides }
    }

    fn limiter(&self, life: &Arc<Life>) -> Decides {
        let setup = &self.world.setup;
        let seed = setup.seed ^ (life.number << 32 | life.node as u64);
        let builder = SharedLimiter::builder(setup.limit.quotas())
            .name("simulated")
            .on_failure(OnFailure::deny())
            .seed(seed);
        let builder = setup.mode.apply(life.node, setup, builder);
        let store = SimStore {
            world: Arc::clone(&self.world),
            life: Arc::clone(life),
        };
        let good = "a limit that makes sense";
        match setup.database {
            Database::Transacts => {
                let limiter = builder.build_on(store).expect(good);
                let stats = limiter.clone();
                Decides::Limiter(
                    AnyLimiter::new(limiter),
                    Arc::new(move || stats.mode_stats()),
                )
            }
            Database::Swaps => {
                let limiter = builder.build_on(Cas::new(store).seed(seed)).expect(good);
                let stats = limiter.clone();
                Decides::Limiter(
                    AnyLimiter::new(limiter),
                    Arc::new(move || stats.mode_stats()),
                )
            }
        }
    }

    fn happens(&mut self, event: Event) {
        self.world.happens(event);
        if let Event::Replace { node, dies } = event {
            self.nodes[node].life.is_dead.store(dies, Ordering::Relaxed);
            self.nodes[node] = self.begin(node);
        }
    }

    fn stats(&self) -> Vec<ModeStats> {
        let limiters = self.nodes.iter().filter_map(|node| match &node.decides {
            Decides::Limiter(_, stats) => Some(stats()),
            Decides::Timer(_) => None,
        });
        limiters.collect()
    }

    /// Sends a request to the node once it is awake.
    fn request(&self, arrival: Arrival) {
        let (node, world) = (self.nodes[arrival.node].clone(), &self.world);
        world.state().requests += 1;
        match world.suspended_until(arrival.node) {
            None => node.request(world, arrival),
            Some(_) => {
                let world = Arc::clone(world);
                tokio::spawn(async move {
                    world.awake(arrival.node).await;
                    node.request(&world, arrival);
                });
            }
        }
    }
}

impl Node {
    fn request(self, world: &Arc<World>, arrival: Arrival) {
        let limiter = match self.decides {
            Decides::Timer(timer) => {
                let units = timer.acquire(world, arrival.key, arrival.cost);
                return world.passed(&arrival, units);
            }
            Decides::Limiter(limiter, _) => limiter,
        };
        let op = arrival.course.op(arrival.cost);
        let in_class = (&Tier::DEFAULT, arrival.class);
        match crate::apply_in_class(&limiter, in_class, &Key::from(arrival.key), op) {
            Pending::Ready(answer) => {
                let passed = world.answered(&self.life, &arrival, answer);
                GivesBack::later(passed, (&limiter, world, &self.life), arrival);
            }
            Pending::Later(answer) => {
                // Units of a higher class may be there that this request may not use.
                if world.setup.is_calm() && arrival.class == Priority::CRITICAL {
                    let who = (self.life.number, arrival.key);
                    let now = tokio::time::Instant::now();
                    world.holdings().waits(who, arrival.cost, now);
                }
                let (world, life) = (Arc::clone(world), self.life);
                tokio::spawn(async move {
                    let passed = world.answered(&life, &arrival, answer.await);
                    GivesBack::later(passed, (&limiter, &world, &life), arrival);
                });
            }
        }
    }
}

/// A request that returns units.
struct GivesBack {
    limiter: AnyLimiter,
    world: Arc<World>,
    life: Arc<Life>,
    key: u64,
}

impl GivesBack {
    /// Returns the units some time after the request was admitted.
    fn later(
        passed: Option<Passed>,
        (limiter, world, life): (&AnyLimiter, &Arc<World>, &Arc<Life>),
        arrival: Arrival,
    ) {
        let given = passed.and_then(|passed| {
            let given = arrival.course.gives_back(&passed.decision)?;
            Some((passed.place, given))
        });
        let Some((place, (op, units, after))) = given else {
            return;
        };
        let own = Self {
            limiter: limiter.clone(),
            world: Arc::clone(world),
            life: Arc::clone(life),
            key: arrival.key,
        };
        tokio::spawn(async move {
            sleep(Duration::from_millis(after)).await;
            own.world.awake(own.life.node).await;
            own.give(op, units, place).await;
        });
    }

    async fn give(self, op: Op, units: u64, place: usize) {
        // The units may be returned from now on, whether or not the reply arrives.
        self.world.takes_back(place, units);
        match self.limiter.apply(&Key::from(self.key), op) {
            Pending::Ready(Ok(decision)) if decision.is_leased() => {
                let who = (self.life.number, self.key);
                // In eventual mode nodes hold no units.
                if self.world.setup.mode != Mode::Eventual {
                    self.world.holdings().unspend(who, units);
                }
            }
            Pending::Ready(_) => {}
            Pending::Later(answer) => drop(answer.await),
        }
    }
}

pub(super) async fn run(setup: &Setup) -> Report {
    let mut random = Random::new(setup.seed ^ 0x5eed);
    let mut arrivals = setup
        .workload
        .arrivals(setup, &mut random)
        .into_iter()
        .peekable();
    let events = setup.faults.events(setup, &mut random);
    let mut events = events.into_iter().peekable();
    let world = World::new(setup, random);
    let mut fleet = Fleet::new(&world);
    let central = LocalLimiter::builder(setup.limit.quotas()).clock(world.clock.clone());
    let central = central.build().expect("a limit that makes sense");
    let mut sums = Sums::default();
    while let Some(first) = arrivals.peek() {
        let at = first.at;
        while let Some((at, event)) = events.next_if(|(when, _)| *when <= at) {
            world.until(at).await;
            fleet.happens(event);
        }
        world.until(at).await;
        for arrival in iter::from_fn(|| arrivals.next_if(|next| next.at == at)) {
            sums.requested += arrival.cost;
            let op = arrival.course.op(arrival.cost);
            let in_class = (&Tier::DEFAULT, arrival.class);
            let answer = crate::apply_in_class(&central, in_class, &Key::from(arrival.key), op);
            if let Pending::Ready(Ok(decision)) = answer {
                sums.central += decision.charged();
            }
            fleet.request(arrival);
        }
        if !setup.logs_all {
            world.state().trim();
        }
    }
    sleep(2 * DEADLINE).await;
    (sums.stats, sums.lives) = (fleet.stats(), fleet.lives);
    sums.calls = world.state().calls;
    // Unused leases end, or their nodes return them, once all nodes are awake.
    for node in 0..setup.nodes {
        world.awake(node).await;
    }
    sleep(2 * DEADLINE + 3 * setup.lease).await;
    if setup.faults.clock_steps == 0 {
        // A clock that was set back lengthens leases by the same time.
        world.holdings().idle(tokio::time::Instant::now());
    }
    Report::new(&world, &sums)
}
