//! One ledger, step by step.

use super::*;
use crate::wire::NodeReport;

const MS: Duration = Duration::from_millis(1);

const fn report([spent, back, want, demand]: [u32; 4]) -> NodeReport {
    NodeReport::Lease {
        spent,
        back,
        want,
        demand,
    }
}

#[test]
fn thin_subjects_have_no_lease() {
    let (ledger, now) = (ledger(1), Instant::now());
    for _ in 0..7 {
        assert!(acquire(&ledger, 1, now).is_none());
        assert!(matches!(ledger.attach(SUBJECT, now), AttachedMessage::None));
    }
    assert!(acquire(&ledger, 1, now).is_none());
    let clause = message(&ledger, now).expect("the eighth").message;
    assert_eq!((clause.seq, clause.report), (1, report([0, 0, 8, 8])));
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

/// A lease ends on the node before it ends in the store. A first design dropped the spent units then, and the
/// store returned them.
#[test]
fn spent_units_are_reported_though_the_lease_has_ended_on_the_node() {
    let now = Instant::now();
    let ledger = leased(10, 5, now);
    assert!(is_allowed(&ledger, 3, now));
    let ended = now + LENGTH - LENGTH / 2_048;
    assert!(acquire(&ledger, 9, ended).is_none());
    let clause = message(&ledger, ended)
        .expect("something to report")
        .message;
    let [spent, back, ..] = clause.report.numbers();
    assert_eq!((clause.seq, spent, back), (2, 3, 2));
}

#[test]
fn a_message_without_a_reply_is_repeated_with_all_its_numbers() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    assert!(is_allowed(&ledger, 4, now));
    let sent = message(&ledger, now).expect("a demand");
    assert!(matches!(
        ledger.attach(SUBJECT, now),
        AttachedMessage::UnderWay
    ));
    assert!(is_allowed(&ledger, 1, now), "units are spent meanwhile");
    ledger.lose_sent(&sent, now);
    let again = message(&ledger, now + MS).expect("the same again");
    assert_eq!(again.message, sent.message);
    assert_eq!(ledger.stats().repeated, 1);
    // The reply to the first comes too late: the node does not wait for it.
    let reply = granted(RowStatus::Known, 30);
    ledger.reply(&sent, &reply, None, now + MS);
    assert!(acquire(&ledger, 10, now + MS).is_none());
    // All units of the row, less those that were spent since.
    ledger.reply(&again, &reply, None, now + MS);
    assert!(is_allowed(&ledger, 29, now + MS));
    assert!(acquire(&ledger, 1, now + MS).is_none());
}

/// Units spent while the message was under way are of a row that has ended.
#[test]
fn new_row_has_all_its_units() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    let sent = message(&ledger, now).expect("a demand");
    assert!(is_allowed(&ledger, 10, now));
    ledger.reply(&sent, &granted(RowStatus::New, 6), None, now);
    assert!(is_allowed(&ledger, 6, now));
    assert!(acquire(&ledger, 1, now).is_none());
    assert_eq!(ledger.stats().ended, 10);
}

#[test]
fn stale_message_drops_the_lease_and_its_name() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    let sent = message(&ledger, now).expect("a demand");
    ledger.reply(&sent, &granted(RowStatus::Stale, 0), None, now);
    assert!(acquire(&ledger, 1, now).is_none());
    let next = message(&ledger, now).expect("a demand");
    assert_ne!(next.message.name, sent.message.name);
    let [spent, back, ..] = next.message.report.numbers();
    assert_eq!((next.message.seq, spent, back), (1, 0, 0));
    assert_eq!(ledger.stats().stale, 1);
}

#[test]
fn a_lease_without_a_reply_for_two_lengths_is_dropped() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    assert!(is_allowed(&ledger, 4, now));
    let sent = message(&ledger, now).expect("a demand");
    ledger.lose_sent(&sent, now);
    let later = now + 2 * LENGTH;
    assert_eq!(ledger.due(later).len(), 1);
    let later = later + MS;
    assert!(acquire(&ledger, 50, later).is_none());
    let next = message(&ledger, later).expect("a demand");
    assert_ne!(next.message.name, sent.message.name);
    assert_eq!((next.message.seq, ledger.stats().ended), (1, 10));
}

