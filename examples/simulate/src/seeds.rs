//! Seeds: runs that are chosen by a number.

use std::{collections::BTreeMap, error::Error, time::Instant};

use testkit::simulation::{Mode, Report, Setup};

/// The sums of some runs.
#[derive(Default)]
struct Sums {
    runs: u64,
    requests: u64,
    admitted: u64,
    central: u64,
    failed: u64,
    calls: u64,
    excess: u64,
    bound: u64,
}

impl Sums {
    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.requests += report.requests;
        self.admitted += report.admitted;
        self.central += report.central;
        self.failed += report.failed;
        self.calls += report.calls;
        self.excess = self.excess.max(report.excess);
        self.bound = self.bound.max(report.bound);
    }
}

/// The mode of this name.
pub(crate) fn mode(name: &str) -> Result<Mode, Box<dyn Error>> {
    let mode = Mode::ALL.into_iter().find(|known| known.name() == name);
    Ok(mode.ok_or("strict, leased, mixed or eventual")?)
}

/// Runs these seeds in each of these modes, and fails if one admits too much or breaks an invariant.
pub(crate) fn many(from: u64, to: u64, modes: &[Mode]) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let mut rows: BTreeMap<_, Sums> = BTreeMap::new();
    let mut failed = 0;
    for seed in from..to {
        if seed > from && seed.is_multiple_of(1_000) {
            eprintln!("{seed}");
        }
        for &mode in modes {
            let setup = Setup::of_seed(seed, mode);
            let report = setup.run();
            if !report.is_right() {
                failed += 1;
                let name = mode.name();
                println!(
                    "seed {seed} {name}: {} units too many, {:?}",
                    report.excess, report.broken
                );
            }
            rows.entry((mode, setup.limit.name))
                .or_default()
                .add(&report);
        }
    }
    println!(
        "| mode | limit | runs | requests | admitted / central | failed | calls a request | over | may be |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for ((mode, limit), sums) in rows {
        println!(
            "| {} | {limit} | {} | {} | {:.3} | {} | {:.3} | {} | {} |",
            mode.name(),
            sums.runs,
            sums.requests,
            sums.admitted as f64 / sums.central as f64,
            sums.failed,
            sums.calls as f64 / sums.requests as f64,
            sums.excess,
            sums.bound,
        );
    }
    println!(
        "{failed} runs failed of {} seeds in {:?}",
        to - from,
        began.elapsed()
    );
    match failed {
        0 => Ok(()),
        _ => Err("too much was admitted, or an invariant broken".into()),
    }
}

/// Runs one seed and prints its events.
pub(crate) fn one(seed: u64, mode: &str) -> Result<(), Box<dyn Error>> {
    let setup = Setup {
        logs_all: true,
        ..Setup::of_seed(seed, self::mode(mode)?)
    };
    println!("{setup:#?}");
    let report = setup.run();
    print!("{}", report.log.concat());
    println!(
        "{} of {} asked for, {} centrally",
        report.admitted, report.requested, report.central
    );
    println!(
        "{} units too many of {} that may be; {:?}",
        report.excess, report.bound, report.broken
    );
    Ok(())
}
