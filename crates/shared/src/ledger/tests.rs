//! Tests of the ledger against a small model of a store.

mod denials;
mod eviction;
mod faults;
mod lease_lifecycle;
mod leased_decision_fields;
mod memory;
mod store_model;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    super::{
        deny_cache::{DenyCache, SentCall},
        mode::Terms,
        prehashed_key_names::MeasuredSubject,
        wire::{
            NodeMessage, NodeReply, RowStatus, Takes,
            reply::{LastStates, Run},
            script_plan::{Plan, ReplyPlan},
        },
    },
    AttachedMessage, KeyPlace, Ledger, LocalAnswer,
};
use tower_ratelimit_core::{
    algorithm::State,
    clock::Timestamp,
    decision::{Decision, Op, Policy, QuotaStatus},
    limiter::limits_in_force::{Chosen, LimitTerms, TierSet},
    quota::Quota,
};

const LENGTH: Duration = Duration::from_secs(1);
const ONE: Takes = Takes {
    units: 1,
    largest: 1,
};

const DEADLINE: Duration = Duration::from_millis(50);

const SUBJECT: MeasuredSubject = MeasuredSubject {
    tag: 42,
    chosen: Chosen::Tier(0),
    generation: 0,
};

/// The ledger of a node, with the names of this seed.
fn ledger(seed: u64) -> Ledger {
    ledger_of(seed, DEADLINE)
}

/// The ledger of a store with this deadline.
fn ledger_of(seed: u64, deadline: Duration) -> Ledger {
    let denials = Arc::new(DenyCache::new());
    let terms = Terms {
        patience: 2 * deadline,
        ..terms(u32::MAX, 16)
    };
    Ledger::new(terms, false, (denials, Some(seed)))
}

fn terms(most: u32, max_accounts: usize) -> Terms {
    Terms {
        length: LENGTH,
        overdraft: 0,
        most,
        max_accounts,
        remembers_denials: true,
        patience: 2 * DEADLINE,
    }
}

impl Ledger {
    /// Decides in leased mode, in which nothing is started.
    fn decide_now(&self, subject: MeasuredSubject, op: &Op, now: Instant) -> LocalAnswer {
        self.decide(subject, op, now, place)
    }
}

/// A call with its message.
#[derive(Debug, Clone, Copy)]
struct Sent {
    call: SentCall,
    message: NodeMessage,
}

impl Ledger {
    /// The message attached to a call about this subject, which leaves now.
    fn attach(&self, subject: MeasuredSubject, now: Instant) -> AttachedMessage {
        let call = SentCall { subject, at: now };
        self.message((&call, Some(ONE)), (place, 1_000))
    }

    /// Sends a call with a message about this subject, if there is one.
    fn send(&self, subject: MeasuredSubject, now: Instant) -> Option<Sent> {
        let message = *self.attach(subject, now).message()?;
        let call = SentCall { subject, at: now };
        Some(Sent { call, message })
    }

    fn lose_sent(&self, sent: &Sent, now: Instant) {
        self.lose(&sent.call, &sent.message, now);
    }

    fn reply(&self, sent: &Sent, reply: &NodeReply, last: Option<&Run>, now: Instant) -> u64 {
        let plan = last.map(plan_for);
        let last = plan.as_ref().zip(last);
        self.receive(&sent.call, (&sent.message, reply), last, now)
    }
}

/// Caches the denial of an operation whose call carried this message, as the limiter does.
fn hold(ledger: &Ledger, (sent, reply): (&Sent, &NodeReply), (op, run): (&Op, &mut Run)) {
    let hold = ledger.hold(reply, (&plan_for(run), run));
    let decisions = [(op, &run.decision, hold)].into_iter();
    ledger.denials.learn(&sent.call, decisions, sent.call.at);
}

fn current() -> Arc<Plan> {
    let limits = TierSet::new(LimitTerms::of(Quota::per_second(100)));
    let limits = limits.expect("a good quota");
    Arc::new(Plan::in_force(("rl", "test"), &limits, 0))
}

