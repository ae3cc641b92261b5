//! [`Op::Spend`] and debts: units that were used before anything could deny them, and streams that reserve an
//! estimate, spend in steps and settle at their end.

use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::{
    ConfigErrorKind, Decision, Limiter as _, LimiterErrorKind, LocalLimiter, LocalStore, Quota,
    clock::{Clock as _, ManualClock},
    decision::{Op, Receipt},
    limiter::{JointLimiter, Pending, RequestQuota, Tier},
};

use super::{alice, cases, every_algorithm};

fn request(limiter: &LocalLimiter, op: Op) -> Decision {
    let Pending::Ready(decision) = limiter.apply(&alice(), op);
    decision.expect("the limiter can do it")
}

fn blocking(quota: Quota) -> LocalLimiter {
    let builder = LocalLimiter::builder(quota).block_for(Duration::from_secs(60));
    builder.build().expect("a good quota")
}

#[test]
fn queue_and_limiter_that_blocks_owe_nothing() {
    let owing = Quota::per_minute(10).debt(5);
    let refused = [
        owing.leaky_bucket(3).check(),
        LocalLimiter::builder(owing)
            .block_for(Duration::from_secs(60))
            .build()
            .map(drop),
        blocking(Quota::per_minute(10)).set_quota("default", owing),
    ];
    for error in refused.map(|refused| refused.expect_err("it owes")) {
        assert_eq!(error.kind(), ConfigErrorKind::Debt, "{error}");
        assert!(error.to_string().starts_with("debt(5): a "), "{error}");
    }
}

#[test]
fn queue_and_limiter_that_blocks_do_not_support_spending() {
    let queue = Quota::per_minute(10).leaky_bucket(3);
    let store = LocalStore::new();
    let in_store = |quota: Quota, name| {
        let builder = LocalLimiter::builder(quota.named(name));
        builder.build_in(&store).expect("a good quota")
    };
    let both = JointLimiter::new([
        in_store(Quota::per_minute(10), "bucket"),
        in_store(queue, "queue"),
    ]);
    let both = both.expect("good limits");
    assert!(!both.facts().supports(&Op::Spend(1)));
    let limiters = [
        LocalLimiter::new(queue),
        LocalLimiter::new([queue.named("queue"), Quota::per_hour(10).named("hour")]),
        blocking(Quota::per_minute(10)),
        both.limiters()[1].clone(),
    ];
    for limiter in limiters {
        assert!(!limiter.facts().supports(&Op::Spend(1)));
        let Pending::Ready(refused) = limiter.spend(&alice(), 1);
        let error = refused.expect_err("not supported");
        assert_eq!(error.kind(), LimiterErrorKind::Unsupported);
    }
}

#[test]
fn every_algorithm_owes_its_debt_and_no_more() {
    for quota in every_algorithm(Quota::per_minute(10)) {
        let quota = quota.debt(7);
        if quota.check().is_err() {
            continue;
        }
        let limiter = LocalLimiter::builder(quota).clock(ManualClock::new());
        let limiter = limiter.build().expect("a good quota");
        let first = request(&limiter, Op::Spend(12));
        assert_eq!(
            (first.charged(), first.is_denied()),
            (12, true),
            "{quota:?}"
        );
        let second = request(&limiter, Op::Spend(12));
        assert_eq!(second.charged(), 5, "{quota:?}");
        assert_eq!(request(&limiter, Op::Hit(12)).charged(), 0, "{quota:?}");
        assert_eq!(request(&limiter, Op::Spend(u64::MAX)).charged(), 0);
        let back = request(&limiter, Op::Refund(7, Some(first.receipt())));
        assert_eq!(back.remaining(), Some(0), "{quota:?}");
        let back = request(&limiter, Op::Refund(5, Some(second.receipt())));
        assert_eq!(back.remaining(), Some(5), "{quota:?}");
    }
}

/// A debt leaves room for units that were used, not for requests: their own quotas hold no more than
/// the limiter's.
#[test]
fn request_s_own_quota_does_not_hold_the_debt() {
    for quota in [
        Quota::per_minute(10).fixed_window(),
        Quota::per_minute(10).sliding_log(),
    ] {
        let limiter = LocalLimiter::new(quota.debt(90));
        let tier = Tier::from(RequestQuota::limit(1_000));
        let Pending::Ready(decision) =
            testkit::apply_in(&limiter, &tier, &alice(), Op::AcquireUpTo(1_000));
        let taken = decision.expect("there is one quota").charged();
        assert_eq!(taken, 10, "{quota:?}");
    }
}

