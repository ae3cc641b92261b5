//! The token bucket against two independent oracles, and its promises as properties.

mod exact_oracle;
mod governor_oracle;

use std::{env, time::Duration};

use exact_oracle::{Request, decide};
use proptest::prelude::*;
use tower_ratelimit::{
    Key, LocalLimiter, Quota,
    clock::{ManualClock, Timestamp},
};

/// At least 2,000 cases, unless `PROPTEST_CASES` sets another number.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 2_000;
    }
    config.failure_persistence = None;
    config
}

fn limiter(quota: Quota, clock: &ManualClock) -> LocalLimiter {
    LocalLimiter::builder(quota)
        .max_keys(4)
        .clock(clock.clone())
        .build()
        .expect("a good quota")
}

fn alice() -> Key {
    Key::from("alice")
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn micros_up(nanos: i128) -> Duration {
    let micros = (nanos + 999).div_euclid(1_000);
    Duration::from_micros(u64::try_from(micros).expect("a time of this crate"))
}

/// A quota with its T in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Rate {
    quota: Quota,
    interval: u64,
}

impl Rate {
    fn new(limit: u64, period: Duration, burst: u64) -> Self {
        Self {
            quota: Quota::per(limit, period).burst(burst),
            interval: u64::try_from(period.as_nanos() / u128::from(limit)).expect("in range"),
        }
    }

    fn burst(&self) -> u64 {
        self.quota.capacity()
    }

    fn refill(&self) -> u64 {
        self.interval * self.burst()
    }
}

/// Rates with whole and with cut-off intervals, from 1 µs to 11 days.
fn rate() -> impl Strategy<Value = Rate> {
    let period = prop_oneof![
        Just(Duration::from_secs(1)),
        Just(Duration::from_secs(60)),
        Just(Duration::from_secs(86_400)),
        (1_000_u64..10_000_000_000).prop_map(Duration::from_nanos),
        Just(Duration::from_secs(1_000_000)),
    ];
    (period, 1_u64..2_000, prop_oneof![1_u64..8, 1_u64..100]).prop_map(|(period, limit, burst)| {
        let most = u64::try_from(period.as_nanos() / 1_000).expect("in range");
        Rate::new(limit.min(most), period, burst)
    })
}