#[test]
fn more_units_are_requested_before_none_is_left() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    let mut low = 0;
    for _ in 0..10 {
        match ledger.decide_now(SUBJECT, &Op::Acquire(1), now) {
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
fn the_maintenance_task_returns_surplus() {
    let now = Instant::now();
    let ledger = leased(100, 60, now);
    assert!(ledger.due(now).is_empty(), "all of it may be needed");
    let later = now + LENGTH / 2;
    let due = ledger.due(later);
    assert_eq!(due.len(), 1);
    let clause = message(&ledger, later).expect("a surplus").message;
    let [_, back, want, demand] = clause.report.numbers();
    assert!(demand < 20 && back == 60 - demand);
    assert_eq!(want, 0);
    assert!(ledger.due(later).is_empty(), "it is under way");
    let sent = message(&ledger, later + 3 * DEADLINE).expect("the call was dropped");
    assert_eq!(sent.message, clause);
}

/// The deadline may be longer than a lease.
#[test]
fn lease_is_settled_before_it_ends_however_long_the_deadline_is() {
    for deadline in [DEADLINE, LENGTH / 2, LENGTH, 2 * LENGTH, 3_600 * LENGTH] {
        let now = Instant::now();
        let ledger = leased_of(ledger_of(1, deadline), 20, 10, now);
        assert!(is_allowed(&ledger, 8, now));
        assert!(ledger.due(now + LENGTH / 8).is_empty(), "{deadline:?}");
        let looks = (1..8).map(|at| now + at * ledger.terms.tick());
        let due = looks.map(|at| ledger.due(at).len()).max();
        assert_eq!(due, Some(1), "{deadline:?}");
    }
}

#[test]
fn the_maintenance_task_settles_a_lease_that_ends_soon() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    assert!(is_allowed(&ledger, 8, now));
    assert!(ledger.due(now + LENGTH / 2).is_empty());
    let late = now + LENGTH - LENGTH / 5;
    assert_eq!(ledger.due(late).len(), 1);
    let sent = message(&ledger, late).expect("something was spent");
    let [spent, _, want, _] = sent.message.report.numbers();
    assert_eq!((spent, want), (8, 0));
    let reply = NodeReply {
        ttl: LENGTH / 5,
        ..granted(RowStatus::Known, 2)
    };
    ledger.reply(&sent, &reply, None, late);
    assert!(ledger.due(late).is_empty(), "it is reported");
    // Nothing is left to report when it has ended.
    assert!(is_allowed(&ledger, 2, late));
    let sent = message(&ledger, late + MS).expect("something was spent");
    let reply = NodeReply {
        ttl: Duration::ZERO,
        ..granted(RowStatus::Known, 0)
    };
    ledger.reply(&sent, &reply, None, late + MS);
    assert!(ledger.due(late + LENGTH).is_empty());
    assert!(message(&ledger, late + LENGTH).is_none());
    assert_eq!(ledger.stats().settled, 10);
}

#[test]
fn a_refund_needs_no_call_until_its_units_are_reported() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    let spent = acquire(&ledger, 10, now).expect("enough is held");
    let refund = Op::Refund(4, Some(spent.receipt()));
    let back = ledger.decide_now(SUBJECT, &refund, now);
    let LocalAnswer::Decided(back) = back else {
        panic!("the lease is live: {back:?}");
    };
    assert_eq!((back.charged(), back.remaining()), (0, Some(494)));
    assert!(is_allowed(&ledger, 4, now));
    // No more than the spent and unreported units can be returned.
    for is_there in [true, false] {
        let six = Op::Refund(6, Some(spent.receipt()));
        let answer = ledger.decide_now(SUBJECT, &six, now);
        let is_local = matches!(answer, LocalAnswer::Decided(_));
        assert_eq!(is_local, is_there, "{answer:?}");
    }
    let sent = message(&ledger, now).expect("a demand");
    assert_eq!(sent.message.report.numbers()[0], 4);
    ledger.reply(&sent, &granted(RowStatus::Known, 26), None, now);
    assert!(is_allowed(&ledger, 10, now));
    let late = ledger.decide_now(SUBJECT, &refund, now);
    assert!(matches!(late, LocalAnswer::Ask), "it is reported: {late:?}");
}

#[test]
fn settlements_are_made_from_the_lease() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    let receipt = acquire(&ledger, 3, now).expect("enough is held").receipt();
    for (cost, charged, left) in [(3, 0, 497), (5, 2, 495), (1, 0, 497)] {
        let answer = ledger.decide_now(SUBJECT, &Op::Settle(cost, receipt.clone()), now);
        let LocalAnswer::Decided(decision) = answer else {
            panic!("the lease is live: {answer:?}");
        };
        assert!(decision.is_allowed());
        assert_eq!(
            (decision.charged(), decision.remaining()),
            (charged, Some(left))
        );
    }
    let much = ledger.decide_now(SUBJECT, &Op::Settle(99, receipt), now);
    assert!(matches!(much, LocalAnswer::Ask));
}

