use super::{ClockSkew, Counts, Verdict, token_bucket::TokenBucket};
use crate::{
    decision::{Level, Standing},
    quota::Quota,
};

/// A token bucket whose tokens come together, at multiples of a step since the epoch.
///
/// Between two steps it stands still: it is the bucket as it was when tokens last came, and only
/// the waits reach to the step that ends them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SteppedBucket {
    bucket: TokenBucket,
    step: u64,
}

impl SteppedBucket {
    pub(super) fn new(quota: &Quota, step: u64, skew: ClockSkew) -> Self {
        Self {
            bucket: TokenBucket::new(quota, skew),
            step,
        }
    }

    pub(super) fn refill(&self) -> u64 {
        self.bucket.refill()
    }

    /// The last instant at which tokens came.
    pub(super) fn last_step(&self, now: u64) -> u64 {
        now - now % self.step
    }

    /// From `now` to the first instant at which tokens come, `wait` or more after the last one.
    fn until_step(&self, wait: u64, now: u64) -> u64 {
        if wait == 0 {
            return 0;
        }
        let ready = self.last_step(now).saturating_add(wait);
        ready.div_ceil(self.step).saturating_mul(self.step) - now
    }

    fn level(&self, tat: u64, now: u64) -> Level {
        self.bucket.level(tat, self.last_step(now))
    }

    pub(super) fn reset_after(&self, tat: u64, now: u64) -> u64 {
        self.until_step(self.level(tat, now).used, now)
    }
}

impl Counts for SteppedBucket {
    type State = u64;

    fn verdict(&self, tat: &u64, now: u64, cost: u64) -> Verdict {
        match self.bucket.verdict(tat, self.last_step(now), cost) {
            Verdict::After(wait) => Verdict::After(self.until_step(wait, now)),
            verdict => verdict,
        }
    }

    fn available(&self, tat: &u64, now: u64) -> u64 {
        self.bucket.available(tat, self.last_step(now))
    }

    fn charge(&self, tat: &mut u64, now: u64, cost: u64) {
        self.bucket.charge(tat, self.last_step(now), cost);
    }

    fn refund(&self, tat: &mut u64, now: u64, cost: u64, charged_at: u64) {
        (self.bucket).refund(tat, self.last_step(now), cost, charged_at);
    }

    fn heal(&self, tat: &mut u64, now: u64) {
        self.bucket.heal(tat, self.last_step(now));
    }

    fn standing(&self, tat: &u64, now: u64) -> (Standing, bool) {
        let (_, excess) = self.bucket.standing(tat, self.last_step(now));
        let level = self.level(*tat, now);
        let remaining = level.remaining();
        let window = match remaining {
            0 => self.until_step(level.effective_window(), now),
            _ => level.effective_window(),
        };
        let standing = Standing::counted(remaining, self.reset_after(*tat, now), window);
        (standing, excess)
    }
}
