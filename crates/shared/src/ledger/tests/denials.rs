//! Cached denials of a ledger, and pauses.

use super::*;
const MS: Duration = Duration::from_millis(1);

#[test]
fn denial_holds_for_its_time() {
    let now = Instant::now();
    let others = NodeReply {
        others: 9,
        ..granted(RowStatus::New, 0)
    };
    let alone = granted(RowStatus::New, 0);
    let minute = Duration::from_secs(60);
    let bucket: fn(Duration) -> Run = |wait| denied_bucket(wait, Duration::from_secs(3_600));
    for (denied, reply, wait, held) in [
        (bucket, alone, 5 * MS, 20 * MS),
        (bucket, alone, 300 * MS, 300 * MS),
        (bucket, others, minute, LENGTH),
        (denied, others, minute, 20 * MS),
        (denied, others, 5 * MS, 5 * MS),
        (denied, alone, minute, minute),
    ] {
        let ledger = ledger(1);
        assert!(acquire(&ledger, 20, now).is_none());
        let sent = message(&ledger, now).expect("a demand");
        ledger.reply(&sent, &reply, None, now);
        let mut denial = denied(wait);
        hold(&ledger, (&sent, &reply), (&Op::Acquire(20), &mut denial));
        assert_eq!(
            denial.decision.retry_after(),
            Some(wait.max(held)),
            "{held:?}"
        );
        let last = now + held - MS;
        let answer = acquire(&ledger, 20, last).expect("it holds");
        assert!(answer.is_denied(), "{held:?}");
        assert_eq!(answer.retry_after(), Some(wait.max(held) - held + MS));
        assert!(acquire(&ledger, 20, now + held).is_none(), "{held:?}");
        assert!(acquire(&ledger, 19, last).is_none(), "another cost");
    }
}

