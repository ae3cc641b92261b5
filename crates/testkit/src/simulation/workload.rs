//! Workloads: the times, nodes and keys of requests.

use tower_ratelimit::{Decision, Priority, decision::Op};

use super::{Setup, random::Random};

/// The shape of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Every node gets the same load.
    Uniform,
    /// The second node gets half as much as the first, the third a third, and so on.
    Zipf,
    /// One node gets nearly all requests.
    HotNode,
    /// One node gets nearly all requests, another one every 700 milliseconds.
    MovingNode,
    /// All requests of a second come within a tenth of it.
    Bursts,
    /// Five times the load in the second second.
    FlashCrowd,
}

/// A request of a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    /// Milliseconds after the start.
    pub(super) at: u64,
    pub(super) node: usize,
    pub(super) key: u64,
    pub(super) cost: u64,
    pub(super) course: Course,
    pub(super) class: Priority,
}

/// The kind of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Course {
    /// It takes its cost or nothing.
    Takes,
    /// It takes the units that are left, up to its cost.
    TakesUpTo,
    /// It returns so many units of its cost, this many milliseconds later, by a refund.
    Refunds(u64, u64),
    /// It returns units as `Refund` does, by a settlement.
    Settles(u64, u64),
}

impl Course {
    /// The kind of a random request, mostly a plain one. No request returns units in runs where a store
    /// may run calls twice or lose values: the units would be those of other requests.
    fn of(cost: u64, setup: &Setup, random: &mut Random) -> Self {
        let (kind, back) = (random.below(20), 1 + random.below(cost as usize) as u64);
        let later = random.exponential(60.0) as u64;
        match kind {
            0 => Self::TakesUpTo,
            1 if setup.faults.are_once() => Self::Refunds(back, later),
            2 if setup.faults.are_once() => Self::Settles(back, later),
            _ => Self::Takes,
        }
    }

    /// The operation that it begins with.
    pub(super) const fn op(self, cost: u64) -> Op {
        match self {
            Self::Takes | Self::Refunds(..) => Op::Acquire(cost),
            Self::TakesUpTo => Op::AcquireUpTo(cost),
            Self::Settles(..) => Op::Reserve(cost),
        }
    }

    /// The operation that returns units of an admitted request, how many, and how much later.
    pub(super) fn gives_back(self, decision: &Decision) -> Option<(Op, u64, u64)> {
        let receipt = decision.receipt();
        match self {
            Self::Refunds(back, later) => Some((Op::Refund(back, Some(receipt)), back, later)),
            Self::Settles(back, later) => {
                let cost = receipt.charged().saturating_sub(back);
                Some((Op::Settle(cost, receipt), back, later))
            }
            Self::Takes | Self::TakesUpTo => None,
        }
    }
}

impl Workload {
    pub const ALL: [Self; 6] = [
        Self::Uniform,
        Self::Zipf,
        Self::HotNode,
        Self::MovingNode,
        Self::Bursts,
        Self::FlashCrowd,
    ];

    /// All requests of a run, sorted by time.
    pub(super) fn arrivals(self, setup: &Setup, random: &mut Random) -> Vec<Arrival> {
        let end = setup.length.as_secs_f64();
        let mean = 1.0 / (setup.limit.rate() * setup.load * setup.keys as f64);
        let mut arrivals = Vec::new();
        // A generator of its own, so that a seed has the same requests with and without classes.
        let mut classes = Random::new(setup.seed ^ 0xc1a55);
        let mut time = 0.0;
        loop {
            let cost = if setup.ones || random.chance(0.9) {
                1
            } else {
                2 + random.below(3) as u64
            };
            time += random.exponential(mean) * cost as f64 / self.intensity(time);
            let at = self.placed(time);
            if at >= end {
                return arrivals;
            }
            let node = self.node(setup.nodes, at, random);
            let key = random.below(setup.keys) as u64;
            let course = if setup.ones {
                Course::Takes
            } else {
                Course::of(cost, setup, random)
            };
            arrivals.push(Arrival {
                at: (at * 1e3) as u64,
                node,
                key,
                cost,
                course,
                class: *classes.choice(setup.classes),
            });
        }
    }

    fn intensity(self, time: f64) -> f64 {
        match self {
            Self::FlashCrowd if (1.0..2.0).contains(&time) => 5.0,
            _ => 1.0,
        }
    }

    /// When a request comes that would come then under an even load.
    fn placed(self, time: f64) -> f64 {
        match self {
            Self::Bursts => time.floor() + time.fract() / 10.0,
            _ => time,
        }
    }

    fn node(self, nodes: usize, time: f64, random: &mut Random) -> usize {
        let hot = match self {
            Self::HotNode => 0,
            Self::MovingNode => (time / 0.7) as usize % nodes,
            Self::Zipf => {
                let all: f64 = (1..=nodes).map(|node| 1.0 / node as f64).sum();
                let mut left = random.share() * all;
                let node = (1..=nodes).position(|node| {
                    left -= 1.0 / node as f64;
                    left < 0.0
                });
                return node.unwrap_or(0);
            }
            _ => return random.below(nodes),
        };
        if random.chance(0.95) {
            hot
        } else {
            random.below(nodes)
        }
    }
}
