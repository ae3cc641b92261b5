//! The fields of a decision, as the oracle computes them and as a limiter returns them.

use std::time::Duration;

use testkit::oracle::{Counter, Nanos, Rule};
use tower_ratelimit::{
    Decision,
    decision::{Outcome, QuotaStatus},
};

/// All fields of a decision.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    outcome: Outcome,
    charged: u64,
    retry_after: Option<Duration>,
    excess: bool,
    blocked: bool,
    shed: bool,
    quotas: Vec<Line>,
    /// The place of the quota that binds.
    binding: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    denied: bool,
    limit: u64,
    remaining: u64,
    reset_after: Duration,
    retry_after: Option<Duration>,
    effective_window: Duration,
    excess: bool,
}

impl From<&Decision> for Answer {
    fn from(decision: &Decision) -> Self {
        let same = |status: QuotaStatus<'_>| status.name() == decision.binding().name();
        Self {
            outcome: decision.outcome(),
            charged: decision.charged(),
            retry_after: decision.retry_after(),
            excess: decision.is_excess(),
            blocked: decision.is_blocked(),
            shed: decision.is_shed(),
            quotas: decision.quotas().map(Line::from).collect(),
            binding: decision.quotas().position(same).expect("one binds"),
        }
    }
}

impl From<QuotaStatus<'_>> for Line {
    fn from(status: QuotaStatus<'_>) -> Self {
        Self {
            denied: status.is_denied(),
            limit: status.limit(),
            remaining: status.remaining().expect("known"),
            reset_after: status.reset_after().expect("known"),
            retry_after: status.retry_after(),
            effective_window: status.effective_window().expect("known"),
            excess: status.is_excess(),
        }
    }
}

impl Line {
    /// How a quota stands at `now`, after `cost` was admitted or denied `before`.
    pub(crate) fn new(
        rule: &Rule,
        before: &Counter,
        after: &Counter,
        now: Nanos,
        cost: u64,
    ) -> Self {
        let denied = !rule.admits(before, now, cost);
        let retry_after = denied.then(|| rule.retry_after(before, now, cost));
        let retry_after = retry_after.flatten();
        let window = retry_after.unwrap_or_else(|| rule.effective_window(after, now));
        Self {
            denied,
            limit: count(rule.limit(after, now)),
            remaining: count(rule.remaining(after, now)),
            reset_after: micros_up(rule.reset_after(after, now)),
            retry_after: retry_after.map(micros_up),
            effective_window: micros_up(window),
            excess: rule.is_excess(after, now),
        }
    }

    /// Whether it denies for good.
    pub(crate) const fn is_never(&self) -> bool {
        self.denied && self.retry_after.is_none()
    }

    /// A block of the key denies whatever the quota allows, unless the wait is endless.
    pub(crate) fn block(&mut self, block: Duration) {
        self.remaining = 0;
        if !self.denied || self.retry_after.is_some() {
            let wait = self.retry_after.unwrap_or_default().max(block);
            self.retry_after = Some(wait);
            self.effective_window = wait;
        }
        self.denied = true;
    }
}

impl Answer {
    pub(crate) fn new(outcome: Outcome, charged: u64, blocked: bool, quotas: Vec<Line>) -> Self {
        let denied = outcome == Outcome::Denied;
        // Never is longer than any wait.
        let wait = |line: &Line| line.retry_after.unwrap_or(Duration::MAX);
        let mut binding = 0;
        for (i, line) in quotas.iter().enumerate() {
            let bound: &Line = &quotas[binding];
            let binds_more = if line.denied || bound.denied {
                (line.denied, wait(line)) > (bound.denied, wait(bound)) && line.denied
            } else {
                let left = |line: &Line, other: &Line| {
                    u128::from(line.remaining) * u128::from(other.limit)
                };
                left(line, bound) < left(bound, line)
            };
            if binds_more {
                binding = i;
            }
        }
        Self {
            outcome,
            charged,
            retry_after: if denied {
                quotas[binding].retry_after
            } else {
                Some(Duration::ZERO)
            },
            excess: !denied && quotas.iter().any(|line| line.excess),
            blocked,
            shed: false,
            quotas,
            binding,
        }
    }

    /// Whether only the class of the request caused the denial.
    pub(crate) fn shed(self, shed: bool) -> Self {
        Self { shed, ..self }
    }
}

pub(crate) fn micros_up(nanos: Nanos) -> Duration {
    let micros = (nanos + 999).div_euclid(1_000);
    Duration::from_micros(u64::try_from(micros).expect("a time of this crate"))
}

pub(crate) fn count(units: i128) -> u64 {
    u64::try_from(units).expect("not negative")
}
