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

/// A mode, and whether the requests have classes.
pub(crate) type Run = (Mode, bool);

/// Each mode, and leased mode with classes of requests, which eventual mode does not have.
pub(crate) const ALL: [Run; 5] = [
    (Mode::Strict, false),
    (Mode::Leased, false),
    (Mode::Mixed, false),
    (Mode::Eventual, false),
    (Mode::Leased, true),
];

const fn name((mode, has_classes): Run) -> &'static str {
    if has_classes { "classes" } else { mode.name() }
}

/// The run of this name.
pub(crate) fn of_name(text: &str) -> Result<Run, Box<dyn Error>> {
    let run = ALL.into_iter().find(|known| name(*known) == text);
    Ok(run.ok_or("strict, leased, mixed, eventual or classes")?)
}

fn setup(seed: u64, (mode, has_classes): Run) -> Setup {
    let setup = Setup::of_seed(seed, mode);
    if has_classes {
        setup.with_classes()
    } else {
        setup
    }
}

/// Runs these seeds, and fails if one admits too much or breaks an invariant.
pub(crate) fn many(from: u64, to: u64, runs: &[Run]) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let mut rows: BTreeMap<_, Sums> = BTreeMap::new();
    let mut failed = 0;
    for seed in from..to {
        if seed > from && seed.is_multiple_of(1_000) {
            eprintln!("{seed}");
        }
        for &run in runs {
            let setup = setup(seed, run);
            let report = setup.run();
            if !report.is_right() {
                failed += 1;
                let name = name(run);
                println!(
                    "seed {seed} {name}: {} units too many, {:?}",
                    report.excess, report.broken
                );
            }
            rows.entry((run, setup.limit.name))
                .or_default()
                .add(&report);
        }
    }
    println!(
        "| mode | limit | runs | requests | admitted / central | failed | calls a request | over | may be |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for ((run, limit), sums) in rows {
        println!(
            "| {} | {limit} | {} | {} | {:.3} | {} | {:.3} | {} | {} |",
            name(run),
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
pub(crate) fn one(seed: u64, run: &str) -> Result<(), Box<dyn Error>> {
    let setup = Setup {
        logs_all: true,
        ..setup(seed, of_name(run)?)
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
