//! Measurements: the runs that the pictures and tables show.

use std::{collections::BTreeMap, fmt::Write as _};

use testkit::simulation::{BUCKET, Limit, Mode, Setup, WINDOW};

/// The modes that are shown, the reference last.
pub const MODES: [Mode; 5] = [
    Mode::Strict,
    Mode::Mixed,
    Mode::Leased,
    Mode::Eventual,
    Mode::Timer,
];

/// Those whose way through an outage is drawn.
pub const THROUGH_OUTAGE: [Mode; 4] = [Mode::Strict, Mode::Leased, Mode::Eventual, Mode::Timer];

pub const NODES: [usize; 7] = [1, 3, 10, 30, 100, 300, 1_000];
pub const LOADS: [f64; 9] = [0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0];

/// The load that is admitted in excess without a bound, and the one that might be admitted too little.
pub const OVER: (Limit, f64) = (WINDOW, 5.0);
pub const UNDER: (Limit, f64) = (BUCKET, 1.5);

/// The units that a node may be ahead in eventual mode.
pub const AHEAD: u32 = 20;

/// When the outage begins and ends, in milliseconds, and the run does.
pub const OUTAGE: (u64, u64) = (2_000, 2_500);
const OUTAGE_SECONDS: u64 = 4;
/// The time that is drawn, in steps of ten milliseconds.
pub const DRAWN: (usize, usize) = (180, 320);

/// Seconds of a run, of one whose shares are drawn, and of one whose shares have a target.
const SECONDS: u64 = 4;
const LONGER: u64 = 12;
const MINUTE: u64 = 60;

/// A run without faults, by what it depends on.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    pub mode: Mode,
    pub limit: Limit,
    pub nodes: usize,
    pub load: f64,
    pub seconds: u64,
}

/// The outcome of a run.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    pub requests: u64,
    pub admitted: u64,
    pub central: u64,
    pub over: u64,
    pub calls: u64,
    pub waited: u64,
    pub p50: u64,
    pub p99: u64,
}

/// All that was measured, as text: a line for each run, and the units that passed in each ten
/// milliseconds around the outage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measured {
    runs: BTreeMap<String, String>,
    flows: BTreeMap<String, String>,
}

impl Spec {
    pub const fn new(mode: Mode, (limit, load): (Limit, f64), nodes: usize) -> Self {
        Self {
            mode,
            limit,
            nodes,
            load,
            seconds: SECONDS,
        }
    }

    /// The run that might admit too little.
    pub const fn under(mode: Mode, nodes: usize) -> Self {
        Self {
            seconds: LONGER,
            ..Self::new(mode, UNDER, nodes)
        }
    }

    #[must_use]
    pub const fn for_a_minute(mut self) -> Self {
        self.seconds = MINUTE;
        self
    }

    fn key(&self) -> String {
        let Self {
            mode,
            limit,
            nodes,
            load,
            seconds,
        } = self;
        let (mode, limit) = (mode.name(), limit.name);
        format!("{mode}\t{limit}\t{nodes}\t{load}\t{seconds}")
    }

    /// Runs it.
    pub fn measure(&self) -> (String, String) {
        let setup = Setup {
            length: std::time::Duration::from_secs(self.seconds),
            ahead: AHEAD,
            ..Setup::calm(self.mode, self.limit, self.nodes, self.load)
        };
        let report = setup.run();
        let numbers = [
            report.requests,
            report.admitted,
            report.central,
            report.excess,
            report.calls,
            report.requests - report.at_once,
            report.wait(0.5),
            report.wait(0.99),
        ];
        (
            self.key(),
            numbers.map(|number| number.to_string()).join("\t"),
        )
    }
}

/// All runs without faults.
pub fn specs() -> Vec<Spec> {
    let mut specs = Vec::new();
    for mode in MODES {
        for nodes in NODES {
            specs.extend([Spec::new(mode, OVER, nodes), Spec::under(mode, nodes)]);
        }
        for nodes in [10, 100] {
            specs.extend(LOADS.map(|load| Spec::new(mode, (BUCKET, load), nodes)));
        }
    }
    for nodes in [3, 10, 100] {
        specs.push(Spec::new(Mode::Leased, (BUCKET, 0.8), nodes));
        specs.push(Spec::new(Mode::Leased, (WINDOW, 0.8), nodes));
        specs.push(Spec::new(Mode::Leased, (BUCKET, 1.5), nodes).for_a_minute());
        specs.push(Spec::new(Mode::Leased, (WINDOW, 1.5), nodes).for_a_minute());
    }
    specs
}

