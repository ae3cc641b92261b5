//! `block_for`: a key that breaks the limit stays out.

use std::time::Duration;

use tower_ratelimit::{
    Decision, Key, Limiter as _, LocalLimiter, Quota, clock::ManualClock, decision::Op,
    limiter::Pending,
};

use super::{alice, every_algorithm};

pub(super) const BLOCK: Duration = Duration::from_secs(600);

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn blocking(quota: Quota, max_keys: usize) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(quota)
        .block_for(BLOCK)
        .max_keys(max_keys)
        .clock(clock.clone())
        .build()
        .expect("a good quota");
    (limiter, clock)
}

/// A key that has just been blocked.
fn blocked(quota: Quota) -> (LocalLimiter, ManualClock) {
    let (limiter, clock) = blocking(quota, 8);
    let _ = limiter.hit(&alice(), u64::MAX);
    assert!(limiter.acquire(&alice(), 1).is_blocked());
    (limiter, clock)
}

pub(super) fn request(limiter: &LocalLimiter, op: Op) -> Decision {
    let Pending::Ready(decision) = limiter.apply(&alice(), op);
    decision.expect("it is local")
}

pub(super) fn facts(decision: &Decision) -> (bool, bool, Option<u64>, Option<Duration>) {
    (
        decision.is_denied(),
        decision.is_blocked(),
        decision.remaining(),
        decision.retry_after(),
    )
}

#[test]
fn starts_with_the_first_denial_and_is_not_extended() {
    for quota in every_algorithm(Quota::per_minute(5)) {
        let (limiter, clock) = blocking(quota, 8);
        let _ = limiter.acquire_up_to(&alice(), u64::MAX);
        let first = limiter.acquire(&alice(), 1);
        assert_eq!(facts(&first), (true, true, Some(0), Some(BLOCK)));

        // Denied by the quota too, which is no new breach.
        clock.advance(seconds(1));
        let again = limiter.acquire(&alice(), 5);
        assert_eq!(again.retry_after(), Some(seconds(599)), "{quota:?}");

        clock.advance(seconds(598));
        for again in [
            limiter.acquire(&alice(), 1),
            limiter.acquire(&alice(), 5),
            limiter.acquire_up_to(&alice(), 1),
            limiter.acquire_up_to(&alice(), u64::MAX),
        ] {
            let expected = (true, true, Some(0), Some(seconds(1)));
            assert_eq!(facts(&again), expected, "{quota:?}");
            assert_eq!(again.charged(), 0);
        }
        clock.advance(seconds(1));
        let free = limiter.acquire(&alice(), 5);
        assert!(free.is_allowed() && !free.is_blocked(), "{quota:?}");
    }
}

/// A quota may take longer than the block, and then reports its own time.
#[test]
fn retry_after_is_the_longer_of_both() {
    let (limiter, clock) = blocked(Quota::per_day(10).sliding_log());
    let denied = limiter.acquire(&alice(), 1);
    assert_eq!(denied.retry_after(), Some(seconds(86_400)));
    clock.advance(BLOCK);
    let denied = limiter.acquire(&alice(), 1);
    assert_eq!(denied.retry_after(), Some(seconds(86_400) - BLOCK));

    let (limiter, _) = blocked(Quota::per_second(10));
    let denied = limiter.acquire(&alice(), 1);
    assert_eq!(denied.retry_after(), Some(BLOCK));
    assert_eq!(denied.binding().effective_window(), Some(BLOCK));
}

#[test]
fn peek_reports_a_block_and_starts_none() {
    let (limiter, _) = blocking(Quota::per_minute(1), 8);
    let _ = limiter.acquire(&alice(), 1);
    let looked = limiter.peek(&alice(), 1);
    assert!(looked.is_denied() && !looked.is_blocked());
    assert_eq!(looked.retry_after(), Some(seconds(60)));

    let _ = limiter.acquire(&alice(), 1);
    let looked = limiter.peek(&alice(), 1);
    assert_eq!(facts(&looked), (true, true, Some(0), Some(BLOCK)));
}

