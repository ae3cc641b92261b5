//! Tiers: other quotas for the same key.

use std::time::Duration;

use tower_ratelimit::{
    AnyLimiter, ConfigErrorKind, Decision, Key, Limiter, LimiterError, LimiterErrorKind,
    LocalLimiter, Quota,
    clock::ManualClock,
    decision::Op,
    limiter::{Pending, Tier},
    quota::Algorithm,
};

use super::{alice, every_algorithm};

const PRO: Tier = Tier::named("pro");

/// A limiter whose default tier has the first quotas, and tier `pro` the second.
fn tiered<const N: usize, const M: usize>(
    free: [Quota; N],
    pro: [Quota; M],
) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(free)
        .tier("pro", pro)
        .max_keys(8)
        .clock(clock.clone())
        .build()
        .expect("good quotas");
    (limiter, clock)
}

fn request(limiter: &LocalLimiter, tier: &Tier, op: Op) -> Result<Decision, LimiterError> {
    let Pending::Ready(decision) = testkit::apply_in(limiter, tier, &alice(), op);
    decision
}

fn pro(limiter: &LocalLimiter, op: Op) -> Decision {
    request(limiter, &PRO, op).expect("there is such a tier")
}

fn free(limiter: &LocalLimiter, op: Op) -> Decision {
    request(limiter, &Tier::DEFAULT, op).expect("there is always one")
}

#[test]
fn each_tier_counts_by_its_own_quota() {
    for quota in every_algorithm(Quota::per_hour(10)) {
        for other in every_algorithm(Quota::per_minute(4)) {
            let (limiter, clock) = tiered([quota], [other]);
            assert_eq!(pro(&limiter, Op::AcquireUpTo(99)).charged(), 4);
            let denied = pro(&limiter, Op::Acquire(1));
            assert!(denied.is_denied(), "{quota:?}, {other:?}");
            assert_eq!(denied.binding().limit(), 4);
            assert_eq!(limiter.tracked_keys(), 1, "{quota:?}, {other:?}");
            clock.advance(Duration::from_secs(180));
            assert_eq!(limiter.tracked_keys(), 0, "{quota:?}, {other:?}");
            assert_eq!(pro(&limiter, Op::AcquireUpTo(99)).charged(), 4);
        }
    }
}

/// A second quota that only one tier has is remembered even when the first is as good as new.
#[test]
fn quota_that_only_one_tier_has_is_kept() {
    let daily = Quota::per_day(5).fixed_window();
    let (limiter, clock) = tiered([Quota::per_second(2)], [Quota::per_second(5), daily]);
    assert_eq!(pro(&limiter, Op::AcquireUpTo(99)).charged(), 5);
    clock.advance(Duration::from_secs(10));
    assert_eq!(limiter.tracked_keys(), 1);
    for n in 0..1_000_u64 {
        let _ = limiter.acquire(&Key::from(n), 1);
    }
    assert!(limiter.evictions() > 0, "nothing had to give way");
    assert!(pro(&limiter, Op::Acquire(1)).is_denied());
}

/// The quota of a hundred a minute in every algorithm, and a smaller one that counts like it.
fn alike() -> impl Iterator<Item = (Quota, Quota)> {
    let small = every_algorithm(Quota::per_minute(10));
    let large = every_algorithm(Quota::per_minute(100)).into_iter();
    large
        .zip(small)
        .map(|(large, small)| match small.algorithm() {
            Algorithm::TokenBucket => (large, small.burst(2)),
            Algorithm::LeakyBucket { .. } => (large, small.leaky_bucket(1)),
            _ => (large, small),
        })
}

/// A smaller tier judges by the shared counter as it is, and lowers it for nobody.
#[test]
fn smaller_tier_gives_nothing_back_of_what_others_used() {
    for (large, small) in alike() {
        let (limiter, _) = tiered([large], [small]);
        let mut passed = 0;
        for round in 0..20 {
            passed += free(&limiter, Op::AcquireUpTo(100)).charged();
            let denied = pro(&limiter, Op::Acquire(1));
            assert!(denied.is_denied(), "{small:?}, {round}");
            let receipt = denied.receipt();
            for op in [
                Op::Peek(1),
                Op::Hit(1),
                Op::Reserve(1),
                Op::Deny(1),
                Op::AcquireUpTo(1),
                Op::Refund(1, Some(receipt.clone())),
                Op::Settle(0, receipt.clone()),
                Op::Settle(3, receipt),
            ] {
                let decision = pro(&limiter, op.clone());
                assert_eq!(decision.remaining(), Some(0), "{small:?}, {op:?}");
            }
        }
        assert_eq!(passed, 100, "{large:?}");
    }
}

/// A charge of the smaller tier comes back to the counter that both share, and no more.
#[test]
fn refund_in_a_smaller_tier_gives_back_its_own_charge() {
    for (large, small) in alike() {
        let (limiter, _) = tiered([large], [small]);
        let receipt = pro(&limiter, Op::Acquire(1)).receipt();
        let before = free(&limiter, Op::Peek(1)).remaining();
        assert!(before < Some(100), "{small:?}");
        let _ = free(&limiter, Op::Refund(1, Some(receipt)));
        assert_eq!(
            free(&limiter, Op::AcquireUpTo(200)).charged(),
            100,
            "{small:?}"
        );
    }
}