/// A demand above the capacity would take from the shares of others for long.
#[test]
fn the_demand_is_at_most_the_capacity() {
    let now = Instant::now();
    let ledger = ledger(1);
    assert!(acquire(&ledger, 1_000_000, now).is_none());
    let clause = message(&ledger, now).expect("a demand").message;
    assert_eq!(clause.report, report([0, 0, 1_000, 1_000]));
    let later = now + LENGTH;
    let Some(sent) = ledger.send(SUBJECT, later) else {
        panic!("it is sent again");
    };
    ledger.reply(
        &sent,
        &granted(RowStatus::New, 500),
        Some(&status(9)),
        later,
    );
    let clause = message(&ledger, later).expect("a demand").message;
    assert!(clause.report.numbers()[3] < 20, "{clause:?}");
}

#[test]
fn reset_and_block_end_the_lease_of_each_tier() {
    let now = Instant::now();
    for op in [Op::Reset, Op::Block(LENGTH)] {
        let ledger = leased(20, 10, now);
        let other = MeasuredSubject {
            chosen: Chosen::Tier(1),
            ..SUBJECT
        };
        assert!(matches!(
            ledger.decide_now(other, &op, now),
            LocalAnswer::Ask
        ));
        assert!(acquire(&ledger, 1, now).is_none());
        let clause = message(&ledger, now).expect("units to give back").message;
        assert_eq!(clause.report.numbers()[1..3], [10, 0]);
    }
}

#[test]
fn lease_of_older_quotas_is_given_back() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    ledger.begin(1, LENGTH);
    let new = MeasuredSubject {
        generation: 1,
        ..SUBJECT
    };
    assert!(matches!(
        ledger.decide_now(new, &Op::Acquire(1), now),
        LocalAnswer::Ask
    ));
    assert_eq!(ledger.due(now).len(), 1);
    let sent = message(&ledger, now).expect("units to give back");
    assert_eq!(sent.message.report.numbers()[1..3], [10, 0]);
    ledger.reply(&sent, &granted(RowStatus::Known, 0), None, now);
    assert!(message(&ledger, now).is_none(), "it is over");
}

#[test]
fn a_cost_above_the_held_units_returns_them_first() {
    let now = Instant::now();
    let ledger = leased(20, 10, now);
    assert!(acquire(&ledger, 11, now).is_none());
    let clause = message(&ledger, now).expect("a demand").message;
    assert_eq!(clause.report.numbers()[1..3], [10, 31]);
}

/// A late copy of an earlier message has made another row, with fewer units than were spent meanwhile: those
/// are of the row that has ended, and cannot be returned.
#[test]
fn row_with_fewer_units_than_were_spent_is_a_new_one() {
    let now = Instant::now();
    let ledger = leased(20, 20, now);
    let sent = message(&ledger, now).expect("a demand");
    let spent = acquire(&ledger, 12, now).expect("enough is held");
    ledger.reply(&sent, &granted(RowStatus::Known, 5), Some(&status(5)), now);
    let refund = Op::Refund(12, Some(spent.receipt()));
    assert!(matches!(
        ledger.decide_now(SUBJECT, &refund, now),
        LocalAnswer::Ask
    ));
    assert!(!is_allowed(&ledger, 6, now));
    assert!(is_allowed(&ledger, 5, now), "the row's");
}

/// The quiet after a low mark ends with the reply.
#[test]
fn units_are_requested_again_as_soon_as_a_reply_arrives() {
    let now = Instant::now();
    let ledger = leased(200, 20, now);
    let low = |at: Instant| {
        let ask = |_| ledger.decide_now(SUBJECT, &Op::Acquire(1), at);
        (0..20)
            .map(ask)
            .any(|answer| matches!(answer, LocalAnswer::Low(_)))
    };
    assert!(low(now));
    let sent = message(&ledger, now).expect("a demand");
    ledger.reply(
        &sent,
        &granted(RowStatus::Known, 20),
        Some(&status(500)),
        now + MS,
    );
    assert!(
        low(now + 2 * MS),
        "long before an eighth of a lease is over"
    );
}