/// A hit is charged while the key is out, a refund is credited; the block takes its time.
#[test]
fn hit_and_refund_neither_start_nor_end_one() {
    for quota in every_algorithm(Quota::per_minute(5)) {
        let (limiter, clock) = blocking(quota, 8);
        let hit = limiter.hit(&alice(), 10);
        assert!(hit.is_denied() && !hit.is_blocked(), "{quota:?}");
        let again = limiter.hit(&alice(), 1);
        assert!(again.is_denied() && !again.is_blocked(), "{quota:?}");
        let refunded = limiter.refund(&alice(), 5, None);
        assert_eq!(refunded.remaining(), Some(5), "{quota:?}");
        assert!(limiter.acquire(&alice(), 2).is_allowed(), "{quota:?}");

        assert!(limiter.acquire(&alice(), 4).is_blocked(), "{quota:?}");
        let _ = limiter.refund(&alice(), 5, None);
        let hit = limiter.hit(&alice(), 1);
        assert_eq!((hit.is_blocked(), hit.charged()), (true, 1), "{quota:?}");
        clock.advance(BLOCK - Duration::from_micros(1));
        assert!(limiter.acquire(&alice(), 1).is_blocked(), "{quota:?}");
        clock.advance(Duration::from_micros(1));
        assert!(limiter.acquire(&alice(), 1).is_allowed(), "{quota:?}");
    }
}

#[test]
fn reset_ends_it() {
    for quota in every_algorithm(Quota::per_minute(5)) {
        let (limiter, _) = blocked(quota);
        let reset = limiter.reset(&alice());
        assert_eq!(facts(&reset), (false, false, Some(5), Some(seconds(0))));
        assert_eq!(limiter.tracked_keys(), 0);
        assert!(limiter.acquire(&alice(), 5).is_allowed());
    }
}

#[test]
fn cost_that_can_never_fit_starts_none() {
    for quota in every_algorithm(Quota::per_minute(5)) {
        let (limiter, _) = blocking(quota, 8);
        for cost in [6, u64::MAX] {
            let denied = limiter.acquire(&alice(), cost);
            assert_eq!(facts(&denied), (true, false, Some(5), None));
        }
        assert_eq!(limiter.tracked_keys(), 0);
        assert!(limiter.acquire(&alice(), 5).is_allowed());
    }
    // It does not fit after the block either.
    let (limiter, _) = blocked(Quota::per_minute(5));
    let never = limiter.acquire(&alice(), 6);
    assert_eq!(facts(&never), (true, true, Some(0), None));
}

#[test]
fn cost_0_does_not_pass() {
    for quota in every_algorithm(Quota::per_minute(5)) {
        let (limiter, clock) = blocked(quota);
        for free in [
            limiter.acquire(&alice(), 0),
            limiter.acquire_up_to(&alice(), 0),
            limiter.peek(&alice(), 0),
            limiter.hit(&alice(), 0),
            request(&limiter, Op::Reserve(0)),
            request(&limiter, Op::Deny(0)),
        ] {
            assert_eq!(
                facts(&free),
                (true, true, Some(0), Some(BLOCK)),
                "{quota:?}"
            );
        }
        clock.advance(BLOCK);
        let free = limiter.acquire(&alice(), 0);
        assert!(free.is_allowed() && !free.is_blocked(), "{quota:?}");
    }
}

/// Elastic and wait call again after a denial of a reservation; only the answer without hope blocks.
#[test]
fn only_a_denial_without_hope_blocks() {
    for quota in every_algorithm(Quota::per_minute(5)) {
        let (limiter, _) = blocking(quota, 8);
        let fits = request(&limiter, Op::Deny(5));
        assert_eq!((fits.is_denied(), fits.charged()), (false, 0), "{quota:?}");
        let _ = limiter.acquire_up_to(&alice(), 5);
        for _ in 0..3 {
            let denied = request(&limiter, Op::Reserve(1));
            assert!(denied.is_denied() && !denied.is_blocked(), "{quota:?}");
        }
        let never = request(&limiter, Op::Deny(6));
        assert!(never.is_denied() && !never.is_blocked(), "{quota:?}");
        let denied = request(&limiter, Op::Deny(1));
        assert_eq!(facts(&denied), (true, true, Some(0), Some(BLOCK)));
        assert_eq!(denied.charged(), 0);
        assert!(request(&limiter, Op::Reserve(1)).is_blocked(), "{quota:?}");
    }
}

