//! Requests that take long and then do not count: a client that keeps them open as it likes gets
//! at most two buckets and the rate of what counts, in any interval.

use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::{
    Decision, LocalLimiter, Quota,
    clock::{Clock as _, ManualClock},
    decision::{Op, Receipt},
    limiter::{Pending, Tier},
};

use super::{alice, cases};

/// 5 a minute in the algorithms whose refunds fade.
const BUCKETS: [Quota; 3] = [
    Quota::per_minute(5),
    Quota::per_minute(5).refill_every(Duration::from_secs(1)),
    Quota::per_minute(5).leaky_bucket(4),
];

/// A client with requests that are open, oldest first, and what has counted or still may.
struct Client {
    limiter: LocalLimiter,
    clock: ManualClock,
    /// T of each tier.
    intervals: Vec<u64>,
    open: Vec<(Receipt, usize)>,
    /// When what was begun, in nanoseconds of its tier's rate; 0 once it turned out not to count.
    begun: Vec<(u64, u64)>,
    requested: u64,
    denied: u64,
}

const TIERS: [Tier; 2] = [Tier::DEFAULT, Tier::named("other")];

impl Client {
    fn new(quotas: &[Quota]) -> Self {
        let clock = ManualClock::new();
        let mut builder = LocalLimiter::builder(quotas[0])
            .max_keys(4)
            .clock(clock.clone());
        for other in &quotas[1..] {
            builder = builder.tier("other", *other);
        }
        let interval = |quota: &Quota| quota.period().as_nanos() as u64 / quota.limit();
        Self {
            limiter: builder.build().expect("good quotas"),
            clock,
            intervals: quotas.iter().map(interval).collect(),
            open: Vec::new(),
            begun: Vec::new(),
            requested: 0,
            denied: 0,
        }
    }

    fn request(&self, tier: usize, op: Op) -> Decision {
        let Pending::Ready(decision) = testkit::apply_in(&self.limiter, &TIERS[tier], &alice(), op);
        decision.expect("there is such a tier")
    }

    /// Begins a request, if it passes.
    fn begin(&mut self, tier: usize, cost: u64) -> bool {
        let decision = self.request(tier, Op::Reserve(cost));
        self.requested += 1;
        self.denied += u64::from(decision.is_denied());
        if decision.charged() > 0 {
            self.open.push((decision.receipt(), self.begun.len()));
            let now = self.clock.now().as_micros() * 1_000;
            self.begun.push((now, cost * self.intervals[tier]));
        }
        decision.is_allowed()
    }

    /// Begins as many as pass.
    fn fill(&mut self, tier: usize) -> u64 {
        let mut passed = 0;
        while self.begin(tier, 1) {
            passed += 1;
            assert!(passed < 1_000, "no limit at all");
        }
        passed
    }

    /// Ends one of the open requests: it does not count.
    fn finish(&mut self, place: usize) {
        if place < self.open.len() {
            let (receipt, number) = self.open.remove(place);
            let _ = self.request(0, Op::Settle(0, receipt));
            self.begun[number].1 = 0;
        }
    }

    /// Ends each of the open requests, and begins another in its place.
    fn renew(&mut self, tier: usize) {
        for _ in 0..self.open.len() {
            self.finish(0);
            let _ = self.begin(tier, 1);
        }
    }

    fn finish_all(&mut self) {
        while !self.open.is_empty() {
            self.finish(0);
        }
    }

    fn wait(&self, nanos: u64) {
        self.clock
            .advance(Duration::from_micros(nanos.div_ceil(1_000)));
    }

    /// The most that counts within any interval, beyond what flows in that time, in nanoseconds.
    fn most_beyond_rate(&self) -> u64 {
        let (mut most, mut here, mut last) = (0_u64, 0_u64, 0);
        for (at, worth) in &self.begun {
            here = here.saturating_sub(at - last) + worth;
            last = *at;
            most = most.max(here);
        }
        most
    }
}