/// Many reads a minute, few writes an hour: each counts by itself, whatever comes in between.
#[test]
fn tiers_that_count_differently_hold_when_alternated() {
    for reads in every_algorithm(Quota::per_minute(100)) {
        for writes in every_algorithm(Quota::per_hour(10)) {
            let (limiter, _) = tiered([reads], [writes]);
            let mut passed = [0, 0];
            for _ in 0..1_000 {
                passed[0] += free(&limiter, Op::Acquire(1)).charged();
                passed[1] += pro(&limiter, Op::Acquire(1)).charged();
            }
            assert_eq!(passed, [100, 10], "{reads:?}, {writes:?}");
        }
    }
}

#[test]
fn counters_belong_to_the_key() {
    let small = every_algorithm(Quota::per_hour(10));
    let large = every_algorithm(Quota::per_hour(20));
    for (small, large) in small.into_iter().zip(large) {
        let (limiter, _) = tiered([small], [large]);
        assert_eq!(pro(&limiter, Op::AcquireUpTo(99)).charged(), 20);
        let downgraded = free(&limiter, Op::Peek(1));
        assert_eq!(downgraded.remaining(), Some(0), "{small:?}");
        let wait = downgraded.retry_after().expect("it fits");
        // Shared counts are reported as they are: half of them have to leave, and a window's begin to
        // when the next one is half over.
        let shared = Duration::from_secs(3_600 + 1_800) + Duration::from_micros(1);
        assert!(wait <= shared, "{small:?}: {wait:?}");

        let (limiter, _) = tiered([small], [large]);
        assert_eq!(free(&limiter, Op::Acquire(5)).charged(), 5);
        let upgraded = pro(&limiter, Op::Peek(1));
        assert!(upgraded.remaining() < Some(20), "{small:?}");
        assert!(upgraded.remaining() >= Some(10), "{small:?}");
    }
}

#[test]
fn other_algorithm_period_slices_or_step_start_afresh() {
    let hourly = every_algorithm(Quota::per_hour(10));
    let all = || {
        hourly
            .into_iter()
            .chain(every_algorithm(Quota::per_minute(10)))
    };
    for (i, before) in all().enumerate() {
        for (j, after) in all().enumerate() {
            let (limiter, _) = tiered([before], [after]);
            let _ = free(&limiter, Op::Acquire(10));
            let expected = if i == j { 0 } else { 10 };
            let looked = pro(&limiter, Op::Peek(1));
            assert_eq!(looked.remaining(), Some(expected), "{before:?}, {after:?}");
            let taken = pro(&limiter, Op::AcquireUpTo(10));
            assert_eq!(taken.charged(), expected, "{before:?}, {after:?}");

            let back = free(&limiter, Op::Peek(1)).remaining();
            assert_eq!(back, Some(0), "{before:?}, {after:?}");
        }
    }
}

/// A look by the wrong tier, or a refund of what was never charged there, must not wipe what counts.
#[test]
fn other_tier_that_takes_nothing_changes_nothing() {
    for quota in every_algorithm(Quota::per_hour(10)) {
        for other in every_algorithm(Quota::per_minute(30)) {
            let (limiter, _) = tiered([quota], [other]);
            let charged = pro(&limiter, Op::Acquire(20));
            let _ = limiter.peek(&alice(), 1);
            let _ = limiter.acquire(&alice(), 11);
            let _ = limiter.refund(&alice(), 3, None);
            let kept = pro(&limiter, Op::Peek(1)).remaining();
            assert_eq!(kept, Some(10), "{quota:?}, {other:?}");
            // A receipt knows the tier that was charged.
            let _ = limiter.refund(&alice(), 3, Some(charged.receipt()));
            let kept = pro(&limiter, Op::Peek(1)).remaining();
            assert_eq!(kept, Some(13), "{quota:?}, {other:?}");
        }
    }
    // A look by a smaller quota does not cut down what counts in the larger one.
    let (small, large) = (Quota::per_hour(10).burst(2), Quota::per_hour(10).burst(50));
    let (limiter, _) = tiered([small], [large]);
    let _ = pro(&limiter, Op::Acquire(50));
    assert_eq!(limiter.peek(&alice(), 1).remaining(), Some(0));
    assert_eq!(pro(&limiter, Op::Peek(1)).remaining(), Some(0));
}

#[test]
fn reset_forgets_what_every_tier_counted() {
    let daily = Quota::per_day(5).fixed_window();
    for quota in every_algorithm(Quota::per_hour(5)) {
        let (limiter, _) = tiered([Quota::per_second(1)], [quota, daily]);
        let _ = pro(&limiter, Op::Acquire(5));
        let _ = limiter.reset(&alice());
        assert_eq!(limiter.tracked_keys(), 0);
        assert_eq!(pro(&limiter, Op::AcquireUpTo(99)).charged(), 5);
    }
}

