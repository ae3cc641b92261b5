//! `GovernorLimiter` reports what governor reports, and nothing else.

use std::{
    num::NonZeroU32,
    panic::catch_unwind,
    sync::{Arc, Mutex},
    time::Duration,
};

use governor::{
    NotUntil, RateLimiter,
    clock::FakeRelativeClock,
    middleware::{
        NoOpMiddleware, RateLimitingMiddleware, StateInformationMiddleware, StateSnapshot,
    },
    nanos::Nanos,
    state::{InMemoryState, NotKeyed, keyed::HashMapStateStore},
};
use tower_ratelimit::{
    ConfigErrorKind, Decision, Global, Key, Limiter, LimiterErrorKind, Priority, RateLimitLayer,
    decision::{Op, Outcome, Policy},
    limiter::{GovernorLimiter, Pending},
};

type Keyed<K, M> = RateLimiter<K, HashMapStateStore<K>, FakeRelativeClock, M>;
type Quiet = NoOpMiddleware<Nanos>;
type Reporting = StateInformationMiddleware;

/// Three at once, one every 20 seconds.
fn three_a_minute() -> governor::Quota {
    governor::Quota::per_minute(NonZeroU32::new(3).expect("not 0"))
}

fn keyed<K, M>(clock: &FakeRelativeClock) -> Keyed<K, M>
where
    K: std::hash::Hash + Eq + Clone,
    M: RateLimitingMiddleware<Nanos>,
{
    RateLimiter::hashmap_with_clock(three_a_minute(), clock.clone()).with_middleware()
}

fn quiet_and_reporting() -> [(GovernorLimiter, FakeRelativeClock, bool); 2] {
    let clocks = [FakeRelativeClock::default(), FakeRelativeClock::default()];
    let quiet = keyed::<Key, Quiet>(&clocks[0]);
    let reporting = keyed::<Key, Reporting>(&clocks[1]);
    let limiters = [
        GovernorLimiter::keyed(quiet, three_a_minute()),
        GovernorLimiter::keyed(reporting, three_a_minute()),
    ];
    let [quiet, reporting] = limiters;
    let [quiet_clock, reporting_clock] = clocks;
    [
        (quiet, quiet_clock, false),
        (reporting, reporting_clock, true),
    ]
}

