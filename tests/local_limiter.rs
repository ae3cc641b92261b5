//! Promises of the local table, through the public API.

use std::time::Duration;

use tower_ratelimit::{Key, LocalLimiter, ManualClock, Quota};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Without a stored clamp each denial starts the wait over, until the clock has caught up.
#[test]
fn clock_that_steps_back_locks_nobody_out_beyond_one_refill() {
    for step in [61, 3_600, 86_400 * 365 * 10].map(seconds) {
        let clock = ManualClock::new();
        let limiter = LocalLimiter::builder(Quota::per_minute(60))
            .clock(clock.clone())
            .build()
            .expect("a good quota");
        let key = Key::from("alice");
        assert!(limiter.acquire(&key, 60).is_allowed());

        clock.step_back(step);
        let denied = limiter.acquire(&key, 1);
        assert_eq!(denied.retry_after(), Some(seconds(1)), "{step:?}");
        clock.advance(seconds(1));
        assert!(limiter.acquire(&key, 1).is_allowed(), "{step:?}");
        assert!(limiter.acquire(&key, 1).is_denied(), "{step:?}");
        clock.advance(seconds(60));
        assert!(limiter.acquire(&key, 60).is_allowed(), "{step:?}");
    }
}
