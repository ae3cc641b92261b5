//! Decisions alone, without HTTP.

mod bench_keys;
mod contenders;
mod floor;
mod several_limits;

use std::{
    hint::black_box,
    marker::PhantomData,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

pub use self::{
    bench_keys::{BenchKey, LongText, address},
    contenders::*,
    several_limits::*,
};
use crate::{
    cpu_time::CpuTime,
    random_keys::Spread,
    rate_conversions::Rate,
    report::{Report, Row, Table},
    rounds::{Samples, interleaved, rounds},
};

/// Keys in the large runs.
pub const MANY: u32 = 1_000_000;

const ROUNDS: usize = 11;

/// Threads have seeds of their own, with room for so many between two rounds.
const SEEDS_APART: u64 = 64;

/// A limiter of keys of one type.
pub trait Decide<K>: Sync {
    /// Whether one unit was granted.
    fn decide(&self, key: &K) -> bool;

    /// Forgets what need not be remembered, where that does not happen by itself.
    fn clean_up(&self) {}
}

/// A limiter of any keys, called in batches, so that a call through a pointer does not count.
pub trait Batches: Sync {
    /// How many of `count` decisions were granted.
    fn run(&self, spread: &Spread, seed: u64, count: usize) -> usize;

    /// Requests one unit for each of so many keys.
    fn fill(&self, keys: u32);

    /// The longest of `count` single decisions.
    fn longest(&self, spread: &Spread, seed: u64, count: usize) -> Duration;

    fn clean_up(&self);
}

/// [`Batches`] of a limiter.
pub struct Of<K, D>(D, PhantomData<fn() -> K>);

impl<K, D> Of<K, D> {
    pub const fn new(decider: D) -> Self {
        Self(decider, PhantomData)
    }
}

impl<K: BenchKey, D: Decide<K>> Batches for Of<K, D> {
    fn run(&self, spread: &Spread, seed: u64, count: usize) -> usize {
        let mut key = K::first();
        let numbers = spread.numbers(seed).take(count);
        let granted = numbers.filter(|&number| {
            key.set(number);
            black_box(self.0.decide(&key))
        });
        granted.count()
    }

    fn fill(&self, keys: u32) {
        let mut key = K::first();
        for number in 0..keys {
            key.set(number);
            black_box(self.0.decide(&key));
        }
    }

    fn longest(&self, spread: &Spread, seed: u64, count: usize) -> Duration {
        let mut key = K::first();
        let times = spread.numbers(seed).take(count).map(|number| {
            key.set(number);
            let start = Instant::now();
            black_box(self.0.decide(&key));
            start.elapsed()
        });
        times.max().unwrap_or_default()
    }

    fn clean_up(&self) {
        self.0.clean_up();
    }
}

/// Nanoseconds of CPU time per decision, with `count` decisions in each of so many threads.
pub fn time(
    batches: &dyn Batches,
    spread: &Spread,
    threads: usize,
    count: usize,
    seed: u64,
) -> f64 {
    let start = Barrier::new(threads);
    let work = |thread: usize| {
        start.wait();
        let begin = CpuTime::now();
        black_box(batches.run(spread, seed * SEEDS_APART + thread as u64, count));
        begin.nanos_since()
    };
    let longest = if threads == 1 {
        work(0)
    } else {
        thread::scope(|scope| {
            let spawn = |thread| scope.spawn(move || work(thread));
            let running: Vec<_> = (0..threads).map(spawn).collect();
            let times = running.into_iter().map(|thread| thread.join());
            let longest = times.map(|time| time.expect("no panic")).max();
            longest.expect("at least one thread")
        })
    };
    longest as f64 / count as f64
}

/// Requests of one run.
struct Load {
    title: &'static str,
    text_keys: bool,
    spread: Spread,
    rate: Rate,
    threads: usize,
    /// Decisions in a thread's turn.
    count: usize,
}

impl Load {
    fn contenders(&self) -> Vec<Contender> {
        let mut contenders = contenders(self.text_keys);
        if [HOT_1, MANY_1].contains(&self.title) {
            contenders.push(limitador_contender());
        }
        contenders
    }
}

fn loads() -> Vec<Load> {
    let load = |title, text_keys, spread, rate, threads, count| Load {
        title,
        text_keys,
        spread,
        rate,
        threads,
        count,
    };
    let one = || Spread::OneKey;
    let many = || Spread::Uniform(MANY);
    vec![
        load(HOT_1, false, one(), Rate::UNBOUNDED, 1, 300_000),
        load(HOT_2, false, one(), Rate::UNBOUNDED, 2, 150_000),
        load(DENIED_1, false, one(), Rate::USED_UP, 1, 300_000),
        load(MANY_1, false, many(), Rate::SLOW, 1, 100_000),
        load(MANY_2, false, many(), Rate::SLOW, 2, 100_000),
        // Every 14th request is for the likeliest key: 170,000 in all rounds, of the 1,000,000 that it
        // may spend.
        load(ZIPF_1, false, Spread::zipf(MANY), Rate::SLOW, 1, 200_000),
        load(TEXT_1, true, many(), Rate::SLOW, 1, 100_000),
        load(TEXT_2, true, many(), Rate::SLOW, 2, 100_000),
    ]
}

pub const HOT_1: &str = "decision, one address, 1 thread";
pub const HOT_2: &str = "decision, one address, 2 threads";
pub const DENIED_1: &str = "decision, one address, denied, 1 thread";
pub const MANY_1: &str = "decision, 1 M addresses, 1 thread";
pub const MANY_2: &str = "decision, 1 M addresses, 2 threads";
pub const ZIPF_1: &str = "decision, 1 M addresses by Zipf, 1 thread";
pub const TEXT_1: &str = "decision, 1 M strings of 36 bytes, 1 thread";
pub const TEXT_2: &str = "decision, 1 M strings of 36 bytes, 2 threads";

pub fn measure(report: &mut Report) {
    for load in loads() {
        report.add(table(&load));
    }
    report.add(several());
}

fn table(load: &Load) -> Table {
    let mut limiters: Vec<_> = load
        .contenders()
        .into_iter()
        .map(|contender| {
            let limiter = (contender.make)(load.rate, MANY);
            if !matches!(load.spread, Spread::OneKey) {
                limiter.fill(MANY);
            }
            (contender.name, limiter)
        })
        .collect();
    let samples = interleaved(rounds(ROUNDS), &mut limiters, |(_, limiter), round| {
        // A list of drawn keys is continued: the seed selects where to read on.
        let seed = (round * load.count) as u64 / SEEDS_APART;
        time(&**limiter, &load.spread, load.threads, load.count, seed)
    });
    let names = limiters.into_iter().map(|(name, _)| name);
    nanos(
        load.title,
        format!("{OURS}, {}", Clock::Tsc),
        names,
        samples,
    )
}

/// A table of nanoseconds.
pub fn nanos(
    title: &str,
    reference: String,
    names: impl Iterator<Item = String>,
    samples: Vec<Samples>,
) -> Table {
    let row = |(name, samples): (String, Samples)| Row::new(name, samples);
    Table {
        title: title.to_owned(),
        unit: "ns".to_owned(),
        reference,
        rows: names.zip(samples).map(row).collect(),
    }
}

/// # Panics
///
/// When a limiter grants something other than its burst.
pub fn check() {
    let all = [false, true].into_iter().flat_map(contenders);
    for contender in all.chain([limitador_contender()]) {
        check_five(&contender.name, &*(contender.make)(Rate::FIVE, 1_000));
    }
    check_several();
}

/// # Panics
///
/// When a limiter with [`Rate::FIVE`] grants something else.
fn check_five(name: &str, limiter: &dyn Batches) {
    let granted = limiter.run(&Spread::OneKey, 0, 10);
    assert_eq!(
        granted, 5,
        "{name} grants {granted} of 10 with a burst of 5"
    );
}
