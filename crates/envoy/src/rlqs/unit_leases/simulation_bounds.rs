//! The bound of each algorithm.

use std::collections::VecDeque;

use super::simulation::{Outcome, STEP};

/// The limit's algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A window of a minute.
    Window,
    /// A log of a minute.
    Log,
    /// A window of a minute in ten slices.
    Sliding,
    /// A bucket of 40 that refills in a minute.
    Bucket,
}

const LIMIT: u64 = 40;

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Window, Self::Log, Self::Sliding, Self::Bucket];

    pub(super) fn rule(self) -> String {
        let rest = match self {
            Self::Window => "unit: minute",
            Self::Log => "unit: minute, algorithm: sliding_log",
            Self::Sliding => "unit: minute, algorithm: sliding_window, slices: 10",
            Self::Bucket => "unit: minute, algorithm: token_bucket",
        };
        format!("requests_per_unit: {LIMIT}, {rest}")
    }

    /// Steps in which at most the limit passes.
    fn period(self) -> usize {
        let seconds = match self {
            Self::Window | Self::Log | Self::Bucket => 60,
            Self::Sliding => 54,
        };
        seconds * 1_000 / STEP.as_millis() as usize
    }
}

/// The passes of all, by steps.
pub(super) struct Bound {
    kind: Kind,
    outcome: Outcome,
    /// Steps of the last period: units that were lent when the step began, and passes in it.
    steps: VecDeque<(u64, u64)>,
    /// Passes in the window, and units of its begin that others preceded.
    window: u64,
    lent: u64,
    is_begin: bool,
    /// The excess over a bucket's rate, in thousandths of a unit, and what was lent when it began.
    excess: i128,
}

impl Bound {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            outcome: Outcome::default(),
            steps: VecDeque::new(),
            window: 0,
            lent: 0,
            is_begin: false,
            excess: 0,
        }
    }

    /// Begins a step.
    pub(super) fn begin(&mut self, step: u32, lent: u64) {
        self.is_begin = (step as usize).is_multiple_of(self.kind.period());
        if self.is_begin {
            (self.window, self.lent) = (0, 0);
        }
        self.steps.push_back((lent, 0));
        if self.steps.len() > self.kind.period() {
            self.steps.pop_front();
        }
        self.excess = self.excess.max(-1_000 * i128::from(lent));
    }

    /// Others have passed before the leases were charged in a new window.
    pub(super) fn precede(&mut self, passed: u64) {
        if self.is_begin && passed > 0 {
            self.lent = self.steps.back().map_or(0, |(lent, _)| *lent);
        }
    }

    pub(super) fn pass(&mut self, passed: u64, late: u64) {
        self.outcome.passed += passed + late;
        self.outcome.late += late;
        self.window += passed;
        if let Some((_, passes)) = self.steps.back_mut() {
            *passes = passed;
        }
        let beyond = match self.kind {
            Kind::Window => self.window.saturating_sub(LIMIT + self.lent),
            Kind::Log | Kind::Sliding => {
                let passes: u64 = self.steps.iter().map(|(_, passes)| passes).sum();
                let (lent, _) = self.steps.front().copied().unwrap_or_default();
                passes.saturating_sub(LIMIT + lent)
            }
            Kind::Bucket => {
                let made = i128::from(LIMIT) * 1_000 / self.kind.period() as i128;
                self.excess += 1_000 * i128::from(passed) - made - 1;
                let beyond = (self.excess - 1_000 * i128::from(LIMIT)) / 1_000;
                u64::try_from(beyond).unwrap_or_default()
            }
        };
        self.outcome.beyond = self.outcome.beyond.max(beyond);
    }

    pub(super) fn outcome(self) -> Outcome {
        self.outcome
    }
}