fn place() -> KeyPlace {
    KeyPlace {
        key: "a".into(),
        plan: current(),
    }
}

fn message(ledger: &Ledger, now: Instant) -> Option<Sent> {
    ledger.send(SUBJECT, now)
}

/// The plan of a bucket of a hundred units a second.
fn plan() -> Arc<ReplyPlan> {
    plan_of(Quota::per(1_000, Duration::from_secs(10)))
}

fn plan_of(quota: Quota) -> Arc<ReplyPlan> {
    let limits = TierSet::new(LimitTerms::of(quota));
    let plan = Plan::new(&limits.expect("a good quota"));
    let plan = plan.of(SUBJECT.chosen).expect("the default tier");
    Arc::clone(&plan.reply)
}

/// The plan of a window, whose units all come back at its end.
fn plan_of_window() -> Arc<ReplyPlan> {
    plan_of(Quota::per(1_000, Duration::from_secs(3_600)).fixed_window())
}

/// The plan of the quota that has this answer.
fn plan_for(run: &Run) -> Arc<ReplyPlan> {
    match run.states.as_slice() {
        [State::Instant(_)] => plan(),
        _ => plan_of_window(),
    }
}

const SECOND: Timestamp = Timestamp::from_secs(1);

fn run(decision: Decision, state: State) -> Run {
    Run {
        count: 1,
        decision,
        states: [state].into_iter().collect(),
    }
}

/// The answer about a window with this many units left.
fn status(left: u64) -> Run {
    let policy = Policy::new("test", 1_000);
    let status = QuotaStatus::new(&policy).with_remaining(left);
    run(Decision::allowed(1, SECOND, status), window_with(left))
}

fn window_with(left: u64) -> State {
    let meter = plan_of_window().meters[0];
    meter.moved(&State::FRESH, SECOND.as_nanos(), 1_000 - left as i64)
}

fn denied(wait: Duration) -> Run {
    let policy = Policy::new("test", 1_000);
    let status = QuotaStatus::new(&policy).with_remaining(0);
    let decision = Decision::denied(SECOND, status.with_denial(Some(wait)));
    run(decision, window_with(0))
}

/// The denial of a bucket of a hundred units a second that is full after this time.
fn denied_bucket(wait: Duration, full_after: Duration) -> Run {
    let full_at = SECOND.as_nanos() + full_after.as_nanos() as u64;
    run(denied(wait).decision, State::Instant(full_at))
}

const fn granted(status: RowStatus, units: u32) -> NodeReply {
    NodeReply {
        status,
        units,
        ttl: LENGTH,
        pause: Duration::ZERO,
        others: 0,
        hold: Duration::from_millis(20),
    }
}

fn acquire(ledger: &Ledger, cost: u64, now: Instant) -> Option<Decision> {
    match ledger.decide_now(SUBJECT, &Op::Acquire(cost), now) {
        LocalAnswer::Decided(decision) | LocalAnswer::Low(decision) => Some(decision),
        LocalAnswer::Ask => None,
    }
}

fn is_allowed(ledger: &Ledger, cost: u64, now: Instant) -> bool {
    acquire(ledger, cost, now).is_some_and(|decision| decision.is_allowed())
}

/// A ledger with a demand of `demand` units and a lease of `units` since `now`.
fn leased(demand: u64, units: u32, now: Instant) -> Ledger {
    leased_of(ledger(1), demand, units, now)
}

/// This ledger, with such a lease.
fn leased_of(ledger: Ledger, demand: u64, units: u32, now: Instant) -> Ledger {
    assert!(acquire(&ledger, demand, now).is_none());
    let sent = message(&ledger, now).expect("a demand");
    ledger.reply(
        &sent,
        &granted(RowStatus::New, units),
        Some(&status(500)),
        now,
    );
    ledger
}