/// A stream of units: a response whose cost is known when it has ended.
#[derive(Debug, Default)]
struct Stream {
    used: u64,
    /// The units that it requested, charged or not.
    covered: u64,
    /// The sum of what the decisions charged.
    charged: u64,
    /// The newest receipts that are not settled, oldest first.
    receipts: Vec<Receipt>,
}

/// The receipts that a stream keeps.
const KEPT: usize = 4;

/// Streams that share one limit.
struct Streams {
    limiter: LocalLimiter,
    clock: ManualClock,
    reservation: u64,
    step: u64,
    open: Vec<Stream>,
    /// The most that were open at the same time.
    most_open: u64,
    /// The units that were used, and when, in nanoseconds.
    uses: Vec<(u64, u64)>,
    /// The units that were beyond the debt when they were spent.
    forgotten: u64,
}

impl Streams {
    /// A step is spent while at most half a step is unused, so 1.5 · s are charged and unused afterwards, or r
    /// before the first step. The bounds' n · (r + s) covers both if s ≤ 2 · r: a larger step is cut to that.
    fn new(quota: Quota, reservation: u64, step: u64) -> Self {
        let step = step.min(2 * reservation);
        let clock = ManualClock::new();
        let limiter = LocalLimiter::builder(quota).max_keys(4);
        let limiter = limiter.clock(clock.clone()).build();
        Self {
            limiter: limiter.expect("a good quota"),
            clock,
            reservation,
            step,
            open: Vec::new(),
            most_open: 0,
            uses: Vec::new(),
            forgotten: 0,
        }
    }

    fn begin(&mut self) {
        let reserved = request(&self.limiter, Op::Reserve(self.reservation));
        if reserved.is_allowed() {
            let mut stream = Stream::default();
            let _ = stream.note(&reserved, self.reservation);
            self.open.push(stream);
            self.most_open = self.most_open.max(self.open.len() as u64);
        }
    }

    /// At most half a step of units, and a step more if what is charged comes to an end.
    fn produce(&mut self, place: usize, units: u64) {
        let now = self.clock.now().as_micros() * 1_000;
        let Some(stream) = self.open.get_mut(place) else {
            return;
        };
        stream.used += units;
        self.uses.push((now, units));
        if stream.used + self.step / 2 >= stream.covered {
            let spent = request(&self.limiter, Op::Spend(self.step));
            self.forgotten += stream.note(&spent, self.step);
        }
    }

    /// Settles a stream: what is missing is spent, a surplus is refunded, newest first.
    fn end(&mut self, place: usize) {
        if place >= self.open.len() {
            return;
        }
        let mut stream = self.open.remove(place);
        if let Some(missing) = stream.used.checked_sub(stream.charged) {
            let spent = request(&self.limiter, Op::Spend(missing));
            self.forgotten += stream.note(&spent, missing);
            return;
        }
        let mut surplus = stream.charged - stream.used;
        for receipt in stream.receipts.into_iter().rev() {
            let back = surplus.min(receipt.charged());
            surplus -= back;
            let _ = request(&self.limiter, Op::Refund(back, Some(receipt)));
        }
    }

    /// The most that was used within any interval, beyond what flows in that time, in nanoseconds of a
    /// rate with this time of a unit.
    fn most_beyond_rate(&self, interval: u64) -> u64 {
        let (mut most, mut here, mut last) = (0_u64, 0_u64, 0);
        for (at, units) in &self.uses {
            here = here.saturating_sub(at - last) + units * interval;
            last = *at;
            most = most.max(here);
        }
        most
    }

    /// The most that was used within a window of this length.
    fn most_in_a_window(&self, period: u64) -> u64 {
        let windows = self
            .uses
            .chunk_by(|one, two| one.0 / period == two.0 / period);
        let uses = windows.map(|window| window.iter().map(|(_, units)| units).sum());
        uses.max().unwrap_or(0)
    }
}

impl Stream {
    /// Notes a charge. Returns the units beyond the debt, which were not charged.
    fn note(&mut self, decision: &Decision, requested: u64) -> u64 {
        self.covered += requested;
        if decision.charged() > 0 {
            self.charged += decision.charged();
            self.receipts.push(decision.receipt());
        }
        if self.receipts.len() > KEPT {
            self.receipts.remove(0);
        }
        requested - decision.charged()
    }
}

#[derive(Debug, Clone, Copy)]
enum Move {
    Begin,
    /// The place of a stream, and a part of half a step in percent.
    Produce(usize, u64),
    /// As much as it can at once, this many times.
    Flood(usize, u8),
    End(usize),
    EndAll,
    /// In hundredths of the time of a unit.
    Wait(u64),
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        6 => Just(Move::Begin),
        6 => (any::<usize>(), 0_u64..=100).prop_map(|(at, part)| Move::Produce(at, part)),
        4 => (any::<usize>(), 1_u8..9).prop_map(|(at, times)| Move::Flood(at, times)),
        3 => any::<usize>().prop_map(Move::End),
        1 => Just(Move::EndAll),
        4 => prop_oneof![Just(100), 1_u64..100, 1_u64..3_000].prop_map(Move::Wait),
    ]
}

