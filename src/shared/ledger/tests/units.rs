//! One ledger, step by step.

use super::*;
use crate::{
    decision::{Level, Measure, QuotaStatuses, Usage},
    quota::{Kind, Quota},
};

const MS: Duration = Duration::from_millis(1);

#[test]
fn thin_subjects_have_no_lease() {
    let (ledger, now) = (ledger(1), Instant::now());
    for _ in 0..7 {
        assert!(acquire(&ledger, 1, now).is_none());
        assert!(matches!(
            ledger.message((HOLDER, Some(1)), (place, 1_000), now),
            Letter::None
        ));
    }
    assert!(acquire(&ledger, 1, now).is_none());
    let clause = message(&ledger, now).expect("the eighth").clause;
    assert_eq!((clause.seq, clause.spent, clause.back), (1, 0, 0));
    assert_eq!((clause.want, clause.demand), (8, 8));
    assert_eq!(ledger.stats().asked, 8);
}

#[test]
fn units_are_spent_until_the_lease_ends_and_no_longer() {
    let now = Instant::now();
    let ledger = leased(10, 5, now);
    let first = acquire(&ledger, 2, now).expect("enough is held");
    assert!(first.is_allowed() && first.is_leased());
    assert_eq!((first.charged(), first.remaining()), (2, Some(498)));
    let last = now + LENGTH - LENGTH / 1_024;
    let almost = last - MS;
    assert!(is_allowed(&ledger, 1, almost));
    assert!(
        acquire(&ledger, 1, last).is_none(),
        "the store's row may end"
    );
    assert_eq!(ledger.stats().local, 2);
}

/// The first of the wrong designs: the lease ends here before it ends in the store, and what was
/// spent of it has to be told all the same, else it would come back.
#[test]
fn units_that_were_spent_are_told_though_the_lease_has_ended_here() {
    let now = Instant::now();
    let ledger = leased(10, 5, now);
    assert!(is_allowed(&ledger, 3, now));
    let ended = now + LENGTH - LENGTH / 2_048;
    assert!(acquire(&ledger, 9, ended).is_none());
    let clause = message(&ledger, ended).expect("something to tell").clause;
    assert_eq!((clause.seq, clause.spent, clause.back), (2, 3, 2));
}

#[test]
fn message_that_was_not_answered_is_repeated_with_all_its_numbers() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    assert!(is_allowed(&ledger, 4, now));
    let sent = message(&ledger, now).expect("a demand");
    assert!(matches!(
        ledger.message((HOLDER, Some(1)), (place, 1_000), now),
        Letter::UnderWay
    ));
    assert!(is_allowed(&ledger, 1, now), "units are spent meanwhile");
    ledger.lose(&sent, now);
    let again = message(&ledger, now + MS).expect("the same again");
    assert_eq!(again.clause, sent.clause);
    assert_eq!(ledger.stats().repeated, 1);
    // The answer to the first comes too late: nobody waits for it.
    let reply = granted(LeaseStatus::Known, 30);
    ledger.hear(&sent, &reply, None, now + MS);
    assert!(acquire(&ledger, 10, now + MS).is_none());
    // All units of the row, less those that were spent since.
    ledger.hear(&again, &reply, None, now + MS);
    assert!(is_allowed(&ledger, 29, now + MS));
    assert!(acquire(&ledger, 1, now + MS).is_none());
}

/// What was spent while the message was under way belongs to a row that ended.
#[test]
fn new_row_has_all_its_units() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    let sent = message(&ledger, now).expect("a demand");
    assert!(is_allowed(&ledger, 10, now));
    ledger.hear(&sent, &granted(LeaseStatus::New, 6), None, now);
    assert!(is_allowed(&ledger, 6, now));
    assert!(acquire(&ledger, 1, now).is_none());
    assert_eq!(ledger.stats().ended, 10);
}

#[test]
fn stale_message_drops_the_lease_and_its_name() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    let sent = message(&ledger, now).expect("a demand");
    ledger.hear(&sent, &granted(LeaseStatus::Stale, 0), None, now);
    assert!(acquire(&ledger, 1, now).is_none());
    let next = message(&ledger, now).expect("a demand");
    assert_ne!(next.clause.name, sent.clause.name);
    assert_eq!(
        (next.clause.seq, next.clause.spent, next.clause.back),
        (1, 0, 0)
    );
    assert_eq!(ledger.stats().stale, 1);
}