fn alice() -> Key {
    Key::from("alice")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn allowed_reports_what_remains_only_with_state_information() {
    for (limiter, _, reports) in quiet_and_reporting() {
        for left in [2, 1, 0] {
            let decision = limiter.acquire(&alice(), 1);
            assert_eq!(decision.outcome(), Outcome::Allowed);
            assert_eq!(decision.charged(), 1);
            assert_eq!(decision.remaining(), reports.then_some(left));
            assert_eq!(decision.binding().limit(), 3);
            assert_eq!(decision.binding().reset_after(), None);
            let window = (reports && left > 0).then(|| seconds(20 * left));
            assert_eq!(decision.binding().effective_window(), window);
        }
    }
}

#[test]
fn a_denial_reports_the_wait() {
    for (limiter, clock, _) in quiet_and_reporting() {
        assert!(limiter.acquire(&alice(), 3).is_allowed());
        clock.advance(seconds(5));
        let denied = limiter.acquire(&alice(), 1);
        assert!(denied.is_denied());
        assert_eq!(denied.charged(), 0);
        assert_eq!(denied.remaining(), Some(0));
        assert_eq!(denied.retry_after(), Some(seconds(15)));

        clock.advance(seconds(15) - Duration::from_nanos(1));
        assert!(limiter.acquire(&alice(), 1).is_denied());
        clock.advance(Duration::from_nanos(1));
        assert!(limiter.acquire(&alice(), 1).is_allowed());
    }
}

#[test]
fn a_denial_of_several_units_does_not_report_how_many_are_left() {
    for (limiter, _, _) in quiet_and_reporting() {
        assert!(limiter.acquire(&alice(), 2).is_allowed());
        let denied = limiter.acquire(&alice(), 2);
        assert!(denied.is_denied());
        assert_eq!(denied.remaining(), None);
        assert_eq!(denied.retry_after(), Some(seconds(20)));
        // It took nothing: the last unit is still there.
        assert!(limiter.acquire(&alice(), 1).is_allowed());
    }
}

#[test]
fn cost_above_the_burst_never_fits() {
    for (limiter, _, _) in quiet_and_reporting() {
        for cost in [4, u64::from(u32::MAX), u64::from(u32::MAX) + 2, u64::MAX] {
            let denied = limiter.acquire(&alice(), cost);
            assert!(denied.is_denied(), "{cost}");
            assert_eq!(denied.retry_after(), None);
            assert_eq!(denied.remaining(), None);
        }
        assert!(limiter.acquire(&alice(), 3).is_allowed());
    }
}

/// With 2^32 units of a day each, governor's own multiplication would overflow.
#[test]
fn cost_far_above_the_burst_of_a_slow_quota_never_fits() {
    let quota = governor::Quota::with_period(seconds(86_400)).expect("not 0");
    let limiter = RateLimiter::direct_with_clock(quota, FakeRelativeClock::default());
    let limiter = GovernorLimiter::direct(limiter, quota);
    assert!(limiter.acquire(&alice(), u64::from(u32::MAX)).is_denied());
    assert!(limiter.acquire(&alice(), 1).is_allowed());
}

/// The quota that was passed is larger than the limiter's own.
#[test]
fn governors_own_capacity_holds() {
    let one = governor::Quota::per_second(NonZeroU32::MIN);
    let limiter = RateLimiter::direct_with_clock(one, FakeRelativeClock::default());
    let limiter = GovernorLimiter::direct(limiter, three_a_minute());
    let denied = limiter.acquire(&alice(), 2);
    assert!(denied.is_denied());
    assert_eq!(denied.retry_after(), None);
}

#[test]
fn cost_0_is_allowed_and_charges_nothing() {
    for (limiter, _, _) in quiet_and_reporting() {
        assert!(limiter.acquire(&alice(), 3).is_allowed());
        let free = limiter.acquire(&alice(), 0);
        assert_eq!(free.outcome(), Outcome::Allowed);
        assert_eq!(free.charged(), 0);
        assert_eq!(free.remaining(), None);
        assert_eq!(
            limiter.acquire(&alice(), 1).retry_after(),
            Some(seconds(20))
        );
    }
}

#[test]
fn keyed_keeps_keys_apart_and_clones_share() {
    for (limiter, _, _) in quiet_and_reporting() {
        let handle = limiter.clone();
        assert!(limiter.acquire(&alice(), 3).is_allowed());
        assert!(handle.acquire(&alice(), 1).is_denied());
        assert!(handle.acquire(&Key::from("bob"), 3).is_allowed());
    }
}

#[test]
fn other_code_can_use_the_same_limiter() {
    let existing = Arc::new(keyed::<Key, Quiet>(&FakeRelativeClock::default()));
    let limiter = GovernorLimiter::keyed(Arc::clone(&existing), three_a_minute());
    for _ in 0..3 {
        assert!(existing.check_key(&alice()).is_ok());
    }
    assert!(limiter.acquire(&alice(), 1).is_denied());
}

#[test]
fn keyed_by_uses_the_key_that_it_is_given() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let key_of = move |key: &Key| {
        log.lock().expect("no panic").push(key.clone());
        key.as_bytes().len()
    };
    let existing = keyed::<usize, Reporting>(&FakeRelativeClock::default());
    let limiter = GovernorLimiter::keyed_by(existing, three_a_minute(), key_of);

    assert_eq!(limiter.acquire(&Key::from("alice"), 1).remaining(), Some(2));
    assert_eq!(limiter.acquire(&Key::from("carol"), 1).remaining(), Some(1));
    assert_eq!(limiter.acquire(&Key::from("bob"), 1).remaining(), Some(2));
    let expected = ["alice", "carol", "bob"].map(Key::from);
    assert_eq!(*seen.lock().expect("no panic"), expected);
}

#[test]
fn direct_shares_one_bucket_between_all_keys() {
    let clock = FakeRelativeClock::default();
    let existing: RateLimiter<NotKeyed, InMemoryState, _, Quiet> =
        RateLimiter::direct_with_clock(three_a_minute(), clock.clone());
    let limiter = GovernorLimiter::direct(existing, three_a_minute());
    assert!(limiter.acquire(&alice(), 3).is_allowed());
    assert!(limiter.acquire(&Key::from("bob"), 1).is_denied());
    clock.advance(seconds(20));
    assert!(limiter.acquire(&Key::from("bob"), 1).is_allowed());
}

#[test]
fn a_direct_limiter_reports_what_remains_with_state_information() {
    let existing = RateLimiter::direct_with_clock(three_a_minute(), FakeRelativeClock::default());
    let existing = existing.with_middleware::<Reporting>();
    let limiter = GovernorLimiter::direct(existing, three_a_minute());
    assert_eq!(limiter.acquire(&alice(), 1).remaining(), Some(2));
}

/// A middleware of one's own is accepted when it reports what governor's own ones report.
#[test]
fn own_middleware_is_understood() {
    #[derive(Debug)]
    struct Own;

    impl RateLimitingMiddleware<Nanos> for Own {
        type PositiveOutcome = ();
        type NegativeOutcome = NotUntil<Nanos>;

        fn allow<K>(_: &K, _: impl Into<StateSnapshot>) {}

        fn disallow<K>(key: &K, state: impl Into<StateSnapshot>, start: Nanos) -> NotUntil<Nanos> {
            <Quiet as RateLimitingMiddleware<Nanos>>::disallow(key, state, start)
        }
    }

    let existing = keyed::<Key, Own>(&FakeRelativeClock::default());
    let limiter = GovernorLimiter::keyed(existing, three_a_minute());
    assert_eq!(limiter.acquire(&alice(), 1).remaining(), None);
    assert!(limiter.acquire(&alice(), 3).is_denied());
}

