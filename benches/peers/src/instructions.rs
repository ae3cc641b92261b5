//! Instructions per request, counted by callgrind: the same in every run, whatever else runs.

use std::process::Command;

use crate::{
    child,
    middleware::{CLIENTS, Case, Contender, find, over_baseline, warm},
    report::{Report, Table},
};

pub const ALLOWED: &str = "instructions added to a request, allowed";
pub const DENIED: &str = "instructions added to a request, denied";
pub const SEVERAL: &str = "instructions added to a request, several limits";

/// Requests that are counted.
const COUNT: u32 = 500;

/// Does nothing where there is no valgrind.
pub fn measure(report: &mut Report) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("\nno valgrind: instructions were not counted");
        return;
    }
    for (case, title) in Case::ALL.into_iter().zip([ALLOWED, DENIED, SEVERAL]) {
        report.add(Table {
            title: title.to_owned(),
            unit: "instr.".to_owned(),
            reference: case.reference().to_owned(),
            rows: over_baseline(case, |contender| count(contender, case)),
        });
    }
}

/// Instructions of one request.
fn count(contender: &Contender, case: Case) -> f64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
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
    let collected = collected.and_then(|number| number.trim().parse::<f64>().ok());
    collected.unwrap_or_else(|| panic!("no count in {log}")) / f64::from(COUNT)
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
