//! `Known`: the quotas of a key in a reply of the store, and how they are later.

use std::{slice, sync::Arc, time::Duration};

use super::{
    mode::LeaseNumber,
    wire::plan::{QuotaPlan, ReplyPlan},
};
use crate::{
    algorithm::{State, TokenBucket, Verdict, View},
    clock::Timestamp,
    decision::{Decision, Marks, Outcome, Policy, QuotaStatus, QuotaStatuses, Status, UNKNOWN},
    quota::Priority,
};

/// All that a node knows of a key: its quotas after a call, with the units that the store counts as used. Later
/// numbers are those of the meters.
#[derive(Debug)]
pub(super) struct Known {
    plan: Arc<ReplyPlan>,
    /// The store's time of the call.
    at: Timestamp,
    quotas: KnownQuotas,
}

/// One quota, the usual case, needs no allocation, and no more room than it has.
#[derive(Debug)]
enum KnownQuotas {
    One(KnownQuota),
    Several(Box<[KnownQuota]>),
}

#[derive(Debug)]
enum KnownQuota {
    /// The state of a bucket or a fixed window.
    State(State),
    /// The numbers of a sliding window or a log, since a reply has no more.
    Told(Box<Status>),
}

/// A request for `cost` units by a class, while this node has `own` more units in use than the store counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    pub(super) own: i64,
    pub(super) cost: u64,
    pub(super) class: Priority,
}

/// A charge of a lease by one bucket: all that its decision follows from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Charged {
    /// The instant at which the bucket was full as the store knew it, and the time now.
    full_at: u64,
    at: Timestamp,
    /// The units that this node has in use and the store does not count.
    own: i64,
    lease: LeaseNumber,
}

impl Charged {
    /// The decision about `charged` units by the only quota of the default tier.
    #[inline(always)]
    pub(super) fn decision(self, charged: u64, of: (&Policy, &TokenBucket)) -> Decision {
        let ((policy, bucket), now) = (of, self.at.as_nanos());
        let used = bucket.used(bucket.moved(self.full_at, now, self.own), now);
        let quotas = QuotaStatuses::of_one(policy, bucket.status(used, now));
        Decision::new(Outcome::Allowed, charged, self.at, quotas).by_lease(charged, self.lease)
    }
}

impl Known {
    pub(super) fn new(plan: &Arc<ReplyPlan>, decision: &Decision) -> Self {
        let at = decision.decided_at();
        let quotas = plan.measures.iter().zip(decision.quotas());
        let quotas = quotas.map(|(quota, status)| KnownQuota::of(quota, &status, at.as_nanos()));
        let quotas = <[KnownQuota; 1]>::try_from(quotas.collect::<Vec<_>>());
        Self {
            plan: Arc::clone(plan),
            at,
            quotas: match quotas {
                Ok([one]) => KnownQuotas::One(one),
                Err(all) => KnownQuotas::Several(all.into()),
            },
        }
    }

    const fn quotas(&self) -> &[KnownQuota] {
        match &self.quotas {
            KnownQuotas::One(one) => slice::from_ref(one),
            KnownQuotas::Several(all) => all,
        }
    }

    pub(super) fn class(&self) -> Priority {
        self.plan.class
    }

    /// The store's time after so many nanoseconds.
    pub(super) const fn time(&self, passed: u64) -> Timestamp {
        Timestamp::from_micros(self.at.as_micros().saturating_add(passed / 1_000))
    }

    /// The verdict after `passed`, and the decision that charges nothing. A cost never fits, too, if only the store
    /// knows when it fits.
    pub(super) fn explain(&self, question: Question, passed: u64) -> (Verdict, Decision) {
        let at = self.time(passed);
        let times = [self.at, at].map(Timestamp::as_nanos);
        let (all, statuses) = match (&self.quotas, &*self.plan.policies, &*self.plan.measures) {
            (KnownQuotas::One(known), [policy], [quota]) => {
                let of = (self.plan.class, question);
                let (verdict, status) = known.explain((quota, policy), of, times);
                (verdict, QuotaStatuses::of_one(policy, status))
            }
            _ => self.explain_several(question, times),
        };
        let outcome = if all.fits() {
            Outcome::Allowed
        } else {
            Outcome::Denied
        };
        let mut decision = Decision::new(outcome, 0, at, statuses).in_tier(self.plan.index);
        if !question.class.is_critical() {
            decision.set_class(question.class, false);
        }
        (all, decision)
    }

    /// The only quota after `passed` with `own` more units in use, if it is a bucket.
    #[inline]
    pub(super) fn bucket_later(
        &self,
        own: i64,
        passed: u64,
        lease: LeaseNumber,
    ) -> Option<Charged> {
        let KnownQuotas::One(KnownQuota::State(State::Instant(full_at))) = self.quotas else {
            return None;
        };
        Some(Charged {
            full_at,
            at: self.time(passed),
            own,
            lease,
        })
    }

