//! Nodes that share a limit through a store, simulated with the real limiters in virtual time.
//!
//! ```sh
//! cargo run --release -p example-simulate -- 100
//! ```
//!
//! runs so many seeds, with and without faults, and prints what was admitted, by how many units too
//! many, and how many calls a decision took.

use std::{collections::BTreeMap, env, error::Error};

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
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let seeds = env::args().nth(1).map_or(Ok(100), |text| text.parse())?;
    let mut rows: BTreeMap<_, Sums> = BTreeMap::new();
    for seed in 0..seeds {
        let setup = Setup::of_seed(seed, Mode::Strict);
        let (limit, nodes) = (setup.limit.name, setup.nodes);
        let faulty = rows.entry((limit, nodes, "faults")).or_default();
        faulty.add(&setup.run());
        let calm = rows.entry((limit, nodes, "no faults")).or_default();
        calm.add(&setup.without_faults().run());
    }
    println!(
        "| limit | nodes | | runs | requests | admitted / central | failed | calls a request | over |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for ((limit, nodes, faults), sums) in rows {
        println!(
            "| {limit} | {nodes} | {faults} | {} | {} | {:.3} | {} | {:.2} | {} |",
            sums.runs,
            sums.requests,
            sums.admitted as f64 / sums.central as f64,
            sums.failed,
            sums.calls as f64 / sums.requests as f64,
            sums.excess,
        );
    }
    Ok(())
}
