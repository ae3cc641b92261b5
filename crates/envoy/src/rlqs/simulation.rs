//! A simulation of clients in virtual time: whatever they report, and whenever messages arrive, all together pass at
//! most the burst, the rate in that time, and the terms that late messages add.
//!
//! A client is as Envoy: a bucket that keeps its part of a new size, and an end that counts from the arrival. All times
//! are multiples of a step.

mod clients;
mod instances;
pub(super) mod random;
mod simulated_envoy;

use std::time::Duration;

use self::{clients::Clients, instances::Instances, random::Random};
use super::{
    client_share::DivisibleRate,
    divided_rate::{Design, Pool},
};

const STEP: Duration = Duration::from_millis(50);
const TTL: Duration = Duration::from_secs(15);
const NANO: i128 = 1_000_000_000;
const STEPS: usize = 2_000;

/// The result of one simulation, in tokens.
#[derive(Debug, Clone, Copy, Default)]
struct Outcome {
    passed: i128,
    /// The largest excess of an interval over its bound; negative if all are below.
    beyond: i128,
    /// The terms of late messages: sizes, and rates while they were late.
    late_sizes: i128,
    late_rates: i128,
    /// The rows that new streams took over, and the tokens for their buckets that the pool lacked.
    taken: u64,
    lacked: u64,
}

impl Outcome {
    /// Adds another simulation, in whole tokens.
    const fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.late_sizes += other.late_sizes / NANO;
        self.late_rates += other.late_rates / NANO;
        self.taken += other.taken;
        self.lacked += other.lacked;
    }
}

/// The excess of all requests over the rate: in each interval that ends now, at most the burst and the terms.
struct Bound {
    rate: DivisibleRate,
    excess: i128,
    late_sizes: i128,
    outcome: Outcome,
}

impl Bound {
    /// Billionths of tokens that a rate makes in a step.
    fn of_step(&self, tokens: u64) -> i128 {
        i128::from(tokens) * STEP.as_nanos() as i128 / i128::from(self.rate.interval)
    }

    fn step(&mut self, passed: u64, late_rate: u64, late_size: u64) {
        let late = self.of_step(late_rate);
        let allowed = self.of_step(self.rate.tokens) + late;
        // A token that is rounded down passes later.
        self.excess = (self.excess - allowed - 1).max(0) + i128::from(passed) * NANO;
        self.late_sizes += i128::from(late_size) * NANO;
        let bound = i128::from(self.rate.burst) * NANO + self.late_sizes;
        let Outcome {
            passed: all,
            beyond,
            late_sizes,
            late_rates,
            ..
        } = &mut self.outcome;
        *all += i128::from(passed);
        *beyond = (*beyond).max(self.excess - bound);
        *late_sizes = self.late_sizes;
        *late_rates += late;
    }
}

impl Bound {
    const fn new(rate: DivisibleRate) -> Self {
        Self {
            rate,
            excess: 0,
            late_sizes: 0,
            outcome: Outcome {
                passed: 0,
                beyond: i128::MIN,
                late_sizes: 0,
                late_rates: 0,
                taken: 0,
                lacked: 0,
            },
        }
    }
}

fn random_rate(random: &mut Random) -> DivisibleRate {
    let interval = if random.one_in(3) { 1 } else { 60 };
    let burst = [20, 200, 3_000][random.up_to(3) as usize];
    DivisibleRate {
        tokens: random.up_to(if interval == 1 { 5_000 } else { 100_000 }) + 60,
        interval,
        burst: random.up_to(burst) + 2,
    }
}

