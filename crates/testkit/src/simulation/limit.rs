//! Limits of the simulation, as quotas of the crate and as bounds of the judge.

use std::time::Duration;

use tower_ratelimit::{Priority, Quota};

/// A limit by name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    pub name: &'static str,
    rules: &'static [Rule],
    /// The factor of all units.
    scale: u64,
}

/// The numbers of a quota that its public type does not show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rule {
    pub(super) counts: Counts,
    pub(super) limit: u64,
    pub(super) period: Duration,
    /// The most units of a window or a log.
    pub(super) counted: u64,
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
        counted: limit,
        capacity,
    }
}

const fn limit(name: &'static str, rules: &'static [Rule]) -> Limit {
    Limit {
        name,
        rules,
        scale: 1,
    }
}

/// Every algorithm that denies, and two quotas together.
pub const LIMITS: [Limit; 7] = [
    limit(
        "token bucket",
        &[rule(Counts::Bucket(None), 100, 1_000, 50)],
    ),
    limit("stepped bucket", &[rule(QUARTERS, 100, 1_000, 50)]),
    limit("fixed window", &[rule(Counts::Window, 100, 1_000, 100)]),
    limit(
        "sliding window",
        &[rule(Counts::Slices(1), 100, 1_000, 100)],
    ),
    limit(
        "sliding window of 6 slices",
        &[rule(Counts::Slices(6), 100, 1_200, 100)],
    ),
    limit("sliding log", &[rule(Counts::Log, 100, 1_000, 100)]),
    limit(
        "two together",
        &[
            rule(Counts::Bucket(None), 100, 1_000, 20),
            rule(Counts::Window, 250, 4_000, 250),
        ],
    ),
];

/// A bucket and a window of 10,000 units a second.
pub const BUCKET: Limit = limit(
    "token bucket",
    &[rule(Counts::Bucket(None), 10_000, 1_000, 10_000)],
);
pub const WINDOW: Limit = limit(
    "fixed window",
    &[rule(Counts::Window, 10_000, 1_000, 10_000)],
);

const QUARTERS: Counts = Counts::Bucket(Some(Duration::from_millis(250)));

impl Limit {
    /// Multiplies the units by a factor.
    pub const fn times(mut self, scale: u64) -> Self {
        self.scale *= scale;
        self
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = Rule> {
        let scale = self.scale;
        self.rules.iter().map(move |rule| Rule {
            limit: rule.limit * scale,
            counted: rule.counted * scale,
            capacity: rule.capacity * scale,
            ..*rule
        })
    }

    pub(super) fn quotas(&self) -> Vec<Quota> {
        let named = self.rules().zip(["first", "second"]);
        named.map(|(rule, name)| rule.quota().named(name)).collect()
    }

    /// The units that a class may use, as the whole limit of a judge.
    pub(super) fn part(&self, class: Priority) -> impl Iterator<Item = Rule> {
        let part = move |whole: u64| (whole * u64::from(class.percent()) / 100).max(1);
        self.rules().map(move |rule| Rule {
            counted: part(rule.counted),
            capacity: part(rule.capacity),
            ..rule
        })
    }

    /// The most units that may be reserved at once.
    pub(super) fn capacity(&self) -> u64 {
        let capacities = self.rules().map(|rule| rule.capacity);
        capacities.min().expect("a rule")
    }

    /// The units that the limit allows in a second, in the long run.
    pub fn rate(&self) -> f64 {
        let rates = self
            .rules()
            .map(|rule| rule.limit as f64 / rule.period.as_secs_f64());
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
