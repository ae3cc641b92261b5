//! `Charged`: a charge of a token bucket, before anybody wants its decision.

use crate::{
    algorithm::{Judgement, TokenBucket, Verdict},
    clock::Timestamp,
    decision::{Decision, Policy, QuotaStatuses, Ruling, Status},
    quota::Priority,
};

/// A charge of a token bucket: all that its decision follows from.
#[derive(Debug, Clone, Copy)]
pub struct Charged<'a> {
    pub(super) bucket: &'a TokenBucket,
    pub(super) policy: &'a Policy,
    pub class: Priority,
    /// Nanoseconds until the bucket is full.
    pub used: u64,
    /// Nanoseconds until the units fit: 0 if they were taken.
    pub(super) wait: u64,
    pub units: u64,
    pub(super) at: Timestamp,
    /// `at` in nanoseconds.
    pub(super) now: u64,
}

impl Charged<'_> {
    /// Whether the units were taken.
    #[inline]
    pub const fn is_taken(&self) -> bool {
        self.wait == 0
    }

    #[inline(always)]
    pub fn decision(&self) -> Decision {
        let Self { bucket, class, .. } = *self;
        let (verdict, charged) = if self.is_taken() {
            (Verdict::FITS, self.units)
        } else {
            (Verdict::After(self.wait), 0)
        };
        let (part, shed);
        let of_class = if class.is_critical() {
            shed = false;
            bucket
        } else {
            let state = self.now.saturating_add(self.used);
            shed = !verdict.fits() && bucket.verdict(state, self.now, self.units).fits();
            part = bucket.part(class);
            &part
        };
        let judgement = Judgement {
            verdict,
            charged,
            shed,
        };
        let status = verdict.explain(of_class.status(self.used, self.now));
        decision_about(self.policy, status, &judgement, self.at, class)
    }
}

#[inline(always)]
pub(super) fn decision_about(
    policy: &Policy,
    status: Status,
    judgement: &Judgement,
    at: Timestamp,
    class: Priority,
) -> Decision {
    let quotas = QuotaStatuses::of_one(policy, status);
    let ruling = Ruling::measured(judgement.outcome(), judgement.charged, at, 0);
    let mut decision = Decision::of(ruling, quotas);
    if !class.is_critical() {
        decision.set_class(class, judgement.shed);
    }
    decision
}
