//! A refund gives back what was taken, to where it was taken, and nothing else.

use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::{LocalLimiter, Quota, clock::ManualClock};

use super::{
    alice, cases,
    random_quotas::{Spec, at, forward, limiter, spec},
};

fn minutely(quota: Quota) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = limiter(Spec::hard(quota), &clock);
    (limiter, clock)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A unit that left the window by itself is not given back again: another's would go, and
/// more than the limit would pass within one period.
#[test]
fn log_gives_nothing_back_for_what_has_left() {
    let (limiter, clock) = minutely(Quota::per_minute(1).sliding_log());
    let first = limiter.acquire(&alice(), 1);
    clock.advance(seconds(60));
    let second = limiter.acquire(&alice(), 1);
    assert!(first.is_allowed() && second.is_allowed());

    clock.advance(seconds(1));
    let refunded = limiter.refund(&alice(), 1, Some(first.receipt()));
    assert_eq!(refunded.remaining(), Some(0));
    assert!(limiter.acquire(&alice(), 1).is_denied());

    let refunded = limiter.refund(&alice(), 1, Some(second.receipt()));
    assert_eq!(refunded.remaining(), Some(1));
}

/// A step back brings several entries to one time, which is none of theirs: what the clock moved
/// gets nothing.
#[test]
fn log_gives_nothing_back_for_what_a_clock_moved() {
    let (limiter, clock) = minutely(Quota::per_minute(3).sliding_log());
    let first = limiter.acquire(&alice(), 1);
    clock.advance(seconds(10));
    let second = limiter.acquire(&alice(), 1);
    clock.step_back(seconds(5));
    let refunded = limiter.refund(&alice(), 1, Some(second.receipt()));
    assert_eq!(refunded.remaining(), Some(1));
    let refunded = limiter.refund(&alice(), 1, Some(first.receipt()));
    assert_eq!(refunded.remaining(), Some(2));
}

#[test]
fn log_never_takes_from_another_charge() {
    let (limiter, clock) = minutely(Quota::per_minute(3).sliding_log());
    let receipt = limiter.acquire(&alice(), 1).receipt();
    for _ in 0..2 {
        clock.advance(seconds(10));
        let _ = limiter.acquire(&alice(), 1);
    }
    // Twice as much as was charged, and a second time.
    for _ in 0..2 {
        let refunded = limiter.refund(&alice(), 2, Some(receipt.clone()));
        assert_eq!(refunded.remaining(), Some(1));
        assert_eq!(refunded.binding().reset_after(), Some(seconds(60)));
    }
    // Without a receipt it is the newest that goes.
    let refunded = limiter.refund(&alice(), 1, None);
    assert_eq!(refunded.remaining(), Some(2));
    assert_eq!(refunded.binding().reset_after(), Some(seconds(50)));
}

/// A window ahead of now's stays in force for what is counted in it. Without that it is no more
/// than a window that was never used.
#[test]
fn window_emptied_by_a_refund_is_as_good_as_new() {
    let (limiter, clock) = minutely(Quota::per_minute(5).fixed_window());
    let charged = limiter.acquire(&alice(), 2);
    let _ = limiter.refund(&alice(), 2, Some(charged.receipt()));
    clock.step_back(seconds(1));
    let fresh = limiter.peek(&alice(), 1);
    assert_eq!(fresh.remaining(), Some(5));
    assert_eq!(fresh.binding().effective_window(), Some(seconds(1)));
}

#[test]
fn windows_give_back_only_to_the_counter_that_was_charged() {
    let (limiter, clock) = minutely(Quota::per_minute(5).fixed_window());
    let old = limiter.acquire(&alice(), 5).receipt();
    clock.advance(seconds(60));
    let _ = limiter.acquire(&alice(), 3);
    let refunded = limiter.refund(&alice(), 3, Some(old));
    assert_eq!(refunded.remaining(), Some(2));

    let (limiter, clock) = minutely(Quota::per_minute(6).sliding_window().slices(3));
    let mut receipts = Vec::new();
    for _ in 0..3 {
        receipts.push(limiter.acquire(&alice(), 2).receipt());
        clock.advance(seconds(20));
    }
    // At the start of the fifth slice the second one still weighs in full, the first is gone.
    clock.advance(seconds(20));
    assert_eq!(limiter.peek(&alice(), 1).remaining(), Some(2));
    let gone = limiter.refund(&alice(), 2, Some(receipts[0].clone()));
    assert_eq!(gone.remaining(), Some(2));
    let kept = limiter.refund(&alice(), u64::MAX, Some(receipts[1].clone()));
    assert_eq!(kept.remaining(), Some(4));
}

proptest! {
    #![proptest_config(cases(500))]

    /// Whatever is given back, however often and for whatever time: never more than a full quota.
    #[test]
    fn no_refund_passes_a_full_quota(
        spec in spec(),
        trace in prop::collection::vec((forward(), any::<bool>(), 0_u64..50, any::<usize>()), 1..30),
    ) {
        let start = 1_767_225_612_345_678;
        let clock = ManualClock::at(at(start));
        let limiter = limiter(spec, &clock);
        let mut now = start;
        let mut receipts = Vec::new();
        for (step, refunds, units, choice) in trace {
            now = step.from(now, start, &[spec]);
            clock.set(at(now));
            let decision = if refunds {
                let receipt = receipts.get(choice % (receipts.len() + 1)).cloned();
                limiter.refund(&alice(), units, receipt)
            } else {
                limiter.acquire(&alice(), units)
            };
            receipts.push(decision.receipt());
            prop_assert!(decision.remaining() <= Some(spec.quota.capacity()));
        }
        let _ = limiter.refund(&alice(), u64::MAX, None);
        let passes = limiter.acquire_up_to(&alice(), u64::MAX).charged();
        prop_assert!(passes <= spec.capacity());
        prop_assert!(limiter.acquire_up_to(&alice(), u64::MAX).is_denied());
    }
}
