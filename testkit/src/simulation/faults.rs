//! Faults: the network's and those that come at a time.

use super::{Setup, random::Random};

/// The faults of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Faults {
    /// The shares of calls that do not arrive, whose reply does not, and that are executed twice.
    pub lost_requests: f64,
    pub lost_replies: f64,
    pub duplicates: f64,
    /// How often in a run something of each kind happens, at random times.
    pub partitions: usize,
    pub outages: usize,
    pub restarts: usize,
    pub clock_steps: usize,
    pub churn: usize,
    /// The store forgets one write of a hundred: for tests of the judge.
    pub forgets: bool,
}

/// Something that happens at a time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    /// The node does not reach the store until then.
    Partition { node: usize, until: u64 },
    /// No node does.
    Outage { until: u64 },
    /// The store loses all values.
    Restart,
    /// The store's clock goes forward by milliseconds, or back.
    Step(i64),
    /// The node ends without a word, and another one takes its place.
    Replace(usize),
}

impl Faults {
    pub const NONE: Self = Self {
        lost_requests: 0.0,
        lost_replies: 0.0,
        duplicates: 0.0,
        partitions: 0,
        outages: 0,
        restarts: 0,
        clock_steps: 0,
        churn: 0,
        forgets: false,
    };

    /// A third of all runs has none.
    pub(super) fn of_seed(random: &mut Random) -> Self {
        if random.chance(0.33) {
            return Self::NONE;
        }
        let mut share = |most: f64| {
            if random.chance(0.5) {
                random.share() * most
            } else {
                0.0
            }
        };
        let (lost_requests, lost_replies, duplicates) = (share(0.1), share(0.1), share(0.2));
        let mut times = |most: usize| {
            if random.chance(0.5) {
                random.below(most + 1)
            } else {
                0
            }
        };
        Self {
            lost_requests,
            lost_replies,
            duplicates,
            partitions: times(4),
            outages: times(2),
            restarts: times(2),
            clock_steps: times(3),
            churn: times(20),
            forgets: false,
        }
    }

    /// What happens when, in milliseconds after the start, in its order.
    pub(super) fn events(&self, setup: &Setup, random: &mut Random) -> Vec<(u64, Event)> {
        let length = setup.length.as_millis() as usize;
        let mut events = Vec::new();
        let kinds = [
            self.partitions,
            self.outages,
            self.restarts,
            self.clock_steps,
            self.churn,
        ];
        for (kind, times) in kinds.into_iter().enumerate() {
            for _ in 0..times {
                let at = random.below(length) as u64;
                let node = random.below(setup.nodes);
                let until = at + 20 + random.below(1_000) as u64;
                events.push((
                    at,
                    match kind {
                        0 => Event::Partition { node, until },
                        1 => Event::Outage { until },
                        2 => Event::Restart,
                        3 => Event::Step(random.below(2_000) as i64 - 1_000),
                        _ => Event::Replace(node),
                    },
                ));
            }
        }
        events.sort_by_key(|(at, _)| *at);
        events
    }
}
