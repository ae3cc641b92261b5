//! Limits of the simulation, as the crate is told and as the judge knows them.

use std::time::Duration;

use tower_ratelimit::Quota;

/// A limit by name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    pub name: &'static str,
    rules: &'static [Rule],
}

/// A quota, in numbers that its public face does not show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rule {
    pub(super) counts: Counts,
    pub(super) limit: u64,
    pub(super) period: Duration,
    /// The most units at once.
    pub(super) capacity: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Counts {
    /// A bucket that is refilled all the time, or in steps of this length.
    Bucket(Option<Duration>),
    Window,
    /// A sliding window of this many slices.
    Slices(u32),
    Log,
}

const fn rule(counts: Counts, limit: u64, millis: u64, capacity: u64) -> Rule {
    Rule {
        counts,
        limit,
        period: Duration::from_millis(millis),
        capacity,
    }
}

/// Every algorithm that denies, and two quotas together.
pub const LIMITS: [Limit; 7] = [
    Limit {
        name: "token bucket",
        rules: &[rule(Counts::Bucket(None), 100, 1_000, 50)],
    },
    Limit {
        name: "stepped bucket",
        rules: &[rule(
            Counts::Bucket(Some(Duration::from_millis(250))),
            100,
            1_000,
            50,
        )],
    },
    Limit {
        name: "fixed window",
        rules: &[rule(Counts::Window, 100, 1_000, 100)],
    },
    Limit {
        name: "sliding window",
        rules: &[rule(Counts::Slices(1), 100, 1_000, 100)],
    },
    Limit {
        name: "sliding window of 5 slices",
        rules: &[rule(Counts::Slices(5), 100, 1_000, 100)],
    },
    Limit {
        name: "sliding log",
        rules: &[rule(Counts::Log, 100, 1_000, 100)],
    },
    Limit {
        name: "two together",
        rules: &[
            rule(Counts::Bucket(None), 100, 1_000, 20),
            rule(Counts::Window, 250, 4_000, 250),
        ],
    },
];

impl Limit {
    pub(super) fn rules(&self) -> &'static [Rule] {
        self.rules
    }

    pub(super) fn quotas(&self) -> Vec<Quota> {
        let named = self.rules.iter().zip(["first", "second"]);
        named.map(|(rule, name)| rule.quota().named(name)).collect()
    }

    /// The units that it allows in a second, in the long run.
    pub(super) fn rate(&self) -> f64 {
        let rates = self.rules.iter();
        let rates = rates.map(|rule| rule.limit as f64 / rule.period.as_secs_f64());
        rates.fold(f64::INFINITY, f64::min)
    }
}

impl Rule {
    fn quota(&self) -> Quota {
        let quota = Quota::per(self.limit, self.period);
        match self.counts {
            Counts::Bucket(None) => quota.burst(self.capacity),
            Counts::Bucket(Some(step)) => quota.burst(self.capacity).refill_every(step),
            Counts::Window => quota.fixed_window(),
            Counts::Slices(slices) => quota.sliding_window().slices(slices),
            Counts::Log => quota.sliding_log(),
        }
    }
}
