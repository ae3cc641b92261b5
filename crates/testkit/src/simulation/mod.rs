//! Simulation: nodes with real limiters that share a store in memory behind a network that fails, in
//! tokio's paused time. The same seed gives the same events.
//!
//! ```ignore
//! let report = Setup::of_seed(7, Mode::Leased).run();
//! assert_eq!(report.excess, 0);
//! ```

mod faults;
mod fleet;
mod held_units;
mod judge;
mod limit;
mod periodic_exchange;
mod random;
mod report;
mod simulated_store;
mod workload;
mod world;

use std::time::Duration;

use tower_ratelimit::{
    Priority,
    shared::{self, RedisLimiterBuilder},
};

pub use self::{
    faults::Faults,
    judge::Judge,
    limit::{BUCKET, LIMITS, Limit, WINDOW},
    report::Report,
    workload::Workload,
};
use random::Random;

/// How the nodes share their limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// The store decides about each request.
    Strict,
    /// Nodes reserve units of busy keys.
    Leased,
    /// Every other node reserves units.
    Mixed,
    /// Nodes decide by themselves and report to the store afterwards, at most `ahead` units ahead of it.
    Eventual,
    /// No limiter of this crate: each node counts by itself, and every 50 milliseconds reports its counts
    /// to the store and receives those of the others. Nothing bounds how far it is ahead.
    Timer,
}

impl Mode {
    /// The modes of this crate.
    pub const ALL: [Self; 4] = [Self::Strict, Self::Leased, Self::Mixed, Self::Eventual];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Leased => "leased",
            Self::Mixed => "mixed",
            Self::Eventual => "eventual",
            Self::Timer => "timer",
        }
    }

    /// The settings of a node's limiter.
    fn apply(
        self,
        node: usize,
        setup: &Setup,
        builder: RedisLimiterBuilder,
    ) -> RedisLimiterBuilder {
        let leased = shared::Mode::leased().length(setup.lease);
        let mode = match self {
            Self::Leased => leased,
            Self::Mixed if node.is_multiple_of(2) => leased,
            Self::Eventual => shared::Mode::eventual(INTERVAL).ahead(setup.ahead),
            _ => return builder,
        };
        builder.mode(mode).max_leases(setup.max_leases)
    }
}

/// The time between two reports of a node, in modes with reports.
const INTERVAL: Duration = Duration::from_millis(50);

/// Switches the log off: faults are intended here.
pub fn be_quiet() {
    let _ = tracing::subscriber::set_global_default(tracing::subscriber::NoSubscriber::new());
}

/// How the store changes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// In one atomic step.
    Transacts,
    /// By compare-and-swap, through a [`Cas`](tower_ratelimit::shared::Cas).
    Swaps,
}

/// How long a call takes on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// A round trip of a millisecond, on average.
    Near,
    /// A round trip of four milliseconds, sometimes of twenty.
    Usual,
}

/// Critical requests, those that may use most of a limit, and those that may use half: so many of the last
/// that they would use more than that without a share.
const CLASSES: [Priority; 8] = {
    let (most, half) = (share(80), share(50));
    [Priority::CRITICAL, most, most, half, half, half, half, half]
};

const CRITICAL: &[Priority] = &[Priority::CRITICAL];

const fn share(percent: u8) -> Priority {
    Priority::share(percent).expect("a share from 1 to 100")
}

/// The shortest run of a seed.
const MANY_REQUESTS: f64 = 5_000.0;

/// All that a run depends on.
#[derive(Debug, Clone)]
pub struct Setup {
    pub seed: u64,
    pub mode: Mode,
    pub database: Database,
    pub distance: Distance,
    pub limit: Limit,
    pub nodes: usize,
    pub keys: usize,
    pub workload: Workload,
    /// The demand, as a multiple of the limit.
    pub load: f64,
    /// The classes of the requests, a request of any with the same chance.
    pub classes: &'static [Priority],
    /// Whether each request is for one unit, not for up to four.
    pub ones: bool,
    pub length: Duration,
    /// How long a lease lasts, and how many a node may have.
    pub lease: Duration,
    pub max_leases: usize,
    /// The units of a key that a node may be ahead of the store, in eventual mode.
    pub ahead: u32,
    pub faults: Faults,
    /// The beginning and the end of an outage of the store, in milliseconds, besides the faults.
    pub outage: Option<(u64, u64)>,
    /// Whether the report has all events, not only the last ones.
    pub logs_all: bool,
}

