//! governor, with its own clock that a test moves.

use std::{num::NonZeroU32, time::Duration};

use governor::{RateLimiter, clock::FakeRelativeClock, middleware::StateInformationMiddleware};
use proptest::prelude::*;
use tower_ratelimit::clock::ManualClock;

use super::{Rate, alice, config, limiter, micros, micros_up, rate, span};

fn governors_quota(rate: &Rate) -> governor::Quota {
    let burst = u32::try_from(rate.burst()).expect("small");
    governor::Quota::with_period(Duration::from_nanos(rate.interval))
        .expect("not 0")
        .allow_burst(NonZeroU32::new(burst).expect("not 0"))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn agrees_on_random_traces(
        rate in rate(),
        trace in prop::collection::vec((any::<u8>(), any::<u64>(), 1_u32..120), 1..60),
    ) {
        let (clock, governors_clock) = (ManualClock::new(), FakeRelativeClock::default());
        let limiter = limiter(rate.quota, &clock);
        let governor =
            RateLimiter::direct_with_clock(governors_quota(&rate), governors_clock.clone())
                .with_middleware::<StateInformationMiddleware>();
        let burst = u32::try_from(rate.burst()).expect("small");

        for (choice, fraction, cost) in trace {
            let step = micros(span(choice, fraction, &rate));
            clock.advance(step);
            governors_clock.advance(step);
            let cost = if choice >= 128 { cost } else { 1 + cost % burst };

            let ours = limiter.acquire(&alice(), u64::from(cost));
            let units = NonZeroU32::new(cost).expect("not 0");
            match governor.check_n(units) {
                Ok(Ok(snapshot)) => {
                    prop_assert!(ours.is_allowed());
                    let remaining = u64::from(snapshot.remaining_burst_capacity());
                    prop_assert_eq!(ours.remaining(), Some(remaining));
                }
                Ok(Err(not_until)) => {
                    prop_assert!(ours.is_denied());
                    let wait = not_until.wait_time_from(now(&governors_clock));
                    let wait = micros_up(i128::try_from(wait.as_nanos()).expect("in range"));
                    prop_assert_eq!(ours.retry_after(), Some(wait));
                }
                Err(_) => {
                    prop_assert!(ours.is_denied());
                    prop_assert_eq!(ours.retry_after(), None);
                }
            }
        }
    }
}

fn now(clock: &FakeRelativeClock) -> governor::nanos::Nanos {
    governor::clock::Clock::now(clock)
}
