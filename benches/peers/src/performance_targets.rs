//! Targets of this crate, and whether it meets them.

mod list;

use std::fmt;

use serde::Serialize;

pub use self::list::targets;
use crate::rounds::Samples;

/// A bound on something measured.
#[derive(Debug, Clone, Serialize)]
pub struct Target {
    pub what: String,
    pub at_most: bool,
    pub limit: f64,
    pub median: f64,
    pub quartiles: (f64, f64),
    /// The best value that is possible, as far as the run knows.
    pub floor: Option<f64>,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Met,
    /// The median is beyond the bound, but the middle half of the rounds is on both sides of it.
    WithinNoise,
    Missed,
}

impl Target {
    pub fn at_most(what: impl Into<String>, limit: f64, measured: &Samples) -> Self {
        Self::new(what.into(), true, limit, measured)
    }

    pub fn at_least(what: impl Into<String>, limit: f64, measured: &Samples) -> Self {
        Self::new(what.into(), false, limit, measured)
    }

    fn new(what: String, at_most: bool, limit: f64, measured: &Samples) -> Self {
        let within = |value: f64| {
            if at_most {
                value <= limit
            } else {
                value >= limit
            }
        };
        let median = measured.median();
        let quartiles = measured.quartiles();
        let verdict = if within(median) {
            Verdict::Met
        } else if within(quartiles.0) || within(quartiles.1) {
            Verdict::WithinNoise
        } else {
            Verdict::Missed
        };
        Self {
            what,
            at_most,
            limit,
            median,
            quartiles,
            floor: None,
            verdict,
        }
    }

    /// Adds the floor that is possible.
    pub fn floor(self, possible: Option<&Samples>) -> Self {
        Self {
            floor: possible.map(Samples::median),
            ..self
        }
    }

    pub fn bound(&self) -> String {
        let sign = if self.at_most { "<=" } else { ">=" };
        format!("{sign} {}", self.limit)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Met => "met",
            Self::WithinNoise => "within noise",
            Self::Missed => "missed",
        })
    }
}