/// The number of nodes, and the faults.
fn fleet_of_seed(seed: u64, mode: Mode, few: usize, random: &mut Random) -> (usize, Faults) {
    let nodes = match seed {
        _ if seed % 256 == 255 => 1_000,
        _ if seed % 16 == 15 => 100,
        _ => few,
    };
    let faults = Faults::of_seed(random);
    if mode != Mode::Eventual {
        return (nodes, faults);
    }
    // A bucket can owe at most its capacity: all nodes together may not be further ahead.
    let (churn, deaths) = (faults.churn.min(2), faults.deaths.min(5));
    let faults = Faults {
        churn,
        deaths,
        ..faults
    };
    (nodes.min(10), faults)
}

impl Setup {
    /// A run chosen by its seed alone. Most have few nodes; one of 16 has 100, one of 256 has 1,000.
    pub fn of_seed(seed: u64, mode: Mode) -> Self {
        let mut random = Random::new(seed);
        let scale = *random.choice(&[1, 10, 10]);
        let few = *random.choice(&[1, 2, 3, 10, 30]);
        let limit = random.choice(&LIMITS).times(scale);
        let load = *random.choice(&[0.5, 0.9, 1.5, 4.0]);
        let keys = match scale {
            1 => *random.choice(&[1, 3, 12]),
            _ => 1,
        };
        let (nodes, faults) = fleet_of_seed(seed, mode, few, &mut random);
        let lives = nodes + faults.churn + faults.deaths;
        let most_ahead = limit.capacity() / lives as u64;
        let enough = MANY_REQUESTS / (limit.rate() * load * keys as f64);
        Self {
            seed,
            mode,
            database: Database::Transacts,
            distance: *random.choice(&[Distance::Near, Distance::Usual, Distance::Usual]),
            limit,
            nodes,
            keys,
            workload: *random.choice(&Workload::ALL),
            load,
            classes: CRITICAL,
            ones: false,
            length: Duration::from_secs_f64(enough.clamp(3.0, 5.0)),
            lease: Duration::from_millis(*random.choice(&[100, 250, 1_000, 1_000, 4_000])),
            max_leases: *random.choice(&[64, 64, 4]),
            ahead: (*random.choice(&[1, 5, 20])).min(most_ahead.max(1) as u32),
            faults,
            outage: None,
            logs_all: false,
        }
    }

    /// The run of the pictures: nodes near their store, requests for a unit each, no faults.
    pub const fn calm(mode: Mode, limit: Limit, nodes: usize, load: f64) -> Self {
        Self {
            seed: 1,
            mode,
            database: Database::Transacts,
            distance: Distance::Near,
            limit,
            nodes,
            keys: 1,
            workload: Workload::Uniform,
            load,
            classes: CRITICAL,
            ones: true,
            length: Duration::from_secs(5),
            lease: Duration::from_secs(1),
            max_leases: 64,
            ahead: 20,
            faults: Faults::NONE,
            outage: None,
            logs_all: false,
        }
    }

    /// Removes all faults. The network keeps its distance.
    pub const fn without_faults(mut self) -> Self {
        self.faults = Faults::NONE;
        self
    }

    /// Gives the requests classes. The store loses no values and its clock is right: a node has a lease for
    /// each class, and the judge does not know from which a request was decided.
    pub const fn with_classes(mut self) -> Self {
        self.classes = &CLASSES;
        self.faults.restarts = 0;
        self.faults.clock_steps = 0;
        self
    }

    /// Uses a database with compare-and-swap. It loses no values and its clock is right, so that the
    /// judge knows the order of its swaps.
    pub const fn with_swaps(mut self) -> Self {
        self.database = Database::Swaps;
        self.faults.restarts = 0;
        self.faults.clock_steps = 0;
        self
    }

    /// The units that so many nodes, one after another, may together allow beyond what one limiter would
    /// admit.
    pub const fn bound(&self, lives: u64) -> u64 {
        match self.mode {
            Mode::Strict | Mode::Leased | Mode::Mixed => 0,
            Mode::Eventual => (lives - 1) * self.ahead as u64,
            Mode::Timer => u64::MAX,
        }
    }

    /// Whether every call gets its reply in time.
    fn is_calm(&self) -> bool {
        self.faults == Faults::NONE && self.outage.is_none()
    }

    /// Runs the simulation in a runtime of its own.
    ///
    /// # Panics
    ///
    /// When no runtime can be built.
    pub fn run(&self) -> Report {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(fleet::run(self))
    }
}