    #[inline(never)]
    fn explain_several(&self, question: Question, times: [u64; 2]) -> (Verdict, QuotaStatuses) {
        let mut all = Verdict::FITS;
        let statuses = self.statuses(question, times).map(|(verdict, status)| {
            all = all.and(verdict);
            status
        });
        let statuses = QuotaStatuses::of_set(&self.plan.policies, statuses);
        (all, statuses)
    }

    fn statuses(
        &self,
        question: Question,
        times: [u64; 2],
    ) -> impl Iterator<Item = (Verdict, Status)> {
        let quotas = self.plan.measures.iter().zip(&*self.plan.policies);
        let known = quotas.zip(self.quotas());
        known.map(move |(quota, known)| known.explain(quota, (self.plan.class, question), times))
    }

    /// Whether all quotas are unused after `passed`.
    pub(super) fn is_fresh(&self, passed: u64) -> bool {
        let now = self.time(passed).as_nanos();
        let mut quotas = self.plan.measures.iter().zip(self.quotas());
        quotas.all(|(quota, known)| match known {
            KnownQuota::State(state) => quota.meter.reset_after(state, now, View::WHOLE) == 0,
            KnownQuota::Told(told) => told.reset_after <= now - self.at.as_nanos(),
        })
    }

    /// The time until the bucket at `place` is full if `held` of its units are not used; `None` for a window or log.
    pub(super) fn full_after(&self, place: usize, held: u64) -> Option<Duration> {
        let KnownQuota::State(state @ State::Instant(_)) = self.quotas().get(place)? else {
            return None;
        };
        let (meter, at) = (&self.plan.measures.get(place)?.meter, self.at.as_nanos());
        let nanos = meter.reset_after(&meter.moved(state, at, negative(held)), at, View::WHOLE);
        Some(Duration::from_micros(nanos.div_ceil(1_000)))
    }

    /// Adds units to those that the decision has left.
    pub(super) fn give_back(plan: &Arc<ReplyPlan>, decision: &mut Decision, units: u64) {
        if units == 0 {
            return;
        }
        let known = Self::new(plan, decision);
        let question = Question {
            own: negative(units),
            cost: 0,
            class: plan.class,
        };
        let statuses = known.statuses(question, [known.at.as_nanos(); 2]);
        decision.remeasure(statuses.map(|(_, status)| status));
    }
}

fn negative(units: u64) -> i64 {
    0_i64.saturating_sub_unsigned(units)
}

impl KnownQuota {
    fn of(quota: &QuotaPlan, of_quota: &QuotaStatus<'_>, at: u64) -> Self {
        let status = of_quota.numbers();
        if status.is_bucket() {
            return Self::State(State::Instant(status.end));
        }
        if let Some(count) = of_quota.used().filter(|_| status.is(Marks::COUNT)) {
            let end = at.saturating_add(status.window);
            return Self::State(quota.meter.window_until(end, count));
        }
        Self::Told(Box::new(*status))
    }

    fn explain(
        &self,
        (quota, policy): (&QuotaPlan, &Policy),
        (told_class, question): (Priority, Question),
        [at, now]: [u64; 2],
    ) -> (Verdict, Status) {
        let Question { own, cost, class } = question;
        let state = match self {
            Self::State(state) => quota.meter.moved(state, now, own),
            Self::Told(told) => {
                let parts = [told_class, class].map(|class| class.part_of(policy.limit()));
                return told_later(told, quota.has_soft_share, (own, cost), parts, now - at);
            }
        };
        let view = View { class, held: None };
        let verdict = match quota.meter.verdict(&state, now, cost, view) {
            // Only the store charges a soft share.
            Verdict::After(_) if quota.has_soft_share => Verdict::Never,
            verdict => verdict,
        };
        (verdict, quota.meter.explain(&state, now, verdict, view))
    }
}

/// The verdict and the numbers `passed` after the reply that told them, for a class that may use `most` units instead of `less`.
fn told_later(
    told: &Status,
    has_soft_share: bool,
    (own, cost): (i64, u64),
    [less, most]: [u64; 2],
    passed: u64,
) -> (Verdict, Status) {
    let (mut left, mut excess) = (told.left, told.is(Marks::EXCESS));
    if told.reset_after <= passed {
        (left, excess) = (less, false);
    }
    let is_used_up = left == 0;
    let units = own.unsigned_abs();
    if own > 0 {
        excess = has_soft_share && left < units;
        left = left.saturating_sub(units);
    } else if !excess {
        // The numbers do not include how far the usage exceeds the nominal limit.
        left = left.saturating_add(units).min(less);
    }
    // If a class has nothing left, it is not known how much is left for a higher one.
    if left > 0 {
        left += most.saturating_sub(less);
    }
    let [reset_after, window] =
        [told.reset_after, told.window].map(|time| time.saturating_sub(passed));
    let status = Status::counted(left, reset_after, window).in_excess(excess);
    match window {
        _ if cost <= left => (Verdict::FITS, status),
        1.. if cost == 1 && is_used_up && most > 0 && !has_soft_share => {
            (Verdict::After(window), status.denied(window))
        }
        _ => (Verdict::Never, status.denied(UNKNOWN)),
    }
}
