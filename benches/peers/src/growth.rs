//! How the cost of a decision grows with keys and with threads.

use std::net::IpAddr;

use crate::{
    decision::{Batches, GOVERNOR, MANY, OURS, Of, governor, os_floor, ours, time},
    keys::Spread,
    rate::Rate,
    report::{Line, Plot, Report},
    rounds::interleaved,
};

const ROUNDS: usize = 5;
const COUNT: usize = 100_000;
const KEYS: [u32; 9] = [
    1_000, 10_000, 100_000, 300_000, 600_000, 1_000_000, 1_500_000, 3_000_000, 10_000_000,
];
const THREADS: [usize; 4] = [1, 2, 4, 8];

pub const BY_KEYS: &str = "growth-keys";
pub const BY_THREADS: &str = "growth-threads";

type Make = fn(u32) -> Box<dyn Batches>;

/// A table for all keys, and one that is full at a million.
const MAKE: [(&str, Make); 4] = [
    ("floor", |keys| {
        Box::new(Of::<IpAddr, _>::new(os_floor(Rate::SLOW, keys)))
    }),
    (OURS, |keys| Box::new(ours::<IpAddr>(Rate::SLOW, keys))),
    ("tower-ratelimit, table for 1 M", |_| {
        Box::new(ours::<IpAddr>(Rate::SLOW, MANY))
    }),
    (GOVERNOR, |_| Box::new(governor::<IpAddr>(Rate::SLOW))),
];

pub fn measure(report: &mut Report) {
    let by_keys = by_keys();
    let by_threads = by_threads();
    report.add_plot(by_keys);
    report.add_plot(by_threads);
}

fn by_keys() -> Plot {
    let mut lines = MAKE.map(|(name, _)| Line::new(name));
    for keys in KEYS {
        let spread = Spread::Uniform(keys);
        let mut limiters = MAKE.map(|(_, make)| make(keys));
        for limiter in &limiters {
            limiter.fill(keys);
        }
        let samples = interleaved(ROUNDS, &mut limiters, |limiter, round| {
            time(&**limiter, &spread, 1, COUNT, round as u64)
        });
        for (line, samples) in lines.iter_mut().zip(samples) {
            line.push(f64::from(keys), samples);
        }
    }
    Plot {
        file: BY_KEYS,
        title: "one decision by the number of keys, 1 thread".to_owned(),
        along: "keys".to_owned(),
        unit: "ns".to_owned(),
        lines: lines.into(),
    }
}

fn by_threads() -> Plot {
    let makes = [MAKE[0], MAKE[1], MAKE[3]];
    let spread = Spread::Uniform(MANY);
    let mut limiters = makes.map(|(_, make)| make(MANY));
    for limiter in &limiters {
        limiter.fill(MANY);
    }
    let mut lines = makes.map(|(name, _)| Line::new(name));
    for threads in THREADS {
        let samples = interleaved(ROUNDS, &mut limiters, |limiter, round| {
            // All threads together, so that lines stay level while there are cores for them.
            let per_thread = time(&**limiter, &spread, threads, COUNT / threads, round as u64);
            per_thread / threads as f64
        });
        for (line, samples) in lines.iter_mut().zip(samples) {
            line.push(threads as f64, samples);
        }
    }
    Plot {
        file: BY_THREADS,
        title: "time over decisions of all threads, 1 M keys".to_owned(),
        along: "threads".to_owned(),
        unit: "ns".to_owned(),
        lines: lines.into(),
    }
}
