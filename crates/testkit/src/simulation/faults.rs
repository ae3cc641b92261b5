//! Faults: of the network, and those at a given time.

use super::{Setup, random::Random};

/// The faults of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Faults {
    /// The shares of calls that do not arrive in time, whose reply does not, and that are executed
    /// twice before the reply.
    pub lost_requests: f64,
    pub lost_replies: f64,
    pub duplicates: f64,
    /// The share of calls that are executed once more, or for the first time, up to two seconds
    /// later: after others that were sent after them.
    pub late: f64,
    /// How often in a run something of each kind happens, at random times.
    pub partitions: usize,
    pub outages: usize,
    pub restarts: usize,
    pub clock_steps: usize,
    /// Nodes that stop and settle, that die, and that are suspended for a while.
    pub churn: usize,
    pub deaths: usize,
    pub suspensions: usize,
    /// The store loses its values, and the judge does not know: for tests of the judge.
    pub forgets: bool,
}

/// A fault at a given time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    /// The node does not reach the store until then.
    Partition { node: usize, until: u64 },
    /// No node reaches the store until then.
    Outage { until: u64 },
    /// The store loses all values.
    Restart,
    /// The store's clock is so many milliseconds fast from now on, or slow.
    Clock(i64),
    /// The node stops, and another one takes its place. A node that dies does not settle.
    Replace { node: usize, dies: bool },
    /// The node is suspended until then: it neither sends, receives nor responds. Its clock runs.
    Suspend { node: usize, until: u64 },
}

impl Faults {
    pub const NONE: Self = Self {
        lost_requests: 0.0,
        lost_replies: 0.0,
        duplicates: 0.0,
        late: 0.0,
        partitions: 0,
        outages: 0,
        restarts: 0,
        clock_steps: 0,
        churn: 0,
        deaths: 0,
        suspensions: 0,
        forgets: false,
    };

    /// Whether the store runs each call at most once, and loses nothing.
    pub(super) fn are_once(&self) -> bool {
        let is_done_again = self.duplicates > 0.0 || self.late > 0.0;
        !is_done_again && self.restarts == 0 && self.clock_steps == 0
    }

    /// The faults of a random run: a third of all runs has none.
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
        let (lost_requests, lost_replies) = (share(0.1), share(0.1));
        let (duplicates, late) = (share(0.2), share(0.1));
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
            late,
            partitions: times(4),
            outages: times(2),
            restarts: times(2),
            clock_steps: times(3),
            churn: times(10),
            deaths: times(20),
            suspensions: times(4),
            forgets: false,
        }
    }

    /// Faults and their times, in milliseconds after the start, sorted by time.
    pub(super) fn events(&self, setup: &Setup, random: &mut Random) -> Vec<(u64, Event)> {
        let length = setup.length.as_millis() as usize;
        let mut events = Vec::new();
        let kinds = [
            self.partitions,
            self.outages,
            self.restarts,
            self.clock_steps,
            self.churn,
            self.deaths,
            self.suspensions,
        ];
        for (kind, times) in kinds.into_iter().enumerate() {
            for _ in 0..times {
                let at = random.below(length) as u64;
                let node = random.below(setup.nodes);
                let until = at + 20 + random.below(1_000) as u64;
                let event = match kind {
                    0 => Event::Partition { node, until },
                    1 => Event::Outage { until },
                    2 => Event::Restart,
                    3 => Event::Clock(random.below(4_000) as i64 - 2_000),
                    4 | 5 => Event::Replace {
                        node,
                        dies: kind == 5,
                    },
                    _ => Event::Suspend { node, until },
                };
                events.push((at, event));
            }
        }
        let outage = setup.outage;
        events.extend(outage.map(|(at, until)| (at, Event::Outage { until })));
        events.sort_by_key(|(at, _)| *at);
        events
    }
}
