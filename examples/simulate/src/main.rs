//! Nodes that share a limit through a store, simulated with the real limiters in virtual time.
//!
//! ```sh
//! cargo run --release -p example-simulate
//! ```
//!
//! measures and draws the pictures and tables of `docs/simulation`; a folder as the argument takes
//! them instead.
//!
//! ```sh
//! cargo run --release -p example-simulate -- seeds 0 10000
//! ```
//!
//! runs each of these seeds in each mode, and in leased mode with classes of requests (`classes`), and
//! prints what was admitted, by how many units too many, and how many calls a decision took.
//!
//! ```sh
//! cargo run --release -p example-simulate -- seed 17 leased
//! ```
//!
//! runs one of them, and prints all that happened.
//!
//! ```sh
//! cargo run -p example-simulate -- budgets
//! ```
//!
//! draws the picture of `docs/budgets.md`.

mod seeds;

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use example_simulate::{
    budget_plots,
    measure::{Measured, THROUGH_OUTAGE, flow, specs},
    page,
};
use testkit::simulation::be_quiet;

fn main() -> Result<(), Box<dyn Error>> {
    be_quiet();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/simulation");
    match arguments.as_slice() {
        ["seeds", from, to] => seeds::many(from.parse()?, to.parse()?, &seeds::ALL),
        ["seeds", from, to, run] => {
            seeds::many(from.parse()?, to.parse()?, &[seeds::of_name(run)?])
        }
        ["seed", seed, run] => seeds::one(seed.parse()?, run),
        ["drawn"] => write(&docs, &read(&docs)?),
        ["budgets"] => write_all(&docs.with_file_name("budget-plots"), budget_plots::files()),
        [] => write(&docs, &measure()),
        [folder] => write(&PathBuf::from(folder), &measure()),
        _ => Err("none, FOLDER, drawn, budgets, seeds FROM TO [MODE], or seed SEED MODE".into()),
    }
}

fn measure() -> Measured {
    let mut measured = Measured::default();
    let (mut units, began) = (0, Instant::now());
    for spec in specs() {
        measured.add(spec.measure());
        units += measured.numbers(&spec).requests;
    }
    for mode in THROUGH_OUTAGE {
        measured.add_flow(flow(mode));
    }
    let speed = units as f64 / began.elapsed().as_secs_f64();
    println!("{units} requests, {speed:.0} a second");
    measured
}

fn read(folder: &Path) -> Result<Measured, Box<dyn Error>> {
    let file = |name| fs::read_to_string(folder.join(name));
    Ok(Measured::read(&file("runs.tsv")?, &file("outage.tsv")?))
}

fn write(folder: &Path, measured: &Measured) -> Result<(), Box<dyn Error>> {
    write_all(folder, page::files(measured))
}

fn write_all(folder: &Path, files: Vec<(&str, String)>) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    for (name, content) in files {
        fs::write(folder.join(name), content)?;
    }
    Ok(())
}