#[test]
fn lost_for_two_lengths_is_lost() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    assert!(is_allowed(&ledger, 4, now));
    let sent = message(&ledger, now).expect("a demand");
    ledger.lose(&sent, now);
    let later = now + 2 * LENGTH;
    assert_eq!(ledger.due(later).len(), 1);
    let later = later + MS;
    assert!(acquire(&ledger, 50, later).is_none());
    let next = message(&ledger, later).expect("a demand");
    assert_ne!(next.clause.name, sent.clause.name);
    assert_eq!((next.clause.seq, ledger.stats().ended), (1, 10));
}

#[test]
fn more_is_asked_for_before_there_is_none() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    let mut low = 0;
    for _ in 0..10 {
        match ledger.decide(HOLDER, &Op::Acquire(1), now) {
            LocalAnswer::Low(decision) => {
                assert!(decision.is_allowed());
                low += 1;
            }
            LocalAnswer::Decided(decision) => assert!(decision.is_allowed()),
            LocalAnswer::Ask => panic!("enough is held"),
        }
    }
    assert_eq!(low, 1);
}

#[test]
fn surplus_is_given_back_by_the_keeper() {
    let now = Instant::now();
    let ledger = leased(100, 60, now);
    assert!(ledger.due(now).is_empty(), "all of it may be needed");
    let later = now + LENGTH / 2;
    let due = ledger.due(later);
    assert_eq!(due.len(), 1);
    let clause = message(&ledger, later).expect("a surplus").clause;
    assert!(clause.demand < 20 && clause.back == 60 - clause.demand);
    assert_eq!(clause.want, 0);
    assert!(ledger.due(later).is_empty(), "it is under way");
    let sent = message(&ledger, later + 3 * DEADLINE).expect("the call was dropped");
    assert_eq!(sent.clause, clause);
}

#[test]
fn lease_that_ends_soon_is_settled_by_the_keeper() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    assert!(is_allowed(&ledger, 8, now));
    assert!(ledger.due(now + LENGTH / 2).is_empty());
    let late = now + LENGTH - LENGTH / 5;
    assert_eq!(ledger.due(late).len(), 1);
    let sent = message(&ledger, late).expect("something was spent");
    assert_eq!((sent.clause.spent, sent.clause.want), (8, 0));
    let reply = LeaseReply {
        ttl: LENGTH / 5,
        ..granted(LeaseStatus::Known, 2)
    };
    ledger.hear(&sent, &reply, None, late);
    assert!(ledger.due(late).is_empty(), "it is told");
    // Nothing is left to be told of when it has ended.
    assert!(is_allowed(&ledger, 2, late));
    let sent = message(&ledger, late + MS).expect("something was spent");
    let reply = LeaseReply {
        ttl: Duration::ZERO,
        ..granted(LeaseStatus::Known, 0)
    };
    ledger.hear(&sent, &reply, None, late + MS);
    assert!(ledger.due(late + LENGTH).is_empty());
    assert!(message(&ledger, late + LENGTH).is_none());
    assert_eq!(ledger.stats().settled, 10);
}

#[test]
fn refund_to_a_live_lease_needs_no_call_and_works_once_told_no_more() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    let spent = acquire(&ledger, 10, now).expect("enough is held");
    let refund = Op::Refund(4, Some(spent.receipt()));
    let back = ledger.decide(HOLDER, &refund, now);
    let LocalAnswer::Decided(back) = back else {
        panic!("the lease is live: {back:?}");
    };
    assert_eq!((back.charged(), back.remaining()), (0, Some(494)));
    assert!(is_allowed(&ledger, 4, now));
    // More than is spent and untold is not there to be given back.
    for is_there in [true, false] {
        let six = Op::Refund(6, Some(spent.receipt()));
        let answer = ledger.decide(HOLDER, &six, now);
        let is_local = matches!(answer, LocalAnswer::Decided(_));
        assert_eq!(is_local, is_there, "{answer:?}");
    }
    let sent = message(&ledger, now).expect("a demand");
    assert_eq!(sent.clause.spent, 4);
    ledger.hear(&sent, &granted(LeaseStatus::Known, 26), None, now);
    assert!(is_allowed(&ledger, 10, now));
    let late = ledger.decide(HOLDER, &refund, now);
    assert!(
        matches!(late, LocalAnswer::Ask),
        "the store was told: {late:?}"
    );
}