/// Units that pass in each ten milliseconds around an outage, ten nodes at four fifths of the limit.
pub fn flow(mode: Mode) -> (String, String) {
    let setup = Setup {
        outage: Some(OUTAGE),
        ahead: AHEAD,
        length: std::time::Duration::from_secs(OUTAGE_SECONDS),
        ..Setup::calm(mode, BUCKET, 10, 0.8)
    };
    let flow = setup.run().flow;
    let drawn = flow[DRAWN.0..DRAWN.1].iter();
    let drawn: Vec<String> = drawn.map(u64::to_string).collect();
    (mode.name().to_owned(), drawn.join("\t"))
}

impl Measured {
    pub fn add(&mut self, run: (String, String)) {
        self.runs.insert(run.0, run.1);
    }

    pub fn add_flow(&mut self, flow: (String, String)) {
        self.flows.insert(flow.0, flow.1);
    }

    /// Whether this is what was measured.
    pub fn has(&self, run: &(String, String)) -> bool {
        self.runs.get(&run.0) == Some(&run.1)
    }

    pub fn has_flow(&self, flow: &(String, String)) -> bool {
        self.flows.get(&flow.0) == Some(&flow.1)
    }

    pub fn numbers(&self, spec: &Spec) -> Numbers {
        let line = self.runs.get(&spec.key()).expect("a run that was measured");
        let numbers: Vec<u64> = numbers(line);
        Numbers {
            requests: numbers[0],
            admitted: numbers[1],
            central: numbers[2],
            over: numbers[3],
            calls: numbers[4],
            waited: numbers[5],
            p50: numbers[6],
            p99: numbers[7],
        }
    }

    pub fn flow(&self, mode: Mode) -> Vec<u64> {
        numbers(
            self.flows
                .get(mode.name())
                .expect("a flow that was measured"),
        )
    }

    /// The lines of the file of runs, and of that of flows.
    pub fn files(&self) -> (String, String) {
        let mut runs =
            "mode\tlimit\tnodes\tload\tseconds\trequests\tadmitted\tcentral\tover\tcalls\
                        \twaited\tp50 ms\tp99 ms\n"
                .to_owned();
        for (key, numbers) in &self.runs {
            writeln!(runs, "{key}\t{numbers}").expect("a text takes all");
        }
        let mut flows = "mode\tunits in each 10 ms from 1.8 s on\n".to_owned();
        for (mode, units) in &self.flows {
            writeln!(flows, "{mode}\t{units}").expect("a text takes all");
        }
        (runs, flows)
    }

    /// Reads the files.
    pub fn read(runs: &str, flows: &str) -> Self {
        let cut = |line: &str, columns: usize| {
            let mut parts = line.splitn(columns + 1, '\t');
            let key: Vec<&str> = parts.by_ref().take(columns).collect();
            (key.join("\t"), parts.next().unwrap_or_default().to_owned())
        };
        Self {
            runs: runs.lines().skip(1).map(|line| cut(line, 5)).collect(),
            flows: flows.lines().skip(1).map(|line| cut(line, 1)).collect(),
        }
    }
}

fn numbers(line: &str) -> Vec<u64> {
    let numbers = line.split('\t').map(str::parse);
    numbers.collect::<Result<_, _>>().expect("numbers")
}

impl Numbers {
    pub fn calls_per_decision(&self) -> f64 {
        self.calls as f64 / self.requests as f64
    }

    /// The share of what a central limiter would have admitted.
    pub fn share(&self) -> f64 {
        self.admitted as f64 / self.central as f64
    }

    /// How much less it is, in percent.
    pub fn lost(&self) -> f64 {
        (100.0 * (1.0 - self.share())).max(0.0)
    }

    pub fn waiting(&self) -> f64 {
        self.waited as f64 / self.requests as f64
    }
}
