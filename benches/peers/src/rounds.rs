//! Rounds in which contenders take turns, so that what slows the machine down slows all of them.

use std::env;

use serde::{Deserialize, Serialize};

/// Set to try the comparison out: `run.sh --quick` sets it.
const QUICK: &str = "PEERS_QUICK";

/// Whether the run only shows that everything can be measured.
pub fn is_quick() -> bool {
    env::var_os(QUICK).is_some()
}

/// Rounds of a measurement that has so many in a whole run.
pub fn rounds(whole: usize) -> usize {
    if is_quick() { 1 } else { whole }
}

/// Costs of a contender in each round.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Samples(pub Vec<f64>);

impl Samples {
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The bounds of the middle half.
    pub fn quartiles(&self) -> (f64, f64) {
        (self.quantile(0.25), self.quantile(0.75))
    }

    /// # Panics
    ///
    /// When there are no samples.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = share * (sorted.len() - 1) as f64;
        let (low, high) = (at.floor() as usize, at.ceil() as usize);
        sorted[low] + (sorted[high] - sorted[low]) * at.fract()
    }

    /// Round by round.
    pub fn combine(&self, other: &Self, with: impl Fn(f64, f64) -> f64) -> Self {
        let pairs = self.0.iter().zip(&other.0);
        Self(pairs.map(|(&one, &other)| with(one, other)).collect())
    }

    pub fn over(&self, other: &Self) -> Self {
        self.combine(other, |one, other| one / other)
    }
}

/// Measures each contender once in every round; who begins goes round. One more round before that
/// warms up and does not count.
pub fn interleaved<C>(
    rounds: usize,
    contenders: &mut [C],
    mut measure: impl FnMut(&mut C, usize) -> f64,
) -> Vec<Samples> {
    let count = contenders.len();
    let mut samples = vec![Samples::default(); count];
    for round in 0..=rounds {
        for turn in 0..count {
            let at = (round + turn) % count;
            let sample = measure(&mut contenders[at], round);
            if round > 0 {
                samples[at].0.push(sample);
            }
        }
    }
    samples
}