#[test]
fn slow_requests_that_are_finished_together_give_one_burst() {
    for quota in BUCKETS {
        let mut client = Client::new(&[quota]);
        for _ in 0..300 {
            assert!(client.begin(0, 1), "{quota:?}");
            client.wait(client.intervals[0]);
        }
        client.finish_all();
        let passed = client.fill(0);
        assert!(passed <= 5, "{quota:?}: {passed} at one instant");
    }
}

/// The bucket is filled, the last request stays open, the others end and give back what is newer;
/// at last the open ones end one after another, and others take their place.
#[test]
fn fill_keep_the_last_open_and_finish_the_others() {
    for quota in BUCKETS {
        for wait in [0, 1, 3, 12, 24, 60] {
            let mut client = Client::new(&[quota]);
            for _ in 0..120 {
                let passed = client.fill(0) as usize;
                let before = client.open.len() - passed;
                for _ in 1..passed {
                    client.finish(before);
                }
                client.wait(wait * 1_000_000_000);
            }
            let kept = client.open.len();
            let mut passed = client.fill(0);
            for _ in 0..kept {
                client.finish(0);
                passed += client.fill(0);
            }
            assert!(passed <= 10, "{quota:?}, {wait}: {passed} at one instant");
        }
    }
}

#[test]
fn finish_one_and_begin_one() {
    for quota in BUCKETS {
        for rounds in [1, 5, 40, 200] {
            let mut client = Client::new(&[quota]);
            for _ in 0..rounds {
                let _ = client.begin(0, 1);
                client.wait(12_000_000_000);
            }
            let mut passed = 0;
            for _ in 0..client.open.len() {
                client.finish(0);
                passed += u64::from(client.begin(0, 1));
            }
            assert!(passed <= 10, "{quota:?}, {rounds}: {passed} at one instant");
        }
    }
}

/// All open requests are renewed again and again, each by finishing it and beginning another; with
/// each unit that flows there is one more. A refund that does not fade, only ends, gives all of them
/// back at one instant.
#[test]
fn renew_all_that_are_open() {
    for quota in BUCKETS {
        for wait in [3, 12, 24, 48] {
            let mut client = Client::new(&[quota]);
            for _ in 0..120 {
                client.renew(0);
                let _ = client.fill(0);
                client.wait(wait * 1_000_000_000);
            }
            client.renew(0);
            let _ = client.fill(0);
            let now = client.clock.now().as_micros() * 1_000;
            let at_once = client
                .begun
                .iter()
                .filter(|(at, worth)| (*at, *worth > 0) == (now, true));
            let at_once = at_once.count();
            assert!(at_once <= 10, "{quota:?}, {wait}: {at_once} at one instant");
        }
    }
}

/// The share that is denied of requests that don't count and take up to `longest` microseconds each,
/// at 60 a minute with a burst of 10: a full bucket in 10 s.
fn denied_share(at_a_time: usize, longest: u64) -> f64 {
    let mut client = Client::new(&[Quota::per_minute(60).burst(10)]);
    let mut random = 1_u64;
    let mut ends: Vec<u64> = Vec::new();
    let mut now = 0;
    for _ in 0..20_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        if ends.len() == at_a_time {
            let first = (0..ends.len()).min_by_key(|place| ends[*place]);
            let first = first.expect("some are open");
            let end = ends.remove(first).max(now);
            client.wait((end - now) * 1_000);
            now = end;
            client.finish(first);
        }
        if client.begin(0, 1) {
            ends.push(now + (random >> 33) % longest);
        } else {
            client.wait(1_000_000_000);
            now += 1_000_000;
        }
    }
    client.denied as f64 / client.requested as f64
}

/// Without fading none would be denied while there is room for all that are open.
#[test]
fn honest_client_loses_next_to_nothing() {
    for (at_a_time, longest, most) in [
        (1, 20_000_000, 0.0),
        (3, 4_000_000, 0.0),
        (8, 10_000_000, 0.0),
        (10, 2_000_000, 0.003),
        (10, 20_000_000, 0.003),
    ] {
        let share = denied_share(at_a_time, longest);
        eprintln!("{at_a_time} within {longest} µs: {share}");
        assert!(share <= most, "{at_a_time} within {longest} µs: {share}");
    }
}

