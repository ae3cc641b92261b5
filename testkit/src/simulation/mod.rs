//! Simulation: nodes with real limiters that share a store in memory behind a network that fails, in
//! tokio's paused time. The same seed gives the same events.
//!
//! ```ignore
//! let report = Setup::of_seed(7, Mode::Leased).run();
//! assert_eq!(report.excess, 0);
//! ```

mod database;
mod faults;
mod fleet;
mod holdings;
mod judge;
mod limit;
mod random;
mod report;
mod timer;
mod workload;
mod world;

use std::time::Duration;

use tower_ratelimit::shared::{self, RedisLimiterBuilder};

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
    /// Every other node does.
    Mixed,
    /// Nodes decide by themselves and tell the store afterwards, so far ahead of it and no further.
    Eventual,
    /// No limiter of this crate: each node counts by itself, and every 50 milliseconds tells the
    /// store what it has counted and hears what the others have. Nothing bounds how far it is ahead.
    Timer,
}

impl Mode {
    /// Those of this crate.
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

/// The time between two times that a node tells what it has counted, in the modes that do.
const INTERVAL: Duration = Duration::from_millis(50);

/// Has nothing logged: what goes wrong here is meant to.
pub fn be_quiet() {
    let _ = tracing::subscriber::set_global_default(tracing::subscriber::NoSubscriber::new());
}

/// How the store changes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// In one step.
    Transacts,
    /// If the version is still the same, through a [`Cas`](tower_ratelimit::shared::Cas).
    Swaps,
}

/// How long a call is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// A round trip of a millisecond, on average.
    Near,
    /// Of four, and sometimes of twenty.
    Usual,
}

/// A run of a seed is no shorter for it than three seconds.
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
    /// Units that are asked for, as a multiple of what the limit allows.
    pub load: f64,
    /// Whether each request is for one unit, not for up to four.
    pub ones: bool,
    pub length: Duration,
    /// How long a lease lasts, and how many a node may have.
    pub lease: Duration,
    pub max_leases: usize,
    /// The units of a key that a node may be ahead of the store, in eventual mode.
    pub ahead: u32,
    pub faults: Faults,
    /// From when to when nobody reaches the store, in milliseconds, besides the faults.
    pub outage: Option<(u64, u64)>,
    /// Whether all events go into the report, not the last ones only.
    pub logs_all: bool,
}

/// How many nodes there are, and what goes wrong with them.
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
    // All that nodes may be ahead is to fit into what a bucket can owe.
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

    /// The same without any fault but distance.
    pub const fn without_faults(mut self) -> Self {
        self.faults = Faults::NONE;
        self
    }

    /// The same on a database that swaps. It loses no values and its clock is right, else nobody
    /// could tell in which order it was.
    pub const fn with_swaps(mut self) -> Self {
        self.database = Database::Swaps;
        self.faults.restarts = 0;
        self.faults.clock_steps = 0;
        self
    }

    /// The units by which nodes may together exceed what one limiter would admit, if there are so many
    /// of them, one after another.
    pub const fn bound(&self, lives: u64) -> u64 {
        match self.mode {
            Mode::Strict | Mode::Leased | Mode::Mixed => 0,
            Mode::Eventual => (lives - 1) * self.ahead as u64,
            Mode::Timer => u64::MAX,
        }
    }

    /// Whether every call is answered in time.
    fn is_calm(&self) -> bool {
        self.faults == Faults::NONE && self.outage.is_none()
    }

    /// Runs it, in a runtime of its own.
    ///
    /// # Panics
    ///
    /// When there is no runtime to be had.
    pub fn run(&self) -> Report {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(fleet::run(self))
    }
}