#[test]
fn settlements_are_made_from_the_lease() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    let receipt = acquire(&ledger, 3, now).expect("enough is held").receipt();
    for (cost, charged, left) in [(3, 0, 497), (5, 2, 495), (1, 0, 497)] {
        let answer = ledger.decide(HOLDER, &Op::Settle(cost, receipt.clone()), now);
        let LocalAnswer::Decided(decision) = answer else {
            panic!("the lease is live: {answer:?}");
        };
        assert!(decision.is_allowed());
        assert_eq!(
            (decision.charged(), decision.remaining()),
            (charged, Some(left))
        );
    }
    let much = ledger.decide(HOLDER, &Op::Settle(99, receipt), now);
    assert!(matches!(much, LocalAnswer::Ask));
}

#[test]
fn denial_holds_for_its_time() {
    let now = Instant::now();
    let others = LeaseReply {
        others: 9,
        ..granted(LeaseStatus::New, 0)
    };
    let alone = granted(LeaseStatus::New, 0);
    let minute = Duration::from_secs(60);
    for (kind, reply, wait, held) in [
        (DenialKind::Bucket, alone, 5 * MS, 20 * MS),
        (DenialKind::Bucket, alone, 300 * MS, 300 * MS),
        (DenialKind::Bucket, others, minute, LENGTH),
        (DenialKind::Window, others, minute, 20 * MS),
        (DenialKind::Window, others, 5 * MS, 5 * MS),
        (DenialKind::Window, alone, minute, minute),
    ] {
        let ledger = ledger(1);
        assert!(acquire(&ledger, 20, now).is_none());
        let sent = message(&ledger, now).expect("a demand");
        ledger.hear(&sent, &reply, None, now);
        let mut decision = denied(wait);
        ledger.hold(&sent, &reply, (&Op::Acquire(20), &mut decision), kind);
        assert_eq!(decision.retry_after(), Some(wait.max(held)), "{kind:?}");
        let last = now + held - MS;
        let answer = acquire(&ledger, 20, last).expect("it holds");
        assert!(answer.is_denied(), "{kind:?}");
        assert_eq!(answer.retry_after(), Some(wait.max(held) - held + MS));
        assert!(acquire(&ledger, 20, now + held).is_none(), "{kind:?}");
        assert!(acquire(&ledger, 19, last).is_none(), "another cost");
    }
}

/// A bucket that is full sooner loses units, and the next window has units of its own.
#[test]
fn denial_is_held_no_longer_than_nothing_comes() {
    let now = Instant::now();
    let reply = LeaseReply {
        others: 9,
        ..granted(LeaseStatus::New, 0)
    };
    let ends = LeaseReply {
        ttl: 7 * MS,
        ..reply
    };
    // A bucket of a hundred units a second, that far from full and with nine more units held.
    let full_after = |time: Duration| {
        let policies = Policy::of_set(vec![("test".into(), Quota::per_second(100))]);
        let level = Level {
            used: (time + 9 * 10 * MS).as_nanos() as u64,
            refill: 1_000_000_000,
            interval: 10_000_000,
        };
        let measure = Measure {
            kind: Kind::NONE,
            denied: true,
            retry_after: Some(5_000_000),
            standing: Usage::Level(level),
            excess: false,
        };
        let status = QuotaStatuses::of_one(&policies[0], &measure);
        Decision::denied(Timestamp::from_secs(1), status)
    };
    for (kind, reply, mut decision, held) in [
        (DenialKind::Bucket, reply, full_after(9 * MS), 9 * MS),
        (DenialKind::Bucket, reply, full_after(90 * MS), 20 * MS),
        (DenialKind::Bucket, ends, full_after(90 * MS), 7 * MS),
        (DenialKind::Window, ends, denied(50 * MS), 7 * MS),
    ] {
        let ledger = ledger(1);
        assert!(acquire(&ledger, 20, now).is_none());
        let sent = message(&ledger, now).expect("a demand");
        ledger.hear(&sent, &reply, None, now);
        ledger.hold(&sent, &reply, (&Op::Acquire(20), &mut decision), kind);
        let last = acquire(&ledger, 20, now + held - MS).expect("it holds");
        assert!(last.is_denied());
        assert!(acquire(&ledger, 20, now + held).is_none(), "{held:?}");
    }
}