/// The next thing that a client does.
#[derive(Debug, Clone, Copy)]
enum Move {
    Begin(usize, u64),
    Fill(usize),
    FinishOldest,
    FinishNewest,
    FinishAny(usize),
    FinishAll,
    Renew(usize),
    /// All that are newer than this many, but for the last.
    FinishOthers(usize),
    /// The response counts: nothing comes back.
    Counts(usize),
    /// In hundredths of the time in which one unit comes.
    Wait(u64),
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => (0_usize..2, 1_u64..3).prop_map(|(tier, cost)| Move::Begin(tier, cost)),
        5 => (0_usize..2).prop_map(Move::Fill),
        4 => Just(Move::FinishOldest),
        1 => Just(Move::FinishNewest),
        2 => any::<usize>().prop_map(Move::FinishAny),
        1 => Just(Move::FinishAll),
        3 => (0_usize..2).prop_map(Move::Renew),
        5 => (0_usize..60).prop_map(Move::FinishOthers),
        1 => any::<usize>().prop_map(Move::Counts),
        6 => prop_oneof![Just(100), 1_u64..100, 1_u64..1_000].prop_map(Move::Wait),
    ]
}

/// A few moves that are repeated, and then others: random moves alone find nothing.
fn moves() -> impl Strategy<Value = Vec<Move>> {
    let phase = (prop::collection::vec(any_move(), 1..6), 1_usize..40);
    prop::collection::vec(phase, 1..5).prop_map(|phases| {
        let repeated = phases.into_iter().map(|(moves, times)| moves.repeat(times));
        repeated.flatten().collect()
    })
}

impl Client {
    fn go(&mut self, step: Move) {
        let tiers = self.intervals.len();
        match step {
            Move::Begin(tier, cost) => drop(self.begin(tier % tiers, cost)),
            Move::Fill(tier) => drop(self.fill(tier % tiers)),
            Move::FinishOldest => self.finish(0),
            Move::FinishNewest => self.finish(self.open.len().saturating_sub(1)),
            Move::FinishAny(place) => self.finish(place % self.open.len().max(1)),
            Move::FinishAll => self.finish_all(),
            Move::Renew(tier) => self.renew(tier % tiers),
            Move::FinishOthers(kept) => {
                while self.open.len() > kept + 1 {
                    self.finish(kept);
                }
            }
            Move::Counts(place) if !self.open.is_empty() => {
                let _ = self.open.remove(place % self.open.len());
            }
            Move::Counts(_) => {}
            Move::Wait(hundredths) => self.wait(self.intervals[0] * hundredths / 100),
        }
    }
}

/// One bucket, or two tiers that share one, and its refill step.
fn buckets() -> impl Strategy<Value = (Vec<Quota>, u64)> {
    let size = || (1_u64..8, 1_u64..7);
    let kind = prop_oneof![3 => Just(0_u8), 1 => Just(1), 1 => Just(2)];
    (kind, prop::collection::vec(size(), 1..3)).prop_map(|(kind, sizes)| {
        let quotas = sizes.into_iter().map(|(limit, burst)| {
            let quota = Quota::per_minute(limit);
            match kind {
                0 => quota.burst(burst),
                1 => quota.burst(burst).refill_every(Duration::from_secs(7)),
                _ => quota.leaky_bucket(burst - 1),
            }
        });
        let step = if kind == 1 { 7_000_000_000 } else { 0 };
        (quotas.collect(), step)
    })
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn what_counts_stays_within_two_buckets_and_the_rate(
        (quotas, step) in buckets(),
        moves in moves(),
    ) {
        let mut client = Client::new(&quotas);
        let full = |quota: &Quota| quota.period().as_nanos() as u64 / quota.limit() * quota.capacity();
        let bound = 2 * quotas.iter().map(full).max().expect("one") + step;
        for step in moves {
            client.go(step);
            let most = client.most_beyond_rate();
            prop_assert!(most <= bound, "{most} beyond {bound} after {step:?}");
        }
    }
}
