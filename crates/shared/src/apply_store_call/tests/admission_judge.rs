//! The judge: checks the times of admitted units against the bound of a limiter in one process.

use tower_ratelimit_core::quota::{Algorithm, Quota};

/// The admissions and the bound of one quota.
pub(super) struct Judge {
    quota: Quota,
    /// Instants in microseconds, and the units that were admitted then.
    admitted: Vec<(u64, u64)>,
}

impl Judge {
    pub(super) fn new(quota: Quota) -> Self {
        Self {
            quota,
            admitted: Vec::new(),
        }
    }

    /// Adds units, no earlier than the previous ones. An error describes how they exceed the quota.
    pub(super) fn admit(&mut self, now: u64, units: u64) -> Result<(), String> {
        self.admitted.push((now, units));
        let most = self.most();
        let counted = self.counted(now);
        if counted <= most {
            return Ok(());
        }
        Err(format!(
            "{counted} of {most} at {now} by {:?}",
            self.quota.algorithm()
        ))
    }

    /// The most that may count at once: nanoseconds of a bucket, units otherwise.
    fn most(&self) -> u64 {
        let units = self.quota.capacity() + self.quota.extra();
        match self.quota.algorithm() {
            Algorithm::TokenBucket => units * self.quota.interval_nanos(),
            _ => units,
        }
    }

    fn counted(&self, now: u64) -> u64 {
        let period = self.quota.period_nanos() / 1_000;
        let since = |from: u64| {
            let recent = self.admitted.iter().filter(|(at, _)| *at >= from);
            recent.map(|(_, units)| units).sum::<u64>()
        };
        match self.quota.algorithm() {
            Algorithm::TokenBucket => self.level(),
            Algorithm::FixedWindow => since(now - now % period),
            Algorithm::SlidingLog => since(now.saturating_sub(period) + 1),
            _ => {
                let slices = u64::from(self.quota.slice_count());
                let slice = period / slices;
                let newest = now / slice;
                let whole = since((newest + 1).saturating_sub(slices) * slice);
                let with_oldest = since(newest.saturating_sub(slices) * slice);
                let left = slice - now % slice;
                whole + (with_oldest - whole) * left / slice
            }
        }
    }

    /// How far from full the bucket is after the last unit, if it fills as soon as it can.
    fn level(&self) -> u64 {
        let step = self.quota.refill_every_nanos().unwrap_or(1_000);
        let mut tat = 0;
        let mut level = 0;
        for (at, units) in &self.admitted {
            let filled_at = at * 1_000 - at * 1_000 % step;
            tat = filled_at.max(tat) + units * self.quota.interval_nanos();
            level = tat - filled_at;
        }
        level
    }
}
