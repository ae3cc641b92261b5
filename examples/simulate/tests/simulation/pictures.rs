//! The page on the simulation shows what is measured today.

use std::{fs, path::PathBuf};

use example_simulate::{
    budget_plots,
    measure::{self, Measured, Spec},
    page,
};
use testkit::simulation::{BUCKET, Mode};

fn docs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/simulation")
}

fn committed(name: &str) -> String {
    fs::read_to_string(docs().join(name)).expect("a text")
}

fn measured() -> Measured {
    Measured::read(&committed("runs.tsv"), &committed("outage.tsv"))
}

#[test]
fn committed_page_and_pictures_are_drawn_from_the_committed_runs() {
    let files = page::files(&measured());
    for (name, text) in &files {
        // Not `assert_eq!`: a picture is no help in a terminal.
        assert!(
            committed(name) == *text,
            "docs/simulation/{name} is not what is drawn: run \
             `cargo run --release -p example-simulate -- drawn`, and look at it"
        );
    }
    let committed = fs::read_dir(docs()).expect("a folder").count();
    assert_eq!(committed, files.len(), "docs/simulation has another file");
}

#[test]
fn committed_picture_of_budgets_is_drawn_by_the_layer() {
    let folder = docs().with_file_name("budget-plots");
    let files = budget_plots::files();
    for (name, text) in &files {
        assert!(
            fs::read_to_string(folder.join(name)).expect("a text") == *text,
            "docs/budget-plots/{name} is not what is drawn: run `cargo run -p example-simulate -- budgets`, and look at it"
        );
    }
    let committed = fs::read_dir(folder).expect("a folder").count();
    assert_eq!(committed, files.len(), "docs/budget-plots has another file");
}

/// All of them take minutes without optimization, so these stand for them. Elsewhere the logarithms
/// that the arrivals come from may differ in their last digit.
#[cfg(target_os = "linux")]
#[test]
fn committed_runs_are_what_is_measured() {
    let measured = measured();
    let again = "run `cargo run --release -p example-simulate`, and look at docs/simulation";
    for (mode, load) in [(Mode::Strict, 0.2), (Mode::Leased, 0.8), (Mode::Timer, 0.2)] {
        let run = Spec::new(mode, (BUCKET, load), 10).measure();
        assert!(measured.has(&run), "{run:?}: {again}");
    }
    let flow = measure::flow(Mode::Leased);
    assert!(measured.has_flow(&flow), "{flow:?}: {again}");
}