/// A bucket that is full sooner loses units, and the next window has units of its own.
#[test]
fn denial_is_held_no_longer_than_nothing_comes() {
    let now = Instant::now();
    let reply = NodeReply {
        others: 9,
        ..granted(RowStatus::New, 0)
    };
    let ends = NodeReply {
        ttl: 7 * MS,
        ..reply
    };
    // A bucket of a hundred units a second, that far from full and with nine more units held.
    let full_after = |time: Duration| denied_bucket(5 * MS, time + 9 * 10 * MS);
    for (reply, mut denial, held) in [
        (reply, full_after(9 * MS), 9 * MS),
        (reply, full_after(90 * MS), 20 * MS),
        (ends, full_after(90 * MS), 7 * MS),
        (ends, denied(50 * MS), 7 * MS),
    ] {
        let ledger = ledger(1);
        assert!(acquire(&ledger, 20, now).is_none());
        let sent = message(&ledger, now).expect("a demand");
        ledger.reply(&sent, &reply, None, now);
        hold(&ledger, (&sent, &reply), (&Op::Acquire(20), &mut denial));
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
    let reply = NodeReply {
        pause: 50 * MS,
        ttl: 8 * MS,
        ..granted(RowStatus::New, 3)
    };
    ledger.reply(&sent, &reply, Some(&status(3)), now);
    let denied = acquire(&ledger, 4, now + 7 * MS).expect("it is scarce");
    assert_eq!(denied.retry_after(), Some(MS));
    assert!(acquire(&ledger, 4, now + 8 * MS).is_none());
}

/// A reply to a call that left before a reset, a block or a refund is out of date.
#[test]
fn denial_that_was_under_way_is_not_remembered_after_a_reset() {
    let now = Instant::now();
    let receipt = status(5).decision.receipt();
    let other_tier = MeasuredSubject {
        chosen: Chosen::Tier(1),
        ..SUBJECT
    };
    for op in [
        Op::Reset,
        Op::Block(Duration::ZERO),
        Op::Refund(1, None),
        Op::Refund(1, Some(receipt.clone())),
        Op::Settle(0, receipt),
    ] {
        for subject in [SUBJECT, other_tier] {
            let ledger = ledger(1);
            assert!(acquire(&ledger, 20, now).is_none());
            let sent = message(&ledger, now).expect("a demand");
            drop(ledger.decide_now(subject, &op, now));
            let reply = NodeReply {
                pause: 50 * MS,
                ..granted(RowStatus::New, 0)
            };
            ledger.reply(&sent, &reply, Some(&status(3)), now);
            let mut denial = denied(300 * MS);
            let denied = (&Op::Acquire(20), &mut denial);
            hold(&ledger, (&sent, &reply), denied);
            assert!(acquire(&ledger, 20, now + MS).is_none(), "{op:?}");
        }
    }
}

/// The reply to a reset may arrive before that to an earlier call.
#[test]
fn answer_to_a_reset_ends_what_was_asked_since() {
    let now = Instant::now();
    let ledger = ledger(1);
    assert!(acquire(&ledger, 20, now).is_none());
    drop(ledger.decide_now(SUBJECT, &Op::Reset, now));
    let sent = message(&ledger, now).expect("a demand");
    ledger.denials.forget(SUBJECT.tag, now);
    ledger.end_pauses(SUBJECT.tag);
    let reply = granted(RowStatus::New, 0);
    ledger.reply(&sent, &reply, Some(&status(3)), now);
    let mut denial = denied(300 * MS);
    let denied = (&Op::Acquire(20), &mut denial);
    hold(&ledger, (&sent, &reply), denied);
    assert!(acquire(&ledger, 20, now + MS).is_none());
}

#[test]
fn pause_denies_only_costs_that_are_not_held() {
    let now = Instant::now();
    let ledger = ledger(1);
    assert!(acquire(&ledger, 20, now).is_none());
    let sent = message(&ledger, now).expect("a demand");
    let reply = NodeReply {
        pause: 50 * MS,
        ..granted(RowStatus::New, 3)
    };
    ledger.reply(&sent, &reply, Some(&status(3)), now);
    assert!(is_allowed(&ledger, 2, now + MS));
    let denied = acquire(&ledger, 2, now + 10 * MS).expect("it is scarce");
    assert!(denied.is_denied() && !denied.is_leased());
    assert_eq!(denied.retry_after(), Some(40 * MS));
    assert!(is_allowed(&ledger, 1, now + 10 * MS));
    assert!(acquire(&ledger, 2, now + 50 * MS).is_none());
}

#[test]
fn only_buckets_tell_when_they_are_full() {
    let ten = Quota::per_second(10);
    let reply = granted(RowStatus::New, 0);
    let full_after = |quota: Quota| {
        let plan = plan_of(quota);
        let state = (plan.meters[0]).moved(&State::FRESH, SECOND.as_nanos(), 1);
        let answer = run(status(9).decision, state);
        LastStates::new(&plan, &answer).until_full(0, &reply, 0)
    };
    assert_eq!(full_after(ten), Some(100 * MS));
    for windows in [ten.fixed_window(), ten.sliding_window(), ten.sliding_log()] {
        assert_eq!(full_after(windows), None, "{windows:?}");
    }
}

/// The store counts the node's own units as used, and the node may return them.
#[test]
fn denial_beside_units_of_its_own_is_not_held_to_the_end_of_the_window() {
    let now = Instant::now();
    let hours = Duration::from_secs(7_200);
    for (units, held) in [(0, 900 * MS), (10, 20 * MS)] {
        let ledger = ledger(1);
        assert!(acquire(&ledger, 50, now).is_none());
        let sent = message(&ledger, now).expect("a demand");
        let reply = granted(RowStatus::New, units);
        ledger.reply(&sent, &reply, None, now);
        let mut denial = denied(hours);
        let runs = (&Op::Acquire(50), &mut denial);
        hold(&ledger, (&sent, &reply), runs);
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
    let reply = granted(RowStatus::New, 0);
    ledger.reply(&sent, &reply, None, now);
    let mut denial = denied(Duration::from_secs(7_200));
    let runs = (&Op::Acquire(50), &mut denial);
    hold(&ledger, (&sent, &reply), runs);
    assert!(acquire(&ledger, 50, now + 19 * MS).is_some());
    assert!(acquire(&ledger, 50, now + 20 * MS).is_none());
}
