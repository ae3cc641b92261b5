//! From governor 0.10, row by row.

use std::{num::NonZeroU32, time::Duration};

use ::governor::{
    InsufficientCapacity, RateLimiter, clock::FakeRelativeClock,
    middleware::StateInformationMiddleware,
};
use tower_ratelimit::{Key, LocalLimiter, Quota, clock::ManualClock};

fn n(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

mod page {
    pub(super) fn before() -> bool {
        use std::num::NonZeroU32;

        use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

        let quota = Quota::per_hour(NonZeroU32::new(100).unwrap());
        let limiter: DefaultKeyedRateLimiter<String> = RateLimiter::keyed(quota);
        let allowed = limiter.check_key(&"alice".to_owned()).is_ok();
        allowed
    }

    pub(super) fn after() -> bool {
        use tower_ratelimit::{LocalLimiter, Quota};

        let limiter = LocalLimiter::new(Quota::per_hour(100));
        let allowed = limiter.acquire(&"alice".into(), 1).is_allowed();
        allowed
    }
}

#[test]
fn the_usual_set_up() {
    assert_eq!((page::before(), page::after()), (true, true));
}

/// One quota on both sides, and one clock for both.
struct Pair {
    theirs: RateLimiter<
        u64,
        ::governor::state::keyed::HashMapStateStore<u64>,
        FakeRelativeClock,
        StateInformationMiddleware,
    >,
    ours: LocalLimiter,
    fake: FakeRelativeClock,
    clock: ManualClock,
}

impl Pair {
    fn new(theirs: ::governor::Quota, ours: Quota) -> Self {
        let (fake, clock) = (FakeRelativeClock::default(), ManualClock::new());
        let ours = LocalLimiter::builder(ours).clock(clock.clone());
        Self {
            theirs: RateLimiter::hashmap_with_clock(theirs, fake.clone()).with_middleware(),
            ours: ours.build().unwrap(),
            fake,
            clock,
        }
    }

    fn advance(&self, duration: Duration) {
        self.fake.advance(duration);
        self.clock.advance(duration);
    }

    /// The units that remain after a charge on both sides; none for a denial.
    fn charge(&self, key: u64, cost: u32) -> Option<u64> {
        let theirs = self.theirs.check_key_n(&key, n(cost)).unwrap();
        let ours = self.ours.acquire(&key.into(), cost.into());
        assert_eq!(theirs.is_ok(), ours.is_allowed());
        let Ok(theirs) = theirs else {
            return None;
        };
        assert_eq!(
            Some(theirs.remaining_burst_capacity().into()),
            ours.remaining()
        );
        ours.remaining()
    }
}

#[test]
fn quotas() {
    let minute = Duration::from_secs(60);
    let period = ::governor::Quota::with_period(minute).unwrap();
    let pairs = [
        (::governor::Quota::per_second(n(10)), Quota::per_second(10)),
        (::governor::Quota::per_minute(n(10)), Quota::per_minute(10)),
        (::governor::Quota::per_hour(n(10)), Quota::per_hour(10)),
        (
            ::governor::Quota::per_second(n(10)).allow_burst(n(25)),
            Quota::per_second(10).burst(25),
        ),
        (period, Quota::per(1, minute)),
        (period.allow_burst(n(4)), Quota::per(1, minute).burst(4)),
    ];
    for (theirs, ours) in pairs {
        let pair = Pair::new(theirs, ours);
        for step in 0..300 {
            pair.charge(step % 3, 1);
            pair.advance(theirs.replenish_interval() * (step as u32 % 5) / 9);
        }
    }
}

#[test]
fn costs_and_what_is_left() {
    let pair = Pair::new(::governor::Quota::per_hour(n(10)), Quota::per_hour(10));
    assert_eq!(pair.charge(1, 7), Some(3));
    assert_eq!(pair.charge(1, 4), None);
    assert_eq!(pair.charge(1, 3), Some(0));
    assert_eq!(pair.charge(2, 1), Some(9));
    assert_eq!((pair.theirs.len(), pair.ours.tracked_keys()), (2, 2));

    // More than the quota holds: an error of its own there, a denial without a wait here.
    assert_eq!(
        pair.theirs.check_key_n(&1, n(11)).err(),
        Some(InsufficientCapacity(10))
    );
    let never = pair.ours.acquire(&1_u64.into(), 11);
    assert_eq!((never.is_denied(), never.retry_after()), (true, None));
}

#[test]
fn without_a_key() {
    let theirs = RateLimiter::direct(::governor::Quota::per_hour(n(2)));
    let ours = LocalLimiter::new(Quota::per_hour(2));
    for allowed in [true, true, false] {
        assert_eq!(theirs.check().is_ok(), allowed);
        assert_eq!(ours.acquire(&Key::global(), 1).is_allowed(), allowed);
    }
}
