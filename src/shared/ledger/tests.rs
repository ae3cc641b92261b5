//! Tests of the ledger against a small model of a store.

mod denials;
mod faults;
mod model;
mod units;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    super::{
        lease::{LeaseReply, LeaseStatus, Takes},
        mode::LeaseTerms,
        subject::SubjectNames,
    },
    DenialKind, LeaseHolder, LeasePlace, Ledger, Letter, LocalAnswer, SentMessage,
};
use crate::{
    clock::Timestamp,
    decision::{Decision, Op, Policy, QuotaStatus},
    limiter::limits::Chosen,
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

/// The ledger of a node, whose names are those of this seed.
fn ledger(seed: u64) -> Ledger<()> {
    ledger_of(seed, DEADLINE)
}

/// The same of a store with this deadline.
fn ledger_of(seed: u64, deadline: Duration) -> Ledger<()> {
    let terms = LeaseTerms {
        length: LENGTH,
        max_units: u32::MAX,
        max_leases: 16,
        remembers_denials: true,
        ahead: None,
    };
    Ledger::new(terms, false, deadline, Some(seed))
}

fn place() -> LeasePlace<()> {
    LeasePlace {
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

/// A decision that tells how many units are left.
fn told(left: u64) -> Decision {
    let policy = Policy::new("test", 1_000);
    let status = QuotaStatus::new(&policy).with_remaining(left);
    Decision::allowed(1, Timestamp::from_secs(1), status)
}

fn denied(wait: Duration) -> Decision {
    let policy = Policy::new("test", 1_000);
    let status = QuotaStatus::new(&policy).with_remaining(0);
    Decision::denied(Timestamp::from_secs(1), status.with_denial(Some(wait)))
}

const fn granted(status: LeaseStatus, units: u32) -> LeaseReply {
    LeaseReply {
        status,
        units,
        ttl: LENGTH,
        pause: Duration::ZERO,
        others: 0,
        hold: Duration::from_millis(20),
    }
}

fn acquire(ledger: &Ledger<()>, cost: u64, now: Instant) -> Option<Decision> {
    match ledger.decide(HOLDER, &Op::Acquire(cost), now) {
        LocalAnswer::Decided(decision) | LocalAnswer::Low(decision) => Some(decision),
        LocalAnswer::Ask => None,
    }
}

fn is_allowed(ledger: &Ledger<()>, cost: u64, now: Instant) -> bool {
    acquire(ledger, cost, now).is_some_and(|decision| decision.is_allowed())
}

/// A ledger that was asked for `asked` units, and was granted `units` at `now`.
fn leased(asked: u64, units: u32, now: Instant) -> Ledger<()> {
    leased_of(ledger(1), asked, units, now)
}

/// This ledger, with such a lease.
fn leased_of(ledger: Ledger<()>, asked: u64, units: u32, now: Instant) -> Ledger<()> {
    assert!(acquire(&ledger, asked, now).is_none());
    let sent = message(&ledger, now).expect("a demand");
    ledger.hear(
        &sent,
        &granted(LeaseStatus::New, units),
        Some(&told(500)),
        now,
    );
    ledger
}
