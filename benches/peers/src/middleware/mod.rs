//! Whole requests through an axum router, without a network.

mod checks;
mod client;
mod contenders;
mod denial;
mod noop;

pub use self::{
    checks::{check, check_burst},
    client::{Client, Direct, connect_info},
    contenders::*,
};
use crate::{
    cpu_time::CpuTime,
    report::{Report, Row, Table},
    rounds::{Samples, interleaved},
};

const ROUNDS: usize = 15;

/// Requests in a turn.
const COUNT: u32 = 10_000;

/// Addresses that take turns.
pub const CLIENTS: u32 = 1_000;

pub const ALLOWED: &str = "request through a router, allowed";
pub const ALLOWED_ADDED: &str = "added to a request over a no-op layer, allowed";
pub const DENIED: &str = "request through a router, denied";
pub const DENIED_ADDED: &str = "added to a request over a no-op layer, denied";

pub fn measure(report: &mut Report) {
    for case in [Case::Allowed, Case::Denied] {
        let (whole, added) = tables(case);
        report.add(whole);
        report.add(added);
    }
}

fn tables(case: Case) -> (Table, Table) {
    let contenders: Vec<_> = contenders()
        .into_iter()
        .filter(|c| c.takes_part(case))
        .collect();
    let start = |contender: &Contender| warm(contender.client(case.rate()));
    let mut clients: Vec<_> = contenders.iter().map(start).collect();
    let samples = interleaved(ROUNDS, &mut clients, |client, _| time(&mut **client));
    let whole: Vec<_> = contenders.iter().zip(samples).collect();
    let baseline = |name| {
        let found = whole.iter().find(|(contender, _)| contender.name == name);
        &found.expect("every baseline takes part").1
    };
    let added = whole.iter().filter(|(contender, _)| contender.adds());
    let added = added.map(|(contender, samples)| {
        let difference = samples.combine(baseline(contender.baseline), |whole, bare| whole - bare);
        Row::new(contender.name, difference)
    });
    let added = table(case.added_title(), added.collect());
    let whole = whole
        .into_iter()
        .map(|(c, samples)| Row::new(c.name, samples));
    (table(case.title(), whole.collect()), added)
}

fn table(title: &str, rows: Vec<Row>) -> Table {
    Table {
        title: title.to_owned(),
        unit: "ns".to_owned(),
        reference: DEFAULT.to_owned(),
        rows,
    }
}

/// One request of every client has been through, so that [`Rate::USED_UP`] is used up.
pub fn warm(mut client: Box<dyn Client>) -> Box<dyn Client> {
    for number in 0..2 * CLIENTS {
        client.send(number % CLIENTS);
    }
    client
}

/// Nanoseconds of CPU time per request.
fn time(client: &mut dyn Client) -> f64 {
    let begin = CpuTime::now();
    for number in 0..COUNT {
        client.send(number % CLIENTS);
    }
    begin.nanos_since() as f64 / f64::from(COUNT)
}

/// The cost of a contender above its baseline, in numbers that are equal in every round.
pub fn over_baseline(case: Case, count: impl Fn(&Contender) -> f64) -> Vec<Row> {
    let contenders = contenders();
    let counted: Vec<_> = contenders.iter().filter(|c| c.takes_part(case)).collect();
    let counted: Vec<_> = counted.into_iter().map(|c| (c, count(c))).collect();
    let baseline = |name| {
        let found = counted.iter().find(|(contender, _)| contender.name == name);
        found.expect("every baseline takes part").1
    };
    let adding = counted.iter().filter(|(c, _)| c.adds());
    let row = |(c, count): &(&Contender, f64)| {
        Row::new(c.name, Samples(vec![count - baseline(c.baseline)]))
    };
    adding.map(row).collect()
}