#[test]
fn block_by_hand_denies_until_it_ends() {
    let locked = |quota| blocking(quota, 8);
    let lone = |quota| {
        let clock = ManualClock::new();
        let limiter = LocalLimiter::builder(quota)
            .max_keys(8)
            .clock(clock.clone())
            .build();
        (limiter.expect("a good quota"), clock)
    };
    for quota in every_algorithm(Quota::per_minute(5)) {
        for (limiter, clock) in [locked(quota), lone(quota)] {
            let reported = limiter.block(&alice(), seconds(7)).unwrap();
            let expected = (true, true, Some(0), Some(seconds(7)));
            assert_eq!(facts(&reported), expected, "{quota:?}");
            // A step back is no reason to let the key in, nor to keep it out for longer than announced.
            clock.step_back(seconds(3));
            let denied = limiter.acquire(&alice(), 1);
            assert_eq!(denied.retry_after(), Some(seconds(10)), "{quota:?}");
            clock.advance(seconds(10) - Duration::from_micros(1));
            assert!(limiter.acquire(&alice(), 0).is_blocked(), "{quota:?}");
            clock.advance(Duration::from_micros(1));
            assert!(limiter.acquire(&alice(), 5).is_allowed(), "{quota:?}");

            let longest = Duration::from_nanos(1 << 59);
            let fault = limiter.block(&alice(), longest + Duration::from_nanos(1));
            let fault = fault.unwrap_err().to_string();
            assert!(fault.contains("longer than 18 years"), "{fault}");
            assert!(!limiter.peek(&alice(), 0).is_blocked());
            limiter.block(&alice(), longest).unwrap();
            let freed = limiter.block(&alice(), Duration::ZERO).unwrap();
            assert!(!freed.is_blocked() && !limiter.peek(&alice(), 0).is_blocked());
            limiter.block(&alice(), longest).unwrap();
            assert!(!limiter.reset(&alice()).is_blocked(), "{quota:?}");
            assert!(limiter.acquire(&alice(), 5).is_allowed(), "{quota:?}");
        }
    }
}

#[test]
fn clock_that_steps_back_locks_nobody_out_beyond_the_block() {
    for step in [1, 599, 3_600, 86_400 * 365].map(seconds) {
        let (limiter, clock) = blocked(Quota::per_second(5));
        clock.step_back(step);
        let denied = limiter.acquire(&alice(), 1);
        assert_eq!(denied.retry_after(), Some(BLOCK), "{step:?}");
        clock.advance(BLOCK);
        assert!(limiter.acquire(&alice(), 1).is_allowed(), "{step:?}");
    }
}

/// Whichever table has the block: what a decision reported only gets shorter.
#[test]
fn block_by_hand_that_a_step_back_cuts_ends_as_reported() {
    let longest = Duration::from_nanos((1 << 59) / 1_000 * 1_000);
    for quota in every_algorithm(Quota::per_minute(5)) {
        let clock = ManualClock::new();
        clock.advance(longest * 3);
        let limiter = LocalLimiter::builder(quota).clock(clock.clone()).build();
        let limiter = limiter.expect("a good quota");
        limiter.block(&alice(), longest).unwrap();
        clock.step_back(longest / 2);
        let cut = limiter.acquire(&alice(), 1).retry_after().unwrap();
        clock.advance(seconds(1));
        let later = limiter.acquire(&alice(), 1).retry_after().unwrap();
        assert!(
            later <= cut - seconds(1),
            "{quota:?}: {later:?} after {cut:?}"
        );
    }
}

/// One quota of a list that denies blocks the key for all of them.
#[test]
fn list_is_blocked_as_one() {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder([Quota::per_second(2), Quota::per_day(100).fixed_window()])
        .block_for(BLOCK)
        .clock(clock.clone())
        .build()
        .expect("good quotas");
    assert!(limiter.acquire(&alice(), 2).is_allowed());
    let denied = limiter.acquire(&alice(), 1);
    assert!(denied.quotas().all(|quota| quota.is_denied()));
    assert_eq!(facts(&denied), (true, true, Some(0), Some(BLOCK)));
    clock.advance(BLOCK);
    let free = limiter.acquire(&alice(), 2);
    let daily = free.quotas().nth(1).expect("the second");
    assert_eq!((free.is_allowed(), daily.remaining()), (true, Some(96)));
}

/// The quota of a blocked key may be as good as new; the block is still not forgotten for others.
#[test]
fn blocked_keys_survive_a_flood() {
    let max_keys = 1_000;
    let (limiter, clock) = blocking(Quota::per_second(2), max_keys);
    let offenders: Vec<_> = (0..20_u64).map(Key::from).collect();
    for offender in &offenders {
        let _ = limiter.hit(offender, 2);
        assert!(limiter.acquire(offender, 1).is_blocked());
    }
    clock.advance(seconds(60));
    // There is room for what responses count, too, and no response counted.
    for fresh in 0..4 * max_keys as u64 {
        assert!(limiter.acquire(&Key::from(1_000 + fresh), 1).is_allowed());
    }
    assert!(limiter.evictions() > 0, "the flood did not fill the table");
    for offender in &offenders {
        assert!(limiter.acquire(offender, 1).is_blocked());
    }
}
