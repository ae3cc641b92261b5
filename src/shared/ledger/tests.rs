//! Tests of the ledger against a small model of a store.

mod denials;
mod eviction;
mod faults;
mod model;
mod units;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    super::{
        deny_cache::{AnsweredCall, DenyCache},
        eventual::EventualStart,
        lease::DenialKind,
        mode::{LedgerTerms, ModeTerms},
        subject::{SubjectNames, SubjectPlace},
        wire::message::{NodeReply, RowStatus, Takes},
    },
    LeaseHolder, Ledger, Letter, LocalAnswer, SentMessage,
};
use crate::{
    clock::Timestamp,
    decision::{Decision, Op, Policy, QuotaStatus},
    limiter::tier_set::Chosen,
};

const LENGTH: Duration = Duration::from_secs(1);
const ONE: Takes = Takes {
    units: 1,
    largest: 1,
};

const DEADLINE: Duration = Duration::from_millis(50);

const HOLDER: LeaseHolder = LeaseHolder {
    tag: 42,
    chosen: Chosen::Tier(0),
    generation: 0,
};

/// The ledger of a node, with the names of this seed.
fn ledger(seed: u64) -> Ledger<()> {
    ledger_of(seed, DEADLINE)
}

/// The ledger of a store with this deadline.
fn ledger_of(seed: u64, deadline: Duration) -> Ledger<()> {
    let denials = Arc::new(DenyCache::new());
    Ledger::new(terms(u32::MAX, 16), false, deadline, (denials, Some(seed)))
}

fn terms(max_units: u32, max_leases: usize) -> LedgerTerms {
    LedgerTerms {
        mode: ModeTerms::Leased {
            length: LENGTH,
            max_units,
        },
        max_leases,
        remembers_denials: true,
    }
}

impl Ledger<()> {
    /// Decides in leased mode, in which nothing is started.
    fn decide_now(&self, holder: LeaseHolder, op: &Op, now: Instant) -> LocalAnswer {
        let start = || EventualStart {
            place: place(),
            fresh: None,
        };
        self.decide(holder, op, now, start)
    }
}

/// Caches the denial of an operation whose call carried this message, as the limiter does.
fn hold(
    ledger: &Ledger<()>,
    (sent, reply): (&SentMessage, &NodeReply),
    (op, decision): (&Op, &mut Decision),
    kind: DenialKind,
) {
    let hold = ledger.hold(reply, decision, kind);
    let LeaseHolder {
        tag,
        chosen,
        generation,
    } = sent.holder;
    let call = AnsweredCall {
        subject: tag,
        tier: chosen,
        at: sent.at,
        generation,
    };
    let decisions = [(op, &*decision, hold)].into_iter();
    ledger.denials.learn(&call, decisions, sent.at);
}

fn place() -> SubjectPlace<()> {
    SubjectPlace {
        subject: SubjectNames::new(Some(7)).named("rl:test:a"),
        plan: Arc::new(()),
    }
}

fn message(ledger: &Ledger<()>, now: Instant) -> Option<SentMessage> {
    ledger
        .message((HOLDER, Some(ONE)), (place, 1_000), now)
        .message()
        .copied()
}

/// A decision with this many units left.
fn status(left: u64) -> Decision {
    let policy = Policy::new("test", 1_000);
    let status = QuotaStatus::new(&policy).with_remaining(left);
    Decision::allowed(1, Timestamp::from_secs(1), status)
}

fn denied(wait: Duration) -> Decision {
    let policy = Policy::new("test", 1_000);
    let status = QuotaStatus::new(&policy).with_remaining(0);
    Decision::denied(Timestamp::from_secs(1), status.with_denial(Some(wait)))
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

fn acquire(ledger: &Ledger<()>, cost: u64, now: Instant) -> Option<Decision> {
    match ledger.decide_now(HOLDER, &Op::Acquire(cost), now) {
        LocalAnswer::Decided(decision) | LocalAnswer::Low(decision) => Some(decision),
        LocalAnswer::Ask => None,
    }
}

fn is_allowed(ledger: &Ledger<()>, cost: u64, now: Instant) -> bool {
    acquire(ledger, cost, now).is_some_and(|decision| decision.is_allowed())
}

/// A ledger with a demand of `demand` units and a lease of `units` since `now`.
fn leased(demand: u64, units: u32, now: Instant) -> Ledger<()> {
    leased_of(ledger(1), demand, units, now)
}

/// This ledger, with such a lease.
fn leased_of(ledger: Ledger<()>, demand: u64, units: u32, now: Instant) -> Ledger<()> {
    assert!(acquire(&ledger, demand, now).is_none());
    let sent = message(&ledger, now).expect("a demand");
    ledger.receive(
        &sent,
        &granted(RowStatus::New, units),
        Some(&status(500)),
        now,
    );
    ledger
}
