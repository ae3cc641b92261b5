//! Eviction of entries from a full bucket.

use super::*;

#[test]
fn entries_with_units_are_never_evicted_and_other_subjects_stay_strict() {
    let now = Instant::now();
    let ledger: Ledger = {
        let denials = Arc::new(DenyCache::new());
        Ledger::new(terms(6, 1), false, (denials, Some(1)))
    };
    let subject = |tag| MeasuredSubject { tag, ..SUBJECT };
    let ask = |tag, cost, now| ledger.decide_now(subject(tag), &Op::Acquire(cost), now);
    for tag in 1..=4 {
        assert!(matches!(ask(tag, 9 + tag, now), LocalAnswer::Ask));
    }
    for tag in [2, 3, 4] {
        let Some(sent) = ledger.send(subject(tag), now) else {
            panic!("a demand");
        };
        let [.., want, _] = sent.message.report.numbers();
        assert_eq!(want, 6, "the most of one lease");
        ledger.reply(&sent, &granted(RowStatus::New, 5), Some(&status(9)), now);
    }
    // The fifth takes the place of the one that holds nothing.
    assert!(matches!(ask(5, 20, now), LocalAnswer::Ask));
    assert!(matches!(
        ledger.attach(subject(1), now),
        AttachedMessage::None
    ));
    let Some(sent) = ledger.send(subject(5), now) else {
        panic!("a demand");
    };
    ledger.reply(&sent, &granted(RowStatus::New, 5), Some(&status(9)), now);
    assert!(matches!(ask(6, 20, now), LocalAnswer::Ask));
    assert!(matches!(
        ledger.attach(subject(6), now),
        AttachedMessage::None
    ));
    for tag in 2..=5 {
        assert!(matches!(
            ask(tag, 1, now),
            LocalAnswer::Decided(_) | LocalAnswer::Low(_)
        ));
    }
}