#[test]
fn pause_ends_with_the_row() {
    let now = Instant::now();
    let ledger = ledger(1);
    assert!(acquire(&ledger, 20, now).is_none());
    let sent = message(&ledger, now).expect("a demand");
    let reply = LeaseReply {
        pause: 50 * MS,
        ttl: 8 * MS,
        ..granted(LeaseStatus::New, 3)
    };
    ledger.hear(&sent, &reply, Some(&told(3)), now);
    let denied = acquire(&ledger, 4, now + 7 * MS).expect("it is scarce");
    assert_eq!(denied.retry_after(), Some(MS));
    assert!(acquire(&ledger, 4, now + 8 * MS).is_none());
}

/// An answer to what was asked before a reset, a block or a refund says nothing of what is now.
#[test]
fn denial_that_was_under_way_is_not_remembered_after_a_reset() {
    let now = Instant::now();
    let receipt = told(5).receipt();
    let other_tier = LeaseHolder {
        chosen: Chosen::Tier(1),
        ..HOLDER
    };
    for op in [
        Op::Reset,
        Op::Block(Duration::ZERO),
        Op::Refund(1, None),
        Op::Refund(1, Some(receipt.clone())),
        Op::Settle(0, receipt),
    ] {
        for holder in [HOLDER, other_tier] {
            let ledger = ledger(1);
            assert!(acquire(&ledger, 20, now).is_none());
            let sent = message(&ledger, now).expect("a demand");
            drop(ledger.decide(holder, &op, now));
            let reply = LeaseReply {
                pause: 50 * MS,
                ..granted(LeaseStatus::New, 0)
            };
            ledger.hear(&sent, &reply, Some(&told(3)), now);
            let mut decision = denied(300 * MS);
            let denied = (&Op::Acquire(20), &mut decision);
            ledger.hold(&sent, &reply, denied, DenialKind::Window);
            assert!(acquire(&ledger, 20, now + MS).is_none(), "{op:?}");
        }
    }
}

/// The answer to a reset may come before that to what was asked meanwhile, and done before it.
#[test]
fn answer_to_a_reset_ends_what_was_asked_since() {
    let now = Instant::now();
    let ledger = ledger(1);
    assert!(acquire(&ledger, 20, now).is_none());
    drop(ledger.decide(HOLDER, &Op::Reset, now));
    let sent = message(&ledger, now).expect("a demand");
    ledger.forget(HOLDER.tag);
    let reply = granted(LeaseStatus::New, 0);
    ledger.hear(&sent, &reply, Some(&told(3)), now);
    let mut decision = denied(300 * MS);
    let denied = (&Op::Acquire(20), &mut decision);
    ledger.hold(&sent, &reply, denied, DenialKind::Window);
    assert!(acquire(&ledger, 20, now + MS).is_none());
}

/// More than there ever is at once would take from the shares of others, and for long.
#[test]
fn no_more_is_asked_for_than_there_ever_is() {
    let now = Instant::now();
    let ledger = ledger(1);
    assert!(acquire(&ledger, 1_000_000, now).is_none());
    let clause = message(&ledger, now).expect("a demand").clause;
    assert_eq!((clause.want, clause.demand), (1_000, 1_000));
    let later = now + LENGTH;
    let Letter::Sent(sent) = ledger.message((HOLDER, Some(1)), (place, 1_000), later) else {
        panic!("it is sent again");
    };
    ledger.hear(
        &sent,
        &granted(LeaseStatus::New, 500),
        Some(&told(9)),
        later,
    );
    let clause = message(&ledger, later).expect("a demand").clause;
    assert!(clause.demand < 20, "{clause:?}");
}