#[test]
fn policy_is_the_burst_and_the_time_to_refill_it() {
    let burst = NonZeroU32::new(10).expect("not 0");
    let quota = three_a_minute().allow_burst(burst);
    let limiter = RateLimiter::direct_with_clock(quota, FakeRelativeClock::default());
    let limiter = GovernorLimiter::direct(limiter, quota);
    let ten_in_200_seconds = |name| Policy::new(name, 10).with_window(seconds(200));
    assert_eq!(limiter.policies(), [ten_in_200_seconds("default")]);

    let limiter = limiter.named("api");
    assert_eq!(limiter.policies(), [ten_in_200_seconds("api")]);
    assert_eq!(limiter.acquire(&alice(), 1).binding().name(), "api");
    assert_eq!(limiter.acquire(&alice(), 1).binding().limit(), 10);
}

#[test]
fn bad_name_panics_with_what_is_accepted() {
    for name in ["", "sch\u{f6}n", "two\nlines"] {
        let [(limiter, ..), _] = quiet_and_reporting();
        let named = catch_unwind(std::panic::AssertUnwindSafe(|| limiter.named(name)));
        let panic = named.expect_err(name);
        let text = panic.downcast_ref::<String>().expect("a text");
        assert!(text.contains("1 to 64 printable ASCII"), "{text}");
    }
}

#[test]
fn other_operations_are_named_errors() {
    let operations = [
        (Op::AcquireUpTo(1), "acquire_up_to"),
        (Op::Peek(1), "peek"),
        (Op::Hit(1), "hit"),
        (Op::Refund(1, None), "refund"),
        (Op::Reset, "reset"),
    ];
    for (limiter, _, _) in quiet_and_reporting() {
        for (op, name) in operations.clone() {
            let Pending::Ready(Err(error)) = limiter.apply(&alice(), op) else {
                panic!("{name} is supported");
            };
            assert_eq!(error.kind(), LimiterErrorKind::Unsupported);
            let text = error.to_string();
            assert!(text.contains(&format!("`{name}`")), "{text}");
            assert!(text.contains("`LocalLimiter`"), "{text}");
        }
        // None of them took anything.
        assert!(limiter.acquire(&alice(), 3).is_allowed());
    }
}

#[test]
fn acquire_is_ready_through_the_trait() {
    fn acquire(limiter: &impl Limiter) -> Decision {
        match limiter.acquire(&alice(), 1) {
            Pending::Ready(answer) => answer.expect("governor always answers"),
            Pending::Later(_) => panic!("governor never waits"),
        }
    }
    for (limiter, _, _) in quiet_and_reporting() {
        assert!(acquire(&limiter).is_allowed());
        assert!(limiter.acquire(&alice(), 2).is_allowed());
        assert!(acquire(&limiter).is_denied());
    }
}

#[test]
fn receipts_follow_governors_clock() {
    for (limiter, clock, _) in quiet_and_reporting() {
        let charged_at = |cost| limiter.acquire(&alice(), cost).receipt().charged_at();
        let before = charged_at(1);
        clock.advance(seconds(7));
        let after = before.saturating_add(seconds(7));
        for cost in [1, 0, 9, 3] {
            assert_eq!(charged_at(cost), after, "{cost}");
        }
    }
}

#[test]
fn limiter_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + Clone + 'static>() {}
    shared::<GovernorLimiter>();
    let [(limiter, ..), _] = quiet_and_reporting();
    let text = format!("{limiter:?}");
    assert!(text.contains("default"), "{text}");
}

/// A clock of one's own, whose instants are not governor's.
#[test]
fn any_clock_of_governors_will_do() {
    #[derive(Debug, Clone)]
    struct Standing;

    impl governor::clock::Clock for Standing {
        type Instant = Duration;

        fn now(&self) -> Duration {
            Duration::from_secs(100)
        }
    }

    let limiter = RateLimiter::direct_with_clock(three_a_minute(), Standing);
    let limiter = GovernorLimiter::direct(limiter, three_a_minute());
    assert!(limiter.acquire(&alice(), 3).is_allowed());
    assert_eq!(
        limiter.acquire(&alice(), 1).retry_after(),
        Some(seconds(20))
    );
}

#[test]
fn layer_of_it_has_no_classes() {
    let clock = FakeRelativeClock::default();
    let limiter = GovernorLimiter::keyed(keyed::<Key, Quiet>(&clock), three_a_minute());
    let layer = RateLimitLayer::new(limiter, Global);
    let error = layer.try_priority(|_| Priority::CRITICAL).unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::Priority);
    assert!(
        error.to_string().contains("does not support priorities"),
        "{error}"
    );
}
