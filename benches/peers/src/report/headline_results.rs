//! The few rows that a reader of the comparison came for.

use std::fmt::Write;

use super::{Report, Row, Table, text::number};
use crate::{
    decision::{self, Clock},
    http_load, memory, middleware,
    performance_targets::Verdict,
    redis_middleware,
    rounds::is_quick,
    worst_latency,
};

/// The crates, in the order of the columns.
const CRATES: [&str; 7] = [
    "tower-ratelimit",
    "tower_governor",
    "axum-governor",
    "tower-rate-limiter",
    "axum_gcra",
    "limitador",
    "tower-resilience",
];

/// The name of each crate in a table, in the order of [`CRATES`]. An empty name is a crate that cannot
/// do it.
type Names = [String; CRATES.len()];

/// A row, and the table that has its numbers.
struct Question {
    what: &'static str,
    unit: &'static str,
    table: &'static str,
    names: Names,
}

impl Question {
    fn new(
        what: &'static str,
        unit: &'static str,
        table: &'static str,
        names: [&str; CRATES.len()],
    ) -> Self {
        Self {
            what,
            unit,
            table,
            names: names.map(str::to_owned),
        }
    }

    /// The numbers of the crates, `None` where there is none.
    fn rows(&self, report: &Report) -> [Option<Row>; CRATES.len()] {
        std::array::from_fn(|at| {
            let samples = report.samples(self.table, &self.names[at])?;
            Some(Row::new(CRATES[at], samples.clone()))
        })
    }
}

fn questions() -> Vec<Question> {
    let mut all = requests();
    all.extend(several());
    all.extend(denials());
    all.extend(decisions());
    all.push(Question::new(
        "a limit shared through Redis, one thread",
        "requests/s",
        redis_middleware::PER_SECOND,
        [
            redis_middleware::OURS,
            "",
            "",
            redis_middleware::TOWER_RATE_LIMITER,
            "",
            "",
            "",
        ],
    ));
    all
}

fn requests() -> Vec<Question> {
    use middleware::{
        ALLOWED_ADDED, AXUM_GCRA, AXUM_GOVERNOR, DEFAULT, LIMITADOR, PLAIN, TOWER_GOVERNOR,
        TOWER_GOVERNOR_HEADERS, TOWER_RATE_LIMITER_GCRA, TOWER_RESILIENCE,
    };
    let added = |what, names| Question::new(what, "ns", ALLOWED_ADDED, names);
    vec![
        added(
            "an allowed request with the crate's headers: added",
            [
                DEFAULT,
                TOWER_GOVERNOR_HEADERS,
                AXUM_GOVERNOR,
                TOWER_RATE_LIMITER_GCRA,
                "",
                "",
                "",
            ],
        ),
        added(
            "an allowed request without headers: added",
            [
                PLAIN,
                TOWER_GOVERNOR,
                "",
                "",
                AXUM_GCRA,
                LIMITADOR,
                TOWER_RESILIENCE,
            ],
        ),
    ]
}

fn several() -> Vec<Question> {
    use middleware::{
        AXUM_GCRA_RULES, AXUM_GCRA_THREE, AXUM_GCRA_TWO, AXUM_GOVERNOR_THREE, AXUM_GOVERNOR_TWO,
        LIMITADOR_RULES, LIMITADOR_THREE, LIMITADOR_TWO, RULES, SEVERAL_ADDED, THREE,
        TOWER_GOVERNOR_THREE, TOWER_GOVERNOR_TWO, TOWER_RATE_LIMITER_THREE, TOWER_RATE_LIMITER_TWO,
        TWO,
    };
    let added = |what, names| Question::new(what, "ns", SEVERAL_ADDED, names);
    vec![
        added(
            "two limits of an address: added",
            [
                TWO,
                TOWER_GOVERNOR_TWO,
                AXUM_GOVERNOR_TWO,
                TOWER_RATE_LIMITER_TWO,
                AXUM_GCRA_TWO,
                LIMITADOR_TWO,
                "",
            ],
        ),
        added(
            "three limits, of an address, its network and all: added",
            [
                THREE,
                TOWER_GOVERNOR_THREE,
                AXUM_GOVERNOR_THREE,
                TOWER_RATE_LIMITER_THREE,
                AXUM_GCRA_THREE,
                LIMITADOR_THREE,
                "",
            ],
        ),
        added(
            "one of twenty limits, found by the path: added",
            [RULES, "", "", "", AXUM_GCRA_RULES, LIMITADOR_RULES, ""],
        ),
    ]
}