#[test]
fn change_of_the_default_quota_leaves_other_tiers_alone() {
    let (limiter, _) = tiered([Quota::per_hour(10)], [Quota::per_hour(20).fixed_window()]);
    let _ = pro(&limiter, Op::Acquire(15));
    limiter
        .set_quota("default", Quota::per_minute(10).sliding_log())
        .expect("a good quota");
    assert_eq!(pro(&limiter, Op::Peek(1)).remaining(), Some(5));
    assert_eq!(free(&limiter, Op::AcquireUpTo(99)).charged(), 10);
    limiter
        .set_quota("default", Quota::per_hour(10))
        .expect("a good quota");
    assert_eq!(free(&limiter, Op::AcquireUpTo(99)).charged(), 10);
}

#[test]
fn unknown_tier_is_an_error() {
    let (limiter, _) = tiered([Quota::per_hour(10)], [Quota::per_hour(20)]);
    let plain = LocalLimiter::new(Quota::per_hour(10));
    for limiter in [limiter, plain] {
        for tier in [Tier::named("gold"), Tier::UNLIMITED] {
            let error = request(&limiter, &tier, Op::Acquire(1)).expect_err("no such tier");
            assert_eq!(error.kind(), LimiterErrorKind::Unsupported);
            assert!(error.to_string().contains(&format!("{tier:?}")), "{error}");
        }
        assert_eq!(free(&limiter, Op::Peek(1)).remaining(), Some(10));
    }
}

#[test]
fn default_tier_is_the_one_without_a_name() {
    assert_eq!(Tier::named(""), Tier::DEFAULT);
    assert_ne!(Tier::named(""), Tier::UNLIMITED);
    let (limiter, _) = tiered([Quota::per_hour(10)], [Quota::per_hour(20)]);
    let decision = request(&limiter, &Tier::named(""), Op::Peek(1)).expect("there is always one");
    assert_eq!(decision.remaining(), Some(10));
}

#[test]
fn bad_tiers_are_named_errors() {
    let builder = || LocalLimiter::builder(Quota::per_hour(10)).tier("pro", Quota::per_hour(20));
    let twice = builder().tier("pro", Quota::per_hour(30)).build();
    let twice = twice.expect_err("two of one name");
    assert_eq!(twice.kind(), ConfigErrorKind::QuotaList);
    assert!(twice.to_string().contains("\"pro\""), "{twice}");
    let unnamed = builder().tier("", Quota::per_hour(30)).build();
    let unnamed = unnamed.expect_err("the default tier's");
    assert_eq!(unnamed.kind(), ConfigErrorKind::QuotaList);
    assert!(unnamed.to_string().contains("default tier"), "{unnamed}");
    let nothing = builder().tier("gold", Quota::per_hour(0)).build();
    assert_eq!(nothing.expect_err("0").kind(), ConfigErrorKind::Limit);
    let empty = builder().tier("gold", Vec::<Quota>::new()).build();
    assert_eq!(empty.expect_err("none").kind(), ConfigErrorKind::QuotaList);
}

/// Behind one type a limiter keeps its tiers, its policies and its counts.
#[test]
fn limiter_of_any_kind_has_the_same_tiers() {
    let (limiter, _) = tiered([Quota::per_hour(10)], [Quota::per_hour(20)]);
    let any = AnyLimiter::new(limiter.clone());
    let Pending::Ready(Ok(taken)) = testkit::apply_in(&any, &PRO, &alice(), Op::Acquire(15)) else {
        panic!("a local limiter answers at once");
    };
    assert_eq!(taken.remaining(), Some(5));
    assert_eq!(pro(&limiter, Op::Peek(1)).remaining(), Some(5));
    let Pending::Ready(unknown) =
        testkit::apply_in(&any, &Tier::named("gold"), &alice(), Op::Peek(1))
    else {
        panic!("a local limiter answers at once");
    };
    assert_eq!(
        unknown.expect_err("no such tier").kind(),
        LimiterErrorKind::Unsupported
    );
    assert_eq!(any.policies(), limiter.policies());
    assert_eq!(any.facts().blocks, limiter.facts().blocks);
}

/// The usage of a key in one tier is kept while the clock is behind it, though the key is in another tier meanwhile.
#[test]
fn other_tiers_usage_is_saved_after_a_step_back() {
    for quota in every_algorithm(Quota::per_minute(10)) {
        let clock = ManualClock::new();
        let builder = || {
            LocalLimiter::builder(quota)
                .tier("pro", Quota::per_hour(50).fixed_window())
                .clock(clock.clone())
        };
        let limiter = builder().build().expect("good quotas");
        clock.advance(Duration::from_secs(3600));
        while free(&limiter, Op::Acquire(1)).is_allowed() {}
        clock.step_back(Duration::from_secs(1800));
        assert!(pro(&limiter, Op::Acquire(1)).is_allowed());
        clock.advance(Duration::from_secs(1800));
        let mut file = Vec::new();
        limiter.save(&mut file).expect("memory takes all");
        let restored = builder().restore(&*file).expect("a good file");
        let decision = restored.acquire(&alice(), 1);
        assert!(decision.is_denied(), "{quota}");
    }
}
