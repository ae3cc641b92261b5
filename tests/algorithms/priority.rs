//! The part of a limit that is kept for critical requests stays, whatever others do.

use std::time::Duration;

use tower_ratelimit::{
    Decision, LocalLimiter, Priority, Quota,
    clock::ManualClock,
    decision::Op,
    limiter::{Pending, Tier},
};

use super::alice;

/// The operations of each algorithm.
const OPERATIONS: u32 = 100_000;

const SHARES: [u8; 4] = [80, 79, 50, 5];

/// Numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn decide(limiter: &LocalLimiter, class: Priority, op: Op) -> Decision {
    let in_class = (&Tier::DEFAULT, class);
    let Pending::Ready(decision) = testkit::apply_in_class(limiter, in_class, &alice(), op);
    decision.expect("a decision")
}

/// Each algorithm with a limit of 40 in 40 seconds.
fn quotas() -> [Quota; 6] {
    let quota = Quota::per(40, Duration::from_secs(40));
    [
        quota,
        quota.refill_every(Duration::from_secs(5)),
        quota.leaky_bucket(39),
        quota.fixed_window(),
        quota.sliding_window().slices(4),
        quota.sliding_log(),
    ]
}

fn limiter(quota: Quota) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(quota).clock(clock.clone());
    (limiter.max_keys(4).build().expect("good quotas"), clock)
}

#[test]
fn others_at_a_hundred_times_the_limit_never_take_the_last_part() {
    for quota in quotas() {
        let (limiter, clock) = limiter(quota);
        let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
        let mut charged = 0;
        for _ in 0..OPERATIONS {
            clock.advance(Duration::from_micros(numbers.below(20_000)));
            let class = SHARES[numbers.below(4) as usize];
            let class = Priority::share(class).unwrap();
            let cost = numbers.below(6);
            let op = match numbers.below(8) {
                0 => Op::AcquireUpTo(cost * 20),
                1 => Op::Hit(cost * 20),
                2 => Op::Reserve(cost),
                _ => Op::Acquire(cost),
            };
            charged += decide(&limiter, class, op).charged();
            let left = decide(&limiter, Priority::CRITICAL, Op::Peek(8));
            assert!(left.is_allowed() && left.remaining() >= Some(8), "{quota}");
        }
        // Hits take parts of units, too, which they do not report.
        assert!(charged > 200, "{quota}: {charged}");
        let last = decide(&limiter, Priority::CRITICAL, Op::Acquire(8));
        assert!(last.is_allowed(), "{quota}");
    }
}

#[test]
fn critical_requests_alone_reach_the_whole_limit() {
    for quota in quotas() {
        let (limiter, _) = limiter(quota);
        for taken in 0..40 {
            let decision = decide(&limiter, Priority::CRITICAL, Op::Acquire(1));
            assert_eq!(decision.remaining(), Some(39 - taken), "{quota}");
            let share = Priority::share(50).unwrap();
            let other = decide(&limiter, share, Op::Peek(1));
            assert_eq!(other.is_allowed(), taken + 1 < 20, "{quota}");
            assert_eq!(
                other.remaining(),
                Some(19_u64.saturating_sub(taken)),
                "{quota}"
            );
        }
        assert!(decide(&limiter, Priority::CRITICAL, Op::Acquire(1)).is_denied());
    }
}
