//! [`Op::Count`]: windows that count beyond their limits.

use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::{
    ConfigErrorKind, Decision, Key, Limiter as _, LimiterErrorKind, LocalLimiter, LocalStore,
    Priority, Quota,
    clock::{ManualClock, Timestamp},
    decision::Op,
    limiter::{JointLimiter, Pending, RequestQuota, Tier},
};

use super::{alice, cases, every_algorithm};

/// The most that is counted.
const MOST: u64 = (1 << 53) - 1;

fn request(limiter: &LocalLimiter, op: Op) -> Decision {
    request_in(limiter, &Tier::DEFAULT, op)
}

fn request_in(limiter: &LocalLimiter, tier: &Tier, op: Op) -> Decision {
    let Pending::Ready(decision) = testkit::apply_in(limiter, tier, &alice(), op);
    decision.expect("a window that counts on")
}

fn count(limiter: &LocalLimiter, units: u64) -> (bool, Option<u64>) {
    let decision = request(limiter, Op::Count(units));
    (decision.is_allowed(), decision.binding().used())
}

fn ten() -> Quota {
    Quota::per_minute(10).fixed_window().uncapped()
}

fn limiter(quota: Quota) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::new();
    clock.set(Timestamp::from_micros(1_767_225_612_000_000));
    let limiter = LocalLimiter::builder(quota).clock(clock.clone()).build();
    (limiter.expect("a good quota"), clock)
}

#[test]
fn counts_whatever_the_outcome() {
    let (limiter, clock) = limiter(ten());
    assert_eq!(count(&limiter, 8), (true, Some(8)));
    assert_eq!(count(&limiter, 2), (true, Some(10)));
    assert_eq!(count(&limiter, 0), (true, Some(10)), "not beyond the limit");
    assert_eq!(count(&limiter, 3), (false, Some(13)));
    assert_eq!(count(&limiter, 0), (false, Some(13)), "not even nothing");
    let denied = request(&limiter, Op::Count(1));
    assert_eq!(denied.binding().used(), Some(14));
    assert_eq!(denied.remaining(), Some(0));
    assert_eq!(denied.charged(), 1);
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(48)));
    assert_eq!(
        request(&limiter, Op::Count(11)).retry_after(),
        None,
        "never"
    );
    clock.advance(Duration::from_secs(48));
    assert_eq!(count(&limiter, 0), (true, Some(0)));
    assert_eq!(count(&limiter, 10), (true, Some(10)));
}

#[test]
fn limit_of_nothing_is_beyond_with_the_first_unit() {
    let (limiter, _) = limiter(Quota::per_day(0).fixed_window().uncapped());
    assert_eq!(count(&limiter, 0), (true, Some(0)));
    assert_eq!(count(&limiter, 1), (false, Some(1)));
    assert_eq!(count(&limiter, 0), (false, Some(1)));
}

#[test]
fn counts_to_the_last_whole_number_and_no_further() {
    let (limiter, _) = limiter(ten());
    assert_eq!(count(&limiter, MOST - 1), (false, Some(MOST - 1)));
    for units in [1, 1, u64::MAX, 0] {
        assert_eq!(count(&limiter, units), (false, Some(MOST)));
    }
}

#[test]
fn other_operations_take_no_more_than_the_limit() {
    let (limiter, _) = limiter(ten());
    assert_eq!(limiter.hit(&alice(), 25).binding().used(), Some(10));
    assert_eq!(count(&limiter, 3), (false, Some(13)));
    let denied = limiter.acquire(&alice(), 1);
    assert_eq!((denied.is_denied(), denied.charged()), (true, 0));
    assert_eq!(limiter.hit(&alice(), 1).binding().used(), Some(13));
    let left = limiter.refund(&alice(), 4, None);
    assert_eq!(left.binding().used(), Some(9));
    assert!(limiter.acquire(&alice(), 1).is_allowed());
    let counted = request(&limiter, Op::Count(7));
    let back = limiter.refund(&alice(), 100, Some(counted.receipt()));
    assert_eq!(back.binding().used(), Some(10));
    let floor = limiter.refund(&alice(), 100, None);
    assert_eq!(floor.binding().used(), Some(0));
}

