//! One ledger, step by step.

use super::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn thin_subjects_have_no_lease() {
    let (ledger, now) = (ledger(1), Instant::now());
    for _ in 0..7 {
        assert!(acquire(&ledger, 1, now).is_none());
        assert!(matches!(
            ledger.message((HOLDER, Some(ONE)), (place, 1_000), now),
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
        ledger.message((HOLDER, Some(ONE)), (place, 1_000), now),
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

/// A store may be given so long for an answer that a lease ends before.
#[test]
fn lease_is_settled_before_it_ends_however_long_the_deadline_is() {
    for deadline in [DEADLINE, LENGTH / 2, LENGTH, 2 * LENGTH, 3_600 * LENGTH] {
        let now = Instant::now();
        let ledger = leased_of(ledger_of(1, deadline), 20, 10, now);
        assert!(is_allowed(&ledger, 8, now));
        assert!(ledger.due(now + LENGTH / 8).is_empty(), "{deadline:?}");
        let looks = (1..8).map(|at| now + at * ledger.tick());
        let due = looks.map(|at| ledger.due(at).len()).max();
        assert_eq!(due, Some(1), "{deadline:?}");
    }
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

/// More than there ever is at once would take from the shares of others, and for long.
#[test]
fn no_more_is_asked_for_than_there_ever_is() {
    let now = Instant::now();
    let ledger = ledger(1);
    assert!(acquire(&ledger, 1_000_000, now).is_none());
    let clause = message(&ledger, now).expect("a demand").clause;
    assert_eq!((clause.want, clause.demand), (1_000, 1_000));
    let later = now + LENGTH;
    let Letter::Sent(sent) = ledger.message((HOLDER, Some(ONE)), (place, 1_000), later) else {
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
    ledger.begin(1, LENGTH);
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
        let Letter::Sent(sent) = ledger.message((holder(tag), Some(ONE)), (place, 1_000), now)
        else {
            panic!("a demand");
        };
        assert_eq!(sent.clause.want, 6, "the most of one lease");
        ledger.hear(&sent, &granted(LeaseStatus::New, 5), Some(&told(9)), now);
    }
    // The fifth takes the place of the one that holds nothing.
    assert!(matches!(ask(5, 20, now), LocalAnswer::Ask));
    assert!(matches!(
        ledger.message((holder(1), Some(ONE)), (place, 1_000), now),
        Letter::None
    ));
    let Letter::Sent(sent) = ledger.message((holder(5), Some(ONE)), (place, 1_000), now) else {
        panic!("a demand");
    };
    ledger.hear(&sent, &granted(LeaseStatus::New, 5), Some(&told(9)), now);
    assert!(matches!(ask(6, 20, now), LocalAnswer::Ask));
    assert!(matches!(
        ledger.message((holder(6), Some(ONE)), (place, 1_000), now),
        Letter::None
    ));
    for tag in 2..=5 {
        assert!(matches!(
            ask(tag, 1, now),
            LocalAnswer::Decided(_) | LocalAnswer::Low(_)
        ));
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