fn denials() -> Vec<Question> {
    use middleware::{
        AXUM_GCRA, AXUM_GOVERNOR, DEFAULT, DENIED, LIMITADOR, TOWER_GOVERNOR_HEADERS,
        TOWER_RATE_LIMITER_GCRA, TOWER_RATE_LIMITER_WINDOW, TOWER_RESILIENCE, WINDOW,
    };
    let layers = [
        DEFAULT,
        TOWER_GOVERNOR_HEADERS,
        AXUM_GOVERNOR,
        TOWER_RATE_LIMITER_GCRA,
        AXUM_GCRA,
        "",
        TOWER_RESILIENCE,
    ];
    vec![
        Question::new("a denied request", "ns", DENIED, layers),
        Question::new(
            "a request denied by a fixed window",
            "ns",
            DENIED,
            [WINDOW, "", "", TOWER_RATE_LIMITER_WINDOW, "", LIMITADOR, ""],
        ),
        Question::new(
            "a flood over HTTP, all denied, one thread",
            "requests/s",
            http_load::DENIED,
            layers,
        ),
    ]
}

fn decisions() -> Vec<Question> {
    use decision::{AXUM_GCRA, GOVERNOR, HOT_1, LIMITADOR, MANY_1, OURS};
    // Without settings.
    let [ours, governor] = [OURS, GOVERNOR].map(|name| format!("{name}, {}", Clock::Tsc));
    let [gcra, limitador] = [AXUM_GCRA, LIMITADOR].map(|name| format!("{name}, {}", Clock::Os));
    let names = [&ours, &governor, "", "", &gcra, &limitador, ""];
    let addresses = [
        OURS,
        GOVERNOR,
        middleware::AXUM_GOVERNOR,
        middleware::TOWER_RATE_LIMITER_GCRA,
        AXUM_GCRA,
        LIMITADOR,
    ]
    .map(|name| memory::name(name, false));
    let [first, second, third, fourth, fifth, sixth] = addresses.each_ref().map(String::as_str);
    let stalls = [OURS, worst_latency::CLEANED_UP, "", "", AXUM_GCRA, "", ""];
    vec![
        Question::new("a decision about one hot address", "ns", HOT_1, names),
        Question::new(
            "a decision about one of a million addresses",
            "ns",
            MANY_1,
            names,
        ),
        Question::new(
            "memory for each of a million addresses",
            "bytes",
            memory::PER_KEY_1M,
            [first, second, third, fourth, fifth, sixth, ""],
        ),
        Question::new(
            "the longest decision in a flood of new keys",
            "us",
            worst_latency::TITLE,
            stalls,
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
        "| | unit | {} |\n|---|---|{}\n",
        CRATES.join(" | "),
        "---:|".repeat(CRATES.len())
    );
    for question in questions() {
        let cell = |row: Option<Row>| row.map_or(String::new(), |row| number(row.median));
        let cells = question.rows(report).map(cell);
        let Question { what, unit, .. } = question;
        let _ = writeln!(text, "| {what} | {unit} | {} |", cells.join(" | "));
    }
    text += &through_redis(report);
    let kind = if is_quick() {
        "One round each, to try the comparison out: these numbers are noise."
    } else {
        "Medians of one run."
    };
    text + &format!("\n{kind} {}.\n", report.machine)
}

/// The crates that share a limit through Redis, few of them among [`CRATES`].
fn through_redis(report: &Report) -> String {
    use redis_middleware::{OTHERS, OURS, PER_SECOND, PROCESSOR, TOWER_RATE_LIMITER};
    let mut text = "\n| a limit shared through Redis, 128 requests at once | requests/s | node, us a request |\n\
                    |---|---:|---:|\n"
        .to_owned();
    for name in [OURS, TOWER_RATE_LIMITER].into_iter().chain(OTHERS) {
        let cell = |table| {
            let samples = report.samples(table, name);
            samples.map_or(String::new(), |samples| {
                number(Row::new(name, samples.clone()).median)
            })
        };
        let (per_second, processor) = (cell(PER_SECOND), cell(PROCESSOR));
        let _ = writeln!(text, "| {name} | {per_second} | {processor} |");
    }
    text
}

/// Counts of the targets, and those that were not met.
pub(super) fn unmet(report: &Report) -> String {
    let mut text = format!(
        "This project's own targets in the run: {}.\n\n| not met | bound | measured | floor | |\n\
         |---|---:|---:|---:|---|\n",
        report.counts()
    );
    for target in &report.targets {
        if target.verdict != Verdict::Met {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                target.what,
                target.bound(),
                number(target.median),
                target.floor.map_or(String::new(), number),
                target.verdict
            );
        }
    }
    text
}