fn simulate(seed: u64, design: Option<Design>) -> Outcome {
    let mut random = Random(seed);
    let rate = random_rate(&mut random);
    let mut pool = Pool::new(rate, TTL, Duration::ZERO);
    if let Some(design) = design {
        pool = pool.with_design(design);
    }
    let mut clients = Clients::new(&mut random, 1);
    let mut bound = Bound::new(rate);
    for step in 1..=STEPS {
        let now = STEP * u32::try_from(step).expect("few");
        clients.send_reports(now, &mut random);
        clients.deliver_reports(now, &mut pool);
        let lacked = pool.lacked;
        for (row, share) in pool.messages(now) {
            clients.send(now, row, share, &mut random);
        }
        let lacked = pool.lacked - lacked;
        let (late_rate, made) = clients.receive(now, rate);
        let passed = clients.pass(now, &mut random);
        bound.step(passed, late_rate, made + lacked);
        bound.outcome.lacked += lacked;
    }
    bound.outcome.taken = clients.taken;
    bound.outcome
}

/// Instances that have the pool in Redis.
fn simulate_instances(seed: u64, overwrites: bool) -> (Outcome, Instances) {
    let mut random = Random(seed);
    let rate = random_rate(&mut random);
    let number = 1 + random.up_to(3);
    let mut instances = Instances::new(rate, number, &mut random);
    instances.overwrites = overwrites;
    let clients = Clients::new(&mut random, number);
    let outcome = run(rate, &mut instances, clients, &mut random);
    (outcome, instances)
}

/// An instance without failures, whose Redis falls back to earlier pools.
fn simulate_earlier_pools(seed: u64) -> (Outcome, Instances) {
    let mut random = Random(seed);
    let rate = random_rate(&mut random);
    let mut instances = Instances::new(rate, 1, &mut random).falling_back();
    let clients = Clients::new(&mut random, 1).healthy();
    let outcome = run(rate, &mut instances, clients, &mut random);
    (outcome, instances)
}

fn run(
    rate: DivisibleRate,
    instances: &mut Instances,
    mut clients: Clients,
    random: &mut Random,
) -> Outcome {
    let mut bound = Bound::new(rate);
    for step in 1..=STEPS {
        let now = STEP * u32::try_from(step).expect("few");
        clients.send_reports(now, random);
        clients.deliver_reports(now, instances);
        let lacked = instances.lacked;
        instances.step(now, &mut clients, random);
        let lacked = instances.lacked - lacked;
        let (late_rate, made) = clients.receive(now, rate);
        let passed = clients.pass(now, random);
        let (twice, anew) = (instances.twice, instances.anew);
        bound.step(
            passed,
            late_rate + twice + anew.tokens,
            made + lacked + anew.size,
        );
        bound.outcome.lacked += lacked;
    }
    bound.outcome.taken = clients.taken;
    bound.outcome
}

fn seeds() -> u64 {
    let seeds = std::env::var("RLQS_SEEDS").ok();
    seeds.map_or(300, |seeds| seeds.parse().expect("a number"))
}

/// `RLQS_SEEDS=10000` runs more, in some minutes.
#[test]
fn no_interval_is_above_the_bound() {
    let (mut sum, mut timely) = (Outcome::default(), 0);
    for seed in 0..seeds() {
        let outcome = simulate(seed, None);
        assert!(outcome.beyond <= 0, "seed {seed}: {outcome:?}");
        timely += u32::from(outcome.late_sizes == 0 && outcome.late_rates == 0);
        sum.add(&outcome);
    }
    println!("{timely} simulations without late messages; sums: {sum:?}");
    assert!(timely > 0, "the bound without terms is simulated");
    assert!(sum.late_rates > 0, "late messages are simulated");
    assert!(sum.taken > 0, "rows that pass on are simulated");
}

#[test]
fn wrong_designs_are_above_the_bound() {
    let right = Design::BOUNDED;
    let raises_before_cuts = Design {
        counts_cuts_later: false,
        ..right
    };
    let has_free_buckets = Design {
        charges_full_buckets: false,
        ..right
    };
    let drops_rows = Design {
        keeps_rows_without_stream: false,
        ..right
    };
    for design in [raises_before_cuts, has_free_buckets, drops_rows] {
        let wrong = (0..1_000).find(|seed| simulate(*seed, Some(design)).beyond > 0);
        println!("{design:?}: seed {wrong:?}");
        assert!(wrong.is_some(), "{design:?}");
    }
}

