//! Limiters of one name in one store: they share counters as tiers do.

use tower_ratelimit::{
    Limiter, LocalLimiter, LocalStore, Quota, clock::ManualClock, decision::Policy,
    limiter::OnChange,
};

use super::{key, seconds};

fn store(clock: &ManualClock) -> LocalStore {
    let builder = LocalStore::builder().max_keys(1_000);
    builder.clock(clock.clone()).build().expect("a good size")
}

fn named(quota: Quota, store: &LocalStore) -> LocalLimiter {
    let built = LocalLimiter::builder(quota).name("api").build_in(store);
    built.expect("a good quota")
}

const LARGE: Quota = Quota::per_minute(100);
const SMALL: Quota = Quota::per_minute(100).burst(2);

/// The units that pass at one instant through both in turns.
fn passed_in_turns(limiters: &[LocalLimiter], turns: u64) -> u64 {
    let turn = |_| -> u64 {
        let passed = limiters.iter().map(|one| one.acquire(&key(7), 1).charged());
        passed.sum()
    };
    (0..turns).map(turn).sum()
}

fn policies(limiter: &LocalLimiter) -> Vec<&str> {
    let policies = Limiter::policies(limiter).iter();
    policies.map(Policy::name).collect()
}

#[test]
fn a_lone_quota_has_the_name_of_its_limiter() {
    let store = store(&ManualClock::new());
    let built = |quotas: &[Quota], name: &str| {
        let limiter = LocalLimiter::builder(quotas).name(name).build_in(&store);
        limiter.expect("good quotas")
    };
    let lone = built(&[LARGE], "api");
    assert_eq!(policies(&lone), ["api"]);
    assert_eq!(lone.acquire(&key(7), 1).binding().name(), "api");
    // The default name still changes it.
    for name in ["api", "default"] {
        lone.set_quota(name, SMALL).expect("a known name");
        assert_eq!(policies(&lone), ["api"]);
    }
    assert_eq!(policies(&built(&[LARGE.named("own")], "other")), ["own"]);
    let two = built(&[LARGE, Quota::per_day(5)], "two");
    assert_eq!(policies(&two), ["100-per-60s", "5-per-86400s"]);
    // No policy can have this name.
    assert_eq!(policies(&built(&[LARGE], "caf\u{e9}")), ["default"]);
}

/// The smaller one judges by the shared count as it is, and lowers it for nobody.
#[test]
fn two_of_one_name_let_pass_what_the_larger_one_does() {
    let pairs = [
        [LARGE, SMALL],
        [SMALL, LARGE],
        [LARGE.leaky_bucket(99), LARGE.leaky_bucket(1)],
        [LARGE.fixed_window(), Quota::per_minute(2).fixed_window()],
        [
            LARGE.sliding_window(),
            Quota::per_minute(2).sliding_window(),
        ],
        [LARGE.sliding_log(), Quota::per_minute(2).sliding_log()],
    ];
    for pair in pairs {
        let store = store(&ManualClock::new());
        let limiters = pair.map(|quota| named(quota, &store));
        assert_eq!(passed_in_turns(&limiters, 500), 100, "{pair:?}");
    }
}

#[test]
fn maximum_follows_limiters_that_are_made_changed_and_dropped() {
    let clock = ManualClock::new();
    let store = store(&clock);
    let small = named(SMALL, &store);
    let reset_after = |limiter: &LocalLimiter| limiter.peek(&key(7), 1).binding().reset_after();
    let after = |units| Some(seconds(6) * units / 10);

    let large = named(LARGE, &store);
    assert_eq!(large.acquire(&key(7), 100).charged(), 100);
    assert_eq!(reset_after(&small), after(100));
    // A clone keeps it.
    let clone = large.clone();
    drop(large);
    assert_eq!(reset_after(&small), after(100));
    clone.set_quota("default", LARGE.burst(40)).expect("good");
    assert_eq!(reset_after(&small), after(40));
    clone.set_quota("default", LARGE).expect("good");
    assert_eq!(reset_after(&small), after(40), "what was clamped is gone");
    assert_eq!(clone.acquire(&key(7), 60).charged(), 60);
    drop(clone);
    assert_eq!(reset_after(&small), after(2));
    // The other way round, and for one that was changed before.
    small.set_quota("default", SMALL.burst(3)).expect("good");
    let large = named(LARGE, &store);
    assert_eq!(large.acquire_up_to(&key(7), 100).charged(), 98);
    assert_eq!(reset_after(&small), after(100));
    drop(large);
    assert_eq!(reset_after(&small), after(3));
}

/// Where keys start afresh, numbers are part of the name.
#[test]
fn fresh_limiters_of_one_name_share_while_their_numbers_agree() {
    let store = store(&ManualClock::new());
    let fresh = |quota| {
        let builder = LocalLimiter::builder(quota).name("api");
        let builder = builder.on_change(OnChange::Fresh);
        builder.build_in(&store).expect("a good quota")
    };
    let left = |limiter: &LocalLimiter| limiter.peek(&key(7), 1).remaining();
    let (one, two, kept) = (fresh(LARGE), fresh(LARGE), named(LARGE, &store));
    assert_eq!(one.acquire(&key(7), 60).charged(), 60);
    assert_eq!([left(&two), left(&kept)], [Some(40), Some(100)]);
    let small = fresh(SMALL);
    assert_eq!([left(&small), left(&two)], [Some(2), Some(40)]);
    assert_eq!(small.acquire_up_to(&key(7), 100).charged(), 2);
    assert_eq!([left(&small), left(&two)], [Some(0), Some(40)]);
    // A running limiter keeps its counts, whatever its numbers become.
    two.set_quota("default", SMALL).expect("good");
    assert_eq!([left(&two), left(&one)], [Some(0), Some(40)]);
    two.set_quota("default", LARGE).expect("good");
    assert_eq!([left(&two), left(&kept)], [Some(40), Some(100)]);
}

/// Quotas meet by their names, wherever they stand; another period counts elsewhere.
#[test]
fn maximum_is_that_of_quotas_that_share_a_count() {
    let clock = ManualClock::new();
    let store = store(&clock);
    let list = |quotas: Vec<Quota>| {
        let built = LocalLimiter::builder(quotas).name("api").build_in(&store);
        built.expect("good quotas")
    };
    let day = |limit| Quota::per_day(limit).fixed_window();
    let one = list(vec![SMALL.named("m"), day(1_000).named("d")]);
    let two = list(vec![day(900).named("d"), LARGE.named("m")]);
    let other = list(vec![Quota::per_second(100).named("m"), day(800).named("d")]);
    assert_eq!(two.acquire(&key(7), 90).charged(), 90);
    assert!(one.acquire(&key(7), 1).is_denied());
    assert_eq!(two.acquire(&key(7), 11).remaining(), Some(10), "and denied");
    assert_eq!(other.acquire(&key(7), 90).charged(), 90);
    assert_eq!(
        two.peek(&key(7), 1)
            .quotas()
            .map(|q| q.remaining())
            .collect::<Vec<_>>(),
        [Some(720), Some(10)]
    );
}