/// A few moves that are repeated, and then others.
fn moves() -> impl Strategy<Value = Vec<Move>> {
    let phase = (prop::collection::vec(any_move(), 1..8), 1_usize..30);
    prop::collection::vec(phase, 1..5).prop_map(|phases| {
        let repeated = phases.into_iter().map(|(moves, times)| moves.repeat(times));
        repeated.flatten().collect()
    })
}

impl Streams {
    fn go(&mut self, interval: u64, step: Move) {
        let place = |place: usize| place % self.open.len().max(1);
        let half = self.step / 2;
        match step {
            Move::Begin => self.begin(),
            Move::Produce(at, part) => self.produce(place(at), half * part / 100),
            Move::Flood(at, times) => {
                let at = place(at);
                (0..times).for_each(|_| self.produce(at, half));
            }
            Move::End(at) => self.end(place(at)),
            Move::EndAll => (0..self.open.len()).for_each(|_| self.end(0)),
            Move::Wait(hundredths) => {
                let nanos = interval * hundredths / 100;
                let micros = Duration::from_micros(nanos.div_ceil(1_000));
                self.clock.advance(micros);
            }
        }
    }

    /// Ends all streams, and returns what may be used beside the limit: n · (r + s) + X.
    fn slack(&mut self) -> u64 {
        (0..self.open.len()).for_each(|_| self.end(0));
        self.most_open * (self.reservation + self.step) + self.forgotten
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// Used in any interval L ≤ 2 · B + rate · L + debt + n · (r + s) + what was forgotten, for s ≤ 2 · r.
    #[test]
    fn streams_of_a_bucket_stay_within_the_bound(
        (limit, burst, debt) in (1_u64..40, 1_u64..40, 0_u64..40),
        (reservation, step, refill) in (1_u64..20, 2_u64..12, prop::option::weighted(0.3, Just(7))),
        moves in moves(),
    ) {
        let quota = Quota::per_minute(limit).burst(burst).debt(debt);
        let seconds = refill.map(Duration::from_secs);
        let quota = seconds.map_or(quota, |seconds| quota.refill_every(seconds));
        let interval = 60_000_000_000 / limit;
        let mut streams = Streams::new(quota, reservation.min(burst), step);
        for step in moves {
            streams.go(interval, step);
        }
        let slack = streams.slack();
        let refilled = refill.unwrap_or(0) * 1_000_000_000;
        let bound = (2 * burst + debt + slack) * interval + refilled;
        let most = streams.most_beyond_rate(interval);
        prop_assert!(most <= bound, "{most} beyond {bound}");
    }

    /// Used in a window ≤ limit + debt + n · (r + s) + what was forgotten, for s ≤ 2 · r.
    #[test]
    fn streams_of_a_window_stay_within_the_bound(
        (limit, debt) in (1_u64..40, 0_u64..40),
        (reservation, step) in (1_u64..20, 2_u64..12),
        moves in moves(),
    ) {
        let quota = Quota::per_minute(limit).fixed_window().debt(debt);
        let mut streams = Streams::new(quota, reservation.min(limit), step);
        for step in moves {
            streams.go(60_000_000_000 / limit, step);
        }
        let slack = streams.slack();
        let most = streams.most_in_a_window(60_000_000_000);
        let bound = limit + debt + slack;
        prop_assert!(most <= bound, "{most} beyond {bound}");
    }
}

/// A debt is repaid to the unit: what streams used beyond the limit is missing afterwards.
#[test]
fn debt_of_many_streams_is_repaid_to_the_unit() {
    let quota = Quota::per_minute(1_000).debt(2_000);
    let mut streams = Streams::new(quota, 20, 16);
    for _ in 0..100 {
        streams.begin();
    }
    let open = streams.open.len();
    assert_eq!(open, 50, "1,000 units are 50 reservations");
    for _ in 0..4 {
        (0..open).for_each(|at| streams.produce(at, 8));
    }
    streams.slack();
    assert_eq!(streams.forgotten, 0);
    // 50 · 32 were used of 1,000: 600 are owed, and the next unit comes 60 ms after them.
    let next = streams.limiter.peek(&alice(), 1);
    assert_eq!(next.remaining(), Some(0));
    let wait = Duration::from_millis(60 * 601);
    assert_eq!(next.retry_after(), Some(wait));
}
