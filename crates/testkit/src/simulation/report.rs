//! The outcome of a run.

use std::collections::{BTreeMap, BTreeSet};

use sha2::Digest as _;
use tower_ratelimit::shared::ModeStats;

use super::{judge::Judge, world::World};

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// The demand in units, the admitted units, and those that a single limiter that sees each request at
    /// once would have admitted.
    pub requested: u64,
    pub admitted: u64,
    pub central: u64,
    /// The requests, those that the store did not decide, and the store's calls.
    pub requests: u64,
    pub failed: u64,
    pub calls: u64,
    /// The requests decided without a call of their own.
    pub at_once: u64,
    /// The most units that were admitted above the bound.
    pub excess: u64,
    /// The largest allowed excess.
    pub bound: u64,
    /// The invariants that did not hold.
    pub broken: Vec<String>,
    /// When the last request failed, and the last outage ended, in milliseconds.
    pub last_failure: u64,
    pub last_outage: u64,
    /// The waits of requests that waited, in milliseconds, sorted.
    pub waits: Vec<u64>,
    /// The units that were admitted in each ten milliseconds.
    pub flow: Vec<u64>,
    /// A digest of all events: equal setups have equal digests.
    pub digest: String,
    /// The last events, or all.
    pub log: Vec<String>,
}

/// Counters of the nodes during a run.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) requested: u64,
    pub(super) central: u64,
    pub(super) lives: u64,
    pub(super) calls: u64,
    pub(super) stats: Vec<ModeStats>,
}

impl Report {
    pub(super) fn new(world: &World, sums: &Sums) -> Self {
        let excess = judge(world);
        let mut broken = std::mem::take(&mut world.holdings().faults);
        // In eventual mode the store grants no units.
        let leasing = sums.stats.iter().filter(|stats| stats.granted > 0);
        for stats in leasing {
            let known = stats.settled + stats.returned + stats.ended;
            if known > stats.granted {
                broken.push(format!("more than was granted: {stats:?}"));
            }
        }
        let mut state = world.state();
        if !world.setup.logs_all {
            state.trim();
        }
        let mut waits = state.waits.clone();
        waits.sort_unstable();
        let digest = state.digest.clone().finalize();
        Self {
            requested: sums.requested,
            admitted: state.passed,
            central: sums.central,
            requests: state.requests,
            failed: state.failed,
            calls: sums.calls,
            at_once: state.requests - waits.len() as u64,
            excess,
            bound: world.setup.bound(sums.lives),
            broken,
            last_failure: state.last_failure,
            last_outage: state.outage_until,
            waits,
            flow: state.flow.clone(),
            digest: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            log: state.log.clone(),
        }
    }

    /// Whether all invariants held.
    pub const fn is_right(&self) -> bool {
        self.excess <= self.bound && self.broken.is_empty()
    }

    /// The wait that this share of all requests does not exceed, in milliseconds.
    pub fn wait(&self, share: f64) -> u64 {
        let place = (self.requests as f64 * share) as usize;
        let place = place.checked_sub(self.at_once as usize);
        let wait = place.and_then(|place| self.waits.get(place));
        wait.copied().unwrap_or(0)
    }
}

/// The most units that were admitted above the bound, in any interval and for any key.
fn judge(world: &World) -> u64 {
    let mut state = world.state();
    let place = |admitted: &super::world::Admitted| (admitted.epoch, admitted.at, admitted.order);
    state.admitted.sort_by_key(place);
    let classes: BTreeSet<_> = world.setup.classes.iter().copied().collect();
    let mut judges = BTreeMap::new();
    let excess = state.admitted.iter().map(|admitted| {
        // Units of a class count for each class above it.
        let excess = classes.range(admitted.class..).map(|class| {
            let judge = judges
                .entry((admitted.key, admitted.epoch, *class))
                .or_insert_with(|| Judge::of_class(&world.setup.limit, *class));
            judge.admit(admitted.at, admitted.units)
        });
        excess.max().unwrap_or(0)
    });
    excess.max().unwrap_or(0)
}
