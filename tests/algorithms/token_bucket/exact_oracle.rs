//! The token bucket by its definition, in exact numbers.

use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::{
    Decision, LocalLimiter,
    clock::{ManualClock, Timestamp},
};

use super::{Rate, alice, config, limiter, micros_up, rate, span};

/// A bucket with a level, where the crate keeps the instant at which the bucket is full. Levels
/// are exact: a token is worth `interval` nanoseconds.
#[derive(Debug, Clone)]
struct Bucket {
    interval: i128,
    capacity: i128,
    level: i128,
    /// The nanosecond at which the level was as it is.
    at: i128,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    Acquire(u64),
    AcquireUpTo(u64),
    Peek(u64),
    Hit(u64),
    Refund(u64),
    Reset,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    allowed: bool,
    pub(crate) charged: u64,
    pub(crate) remaining: Option<u64>,
    retry_after: Option<Duration>,
    reset_after: Option<Duration>,
    effective_window: Option<Duration>,
}

impl From<Decision> for Answer {
    fn from(decision: Decision) -> Self {
        Self {
            allowed: decision.is_allowed(),
            charged: decision.charged(),
            remaining: decision.remaining(),
            retry_after: decision.retry_after(),
            reset_after: decision.binding().reset_after(),
            effective_window: decision.binding().effective_window(),
        }
    }
}

impl Bucket {
    fn new(rate: &Rate) -> Self {
        let capacity = i128::from(rate.refill());
        Self {
            interval: i128::from(rate.interval),
            capacity,
            level: capacity,
            at: i128::MIN / 2,
        }
    }

    fn request(&mut self, now: i128, request: Request) -> Answer {
        self.heal(now);
        let before = (self.level + (now - self.at)).min(self.capacity);
        let (requested, fits_to, else_to) = self.plan(before, request);
        let missing = self.worth(requested) - before;
        let allowed = requested == 0 || missing <= 0;
        let after = if allowed { fits_to } else { else_to };
        let fits_empty = self.worth(requested) <= self.capacity;

        let charged = match request {
            Request::Acquire(_) | Request::AcquireUpTo(_) if allowed => requested,
            Request::Hit(cost) => cost.min(self.tokens(before)),
            _ => 0,
        };
        if matches!(request, Request::Reset) {
            *self = Self {
                at: i128::MIN / 2,
                level: self.capacity,
                ..*self
            };
        } else if after != before {
            // A level that did not change is not kept.
            self.level = after;
            self.at = now;
        }
        Answer {
            allowed,
            charged,
            remaining: Some(self.tokens(after)),
            retry_after: if allowed {
                Some(Duration::ZERO)
            } else {
                fits_empty.then(|| micros_up(missing))
            },
            reset_after: Some(micros_up(self.capacity - after)),
            effective_window: Some(if !allowed && fits_empty {
                micros_up(missing)
            } else if after >= self.interval {
                micros_up(after / self.interval * self.interval)
            } else {
                micros_up(self.interval - after)
            }),
        }
    }

    /// The wanted units, and the level afterwards if they fit and if not.
    fn plan(&self, before: i128, request: Request) -> (u64, i128, i128) {
        match request {
            Request::Acquire(cost) => (cost, before - self.worth(cost), before),
            Request::AcquireUpTo(most) => {
                let cost = most.min(self.tokens(before).max(1));
                (cost, before - self.worth(cost), before)
            }
            Request::Peek(cost) => (cost, before, before),
            Request::Hit(cost) => (cost, before - self.worth(cost), before.min(0)),
            Request::Refund(units) => (0, (before + self.worth(units)).min(self.capacity), before),
            Request::Reset => (0, self.capacity, before),
        }
    }

    fn worth(&self, units: u64) -> i128 {
        i128::from(units) * self.interval
    }

    fn tokens(&self, level: i128) -> u64 {
        u64::try_from(level.max(0) / self.interval).expect("small")
    }

    /// A clock that stepped back leaves a debt, which is waited for like any other. One of more
    /// than a full bucket, and more than a second, is forgiven down to an empty bucket.
    fn heal(&mut self, now: i128) {
        let debt = -(self.level + (now - self.at));
        if debt > self.capacity.max(1_000_000_000) {
            self.level = 0;
            self.at = now;
        }
    }
}

pub(crate) fn decide(limiter: &LocalLimiter, request: Request) -> Answer {
    let key = alice();
    let decision = match request {
        Request::Acquire(cost) => limiter.acquire(&key, cost),
        Request::AcquireUpTo(most) => limiter.acquire_up_to(&key, most),
        Request::Peek(cost) => limiter.peek(&key, cost),
        Request::Hit(cost) => limiter.hit(&key, cost),
        Request::Refund(units) => limiter.refund(&key, units, None),
        Request::Reset => limiter.reset(&key),
    };
    decision.into()
}

fn request() -> impl Strategy<Value = Request> {
    let units =
        || prop_oneof![3 => 0_u64..5, 3 => 0_u64..120, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    prop_oneof![
        6 => units().prop_map(Request::Acquire),
        2 => units().prop_map(Request::AcquireUpTo),
        2 => units().prop_map(Request::Peek),
        3 => units().prop_map(Request::Hit),
        2 => units().prop_map(Request::Refund),
        1 => Just(Request::Reset),
    ]
}

/// Rates up to the largest and the slowest that are accepted.
fn any_rate() -> impl Strategy<Value = Rate> {
    let refill = 1_u64 << 59;
    prop_oneof![
        8 => rate(),
        1 => Just(Rate::new(1, Duration::from_nanos(refill), 1)),
        1 => Just(Rate::new(1, Duration::from_nanos(1_000), refill / 1_000)),
        1 => Just(Rate::new(1_000_000, Duration::from_secs(1), 50)),
        1 => Just(Rate::new(3, Duration::from_secs(31_556_952), 7)),
    ]
}

/// 18 years, which a clock may step back behind the limiter's start.
const BACK: u64 = (1 << 59) / 1_000;

/// 36 years: the time in which a limiter is valid.
const UPTIME: u64 = (1 << 60) / 1_000;

/// The first and the last start that does not saturate anything, and today.
fn start() -> impl Strategy<Value = u64> {
    let last = u64::MAX / 1_000 - UPTIME - BACK;
    prop_oneof![Just(0), Just(1_767_225_600_000_000), Just(last), 0..=last,]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn agrees_on_random_traces(
        rate in any_rate(),
        start in start(),
        trace in prop::collection::vec((any::<u8>(), any::<u64>(), 0_u8..8, request()), 1..40),
    ) {
        let clock = ManualClock::at(Timestamp::from_micros(start));
        let limiter = limiter(rate.quota, &clock);
        let mut bucket = Bucket::new(&rate);
        let mut now = start;
        for (choice, fraction, direction, request) in trace {
            let step = span(choice, fraction, &rate);
            now = if direction == 0 { now.saturating_sub(step) } else { now + step };
            now = now.clamp(start.saturating_sub(BACK), start + UPTIME - 1);
            clock.set(Timestamp::from_micros(now));
            let expected = bucket.request(i128::from(now) * 1_000, request);
            prop_assert_eq!(decide(&limiter, request), expected, "{:?} at {}", request, now);
        }
    }
}