#[test]
fn pause_denies_only_costs_that_are_not_held() {
    let now = Instant::now();
    let ledger = ledger(1);
    assert!(acquire(&ledger, 20, now).is_none());
    let sent = message(&ledger, now).expect("a demand");
    let reply = LeaseReply {
        pause: 50 * MS,
        ..granted(LeaseStatus::New, 3)
    };
    ledger.hear(&sent, &reply, Some(&told(3)), now);
    assert!(is_allowed(&ledger, 2, now + MS));
    let denied = acquire(&ledger, 2, now + 10 * MS).expect("it is scarce");
    assert!(denied.is_denied() && !denied.is_leased());
    assert_eq!(denied.retry_after(), Some(40 * MS));
    assert!(is_allowed(&ledger, 1, now + 10 * MS));
    assert!(acquire(&ledger, 2, now + 50 * MS).is_none());
}

#[test]
fn reset_and_block_end_the_lease_of_each_tier() {
    let now = Instant::now();
    for op in [Op::Reset, Op::Block(LENGTH)] {
        let ledger = leased(20, 10, now);
        let other = LeaseHolder {
            chosen: Chosen::Tier(1),
            ..HOLDER
        };
        assert!(matches!(ledger.decide(other, &op, now), LocalAnswer::Ask));
        assert!(acquire(&ledger, 1, now).is_none());
        let clause = message(&ledger, now).expect("units to give back").clause;
        assert_eq!((clause.back, clause.want), (10, 0));
    }
}

#[test]
fn lease_of_older_quotas_is_given_back() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    ledger.begin(1);
    let new = LeaseHolder {
        generation: 1,
        ..HOLDER
    };
    assert!(matches!(
        ledger.decide(new, &Op::Acquire(1), now),
        LocalAnswer::Ask
    ));
    assert_eq!(ledger.due(now).len(), 1);
    let sent = message(&ledger, now).expect("units to give back");
    assert_eq!((sent.clause.back, sent.clause.want), (10, 0));
    ledger.hear(&sent, &granted(LeaseStatus::Known, 0), None, now);
    assert!(message(&ledger, now).is_none(), "it is over");
}

#[test]
fn costs_above_what_is_held_have_it_given_back_first() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    assert!(acquire(&ledger, 11, now).is_none());
    let clause = message(&ledger, now).expect("a demand").clause;
    assert_eq!((clause.back, clause.want), (10, 31));
}

#[test]
fn full_bucket_keeps_those_that_hold_and_the_rest_is_strict() {
    let now = Instant::now();
    let terms = LeaseTerms {
        length: LENGTH,
        max_units: 6,
        max_leases: 1,
        remembers_denials: true,
        ahead: None,
    };
    let ledger: Ledger<()> = Ledger::new(terms, false, DEADLINE, Some(1));
    let holder = |tag| LeaseHolder { tag, ..HOLDER };
    let ask = |tag, cost, now| ledger.decide(holder(tag), &Op::Acquire(cost), now);
    for tag in 1..=4 {
        assert!(matches!(ask(tag, 9 + tag, now), LocalAnswer::Ask));
    }
    for tag in [2, 3, 4] {
        let Letter::Sent(sent) = ledger.message((holder(tag), Some(1)), (place, 1_000), now) else {
            panic!("a demand");
        };
        assert_eq!(sent.clause.want, 6, "the most of one lease");
        ledger.hear(&sent, &granted(LeaseStatus::New, 5), Some(&told(9)), now);
    }
    // The fifth takes the place of the one that holds nothing.
    assert!(matches!(ask(5, 20, now), LocalAnswer::Ask));
    assert!(matches!(
        ledger.message((holder(1), Some(1)), (place, 1_000), now),
        Letter::None
    ));
    let Letter::Sent(sent) = ledger.message((holder(5), Some(1)), (place, 1_000), now) else {
        panic!("a demand");
    };
    ledger.hear(&sent, &granted(LeaseStatus::New, 5), Some(&told(9)), now);
    assert!(matches!(ask(6, 20, now), LocalAnswer::Ask));
    assert!(matches!(
        ledger.message((holder(6), Some(1)), (place, 1_000), now),
        Letter::None
    ));
    for tag in 2..=5 {
        assert!(matches!(
            ask(tag, 1, now),
            LocalAnswer::Decided(_) | LocalAnswer::Low(_)
        ));
    }
}

