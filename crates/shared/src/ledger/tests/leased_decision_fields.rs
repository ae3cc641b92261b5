//! The numbers of a decision from a lease are those of the meters on the store's state, later.

use proptest::prelude::*;

use super::*;
use crate::wire::{
    NodeReport, StoreCall,
    reply::{self, SubjectReply},
    subject_value::SubjectValue,
};
use tower_ratelimit_core::{
    algorithm::{Meter, State, Verdict, View},
    decision::{Outcome, QuotaStatuses},
};

/// Noon of some day, in microseconds.
const NOON: u64 = 1_767_268_800_000_000;

/// A store with one subject, whose clock goes as the node's.
struct Shop {
    plan: Plan,
    value: Option<Vec<u8>>,
    opened: Instant,
}

impl Shop {
    fn new(quota: Quota, opened: Instant) -> Self {
        let limits = TierSet::new(LimitTerms::of(quota));
        let plan = Plan::new(&limits.expect("a good quota"));
        Self {
            plan,
            value: None,
            opened,
        }
    }

    fn time(&self, now: Instant) -> Timestamp {
        Timestamp::from_micros(NOON).saturating_add(now.duration_since(self.opened))
    }

    fn call(&mut self, op: &Op, message: &NodeMessage, now: Instant) -> SubjectReply {
        let ops = [(op.clone(), 1)];
        let call = StoreCall::new(&self.plan, SUBJECT.chosen, &ops);
        let call = call.with_message(message).with_states();
        let applied = call.apply(self.value.as_deref(), self.time(now));
        let applied = applied.expect("one of ours");
        self.value = applied.write.map(|write| write.value).or(self.value.take());
        let plan = self.plan.of(SUBJECT.chosen).expect("the default tier");
        reply::of_store(applied.reply, &plan.reply, &call).expect("a reply")
    }

    /// Another node takes a lease, or changes it.
    fn lend(&mut self, seq: u32, want: u32, now: Instant) {
        let message = NodeMessage {
            name: *b"neighbor",
            seq,
            length: LENGTH,
            report: NodeReport::Lease {
                spent: 0,
                back: 0,
                want,
                demand: want,
            },
        };
        self.call(&Op::Peek(0), &message, now);
    }

    fn meter(&self) -> &Meter {
        &self.plan.limits.default_tier().meters[0]
    }

    fn state(&self) -> State {
        let mut value = SubjectValue::read(&self.plan, self.value.as_deref()).expect("one of ours");
        value.states.swap_remove(0)
    }

    /// The decision about `charged` units by the meter on this state.
    fn decide(&self, state: &State, charged: u64, at: Timestamp) -> Decision {
        let quotas = self.plan.limits.default_tier();
        let status = (self.meter()).explain(state, at.as_nanos(), Verdict::FITS, View::WHOLE);
        let statuses = QuotaStatuses::of_one(&quotas.policies[0], status);
        Decision::new(Outcome::Allowed, charged, at, statuses)
    }
}

/// The state that the last reply is about.
struct Learnt {
    /// The store's state, and when it was so.
    state: State,
    at: Instant,
    /// The units that all nodes held before the reply granted some.
    held: u64,
    /// How many of them this node held.
    own: u64,
    /// The units that this node has spent since it sent the message.
    spent: u64,
}

impl Learnt {
    /// The state later: the units of other nodes, and as many of this node's as it has spent.
    fn state(&self, shop: &Shop, now: Instant) -> State {
        let meter = shop.meter();
        let interval = meter.leased_interval().unwrap_or(0);
        let charge = |state: &mut State, at: Timestamp, units: u64| {
            let at = at.as_nanos();
            meter.settle(state, at, at + 1_000, units, interval);
        };
        let mut state = self.state.clone();
        let before = self.spent.min(self.own);
        charge(
            &mut state,
            shop.time(self.at),
            self.held - self.own + before,
        );
        if self.spent > before {
            charge(&mut state, shop.time(now), self.spent - before);
        }
        state
    }
}

/// A call with a message, and operations of the node until the next one.
#[derive(Debug, Clone)]
struct Round {
    lent: u32,
    demand: u64,
    op: Op,
    then: Vec<(u64, u64)>,
}

fn round() -> impl Strategy<Value = Round> {
    let op = prop_oneof![
        (0_u64..9).prop_map(Op::Acquire),
        (0_u64..9).prop_map(Op::Hit),
        Just(Op::Peek(1)),
    ];
    // Sometimes the bucket is full before the next operation.
    let pause = prop_oneof![4 => 0_u64..20_000, 1 => 0_u64..400_000];
    (
        0_u32..30,
        8_u64..80,
        op,
        prop::collection::vec((pause, 0_u64..6), 0..12),
    )
        .prop_map(|(lent, demand, op, then)| Round {
            lent,
            demand,
            op,
            then,
        })
}

fn quota() -> impl Strategy<Value = Quota> {
    (20_u64..200, 1_u64..5, 0_u32..2, 0_u8..6).prop_map(|(limit, seconds, soft, kind)| {
        let quota = Quota::per(limit, Duration::from_secs(seconds)).soft(soft * 20);
        match kind {
            0 => quota,
            1 => quota.burst(limit / 2 + 1),
            2 => quota.refill_every(Duration::from_millis(250)),
            3 => quota.fixed_window(),
            4 => quota.sliding_window(),
            _ => quota.sliding_window().slices(5),
        }
    })
}

proptest! {
    /// For buckets and windows: units left and in use, times, window, excess.
    #[test]
    fn numbers_of_a_leased_decision_are_those_of_the_stores_state_later(
        quota in quota(),
        rounds in prop::collection::vec(round(), 1..12),
    ) {
        let mut now = Instant::now();
        let (ledger, mut shop) = (ledger(1), Shop::new(quota, now));
        for (seq, round) in (1..).zip(&rounds) {
            shop.lend(seq, round.lent, now);
            acquire(&ledger, round.demand, now);
            let Some(sent) = message(&ledger, now) else { continue };
            let own = ledger.held(SUBJECT);
            let answer = shop.call(&round.op, &sent.message, now);
            let reply = answer.lease.expect("a message was sent");
            let plan = shop.plan.of(SUBJECT.chosen).expect("the default tier");
            let last = answer.runs.last().map(|last| (&plan.reply, last));
            ledger.receive(&sent.call, (&sent.message, &reply), last, now);
            let own = if reply.status == RowStatus::Known { own } else { 0 };
            let mut learnt = Learnt {
                state: shop.state(),
                at: now,
                held: reply.others + own,
                own,
                spent: 0,
            };
            for (pause, cost) in &round.then {
                now += Duration::from_micros(*pause);
                // The denial of a pause has a wait of its own.
                let bucket = shop.plan.only_bucket().filter(|_| cost % 2 == 1);
                let charged = bucket.and_then(|bucket| {
                    let charged = ledger.charge((SUBJECT.tag, 0), *cost, now)?;
                    Some(charged.decision(*cost, bucket))
                });
                let decision = charged.or_else(|| acquire(&ledger, *cost, now));
                let decision = decision.filter(Decision::is_leased);
                let Some(decision) = decision else { continue };
                learnt.spent += cost;
                prop_assert_eq!(decision.decided_at(), shop.time(now));
                let state = learnt.state(&shop, now);
                let expected = shop.decide(&state, *cost, shop.time(now));
                prop_assert_eq!(
                    decision.quotas().collect::<Vec<_>>(),
                    expected.quotas().collect::<Vec<_>>()
                );
                prop_assert_eq!(decision.charged(), expected.charged());
            }
            now += LENGTH / 16;
        }
    }
}
