//! The longest that one decision takes while the table is full and new keys keep coming.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::{
    decision::{AXUM_GCRA, Batches, MANY, OURS, Of, gcra, governor, os_floor, ours},
    random_keys::Spread,
    rate_conversions::Rate,
    report::{Report, Row, Table},
    rounds::{interleaved, rounds},
};

pub const TITLE: &str = "longest of 200 k decisions, new keys, table full at 1 M";
pub const FLOOR: &str = "floor (what else the machine does)";
pub const CLEANED_UP: &str = "governor, retain_recent in another thread";

const ROUNDS: usize = 9;
const COUNT: usize = 200_000;

struct Contender {
    name: String,
    limiter: Box<dyn Batches>,
    /// Keys that have a state before the measurement.
    before: u32,
    cleans_up: bool,
}

/// A table for a million keys has room for nearly two. One with a bound has to be full in the first
/// round already; one without counts as full with a million, and a flood of three would
/// only make it slower.
const UNTIL_FULL: u32 = 3 * MANY;

pub fn measure(report: &mut Report) {
    let mut contenders = contenders();
    for contender in &contenders {
        contender.limiter.fill(contender.before);
    }
    // Most of them are keys that were not there before.
    let spread = Spread::Uniform(100 * MANY);
    let samples = interleaved(rounds(ROUNDS), &mut contenders, |contender, round| {
        longest(contender, &spread, round as u64).as_nanos() as f64 / 1_000.0
    });
    let rows = contenders.into_iter().zip(samples);
    report.add(Table {
        title: TITLE.to_owned(),
        unit: "us".to_owned(),
        reference: OURS.to_owned(),
        rows: rows
            .map(|(contender, samples)| Row::new(contender.name, samples))
            .collect(),
    });
}

fn contenders() -> Vec<Contender> {
    let bounded = |name: &str, limiter: Box<dyn Batches>| Contender {
        name: name.to_owned(),
        limiter,
        before: UNTIL_FULL,
        cleans_up: false,
    };
    let unbounded = |name: &str, limiter: Box<dyn Batches>, cleans_up| Contender {
        before: MANY,
        cleans_up,
        ..bounded(name, limiter)
    };
    let rate = Rate::SLOW;
    let floor = Of::<IpAddr, _>::new(os_floor(rate, MANY));
    vec![
        bounded(FLOOR, Box::new(floor)),
        bounded(OURS, Box::new(ours::<IpAddr>(rate, MANY))),
        unbounded(
            "governor, never cleaned up",
            Box::new(governor::<IpAddr>(rate)),
            false,
        ),
        unbounded(CLEANED_UP, Box::new(governor::<IpAddr>(rate)), true),
        unbounded(AXUM_GCRA, Box::new(gcra::<IpAddr>(rate)), false),
    ]
}

fn longest(contender: &Contender, spread: &Spread, seed: u64) -> Duration {
    let limiter = &*contender.limiter;
    if !contender.cleans_up {
        return limiter.longest(spread, seed, COUNT);
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                limiter.clean_up();
                thread::sleep(Duration::from_millis(5));
            }
        });
        let longest = limiter.longest(spread, seed, COUNT);
        done.store(true, Ordering::Relaxed);
        longest
    })
}
