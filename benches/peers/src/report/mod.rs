//! Results of a run, as text, JSON and pictures.

mod headline_results;
mod plot;
mod text;

use std::{fs, io, path::Path};

use serde::Serialize;

pub use self::plot::{Line, Plot};
use crate::{
    machine::Machine,
    performance_targets::{Target, Verdict},
    rounds::Samples,
};

/// A run.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Machine,
    tables: Vec<Table>,
    plots: Vec<Plot>,
    targets: Vec<Target>,
}

/// Contenders in the same work.
#[derive(Debug, Serialize)]
pub struct Table {
    pub title: String,
    pub unit: String,
    /// The name of the row that the others are compared with.
    pub reference: String,
    pub rows: Vec<Row>,
}

/// A contender.
#[derive(Debug, Serialize)]
pub struct Row {
    pub name: String,
    pub median: f64,
    pub quartiles: (f64, f64),
    pub samples: Samples,
}

impl Row {
    pub fn new(name: impl Into<String>, samples: Samples) -> Self {
        Self {
            name: name.into(),
            median: samples.median(),
            quartiles: samples.quartiles(),
            samples,
        }
    }

    /// A number that is the same in every round.
    pub fn exact(name: impl Into<String>, value: f64) -> Self {
        Self::new(name, Samples(vec![value]))
    }
}

impl Report {
    pub fn new() -> Self {
        Self {
            machine: Machine::this(),
            tables: Vec::new(),
            plots: Vec::new(),
            targets: Vec::new(),
        }
    }

    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Adds a table, and prints it for whoever waits.
    pub fn add(&mut self, table: Table) {
        print!("{}", text::table(&table));
        self.tables.push(table);
    }

    /// Adds a plot, and prints its numbers.
    pub fn add_plot(&mut self, plot: Plot) {
        print!("{}", text::plot(&plot));
        self.plots.push(plot);
    }

    pub fn set_targets(&mut self, targets: Vec<Target>) {
        print!("{}", text::targets(&targets));
        self.targets = targets;
    }

    /// A contender's samples, `None` when that was not measured.
    pub fn samples(&self, title: &str, name: &str) -> Option<&Samples> {
        let table = self.tables.iter().find(|table| table.title == title)?;
        let row = table.rows.iter().find(|row| row.name == name)?;
        Some(&row.samples)
    }

    /// `targets: N met, N within noise, N missed`.
    pub fn summary(&self) -> String {
        format!("targets: {}", self.counts())
    }

    fn counts(&self) -> String {
        let count = |verdict| {
            let same = self.targets.iter().filter(|one| one.verdict == verdict);
            format!("{} {verdict}", same.count())
        };
        let verdicts = [Verdict::Met, Verdict::WithinNoise, Verdict::Missed];
        verdicts.map(count).join(", ")
    }

    /// Writes `report.txt`, `report.json`, the pictures, and `README.md`, which shows them all; in
    /// `summary.md` and `summary.svg` the few rows that a reader came for, in `unmet.md` the targets that
    /// were not met.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        fs::write(
            directory.join("report.json"),
            serde_json::to_vec_pretty(self)?,
        )?;
        fs::write(directory.join("report.txt"), text::report(self))?;
        fs::write(
            directory.join("summary.md"),
            headline_results::markdown(self),
        )?;
        fs::write(directory.join("unmet.md"), headline_results::unmet(self))?;
        let mut pictures = Vec::new();
        let overview = plot::overview(&headline_results::tables(self)).map_err(io::Error::other)?;
        pictures.push(("summary".to_owned(), overview));
        let bars = plot::bars(&self.tables).map_err(io::Error::other)?;
        for (number, drawn) in (1..).zip(bars) {
            pictures.push((format!("bars-{number}"), drawn));
        }
        for plot in &self.plots {
            let drawn = plot.draw().map_err(io::Error::other)?;
            pictures.push((plot.file.to_owned(), drawn));
        }
        for (name, drawn) in &pictures {
            fs::write(directory.join(format!("{name}.svg")), drawn)?;
        }
        let names = pictures.iter().map(|(name, _)| name.as_str());
        fs::write(directory.join("README.md"), text::page(self, names))
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}
