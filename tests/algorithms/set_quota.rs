//! `set_quota`: what a change of quota does to what was counted.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use proptest::prelude::*;
use tower_ratelimit::{
    ConfigErrorKind, Key, LocalLimiter, Quota, clock::ManualClock, quota::Algorithm,
};

use super::{
    alice, cases, every_algorithm,
    random_quotas::{ALGORITHMS, Spec, forward, limiter, spec_of},
};

fn hourly(quota: Quota) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = limiter(Spec::hard(quota), &clock);
    (limiter, clock)
}

fn set(limiter: &LocalLimiter, quota: Quota) {
    limiter.set_quota("default", quota).expect("a good quota");
}

fn remaining(limiter: &LocalLimiter) -> u64 {
    limiter.peek(&alice(), 1).remaining().expect("known")
}

#[test]
fn lowered_limit_keeps_what_was_used() {
    let (before, after) = (Quota::per_hour(10), Quota::per_hour(6));
    for (quota, lowered) in every_algorithm(before)
        .into_iter()
        .zip(every_algorithm(after))
    {
        let (limiter, _) = hourly(quota);
        let _ = limiter.acquire(&alice(), 4);
        set(&limiter, lowered);
        let left = remaining(&limiter);
        match lowered.algorithm() {
            // The state that is kept is when the bucket is full, or the queue empty, again: of 40 minutes for
            // a lowered rate, which are 2.4 units of 10.
            Algorithm::TokenBucket | Algorithm::LeakyBucket { .. } => assert_eq!(left, 3),
            _ => assert_eq!(left, 2, "{lowered:?}"),
        }
        let limit = limiter.peek(&alice(), 1).binding().limit();
        assert_eq!(limit, 6, "headers show the new quota");
    }
}

#[test]
fn raised_limit_keeps_what_was_used() {
    let (before, after) = (Quota::per_hour(10), Quota::per_hour(15));
    for (quota, raised) in every_algorithm(before)
        .into_iter()
        .zip(every_algorithm(after))
    {
        let (limiter, _) = hourly(quota);
        let _ = limiter.acquire(&alice(), 10);
        set(&limiter, raised);
        match raised.algorithm() {
            // The hour until it is full is now worth 15.
            Algorithm::TokenBucket | Algorithm::LeakyBucket { .. } => {
                assert_eq!(remaining(&limiter), 0);
            }
            _ => assert_eq!(remaining(&limiter), 5, "{raised:?}"),
        }
    }
}

#[test]
fn burst_and_queue_change_in_place() {
    let changes = [
        (Quota::per_hour(10), Quota::per_hour(10).burst(15)),
        (
            Quota::per_hour(10).leaky_bucket(9),
            Quota::per_hour(10).leaky_bucket(14),
        ),
    ];
    for (small, large) in changes {
        let (limiter, _) = hourly(small);
        let _ = limiter.acquire(&alice(), 7);
        set(&limiter, large);
        assert_eq!(remaining(&limiter), 8, "{large:?}");
        set(&limiter, small);
        assert_eq!(remaining(&limiter), 3, "{small:?}");
    }
}

/// A hundred units of an old quota are an exhausted new one, and no more than that.
#[test]
fn far_lower_limit_locks_nobody_out_for_longer_than_its_period() {
    let (before, after) = (Quota::per_hour(100), Quota::per_hour(2));
    for (quota, lowered) in every_algorithm(before)
        .into_iter()
        .zip(every_algorithm(after))
    {
        let (limiter, clock) = hourly(quota);
        let _ = limiter.acquire(&alice(), 100);
        set(&limiter, lowered);
        let hour = Duration::from_secs(3_600);
        let denied = limiter.acquire(&alice(), 1);
        // The oldest slice weighs in full in the instant in which it begins to leave.
        let begins_to_leave = Duration::from_micros(1);
        assert!(
            denied.retry_after() <= Some(hour + begins_to_leave),
            "{lowered:?}: {denied:?}"
        );
        clock.advance(denied.retry_after().expect("it fits"));
        assert!(limiter.acquire(&alice(), 1).is_allowed(), "{lowered:?}");
    }
}

#[test]
fn other_algorithm_period_slices_or_step_start_afresh() {
    let all = every_algorithm(Quota::per_hour(10));
    for (i, before) in all.into_iter().enumerate() {
        let others = all
            .into_iter()
            .chain(every_algorithm(Quota::per_minute(10)));
        for (j, after) in others.enumerate() {
            let (limiter, _) = hourly(before);
            let _ = limiter.acquire(&alice(), 10);
            set(&limiter, after);
            let expected = if i == j { 0 } else { 10 };
            assert_eq!(remaining(&limiter), expected, "{before:?} to {after:?}");
            assert_eq!(limiter.acquire(&alice(), 20).remaining(), Some(expected));
        }
    }
}

/// From the lock-free table to the locked one and back.
#[test]
fn bucket_becomes_a_window_and_a_bucket_again() {
    let (bucket, window) = (Quota::per_hour(3), Quota::per_hour(5).fixed_window());
    let (limiter, clock) = hourly(bucket);
    let others: Vec<_> = (0..3_u64).map(Key::from).collect();
    for other in &others {
        assert!(limiter.acquire(other, 3).is_allowed());
    }
    set(&limiter, window);
    assert_eq!(limiter.tracked_keys(), 0, "all start afresh");
    for other in &others {
        assert!(limiter.acquire(other, 5).is_allowed());
        assert!(limiter.acquire(other, 1).is_denied());
    }
    assert_eq!(limiter.tracked_keys(), 3);
    set(&limiter, bucket);
    for other in &others {
        assert!(limiter.acquire(other, 3).is_allowed());
        assert!(limiter.acquire(other, 1).is_denied());
    }
    assert_eq!(limiter.tracked_keys(), 6, "those of the window return");
    set(&limiter, window);
    for other in &others {
        assert!(limiter.acquire(other, 1).is_denied());
    }
    set(&limiter, bucket);
    clock.advance(Duration::from_secs(1_200));
    assert!(limiter.acquire(&others[0], 1).is_allowed());
    assert!(limiter.acquire(&others[0], 1).is_denied());
}

