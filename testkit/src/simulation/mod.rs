//! Simulation: nodes with real limiters that share a store in memory behind a network that fails, in
//! tokio's paused time. The same seed gives the same events.
//!
//! ```ignore
//! let report = Setup::of_seed(7, Mode::Strict).run();
//! assert_eq!(report.excess, []);
//! ```

mod database;
mod faults;
mod judge;
mod limit;
mod random;
mod workload;
mod world;

use std::time::Duration;

use tower_ratelimit::shared::RedisLimiterBuilder;

pub use self::{
    faults::Faults,
    judge::Judge,
    limit::{LIMITS, Limit},
    workload::Workload,
    world::Report,
};
use random::Random;

/// How the nodes share their limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The store decides about each request.
    Strict,
}

impl Mode {
    fn apply(self, builder: RedisLimiterBuilder) -> RedisLimiterBuilder {
        match self {
            Self::Strict => builder,
        }
    }

    /// The units by which the nodes may together exceed what one limiter would admit.
    pub fn excess(self) -> u64 {
        match self {
            Self::Strict => 0,
        }
    }
}

/// How the store changes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// In one step.
    Transacts,
    /// If the version is still the same, through a [`Cas`](tower_ratelimit::shared::Cas).
    Swaps,
}

/// All that a run depends on.
#[derive(Debug, Clone)]
pub struct Setup {
    pub seed: u64,
    pub mode: Mode,
    pub database: Database,
    pub limit: Limit,
    pub nodes: usize,
    pub keys: usize,
    pub workload: Workload,
    /// Units that are asked for, as a multiple of what the limit allows.
    pub load: f64,
    pub length: Duration,
    pub faults: Faults,
}

impl Setup {
    /// A run chosen by its seed alone.
    pub fn of_seed(seed: u64, mode: Mode) -> Self {
        let mut random = Random::new(seed);
        Self {
            seed,
            mode,
            database: Database::Transacts,
            limit: *random.choice(&LIMITS),
            nodes: *random.choice(&[1, 2, 3, 10, 30]),
            keys: *random.choice(&[1, 1, 3]),
            workload: *random.choice(&Workload::ALL),
            load: *random.choice(&[0.5, 0.9, 1.5, 4.0]),
            length: Duration::from_secs(6),
            faults: Faults::of_seed(&mut random),
        }
    }

    /// The same without any fault but distance.
    pub fn without_faults(mut self) -> Self {
        self.faults = Faults::NONE;
        self
    }

    /// The same on a database that swaps. It loses no values and its clock is right, else nobody
    /// could tell in which order it was.
    pub fn with_swaps(mut self) -> Self {
        self.database = Database::Swaps;
        self.faults.restarts = 0;
        self.faults.clock_steps = 0;
        self
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
        runtime.block_on(world::run(self))
    }
}