/// A limit is used, not only kept: greedy clients with timely messages get most of it.
#[test]
fn greedy_clients_get_the_rate() {
    let rate = DivisibleRate::of_second(1_000).expect("a rate");
    let mut pool = Pool::new(rate, TTL, Duration::ZERO);
    let mut clients = Clients::greedy(5, 1);
    let mut random = Random(1);
    let mut passed = 0;
    for step in 1..=STEPS {
        let now = STEP * u32::try_from(step).expect("few");
        clients.send_reports(now, &mut random);
        clients.deliver_reports(now, &mut pool);
        for (row, share) in pool.messages(now) {
            clients.send(now, row, share, &mut random);
        }
        clients.receive(now, rate);
        passed += clients.pass(now, &mut random);
    }
    // 100 seconds at 900 a second.
    assert!((85_000..=90_100).contains(&passed), "{passed}");
}

/// `RLQS_SEEDS=10000` runs more, in some minutes.
#[test]
fn no_interval_of_several_instances_is_above_the_bound() {
    let (mut sum, mut timely) = (Outcome::default(), 0);
    let (mut conflicts, mut renewals, mut unanswered) = (0, 0, 0);
    let (mut losses, mut flushed, mut fallen_back) = (0, 0, 0);
    for seed in 0..seeds() {
        let (outcome, instances) = simulate_instances(seed, false);
        assert!(outcome.beyond <= 0, "seed {seed}: {outcome:?}");
        timely += u32::from(outcome.late_sizes == 0 && outcome.late_rates == 0);
        sum.add(&outcome);
        conflicts += instances.conflicts;
        renewals += instances.renewals;
        losses += instances.losses;
        flushed += instances.flushed;
        fallen_back += instances.fallen_back;
        unanswered += instances.unanswered;
    }
    println!("{timely} simulations without late messages; sums: {sum:?}");
    println!("{conflicts} conflicts, {renewals} renewals without Redis");
    println!("{unanswered} cuts without an answer");
    println!("{flushed} losses, {fallen_back} earlier pools, which {losses} exchanges noticed");
    assert!(timely > 0, "the bound without terms is simulated");
    assert!(conflicts > 0 && renewals > 0 && unanswered > 0 && sum.taken > 0);
    assert!(losses > 0 && fallen_back > 0);
}

/// All are noticed, and nothing is divided anew.
#[test]
fn no_interval_is_above_the_bound_after_an_earlier_pool() {
    let mut fallen_back = 0;
    for seed in 0..seeds() {
        let (outcome, instances) = simulate_earlier_pools(seed);
        assert!(outcome.beyond <= 0, "seed {seed}: {outcome:?}");
        fallen_back += instances.fallen_back;
    }
    assert!(fallen_back > 0);
}

#[test]
fn instances_that_overwrite_each_other_are_above_the_bound() {
    let wrong = (0..1_000).find(|seed| simulate_instances(*seed, true).0.beyond > 0);
    println!("seed {wrong:?}");
    assert!(wrong.is_some());
}

#[test]
fn greedy_clients_of_several_instances_get_the_rate() {
    let rate = DivisibleRate::of_second(1_000).expect("a rate");
    let mut random = Random(1);
    let mut instances = Instances::new(rate, 2, &mut random).healthy();
    let mut clients = Clients::greedy(5, 2);
    let mut passed = 0;
    for step in 1..=STEPS {
        let now = STEP * u32::try_from(step).expect("few");
        clients.send_reports(now, &mut random);
        clients.deliver_reports(now, &mut instances);
        instances.step(now, &mut clients, &mut random);
        clients.receive(now, rate);
        passed += clients.pass(now, &mut random);
    }
    // 100 seconds at 900 a second, and some seconds until all have a share.
    assert!((75_000..=90_100).contains(&passed), "{passed}");
}
