//! Instructions per request, counted by callgrind: the same in every run, whatever else runs.

use std::{fs, process::Command};

use crate::{
    child,
    middleware::{CLIENTS, Case, Contender, DEFAULT, find, over_baseline, warm},
    report::{Report, Table},
};

pub const ALLOWED: &str = "instructions added to a request, allowed";
pub const DENIED: &str = "instructions added to a request, denied";

/// Requests that are counted.
const COUNT: u32 = 500;

/// Does nothing where there is no valgrind.
pub fn measure(report: &mut Report) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("\nno valgrind: instructions were not counted");
        return;
    }
    for (case, title) in [(Case::Allowed, ALLOWED), (Case::Denied, DENIED)] {
        report.add(Table {
            title: title.to_owned(),
            unit: "instr.".to_owned(),
            reference: DEFAULT.to_owned(),
            rows: over_baseline(case, |contender| count(contender, case)),
        });
    }
}

/// Instructions of one request.
fn count(contender: &Contender, case: Case) -> f64 {
    let file = std::env::temp_dir().join(format!("callgrind.{}.out", std::process::id()));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg("--toggle-collect=*::instructions::counted*")
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(child::path(child::PEERS).expect("a path to the running program"))
        .args(["counted", contender.name, case.name()])
        .output();
    let output = output.expect("valgrind runs");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let _ = fs::remove_file(file);
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