/// Times that matter to a rate, in microseconds: nothing, about an interval, about a refill.
fn span(choice: u8, fraction: u64, rate: &Rate) -> u64 {
    let (interval, refill) = (rate.interval / 1_000, rate.refill() / 1_000);
    match choice % 8 {
        0 | 1 => 0,
        2 => 1,
        3 => interval,
        4 => interval + fraction % 3,
        5 => fraction % (2 * interval),
        6 => fraction % (refill + 2),
        _ => fraction % (4 * refill + 4),
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_window_admits_more_than_burst_and_rate(
        rate in rate(),
        trace in prop::collection::vec((any::<u8>(), any::<u64>(), 1_u64..8), 1..80),
    ) {
        let clock = ManualClock::at(Timestamp::default());
        let limiter = limiter(rate.quota, &clock);
        let mut now = 0;
        let mut admitted = Vec::new();
        for (choice, fraction, most) in trace {
            now += span(choice, fraction, &rate);
            clock.set(Timestamp::from_micros(now));
            admitted.push((now, limiter.acquire_up_to(&alice(), most).charged()));
        }

        for (first, (start, _)) in admitted.iter().enumerate() {
            let mut units = 0;
            for (end, charged) in &admitted[first..] {
                units += charged;
                let refilled = (end - start) * 1_000 / rate.interval;
                prop_assert!(units <= rate.burst() + refilled, "{start} to {end} µs");
            }
        }
    }

    #[test]
    fn denied_passes_at_retry_after_and_not_a_microsecond_earlier(
        rate in rate(),
        trace in prop::collection::vec((any::<u8>(), any::<u64>(), 1_u64..8), 1..20),
        cost in any::<u64>(),
    ) {
        let clock = ManualClock::new();
        let limiter = limiter(rate.quota, &clock);
        for (choice, fraction, most) in trace {
            clock.advance(micros(span(choice, fraction, &rate)));
            let _ = limiter.acquire_up_to(&alice(), most);
        }
        let cost = 1 + cost % rate.burst();
        let _ = limiter.hit(&alice(), rate.burst() - cost + 1);

        let denied = limiter.acquire(&alice(), cost);
        prop_assert!(denied.is_denied());
        let wait = denied.retry_after().expect("it fits an empty bucket");
        clock.advance(wait - micros(1));
        let early = limiter.acquire(&alice(), cost);
        prop_assert!(early.is_denied());
        prop_assert_eq!(early.retry_after(), Some(micros(1)));
        clock.advance(micros(1));
        prop_assert!(limiter.acquire(&alice(), cost).is_allowed());
    }

    #[test]
    fn idle_key_admits_exactly_the_burst(
        rate in rate(),
        trace in prop::collection::vec((any::<u8>(), any::<u64>(), 1_u64..8), 1..20),
        longer in prop_oneof![Just(0), any::<u64>()],
    ) {
        let clock = ManualClock::new();
        let limiter = limiter(rate.quota, &clock);
        for (choice, fraction, most) in trace {
            clock.advance(micros(span(choice, fraction, &rate)));
            let _ = limiter.acquire_up_to(&alice(), most);
        }
        let full_in = limiter.peek(&alice(), 1).binding().reset_after().expect("known");
        let longer = longer % (3 * rate.refill() / 1_000);
        clock.advance(full_in + micros(longer));

        let admitted = (0..2 * rate.burst()).filter(|_| limiter.acquire(&alice(), 1).is_allowed());
        prop_assert_eq!(admitted.count() as u64, rate.burst());
    }

    #[test]
    fn denials_and_looks_consume_nothing(
        rate in rate(),
        trace in prop::collection::vec((any::<u8>(), any::<u64>(), 1_u64..8), 1..40),
    ) {
        let clock = ManualClock::new();
        let (limiter, bothered) = (limiter(rate.quota, &clock), limiter(rate.quota, &clock));
        for (choice, fraction, cost) in trace {
            clock.advance(micros(span(choice, fraction, &rate)));
            let remaining = bothered.peek(&alice(), 1).remaining().expect("known");
            prop_assert!(bothered.acquire(&alice(), remaining + 1).is_denied());
            prop_assert!(bothered.acquire(&alice(), u64::MAX).is_denied());
            prop_assert!(bothered.acquire(&alice(), 0).is_allowed());
            prop_assert_eq!(
                bothered.acquire(&alice(), cost),
                limiter.acquire(&alice(), cost)
            );
        }
    }
}

/// Pauses in which a bucket that keeps too old a TAT, or takes the first unit for free, would let
/// more than the burst through: just under, at and just over a full bucket.
#[test]
fn pause_around_a_refill_gives_no_second_burst() {
    for burst in [1, 2, 5, 10, 50] {
        let interval = Duration::from_millis(100);
        let quota = Quota::per_second(10).burst(burst);
        for tenths in 0..=30 * u32::try_from(burst).expect("small") {
            let clock = ManualClock::new();
            let limiter = limiter(quota, &clock);
            assert!(limiter.acquire(&alice(), 1).is_allowed());
            let pause = interval * tenths / 10;
            clock.advance(pause);
            let admitted = (0..3 * burst)
                .filter(|_| limiter.acquire(&alice(), 1).is_allowed())
                .count();
            let whole = u64::from(tenths / 10);
            let expected = (burst - 1 + whole).min(burst);
            assert_eq!(admitted as u64, expected, "burst {burst}, {pause:?}");
        }
    }
}

#[test]
fn fresh_key_admits_exactly_the_burst() {
    for burst in [1, 2, 5, 10, 50, 1_000] {
        let limiter = limiter(Quota::per_second(10).burst(burst), &ManualClock::new());
        assert!(limiter.peek(&alice(), burst).is_allowed());
        assert!(limiter.peek(&alice(), burst + 1).is_denied());
        let admitted = (0..burst + 5)
            .filter(|_| limiter.acquire(&alice(), 1).is_allowed())
            .count();
        assert_eq!(admitted as u64, burst);
    }
}

/// The clock has microseconds, intervals have nanoseconds: one that ends just after a microsecond
/// is waited for until the next.
#[test]
fn no_nanosecond_too_early() {
    for (nanos, wait) in [(1_000_000, 1_000), (1_000_001, 1_001), (1_000_999, 1_001)] {
        let clock = ManualClock::new();
        let limiter = limiter(Quota::per(1, Duration::from_nanos(nanos)), &clock);
        assert!(limiter.acquire(&alice(), 1).is_allowed());
        assert_eq!(
            limiter.acquire(&alice(), 1).retry_after(),
            Some(micros(wait))
        );
        clock.advance(micros(wait - 1));
        assert!(limiter.acquire(&alice(), 1).is_denied(), "{nanos}");
        clock.advance(micros(1));
        assert!(limiter.acquire(&alice(), 1).is_allowed(), "{nanos}");
    }
}

#[test]
fn what_takes_nothing_stores_nothing() {
    let limiter = limiter(Quota::per_second(10), &ManualClock::new());
    let idle = [
        Request::Acquire(0),
        Request::AcquireUpTo(0),
        Request::Hit(0),
        Request::Peek(1),
        Request::Peek(11),
        Request::Acquire(11),
        Request::Acquire(u64::MAX),
        Request::Refund(0),
        Request::Refund(5),
        Request::Reset,
    ];
    for request in idle {
        let answer = decide(&limiter, request);
        assert_eq!(answer.charged, 0, "{request:?}");
        assert_eq!(answer.remaining, Some(10), "{request:?}");
        assert_eq!(limiter.tracked_keys(), 0, "{request:?}");
    }
    assert_eq!(decide(&limiter, Request::Acquire(1)).charged, 1);
    assert_eq!(limiter.tracked_keys(), 1);
}

/// Products of a long period and a large burst stay within the numbers, or the quota is refused.
#[test]
fn largest_quotas_count_right() {
    let most = Rate::new(1, Duration::from_nanos(1_000), (1 << 59) / 1_000);
    let limiter = limiter(most.quota, &ManualClock::new());
    assert!(limiter.acquire(&alice(), most.burst()).is_allowed());
    let denied = limiter.acquire(&alice(), most.burst());
    assert_eq!(
        denied.retry_after(),
        Some(Duration::from_nanos(most.refill()))
    );
    assert_eq!(denied.remaining(), Some(0));
    assert!(
        Quota::per(1, Duration::from_nanos((1 << 59) + 1))
            .check()
            .is_err()
    );
    assert!(Quota::per_day(1).burst(u64::MAX).check().is_err());
}