#[test]
fn blocked_key_is_denied_and_counted() {
    let (limiter, _) = limiter(ten());
    drop(limiter.block(&alice(), Duration::from_secs(5)));
    let blocked = request(&limiter, Op::Count(3));
    assert!(blocked.is_blocked());
    assert_eq!(blocked.binding().used(), Some(3));
    assert_eq!(blocked.remaining(), Some(0));
}

#[test]
fn denial_starts_no_block() {
    let limiter = LocalLimiter::builder(ten()).block_for(Duration::from_secs(300));
    let limiter = limiter.build().expect("a good quota");
    assert_eq!(count(&limiter, 11), (false, Some(11)));
    assert!(!request(&limiter, Op::Peek(0)).is_blocked());
}

#[test]
fn each_of_several_windows_counts() {
    let hour = Quota::per_hour(100).fixed_window().uncapped();
    let quotas = [ten().named("minute"), hour.named("hour")];
    let limiter = LocalLimiter::new(quotas);
    let decision = request(&limiter, Op::Count(11));
    let used: Vec<_> = decision.quotas().map(|quota| quota.used()).collect();
    assert_eq!(used, [Some(11); 2]);
    assert!(decision.is_denied());
    let denied: Vec<_> = decision.quotas().map(|quota| quota.is_denied()).collect();
    assert_eq!(denied, [true, false]);
}

/// Numbers of a request take the place of the limit and share its count.
#[test]
fn request_brings_its_own_limit() {
    let most = Quota::per_minute(u64::from(u32::MAX)).fixed_window();
    let (limiter, _) = limiter(most.uncapped());
    let mut reported = Vec::new();
    for limit in [3, 0, u64::from(u32::MAX), 1] {
        let tier = Tier::from(RequestQuota::limit(limit));
        let decision = request_in(&limiter, &tier, Op::Count(1));
        let quota = decision.binding();
        assert_eq!(quota.limit(), limit);
        reported.push((decision.is_allowed(), quota.used(), quota.remaining()));
    }
    let expected = [
        (true, Some(1), Some(2)),
        (false, Some(2), Some(0)),
        (true, Some(3), Some(u64::from(u32::MAX) - 3)),
        (false, Some(4), Some(0)),
    ];
    assert_eq!(reported, expected);
}

#[test]
fn smaller_limit_keeps_the_count() {
    let (limiter, _) = limiter(ten());
    assert_eq!(count(&limiter, 13), (false, Some(13)));
    let five = Quota::per_minute(5).fixed_window().uncapped();
    limiter.set_quota("default", five).expect("a good quota");
    assert_eq!(count(&limiter, 0), (false, Some(13)));
    let more = Quota::per_minute(14).fixed_window().uncapped();
    limiter.set_quota("default", more).expect("a good quota");
    assert_eq!(count(&limiter, 1), (true, Some(14)));
    assert!(limiter.facts().supports(&Op::Count(1)));
    limiter
        .set_quota("default", Quota::per_minute(14).fixed_window())
        .expect("a good quota");
    assert!(!limiter.facts().supports(&Op::Count(1)));
}

#[test]
fn capped_quotas_do_not_count_on() {
    for quota in every_algorithm(Quota::per_minute(5)) {
        let limiter = LocalLimiter::new(quota);
        assert!(!limiter.facts().supports(&Op::Count(1)), "{quota:?}");
        let rows = [Tier::DEFAULT, Tier::from(RequestQuota::limit(3))];
        for tier in rows {
            let Pending::Ready(answer) = testkit::apply_in(&limiter, &tier, &alice(), Op::Count(1));
            let error = answer.expect_err("it is capped");
            assert_eq!(error.kind(), LimiterErrorKind::Unsupported, "{quota:?}");
            assert!(error.to_string().contains("uncapped"), "{error}");
        }
        let Pending::Ready(answer) = limiter.count(&alice(), 1);
        assert!(answer.is_err(), "{quota:?}");
    }
    let mixed = [
        ten().named("one"),
        Quota::per_hour(9).fixed_window().named("two"),
    ];
    assert!(!LocalLimiter::new(mixed).facts().supports(&Op::Count(1)));
}

