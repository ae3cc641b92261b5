//! `LastStates`: the states of a key in a reply of the store, and the decisions that follow from them later.

use std::{sync::Arc, time::Duration};

use super::{
    batching::Run,
    mode::LeaseNumber,
    wire::{node_message::NodeReply, plan::ReplyPlan},
};
use tower_ratelimit_core::{
    algorithm::{Meter, State, TokenBucket, Verdict, View},
    clock::Timestamp,
    decision::{Decision, Outcome, Policy, QuotaStatuses, Status},
    quota::Priority,
    small_list::SmallList,
};

/// All that a node knows of a key: the states of its quotas after a call, with the units that the store counts as used.
/// Later numbers are those of the meters.
#[derive(Debug)]
pub(super) struct LastStates {
    plan: Arc<ReplyPlan>,
    /// The store's time of the call.
    at: Timestamp,
    states: SmallList<State, 1>,
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

impl LastStates {
    pub(super) fn new(plan: &Arc<ReplyPlan>, run: &Run) -> Self {
        Self {
            plan: Arc::clone(plan),
            at: run.decision.decided_at(),
            states: run.states.clone(),
        }
    }

    /// The unused quotas of a key without a value in the store.
    pub(super) fn fresh(plan: &Arc<ReplyPlan>, at: Timestamp) -> Self {
        Self {
            plan: Arc::clone(plan),
            at,
            states: SmallList::defaults(plan.meters.len()),
        }
    }

    pub(super) fn class(&self) -> Priority {
        self.plan.class
    }

    /// The store's time after so many nanoseconds.
    pub(super) const fn time(&self, passed: u64) -> Timestamp {
        Timestamp::from_micros(self.at.as_micros().saturating_add(passed / 1_000))
    }

    fn quotas(&self) -> impl Iterator<Item = (&Meter, &State)> {
        self.plan.meters.iter().zip(self.states.as_slice())
    }

    /// The verdict after `passed`, and the decision that charges nothing. A cost never fits, too, if only the store
    /// knows when it fits.
    pub(super) fn explain(&self, question: Question, passed: u64) -> (Verdict, Decision) {
        let (at, mut all) = (self.time(passed), Verdict::FITS);
        let statuses = self.statuses(question, at).map(|(verdict, status)| {
            all = all.and(verdict);
            status
        });
        let statuses = QuotaStatuses::of_limit(&self.plan.policies, statuses);
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

    fn statuses(
        &self,
        Question { own, cost, class }: Question,
        at: Timestamp,
    ) -> impl Iterator<Item = (Verdict, Status)> {
        let (now, view) = (at.as_nanos(), View { class, held: None });
        self.quotas().map(move |(meter, state)| {
            let state = meter.moved(state, now, own);
            let verdict = match meter.verdict(&state, now, cost, view) {
                // Only the store charges a soft share, and has the whole of a log.
                Verdict::After(_) if meter.has_extra(class) || meter.has_bytes() => Verdict::Never,
                verdict => verdict,
            };
            (verdict, meter.explain(&state, now, verdict, view))
        })
    }

    /// The only quota after `passed` with `own` more units in use, if it is a bucket.
    #[inline]
    pub(super) fn bucket_later(
        &self,
        own: i64,
        passed: u64,
        lease: LeaseNumber,
    ) -> Option<Charged> {
        let [State::Instant(full_at)] = *self.states.as_slice() else {
            return None;
        };
        Some(Charged {
            full_at,
            at: self.time(passed),
            own,
            lease,
        })
    }

    /// Whether all quotas are unused after `passed`. A sliding window counts as used until its newest slice has left it: asked
    /// of all accounts of a node at once, it looks at no other slice.
    pub(super) fn is_fresh(&self, passed: u64) -> bool {
        let now = self.time(passed).as_nanos();
        let mut quotas = self.quotas();
        quotas.all(|(meter, state)| meter.lasts(state, now, View::WHOLE) == 0)
    }

    /// The time until the bucket at this place is full, from the reply on, after which it granted units. From then on units
    /// get lost: held units count only once they are spent. `None` unless the quota is a bucket.
    pub(super) fn until_full(
        &self,
        place: usize,
        reply: &NodeReply,
        granted: u32,
    ) -> Option<Duration> {
        let (meter, state) = self.quotas().nth(place)?;
        meter.leased_interval()?;
        let own = u64::from(reply.units.saturating_sub(granted));
        let (held, at) = (
            negative(reply.others.saturating_add(own)),
            self.at.as_nanos(),
        );
        let nanos = meter.reset_after(&meter.moved(state, at, held), at, View::WHOLE);
        Some(Duration::from_micros(nanos.div_ceil(1_000)))
    }

    /// Adds units to those that the decision has left.
    pub(super) fn give_back(plan: &Arc<ReplyPlan>, run: &mut Run, units: u64) {
        if units == 0 {
            return;
        }
        let known = Self::new(plan, run);
        let question = Question {
            own: negative(units),
            cost: 0,
            class: plan.class,
        };
        let statuses = known.statuses(question, known.at);
        run.decision.remeasure(statuses.map(|(_, status)| status));
    }
}

fn negative(units: u64) -> i64 {
    0_i64.saturating_sub_unsigned(units)
}
