//! Instructions per request, and those that the first cache did not have, counted by callgrind: the same in every run,
//! whatever else runs.

use std::{collections::HashMap, process::Command, sync::Mutex};

use crate::{
    child,
    middleware::{CLIENTS, Case, Contender, find, over_baseline, warm},
    report::{Report, Table},
};

pub const ALLOWED: &str = "instructions added to a request, allowed";
pub const DENIED: &str = "instructions added to a request, denied";
pub const SEVERAL: &str = "instructions added to a request, several limits";
pub const ALLOWED_MISSES: &str = "misses of the instruction cache added to a request, allowed";
pub const DENIED_MISSES: &str = "misses of the instruction cache added to a request, denied";
pub const SEVERAL_MISSES: &str =
    "misses of the instruction cache added to a request, several limits";

/// The first cache of instructions that is simulated: bytes, ways, and bytes of a line.
const CACHE: &str = "--I1=32768,8,64";

/// Requests that are counted.
const COUNT: u32 = 500;

/// Does nothing where there is no valgrind.
pub fn measure(report: &mut Report) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("\nno valgrind: instructions were not counted");
        return;
    }
    let titles = [
        [ALLOWED, ALLOWED_MISSES],
        [DENIED, DENIED_MISSES],
        [SEVERAL, SEVERAL_MISSES],
    ];
    for (case, titles) in Case::ALL.into_iter().zip(titles) {
        let counts = Mutex::default();
        for (event, title) in [Event::Instruction, Event::Miss].into_iter().zip(titles) {
            report.add(Table {
                title: title.to_owned(),
                unit: event.unit().to_owned(),
                reference: case.reference().to_owned(),
                rows: over_baseline(case, |contender| count(contender, case, event, &counts)),
            });
        }
    }
}

/// An event that callgrind counts.
#[derive(Clone, Copy)]
enum Event {
    Instruction,
    /// An instruction that the first cache does not have.
    Miss,
}

impl Event {
    const fn unit(self) -> &'static str {
        match self {
            Self::Instruction => "instr.",
            Self::Miss => "misses",
        }
    }

    /// The place among the events of a simulated cache: `Ir Dr Dw I1mr ...`.
    const fn place(self) -> usize {
        match self {
            Self::Instruction => 0,
            Self::Miss => 3,
        }
    }
}

/// The counts of contenders that were counted for one of the events.
type Counts = Mutex<HashMap<&'static str, Vec<f64>>>;

/// The events of one request.
fn count(contender: &Contender, case: Case, event: Event, counts: &Counts) -> f64 {
    let counted = counts
        .lock()
        .expect("no panic")
        .get(contender.name)
        .cloned();
    let all = counted.unwrap_or_else(|| count_all(contender, case));
    let count = all[event.place()] / f64::from(COUNT);
    counts.lock().expect("no panic").insert(contender.name, all);
    count
}

fn count_all(contender: &Contender, case: Case) -> Vec<f64> {
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--collect-atstart=no",
            "--cache-sim=yes",
            CACHE,
        ])
        .arg("--toggle-collect=*::instructions::counted*")
        .arg("--callgrind-out-file=/dev/null")
        .arg(child::path(child::PEERS).expect("a path to the running program"))
        .args(["counted", contender.name, case.name()])
        .output();
    let output = output.expect("valgrind runs");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let collected = log
        .lines()
        .find_map(|line| line.split("Collected : ").nth(1));
    let numbers = collected.map(|numbers| numbers.split_whitespace().map(str::parse));
    let numbers = numbers.and_then(|numbers| numbers.collect::<Result<Vec<f64>, _>>().ok());
    let numbers = numbers.filter(|numbers| numbers.len() > Event::Miss.place());
    numbers.unwrap_or_else(|| panic!("no counts in {log}"))
}

/// Programs that run under callgrind.
///
/// # Panics
///
/// When there is no such contender.
pub fn run(name: &str, case: Case) {
    let mut client = warm(find(name).client(case.rate()));
    counted(&mut *client);
}

#[inline(never)]
fn counted(client: &mut dyn crate::middleware::Client) {
    for number in 0..COUNT {
        client.send(number % CLIENTS);
    }
}
