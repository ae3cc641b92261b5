//! The few rows that a reader of the comparison came for.

use std::fmt::Write;

use super::{Report, Row, Table, text::number};
use crate::{
    decision::{self, Clock},
    http_load, memory, middleware, redis_middleware, worst_latency,
};

/// The crates, in the order of the columns.
const CRATES: [&str; 5] = [
    "tower-ratelimit",
    "tower_governor",
    "axum-governor",
    "tower-rate-limiter",
    "axum_gcra",
];

/// A row: the table that has the numbers, and the name of each crate there, in the order of
/// [`CRATES`]. An empty name is a crate that cannot do it.
struct Question {
    what: &'static str,
    unit: &'static str,
    table: &'static str,
    names: [String; 5],
}

impl Question {
    fn new(what: &'static str, unit: &'static str, table: &'static str, names: [&str; 5]) -> Self {
        Self {
            what,
            unit,
            table,
            names: names.map(str::to_owned),
        }
    }

    /// The numbers of the crates, `None` where there is none.
    fn rows(&self, report: &Report) -> [Option<Row>; 5] {
        std::array::from_fn(|at| {
            let samples = report.samples(self.table, &self.names[at])?;
            Some(Row::new(CRATES[at], samples.clone()))
        })
    }
}

fn questions() -> [Question; 8] {
    let by_clock = |name| format!("{name}, {}", Clock::Os);
    let [ours, governor, gcra] =
        [decision::OURS, decision::GOVERNOR, decision::AXUM_GCRA].map(by_clock);
    let addresses = [
        decision::OURS,
        decision::GOVERNOR,
        middleware::AXUM_GOVERNOR,
        middleware::TOWER_RATE_LIMITER_GCRA,
        decision::AXUM_GCRA,
    ]
    .map(|name| memory::name(name, false));
    let layers = [
        middleware::DEFAULT,
        middleware::TOWER_GOVERNOR_HEADERS,
        middleware::AXUM_GOVERNOR,
        middleware::TOWER_RATE_LIMITER_GCRA,
        middleware::AXUM_GCRA,
    ];
    let [first, second, third, fourth, fifth] = layers;
    let added = middleware::ALLOWED_ADDED;
    let of_governor = middleware::TOWER_GOVERNOR;
    let stalls = [
        decision::OURS,
        worst_latency::CLEANED_UP,
        "",
        "",
        decision::AXUM_GCRA,
    ];
    [
        Question::new(
            "an allowed request with the crate's headers: added",
            "ns",
            added,
            [first, second, third, fourth, ""],
        ),
        Question::new(
            "an allowed request without headers: added",
            "ns",
            added,
            [middleware::PLAIN, of_governor, "", "", fifth],
        ),
        Question::new("a denied request", "ns", middleware::DENIED, layers),
        Question::new(
            "a flood over HTTP, all denied, one thread",
            "requests/s",
            http_load::DENIED,
            layers,
        ),
        Question::new(
            "a decision about one of a million addresses",
            "ns",
            decision::MANY_1,
            [&ours, &governor, "", "", &gcra],
        ),
        Question::new(
            "memory for each of a million addresses",
            "bytes",
            memory::PER_KEY_1M,
            addresses.each_ref().map(String::as_str),
        ),
        Question::new(
            "the longest decision in a flood of new keys",
            "us",
            worst_latency::TITLE,
            stalls,
        ),
        Question::new(
            "a limit shared through Redis, one thread",
            "requests/s",
            redis_middleware::PER_SECOND,
            [
                redis_middleware::OURS,
                "",
                "",
                redis_middleware::TOWER_RATE_LIMITER,
                "",
            ],
        ),
    ]
}

/// A table for each row that was measured, for a picture.
pub(super) fn tables(report: &Report) -> Vec<Table> {
    let table = |question: Question| Table {
        title: question.what.to_owned(),
        unit: question.unit.to_owned(),
        reference: CRATES[0].to_owned(),
        rows: question.rows(report).into_iter().flatten().collect(),
    };
    let tables = questions().into_iter().map(table);
    tables.filter(|table| !table.rows.is_empty()).collect()
}

/// The summary in Markdown.
pub(super) fn markdown(report: &Report) -> String {
    let mut text = format!(
        "| | unit | {} |\n|---|---|---:|---:|---:|---:|---:|\n",
        CRATES.join(" | ")
    );
    for question in questions() {
        let cell = |row: Option<Row>| row.map_or(String::new(), |row| number(row.median));
        let cells = question.rows(report).map(cell);
        let Question { what, unit, .. } = question;
        let _ = writeln!(text, "| {what} | {unit} | {} |", cells.join(" | "));
    }
    text
}
