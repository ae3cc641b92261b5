use std::fmt::Write;

use super::{Plot, Report, Row, Table};
use crate::{performance_targets::Target, rounds::Samples};

pub(super) fn report(report: &Report) -> String {
    let mut text = format!("{}\n", report.machine);
    for one in &report.tables {
        text += &table(one);
    }
    for one in &report.plots {
        text += &plot(one);
    }
    text += &targets(&report.targets);
    text + &report.summary() + "\n"
}

/// The whole run on one page.
pub(super) fn page<'a>(run: &Report, pictures: impl Iterator<Item = &'a str>) -> String {
    let mut text = format!(
        "# A run of `benches/peers/run.sh`\n\n[The page above](../../README.md) has the method \
         and the meaning.\n\n```text\n{}```\n",
        report(run)
    );
    for name in pictures {
        let _ = write!(text, "\n![{name}]({name}.svg)\n");
    }
    text
}

pub(super) fn table(table: &Table) -> String {
    let reference = table.rows.iter().find(|row| row.name == table.reference);
    let names = table.rows.iter().map(|row| row.name.len() + 2);
    let width = names.chain([table.title.len(), 48]).max().unwrap_or(0);
    let mut text = format!(
        "\n{:<width$}{:>12}{:>10}{:>20}\n",
        table.title, table.unit, "ratio", "middle half"
    );
    for row in &table.rows {
        let ratio = reference.map_or(String::new(), |reference| ratio(row, reference));
        let (low, high) = row.quartiles;
        let spread = if low == high {
            String::new()
        } else {
            format!("{} to {}", number(low), number(high))
        };
        let _ = writeln!(
            text,
            "{:<width$}{:>12}{ratio:>10}{spread:>20}",
            format!("  {}", row.name),
            number(row.median)
        );
    }
    text
}

/// A line for each contender, a column for each point.
pub(super) fn plot(plot: &Plot) -> String {
    let heading = format!("{}, {}", plot.title, plot.unit);
    let mut text = format!("\n{heading:<48}");
    let line = |numbers: &mut dyn Iterator<Item = f64>| -> String {
        numbers
            .map(|value| format!("{:>10}", number(value)))
            .collect()
    };
    if let Some(first) = plot.lines.first() {
        text += &line(&mut first.medians().map(|(along, _)| along));
    }
    for one in &plot.lines {
        let medians = line(&mut one.medians().map(|(_, median)| median));
        let _ = write!(text, "\n  {:<46}{medians}", one.name);
    }
    text + "\n"
}

/// Round by round, because a round's noise is common to all who took part in it. Nothing where the
/// reference is not well above zero: a ratio to that means nothing.
fn ratio(row: &Row, reference: &Row) -> String {
    if reference.quartiles.0 <= 0.0 {
        return String::new();
    }
    let ratio: Samples = row.samples.over(&reference.samples);
    let ratio = ratio.median();
    if ratio.is_finite() {
        format!("{ratio:.2}")
    } else {
        String::new()
    }
}

pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

pub(super) fn targets(targets: &[Target]) -> String {
    let mut text = format!(
        "\n{:<76}{:>10}{:>10}{:>10}\n",
        "target", "bound", "measured", "floor"
    );
    for target in targets {
        let _ = writeln!(
            text,
            "  {:<74}{:>10}{:>10}{:>10}  {}",
            target.what,
            target.bound(),
            number(target.median),
            target.floor.map_or(String::new(), number),
            target.verdict
        );
    }
    text
}
