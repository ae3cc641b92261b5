//! Whole requests through an axum router, without a network.

mod case;
mod checks;
mod client;
mod contenders;
mod denial_floor;
mod limitador;
mod noop;
mod several_limits;

use std::thread;

pub use self::{
    case::Case,
    checks::{check, check_burst},
    client::{Client, Direct, connect_info},
    contenders::*,
    limitador::{NAMESPACE, by_address},
    several_limits::{
        AXUM_GCRA_RULES, AXUM_GCRA_THREE, AXUM_GCRA_TWO, AXUM_GOVERNOR_THREE, AXUM_GOVERNOR_TWO,
        LIMITADOR_RULES, LIMITADOR_THREE, LIMITADOR_TWO, RULES, STORED, THREE, THREE_HEADERS,
        TOWER_GOVERNOR_THREE, TOWER_GOVERNOR_TWO, TOWER_RATE_LIMITER_THREE, TOWER_RATE_LIMITER_TWO,
        TWO, TWO_HEADERS,
    },
};
use crate::{
    cpu_time::CpuTime,
    report::{Report, Row, Table},
    rounds::{Samples, interleaved, rounds},
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

pub const SEVERAL: &str = "request through a router, several limits, allowed";
pub const SEVERAL_ADDED: &str = "added to a request over a no-op layer, several limits";

pub fn measure(report: &mut Report) {
    for case in Case::ALL {
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
    let start = |contender: &Contender| {
        let client = warm(contender.client(case.rate()));
        let allowed = if contender.denies(case) { 0 } else { COUNT };
        (client, allowed, contender.name)
    };
    let mut clients: Vec<_> = contenders.iter().map(start).collect();
    let samples = interleaved(
        rounds(ROUNDS),
        &mut clients,
        |(client, allowed, name), _| {
            let (nanos, found) = time(&mut **client);
            assert_eq!(found, *allowed, "{name} allows so many of {COUNT} requests");
            nanos
        },
    );
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
    let added = table(case, case.added_title(), added.collect());
    let whole = whole
        .into_iter()
        .map(|(c, samples)| Row::new(c.name, samples));
    (table(case, case.title(), whole.collect()), added)
}

fn table(case: Case, title: &str, rows: Vec<Row>) -> Table {
    Table {
        title: title.to_owned(),
        unit: "ns".to_owned(),
        reference: case.reference().to_owned(),
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

/// Nanoseconds of CPU time per request, and how many of [`COUNT`] were allowed.
fn time(client: &mut dyn Client) -> (f64, u32) {
    let begin = CpuTime::now();
    let allowed = (0..COUNT).filter(|number| client.send(number % CLIENTS) == 200);
    let allowed = allowed.count() as u32;
    (begin.nanos_since() as f64 / f64::from(COUNT), allowed)
}

/// The cost of a contender above its baseline, in numbers that are equal in every round and whatever
/// else runs: two are counted at a time.
pub fn over_baseline(case: Case, count: impl Fn(&Contender) -> f64 + Sync) -> Vec<Row> {
    let contenders = contenders();
    let taking_part: Vec<_> = contenders.iter().filter(|c| c.takes_part(case)).collect();
    let count_all = |part: &[&Contender]| part.iter().map(|c| count(c)).collect::<Vec<_>>();
    let (one, other) = taking_part.split_at(taking_part.len() / 2);
    let counts = thread::scope(|scope| {
        let other = scope.spawn(|| count_all(other));
        let one = count_all(one);
        [one, other.join().expect("no panic")].concat()
    });
    let counted: Vec<_> = taking_part.into_iter().zip(counts).collect();
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
