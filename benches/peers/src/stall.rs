//! The longest that one decision takes while the table is full and new keys keep coming.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::{
    decision::{Batches, GOVERNOR, MANY, OURS, Of, gcra, governor, os_floor, ours},
    keys::Spread,
    rate::Rate,
    report::{Report, Row, Table},
    rounds::interleaved,
};

pub const TITLE: &str = "longest of 200 k decisions, new keys, table full at 1 M";
pub const FLOOR: &str = "floor (what else the machine does)";

const ROUNDS: usize = 9;
const COUNT: usize = 200_000;

struct Contender {
    name: String,
    limiter: Box<dyn Batches>,
    cleans_up: bool,
}

pub fn measure(report: &mut Report) {
    let mut contenders = contenders();
    for contender in &contenders {
        contender.limiter.fill(MANY);
    }
    // Most of them are keys that were not there before.
    let spread = Spread::Uniform(100 * MANY);
    let samples = interleaved(ROUNDS, &mut contenders, |contender, round| {
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
    let contender = |name: &str, limiter: Box<dyn Batches>, cleans_up| Contender {
        name: name.to_owned(),
        limiter,
        cleans_up,
    };
    let rate = Rate::SLOW;
    let floor = Of::<IpAddr, _>::new(os_floor(rate, MANY));
    vec![
        contender(FLOOR, Box::new(floor), false),
        contender(OURS, Box::new(ours::<IpAddr>(rate, MANY)), false),
        contender(
            "governor, never cleaned up",
            Box::new(governor::<IpAddr>(rate)),
            false,
        ),
        contender(
            &format!("{GOVERNOR}, retain_recent in another thread"),
            Box::new(governor::<IpAddr>(rate)),
            true,
        ),
        contender("axum_gcra", Box::new(gcra::<IpAddr>(rate)), false),
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