#[test]
fn only_buckets_tell_when_they_are_full() {
    let ten = Quota::per_second(10);
    let full_after = |quota: Quota| {
        let decision = crate::LocalLimiter::new(quota).acquire(&crate::Key::global(), 1);
        decision.binding_status().full_after(0)
    };
    assert_eq!(full_after(ten), Some(100 * MS));
    for windows in [ten.fixed_window(), ten.sliding_window(), ten.sliding_log()] {
        assert_eq!(full_after(windows), None, "{windows:?}");
    }
}

/// A late copy of an earlier message made the row anew, smaller than what was spent meanwhile: that was
/// of the row that has ended, so it can't be given back.
#[test]
fn row_with_fewer_units_than_were_spent_is_a_new_one() {
    let now = Instant::now();
    let ledger = leased(20, 20, now);
    let sent = message(&ledger, now).expect("a demand");
    let spent = acquire(&ledger, 12, now).expect("enough is held");
    ledger.hear(&sent, &granted(LeaseStatus::Known, 5), Some(&told(5)), now);
    let refund = Op::Refund(12, Some(spent.receipt()));
    assert!(matches!(
        ledger.decide(HOLDER, &refund, now),
        LocalAnswer::Ask
    ));
    assert!(!is_allowed(&ledger, 6, now));
    assert!(is_allowed(&ledger, 5, now), "the row's");
}

/// What the node holds itself was taken for used when the store denied, and it may give it back.
#[test]
fn denial_beside_units_of_its_own_is_not_held_to_the_end_of_the_window() {
    let now = Instant::now();
    let hours = Duration::from_secs(7_200);
    for (units, held) in [(0, 900 * MS), (10, 20 * MS)] {
        let ledger = ledger(1);
        assert!(acquire(&ledger, 50, now).is_none());
        let sent = message(&ledger, now).expect("a demand");
        let reply = granted(LeaseStatus::New, units);
        ledger.hear(&sent, &reply, None, now);
        let mut decision = denied(hours);
        let rows = (&Op::Acquire(50), &mut decision);
        ledger.hold(&sent, &reply, rows, DenialKind::Window);
        assert!(acquire(&ledger, 50, now + held - MS).is_some());
        let later = acquire(&ledger, 50, now + held);
        assert_eq!(later.is_some(), units == 0, "{units}");
    }
}

#[test]
fn without_memory_a_denial_is_held_for_a_pause() {
    let now = Instant::now();
    let mut ledger = ledger(1);
    ledger.terms.remembers_denials = false;
    assert!(acquire(&ledger, 50, now).is_none());
    let sent = message(&ledger, now).expect("a demand");
    let reply = granted(LeaseStatus::New, 0);
    ledger.hear(&sent, &reply, None, now);
    let mut decision = denied(Duration::from_secs(7_200));
    let rows = (&Op::Acquire(50), &mut decision);
    ledger.hold(&sent, &reply, rows, DenialKind::Window);
    assert!(acquire(&ledger, 50, now + 19 * MS).is_some());
    assert!(acquire(&ledger, 50, now + 20 * MS).is_none());
}

/// The quiet after a low mark ends with the answer.
#[test]
fn units_are_fetched_ahead_as_soon_as_the_last_are_there() {
    let now = Instant::now();
    let ledger = leased(200, 20, now);
    let low = |at: Instant| {
        let ask = |_| ledger.decide(HOLDER, &Op::Acquire(1), at);
        (0..20)
            .map(ask)
            .any(|answer| matches!(answer, LocalAnswer::Low(_)))
    };
    assert!(low(now));
    let sent = message(&ledger, now).expect("a demand");
    ledger.hear(
        &sent,
        &granted(LeaseStatus::Known, 20),
        Some(&told(500)),
        now + MS,
    );
    assert!(
        low(now + 2 * MS),
        "long before an eighth of a lease is over"
    );
}
