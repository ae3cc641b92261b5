//! The token bucket that refills in steps.

use super::{
    Charged, ClockSkew, Counts, Divisible, Most, Refund, Verdict, token_bucket::TokenBucket,
};
use crate::{
    decision::{Charge, Stepped, Usage},
    quota::{Kind, Priority, Quota},
};

/// A token bucket that refills at multiples of a step since the epoch.
///
/// Between two steps it is a token bucket at the time of the last step. Only waits are different: they
/// end at a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SteppedBucket {
    bucket: TokenBucket,
    step: u64,
    class: Priority,
}

impl SteppedBucket {
    pub(super) fn new(quota: &Quota, step: u64, most: Most, skew: ClockSkew) -> Self {
        Self {
            bucket: TokenBucket::new(quota, most, skew),
            step,
            class: Priority::CRITICAL,
        }
    }

    /// The most nanoseconds from the last step to an accepted TAT.
    pub(super) fn most(&self) -> u64 {
        self.bucket.most()
    }

    pub(super) fn last_step(&self, now: u64) -> u64 {
        now - now % self.step
    }

    fn stepped(&self, tat: u64, now: u64) -> Stepped {
        let last_step = self.last_step(now);
        Stepped {
            used: tat.saturating_sub(last_step),
            passed: now - last_step,
            step: self.step,
        }
    }

    pub(super) fn reset_after(&self, tat: u64, now: u64) -> u64 {
        let stepped = self.stepped(tat, now);
        stepped.until_step(stepped.used)
    }
}

impl Divisible for SteppedBucket {
    fn part(&self, class: Priority) -> Self {
        Self {
            bucket: self.bucket.part(class),
            class,
            ..*self
        }
    }
}

impl Counts for SteppedBucket {
    type State = u64;

    fn verdict(&self, tat: &u64, now: u64, cost: u64) -> Verdict {
        match self.bucket.verdict(tat, self.last_step(now), cost) {
            Verdict::After(wait) => Verdict::After(self.stepped(*tat, now).until_step(wait)),
            verdict => verdict,
        }
    }

    fn available(&self, tat: &u64, now: u64) -> u64 {
        self.bucket.available(tat, self.last_step(now))
    }

    fn charge(&self, tat: &mut u64, now: u64, cost: u64) {
        self.bucket.charge(tat, self.last_step(now), cost);
    }

    fn spendable(&self, tat: &u64, now: u64) -> u64 {
        self.bucket.spendable(tat, self.last_step(now))
    }

    fn spend(&self, tat: &mut u64, now: u64, cost: u64) {
        self.bucket.spend(tat, self.last_step(now), cost);
    }

    fn made(&self, charged_at: u64, charge: &Charge) -> bool {
        self.bucket.made(self.last_step(charged_at), charge)
    }

    fn refund(&self, tat: &mut u64, now: u64, refund: Refund) {
        let of = match refund.of {
            Charged::At(charged_at, charge) => Charged::At(self.last_step(charged_at), charge),
            Charged::Newest => Charged::Newest,
        };
        let refund = Refund { of, ..refund };
        self.bucket.refund(tat, self.last_step(now), refund);
    }

    fn clamp(&self, tat: &mut u64, now: u64) {
        self.bucket.clamp(tat, self.last_step(now));
    }

    fn kind(&self) -> Kind {
        self.bucket.kind()
    }

    fn standing(&self, tat: &u64, now: u64) -> (Usage, bool) {
        let (_, excess) = self.bucket.standing(tat, self.last_step(now));
        (Usage::Stepped(self.stepped(*tat, now), self.class), excess)
    }
}
