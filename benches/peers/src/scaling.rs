//! How the cost of a decision grows with keys, with threads and with limits. By keys and by threads all read the
//! operating system's clock: what a clock costs does not grow.

use std::net::IpAddr;

use crate::{
    decision::{
        Batches, FLOOR, GOVERNOR, MANY, MakeSeveral, OURS, Of, governors_in_turn, limits_together,
        os_floor, os_governor, os_ours, quotas_of_a_key, time, time_several,
    },
    memory,
    random_keys::Spread,
    rate_conversions::Rate,
    report::{Line, Plot, Report, Row, Table},
    rounds::{interleaved, is_quick, rounds},
};

const ROUNDS: usize = 5;
const COUNT: usize = 100_000;
const KEYS: [u32; 9] = [
    1_000, 10_000, 100_000, 300_000, 600_000, 1_000_000, 1_500_000, 3_000_000, 10_000_000,
];
const THREADS: [usize; 4] = [1, 2, 4, 8];
const LIMITS: [usize; 8] = [1, 2, 3, 4, 6, 8, 12, 16];

/// More keys are left out of a quick run.
const MOST_KEYS_IN_A_QUICK_RUN: u32 = MANY;

pub const BY_KEYS: &str = "growth-keys";
pub const BY_THREADS: &str = "growth-threads";
pub const BY_LIMITS: &str = "growth-limits";

pub const FILLING: &str = "decision before and after the table fills";
pub const OURS_FOR_1M: &str = "tower-ratelimit, table for 1 M";

/// Numbers of keys: a table for a million has room for nearly two.
pub const BEFORE: (u32, &str) = (600_000, "600 k keys");
pub const AFTER: (u32, &str) = (3_000_000, "3 M keys");

type Make = fn(u32) -> Box<dyn Batches>;

/// A table for all keys, and one that is full at a million.
const MAKE: [(&str, Make); 4] = [
    (FLOOR, |keys| {
        Box::new(Of::<IpAddr, _>::new(os_floor(Rate::SLOW, keys)))
    }),
    (OURS, |keys| Box::new(os_ours::<IpAddr>(Rate::SLOW, keys))),
    (OURS_FOR_1M, |_| {
        Box::new(os_ours::<IpAddr>(Rate::SLOW, MANY))
    }),
    (GOVERNOR, |_| Box::new(os_governor::<IpAddr>(Rate::SLOW))),
];

pub fn measure(report: &mut Report) {
    report.add(filling());
    report.add_plot(by_keys());
    report.add_plot(by_threads());
    report.add_plot(by_limits());
    report.add_plot(memory::by_keys(&keys().collect::<Vec<_>>()));
}

fn keys() -> impl Iterator<Item = u32> {
    let most = if is_quick() {
        MOST_KEYS_IN_A_QUICK_RUN
    } else {
        u32::MAX
    };
    KEYS.into_iter().filter(move |&keys| keys <= most)
}

/// Numbers of keys in the same rounds, so that they can be compared.
fn filling() -> Table {
    let mut limiters = Vec::new();
    for (name, make) in MAKE {
        for (keys, words) in [BEFORE, AFTER] {
            let limiter = make(keys);
            limiter.fill(keys);
            limiters.push((format!("{name}, {words}"), limiter, Spread::Uniform(keys)));
        }
    }
    let samples = interleaved(
        rounds(2 * ROUNDS),
        &mut limiters,
        |(_, limiter, spread), round| time(&**limiter, spread, 1, COUNT, round as u64),
    );
    let rows = limiters.into_iter().zip(samples);
    Table {
        title: FILLING.to_owned(),
        unit: "ns".to_owned(),
        reference: format!("{OURS_FOR_1M}, {}", BEFORE.1),
        rows: rows
            .map(|((name, ..), samples)| Row::new(name, samples))
            .collect(),
    }
}

fn by_keys() -> Plot {
    let mut lines = MAKE.map(|(name, _)| Line::new(name));
    for keys in keys() {
        let spread = Spread::Uniform(keys);
        let mut limiters = MAKE.map(|(_, make)| make(keys));
        for limiter in &limiters {
            limiter.fill(keys);
        }
        let samples = interleaved(rounds(ROUNDS), &mut limiters, |limiter, round| {
            time(&**limiter, &spread, 1, COUNT, round as u64)
        });
        for (line, samples) in lines.iter_mut().zip(samples) {
            line.push(f64::from(keys), samples);
        }
    }
    Plot {
        file: BY_KEYS,
        title: "one decision by keys, 1 thread, OS clock".to_owned(),
        along: "keys".to_owned(),
        base: 10.0,
        unit: "ns".to_owned(),
        lines: lines.into(),
    }
}

/// Processor time, which does not grow with threads that wait for a core: only with what they do to
/// each other.
fn by_threads() -> Plot {
    let spreads = [
        ("1 M keys", Spread::Uniform(MANY), Rate::SLOW),
        ("one key", Spread::OneKey, Rate::UNBOUNDED),
    ];
    let mut lines = Vec::new();
    for (keys, spread, rate) in spreads {
        let contenders: [(&str, Box<dyn Batches>); 3] = [
            (FLOOR, Box::new(Of::<IpAddr, _>::new(os_floor(rate, MANY)))),
            (OURS, Box::new(os_ours::<IpAddr>(rate, MANY))),
            (GOVERNOR, Box::new(os_governor::<IpAddr>(rate))),
        ];
        for (name, limiter) in contenders {
            limiter.fill(MANY);
            let line = Line::new(&format!("{name}, {keys}"));
            lines.push((line, limiter, spread.clone()));
        }
    }
    for threads in THREADS {
        let samples = interleaved(rounds(ROUNDS), &mut lines, |(_, limiter, spread), round| {
            time(&**limiter, spread, threads, COUNT, round as u64)
        });
        for ((line, ..), samples) in lines.iter_mut().zip(samples) {
            line.push(threads as f64, samples);
        }
    }
    Plot {
        file: BY_THREADS,
        title: "one decision by threads, OS clock".to_owned(),
        along: "threads".to_owned(),
        base: 2.0,
        unit: "ns".to_owned(),
        lines: lines.into_iter().map(|(line, ..)| line).collect(),
    }
}

/// A thousand addresses. Every limit has room for all their requests.
fn by_limits() -> Plot {
    const MAKE: [(&str, MakeSeveral); 3] = [
        ("governor, limiters in turn", governors_in_turn),
        ("tower-ratelimit, quotas of one key", quotas_of_a_key),
        ("tower-ratelimit, limits together", limits_together),
    ];
    let mut lines = MAKE.map(|(name, _)| Line::new(name));
    for count in LIMITS {
        let mut limiters = MAKE.map(|(_, make)| make(&vec![Rate::SLOW; count]));
        let samples = interleaved(rounds(ROUNDS), &mut limiters, |limiter, round| {
            time_several(&**limiter, round)
        });
        for (line, samples) in lines.iter_mut().zip(samples) {
            line.push(count as f64, samples);
        }
    }
    Plot {
        file: BY_LIMITS,
        title: "one decision by limits, 1 thread".to_owned(),
        along: "limits".to_owned(),
        base: 2.0,
        unit: "ns".to_owned(),
        lines: lines.into(),
    }
}