#[test]
fn quotas_that_cannot_count_on_are_named_errors() {
    let kind = |quota: Quota| quota.check().map_err(|error| error.kind());
    for quota in every_algorithm(Quota::per_minute(5)) {
        let is_window = quota == quota.fixed_window();
        let expected = if is_window {
            Ok(())
        } else {
            Err(ConfigErrorKind::Uncapped)
        };
        assert_eq!(kind(quota.uncapped()), expected, "{quota:?}");
    }
    let most = u64::from(u32::MAX);
    let a_second = |limit| Quota::per_second(limit).fixed_window().uncapped();
    assert_eq!(kind(a_second(most)), Ok(()));
    assert_eq!(kind(a_second(0)), Ok(()));
    assert_eq!(kind(a_second(most + 1)), Err(ConfigErrorKind::Rate));
    assert_eq!(
        kind(Quota::per_second(0).fixed_window()),
        Err(ConfigErrorKind::Limit)
    );
    // Windows are numbered in microseconds.
    for (nanos, expected) in [(999, Err(ConfigErrorKind::Period)), (1_000, Ok(()))] {
        let short = Quota::per(1, Duration::from_nanos(nanos)).fixed_window();
        assert_eq!(kind(short.uncapped()), expected, "{nanos}");
    }
    let year = Duration::from_secs(365 * 86_400);
    let a_year = |limit| Quota::per(limit, year).fixed_window().uncapped();
    assert_eq!(kind(a_year(MOST - 1)), Ok(()));
    assert_eq!(kind(a_year(MOST)), Err(ConfigErrorKind::Overflow));
    assert_eq!(
        kind(a_year(MOST - 1).soft(1)),
        Err(ConfigErrorKind::Overflow)
    );
}

proptest! {
    #![proptest_config(cases(256))]

    /// The definition: a number for each window, and a comparison.
    #[test]
    fn agrees_with_a_plain_counter(
        limit in prop_oneof![Just(0_u64), 1_u64..20, Just(u64::from(u32::MAX))],
        steps in prop::collection::vec(
            (0_u64..40, prop_oneof![4 => 0_u64..9, 1 => any::<u64>()]), 1..60,
        ),
    ) {
        let (limiter, clock) = limiter(Quota::per_minute(limit).fixed_window().uncapped());
        let (mut window, mut counted) = (0, 0_u64);
        for (seconds, units) in steps {
            clock.advance(Duration::from_secs(seconds));
            let decision = request(&limiter, Op::Count(units));
            let current = decision.decided_at().as_micros() / 60_000_000;
            if current > window {
                (window, counted) = (current, 0);
            }
            counted = counted.saturating_add(units).min(MOST);
            let quota = decision.binding();
            prop_assert_eq!(quota.used(), Some(counted));
            prop_assert_eq!(quota.remaining(), Some(limit.saturating_sub(counted)));
            prop_assert_eq!(decision.is_allowed(), counted <= limit);
        }
    }
}

#[test]
fn limits_that_are_charged_together_count_all_or_none() {
    let store = LocalStore::new();
    let limiter = |quota: Quota| LocalLimiter::builder(quota).build_in(&store).unwrap();
    let counts = limiter(Quota::per_minute(1).named("a").fixed_window().uncapped());
    let ends = limiter(Quota::per_minute(1).named("b").fixed_window());
    let keys = [Key::from("x"), Key::from("y")];
    let both = JointLimiter::new([counts.clone(), ends]).unwrap();
    assert!(!both.facts().supports(&Op::Count(1)) && both.facts().supports(&Op::Acquire(1)));
    let in_class = (&Tier::DEFAULT, Priority::CRITICAL);
    let Pending::Ready(answer) = testkit::apply_each(&both, in_class, &keys, &[Op::Count(1)]);
    assert_eq!(answer.unwrap_err().kind(), LimiterErrorKind::Unsupported);
    assert_eq!(counts.peek(&Key::from("x"), 1).remaining(), Some(1));
}