#[test]
fn one_of_a_list_changes_alone() {
    let limiter = LocalLimiter::builder([
        Quota::per_hour(10).named("hourly"),
        Quota::per_day(20).fixed_window(),
    ])
    .clock(ManualClock::new())
    .build()
    .expect("good quotas");
    let _ = limiter.acquire(&alice(), 8);
    limiter
        .set_quota("hourly", Quota::per_hour(10).sliding_log())
        .expect("there is one");
    limiter
        .set_quota("20-per-86400s", Quota::per_day(10).fixed_window())
        .expect("there is one");
    let reported = limiter.peek(&alice(), 1);
    let reported: Vec<_> = reported
        .quotas()
        .map(|quota| (quota.name(), quota.limit(), quota.remaining()))
        .collect();
    // Names stay what they were, or headers and observers would lose the thread.
    let expected = [("hourly", 10, Some(10)), ("20-per-86400s", 10, Some(2))];
    assert_eq!(reported, expected);
}

#[test]
fn clones_see_it() {
    for quota in every_algorithm(Quota::per_hour(10)) {
        let (limiter, _) = hourly(quota);
        let handle = limiter.clone();
        set(&limiter, Quota::per_hour(3));
        assert_eq!(remaining(&handle), 3);
        set(&handle, Quota::per_hour(4).sliding_window());
        assert_eq!(remaining(&limiter), 4);
        assert_eq!(remaining(&limiter.clone()), 4);
    }
}

#[test]
fn nonsense_and_unknown_names_are_named_errors_and_change_nothing() {
    for quota in every_algorithm(Quota::per_hour(10)) {
        let (limiter, _) = hourly(quota);
        let error = limiter
            .set_quota("login", Quota::per_hour(1))
            .expect_err("there is none");
        assert_eq!(error.kind(), ConfigErrorKind::QuotaList);
        assert!(error.to_string().contains("\"login\""), "{error}");
        assert!(error.to_string().contains("\"default\""), "{error}");
        let error = limiter
            .set_quota("default", Quota::per_hour(0))
            .expect_err("nothing passes");
        assert_eq!(error.kind(), ConfigErrorKind::Limit);
        assert_eq!(remaining(&limiter), 10);
    }
}

/// Each admission is within the largest quota there was; nothing panics, no lock is held forever.
#[test]
fn threads_hammer_while_quotas_change() {
    let quotas = [
        Quota::per_hour(50),
        Quota::per_hour(50).fixed_window(),
        Quota::per_hour(20).leaky_bucket(49),
        Quota::per_hour(50).sliding_window().slices(4),
        Quota::per_hour(10),
        Quota::per_hour(50).sliding_log(),
    ];
    let (limiter, clock) = hourly(quotas[0]);
    let done = AtomicBool::new(false);
    let (changes, admitted) = thread::scope(|scope| {
        let hammer = || {
            let mut admitted = 0;
            while !done.load(Ordering::Relaxed) {
                let decision = limiter.acquire(&alice(), 1);
                assert!(decision.remaining() <= Some(50));
                admitted += decision.charged();
                if admitted % 7 == 0 {
                    let _ = limiter.refund(&alice(), 0, Some(decision.receipt()));
                    let _ = limiter.peek(&alice(), u64::MAX);
                }
            }
            admitted
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(hammer)).collect();
        let changes = 300;
        for round in 1..=changes {
            set(&limiter, quotas[round % quotas.len()]);
        }
        done.store(true, Ordering::Relaxed);
        let admitted = threads.into_iter().map(|thread| thread.join());
        let admitted: u64 = admitted.map(|admitted| admitted.expect("no panic")).sum();
        (changes as u64, admitted)
    });
    // Each change starts afresh at most, and a request in flight may land before or after it.
    assert!(admitted <= (changes + 1) * (50 + 8), "{admitted}");
    set(&limiter, Quota::per_hour(30).fixed_window());
    let _ = limiter.reset(&alice());
    assert_eq!(limiter.acquire_up_to(&alice(), 99).charged(), 30);
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(limiter.acquire_up_to(&alice(), 99).charged(), 30);
}

proptest! {
    #![proptest_config(cases(600))]

    /// From any state, by any change: one unit passes within a period of the new quota.
    #[test]
    fn no_change_locks_out_for_longer_than_a_full_quota(
        (before, after) in (0..ALGORITHMS).prop_flat_map(|a| (spec_of(a), spec_of(a))),
        trace in prop::collection::vec((forward(), any::<u8>()), 1..15),
        same_period in prop::bool::weighted(0.8),
    ) {
        let clock = ManualClock::new();
        let limiter = limiter(before, &clock);
        for (step, cost) in trace {
            clock.advance(Duration::from_micros(step.span(&[before])));
            let _ = limiter.hit(&alice(), u64::from(cost));
        }
        let after = if same_period { after.with_period_of(&before) } else { after };
        prop_assume!(after.quota.check().is_ok());
        set(&limiter, after.quota);
        let looked = limiter.peek(&alice(), 1);
        let longest = after.longest_denial();
        let wait = looked.retry_after().expect("one unit fits");
        prop_assert!(wait <= longest, "{:?} beyond {:?}", wait, longest);
        prop_assert!(looked.remaining() <= Some(after.quota.capacity()));
        clock.advance(wait);
        prop_assert!(limiter.acquire(&alice(), 1).is_allowed());
    }
}
