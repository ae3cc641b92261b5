//! Workloads: when requests come, on which node, of which key.

use super::{Setup, random::Random};

/// The shape of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Every node gets as much.
    Uniform,
    /// The second node gets half as much as the first, the third a third, and so on.
    Zipf,
    /// One node gets nearly all.
    HotNode,
    /// The same, and every 700 milliseconds it is another one.
    MovingNode,
    /// A tenth of each second has all.
    Bursts,
    /// A second, the second one, in which five times as much comes.
    FlashCrowd,
}

/// A request that comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    /// Milliseconds after the start.
    pub(super) at: u64,
    pub(super) node: usize,
    pub(super) key: u64,
    pub(super) cost: u64,
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

    /// All requests of a run, in their order.
    pub(super) fn arrivals(self, setup: &Setup, random: &mut Random) -> Vec<Arrival> {
        let end = setup.length.as_secs_f64();
        let mean = 1.0 / (setup.limit.rate() * setup.load * setup.keys as f64);
        let mut arrivals = Vec::new();
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
            arrivals.push(Arrival {
                at: (at * 1e3) as u64,
                node: self.node(setup.nodes, at, random),
                key: random.below(setup.keys) as u64,
                cost,
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
