//! Counts over time, in a bounded number of steps: steps get longer instead.

/// The most steps of a chart.
const STEPS: usize = 600;

/// In microseconds.
pub(super) const MINUTE: u64 = 60_000_000;

/// Offered and limited attempts of each step.
#[derive(Debug, Clone, Default)]
pub(super) struct Series {
    /// The minute since 1970 when the first step begins.
    first: u64,
    /// The length of a step in minutes, 0 before the first attempt.
    pub(super) minutes: u64,
    pub(super) steps: Vec<(u64, u64)>,
}

impl Series {
    /// Counts an attempt; attempts arrive in the order of their times.
    pub(super) fn count(&mut self, at: u64, is_limited: bool) {
        let minute = at / MINUTE;
        if self.minutes == 0 {
            (self.first, self.minutes) = (minute, 1);
        }
        while (minute.saturating_sub(self.first) / self.minutes) as usize >= STEPS {
            self.minutes *= 2;
            let pairs = self.steps.chunks(2);
            let sum = |pair: &[(u64, u64)]| pair.iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
            self.steps = pairs.map(sum).collect();
        }
        let step = (minute.saturating_sub(self.first) / self.minutes) as usize;
        if self.steps.len() <= step {
            self.steps.resize(step + 1, (0, 0));
        }
        self.steps[step].0 += 1;
        self.steps[step].1 += u64::from(is_limited);
    }

    /// The start of the first step and the end of the last one, in microseconds since 1970.
    pub(super) fn span(&self) -> (u64, u64) {
        let end = self.first + self.minutes * self.steps.len() as u64;
        (self.first * MINUTE, end * MINUTE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_steps_get_longer() {
        let mut series = Series::default();
        for minute in 0..100_000_u64 {
            series.count(
                1_795_230_000_000_000 + minute * 60_000_000,
                minute % 10 == 0,
            );
        }
        assert!(series.steps.len() <= STEPS, "{}", series.steps.len());
        let sums = series
            .steps
            .iter()
            .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        assert_eq!((sums, series.minutes), ((100_000, 10_000), 256));
    }
}
