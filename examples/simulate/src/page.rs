//! The page of the measurements: words from a file, tables from the runs.

use testkit::simulation::{BUCKET, Limit, Mode, WINDOW};

use crate::{
    draw,
    measure::{AHEAD, LOADS, MODES, Measured, NODES, OVER, Spec},
};

/// All that goes into `docs/simulation`, by its name.
pub fn files(measured: &Measured) -> Vec<(&'static str, String)> {
    let (runs, flows) = measured.files();
    vec![
        ("README.md", page(measured)),
        ("nodes.svg", draw::nodes(measured)),
        ("calls.svg", draw::calls(measured)),
        ("outage.svg", draw::outage(measured)),
        ("runs.tsv", runs),
        ("outage.tsv", flows),
    ]
}

/// Runs with faults, which are counted by hand.
const SEEDS: &str = "| units too many with faults, strict, mixed and leased | 0 in 10,000 seeds \
                     | 0 in 10,000 seeds | met |";

fn page(measured: &Measured) -> String {
    include_str!("page.md")
        .replace("{targets}", &targets(measured))
        .replace("{nodes}", &nodes(measured))
        .replace("{loads}", &loads(measured))
        .replace("{waits}", &waits(measured))
}

/// The targets of leased mode, which it reaches.
fn targets(measured: &Measured) -> String {
    let mut rows = vec![SEEDS.to_owned(), over(measured), ahead(measured)];
    for limit in [BUCKET, WINDOW] {
        for nodes in [3, 10, 100] {
            rows.push(calls_below(measured, limit, nodes));
        }
    }
    for limit in [BUCKET, WINDOW] {
        for nodes in [3, 10, 100] {
            let spec = Spec::new(Mode::Leased, (limit, 1.5), nodes).for_a_minute();
            let numbers = measured.numbers(&spec);
            let what = format!(
                "{}, {nodes} nodes, 1.5 × the limit for a minute",
                limit.name
            );
            let calls = numbers.calls_per_decision();
            rows.push(row(
                &format!("calls per decision, leased: {what}"),
                "≤ 0.12",
                &format!("{calls:.4}"),
                calls <= 0.12,
            ));
            let least = if nodes == 100 { 0.97 } else { 0.99 };
            let share = numbers.share();
            let target = format!("≥ {} %", least * 100.0);
            let found = format!("{:.2} %", share * 100.0);
            rows.push(row(
                &format!("share of a central limiter, leased: {what}"),
                &target,
                &found,
                share >= least,
            ));
        }
    }
    table("| what | target | found | |", &rows)
}

fn over(measured: &Measured) -> String {
    let ours = MODES
        .into_iter()
        .filter(|mode| !matches!(mode, Mode::Timer | Mode::Eventual));
    let most = ours
        .flat_map(|mode| NODES.map(|nodes| measured.numbers(&Spec::new(mode, OVER, nodes)).over));
    let most = most.max().unwrap_or(0);
    row(
        "units too many without faults, strict, mixed and leased, 1 to 1,000 nodes",
        "0",
        &most.to_string(),
        most == 0,
    )
}

/// In eventual mode as many as the other nodes may be ahead.
fn ahead(measured: &Measured) -> String {
    let mut worst = (0.0, String::new());
    for nodes in NODES.into_iter().filter(|nodes| *nodes > 1) {
        let over = measured
            .numbers(&Spec::new(Mode::Eventual, OVER, nodes))
            .over;
        let most = (nodes as u64 - 1) * u64::from(AHEAD);
        let share = over as f64 / most as f64;
        if share >= worst.0 {
            worst = (share, format!("{over} of {most} at {nodes} nodes"));
        }
    }
    let (share, found) = worst;
    let what = "units too many without faults, eventual, 20 ahead, at the number of nodes with the largest share";
    row(what, "≤ 20 for each other node", &found, share <= 1.0)
}

/// A lease of a second is to last for a quarter of one, give or take.
fn calls_below(measured: &Measured, limit: Limit, nodes: usize) -> String {
    let numbers = measured.numbers(&Spec::new(Mode::Leased, (limit, 0.8), nodes));
    let most = 2.5 / (0.8 * limit.rate() / nodes as f64 / 4.0);
    let calls = numbers.calls_per_decision();
    let what = format!(
        "calls per decision, leased: {}, {nodes} nodes, 0.8 × the limit",
        limit.name
    );
    row(
        &what,
        &format!("≤ {most:.4}"),
        &format!("{calls:.4}"),
        calls <= most,
    )
}

fn row(what: &str, target: &str, found: &str, is_met: bool) -> String {
    let verdict = if is_met { "met" } else { "**missed**" };
    format!("| {what} | {target} | {found} | {verdict} |")
}

fn nodes(measured: &Measured) -> String {
    let rows = NODES.map(|nodes| {
        let cells = MODES.map(|mode| {
            let over = measured.numbers(&Spec::new(mode, OVER, nodes)).over;
            let lost = measured.numbers(&Spec::under(mode, nodes)).lost();
            format!("{over} · {lost:.1} %")
        });
        format!("| {nodes} | {} |", cells.join(" | "))
    });
    table(&modes("nodes"), &rows)
}

fn loads(measured: &Measured) -> String {
    let rows = LOADS.map(|load| {
        let cells = MODES.map(|mode| {
            let of = |nodes| {
                measured
                    .numbers(&Spec::new(mode, (BUCKET, load), nodes))
                    .calls_per_decision()
            };
            format!("{:.4} · {:.4}", of(10), of(100))
        });
        format!("| {load} × | {} |", cells.join(" | "))
    });
    table(&modes("requested"), &rows)
}

fn waits(measured: &Measured) -> String {
    let rows = [10, 100].map(|nodes| {
        let cells = MODES.map(|mode| {
            let numbers = measured.numbers(&Spec::under(mode, nodes));
            let (p50, p99) = (numbers.p50, numbers.p99);
            format!("{:.1} % · {p50} · {p99} ms", 100.0 * numbers.waiting())
        });
        format!("| {nodes} | {} |", cells.join(" | "))
    });
    table(&modes("nodes"), &rows)
}

fn modes(first: &str) -> String {
    let names = MODES.map(Mode::name);
    format!("| {first} | {} |", names.join(" | "))
}

fn table(head: &str, rows: &[String]) -> String {
    let columns = head.matches('|').count() - 1;
    let line = format!("|{}", "---|".repeat(columns));
    format!("{head}\n{line}\n{}", rows.join("\n"))
}
