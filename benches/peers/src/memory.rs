//! Memory for each key, and under a flood of keys; every contender in a process of its own.

mod layers;

use std::{alloc::System, fs, net::IpAddr};

use serde::{Deserialize, Serialize};
use stats_alloc::{Region, StatsAlloc};

use crate::{
    child,
    decision::{
        AXUM_GCRA, Batches, GOVERNOR, LIMITADOR, LongText, OURS, gcra, governor, limitador, ours,
    },
    middleware::check_burst,
    rate_conversions::Rate,
    report::{Line, Plot, Report, Row, Table},
    rounds::{Samples, is_quick},
};

pub const PER_KEY_1M: &str = "memory per key, 1 M keys";
pub const PER_KEY_10M: &str = "memory per key, 10 M keys";
pub const OF_1K: &str = "resident memory of a limiter with 1 k addresses";
pub const FLOOD: &str = "resident set, 10 M keys, table for 1 M where there is a bound";

pub const BY_KEYS: &str = "growth-memory";

const MILLION: u32 = 1_000_000;

/// Keys of a table without settings.
const DEFAULT_KEYS: u32 = 262_144;

pub const OF_1K_DEFAULT: &str = "tower-ratelimit, default settings";
const OF_1K_BOUNDED: &str = "tower-ratelimit, max_keys(1_000)";

/// Results of a process.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    bytes_per_key: f64,
    resident_mib: f64,
    /// Memory that became resident: it has been written to.
    grown_kib: f64,
}

/// Kinds of limiter with each kind of key, as the rows are called.
fn names(kinds: &[&str]) -> Vec<String> {
    let of = |kind| [false, true].map(|is_long| name(kind, is_long));
    kinds.iter().copied().flat_map(of).collect()
}

const ADDRESS: &str = "addresses";
const LONG_TEXT: &str = "strings of 100 bytes";

pub fn name(kind: &str, is_long: bool) -> String {
    format!("{kind}, {}", if is_long { LONG_TEXT } else { ADDRESS })
}

pub fn measure(report: &mut Report) {
    of_a_thousand(report);
    let alone = [OURS, GOVERNOR, AXUM_GCRA, LIMITADOR];
    let kinds = [&alone, layers::KINDS.as_slice()];
    per_key(report, PER_KEY_1M, MILLION, &names(&kinds.concat()));
    if is_quick() {
        return;
    }
    // At 10 M, each of four runs would take a minute with axum_gcra, which walks its whole map after
    // every 8,192 new keys, and from half a minute on with those that are called through layers.
    let names = names(&[OURS, GOVERNOR]);
    per_key(report, PER_KEY_10M, 10 * MILLION, &names);
    flood(report, &names);
}

/// Resident pages: one that holds a few bytes counts as a whole.
fn of_a_thousand(report: &mut Report) {
    let rows = [
        (OF_1K_DEFAULT, OURS, DEFAULT_KEYS),
        (OF_1K_BOUNDED, OURS, 1_000),
        (GOVERNOR, GOVERNOR, 1_000),
        (AXUM_GCRA, AXUM_GCRA, 1_000),
        (LIMITADOR, LIMITADOR, 1_000),
    ];
    let row = |(row, kind, capacity)| {
        Row::exact(row, found(&name(kind, false), capacity, 1_000).grown_kib)
    };
    report.add(Table {
        title: OF_1K.to_owned(),
        unit: "KiB".to_owned(),
        reference: OF_1K_DEFAULT.to_owned(),
        rows: rows.map(row).into(),
    });
}

/// Bytes for each of so many addresses, in tables for as many.
pub fn by_keys(numbers: &[u32]) -> Plot {
    let line = |kind| {
        let mut line = Line::new(kind);
        for &keys in numbers {
            let grown = found(&name(kind, false), keys, keys).grown_kib * 1_024.0;
            line.push(f64::from(keys), Samples(vec![grown / f64::from(keys)]));
        }
        line
    };
    Plot {
        file: BY_KEYS,
        title: "resident memory for each address".to_owned(),
        along: "keys".to_owned(),
        base: 10.0,
        unit: "bytes".to_owned(),
        lines: [GOVERNOR, OURS].map(line).into(),
    }
}

/// # Panics
///
/// When a limiter that only this part measures grants something other than its burst.
pub fn check() {
    for kind in layers::KINDS {
        check_burst(kind, &mut *layers::client(kind, true, Rate::FIVE));
    }
}

fn per_key(report: &mut Report, title: &str, keys: u32, names: &[String]) {
    let row = |name: &String| Row::exact(name, found(name, keys, keys).bytes_per_key);
    report.add(Table {
        title: title.to_owned(),
        unit: "bytes".to_owned(),
        reference: name(OURS, false),
        rows: names.iter().map(row).collect(),
    });
}

fn flood(report: &mut Report, names: &[String]) {
    let row = |name: &String| {
        let after = found(name, MILLION, 10 * MILLION).resident_mib;
        let first = found(name, MILLION, MILLION).resident_mib;
        [
            Row::exact(format!("{name}, 1 M"), first),
            Row::exact(format!("{name}, 10 M"), after),
        ]
    };
    report.add(Table {
        title: FLOOD.to_owned(),
        unit: "MiB".to_owned(),
        reference: format!("{}, 1 M", name(OURS, false)),
        rows: names.iter().flat_map(row).collect(),
    });
}

fn found(name: &str, capacity: u32, keys: u32) -> Found {
    let arguments = ["memory", name, &capacity.to_string(), &keys.to_string()];
    let text = child::output(child::COUNTING, &arguments);
    serde_json::from_str(&text).expect("what this program writes")
}

/// Measures in a process: `keys` keys in a table for `capacity`, where there is a bound.
///
/// # Panics
///
/// When there is no contender of this name.
pub fn run(allocator: &StatsAlloc<System>, name: &str, capacity: u32, keys: u32) -> String {
    let before = memory_kib("RssAnon:");
    let region = Region::new(allocator);
    let mut fill = make(name, capacity);
    fill(keys);
    let change = region.change();
    let bytes = change.bytes_allocated as f64 - change.bytes_deallocated as f64;
    let found = Found {
        bytes_per_key: bytes / f64::from(keys.min(capacity)),
        resident_mib: memory_kib("VmRSS:") / 1_024.0,
        grown_kib: memory_kib("RssAnon:") - before,
    };
    drop(fill);
    serde_json::to_string(&found).expect("numbers")
}

/// Requests one unit for each of so many keys, of a limiter that it holds.
type Fill = Box<dyn FnMut(u32)>;

fn make(name: &str, capacity: u32) -> Fill {
    let rate = Rate::SLOW;
    match name.rsplit_once(", ") {
        Some((OURS, ADDRESS)) => filling(ours::<IpAddr>(rate, capacity)),
        Some((OURS, _)) => filling(ours::<LongText>(rate, capacity)),
        Some((GOVERNOR, ADDRESS)) => filling(governor::<IpAddr>(rate)),
        Some((GOVERNOR, _)) => filling(governor::<LongText>(rate)),
        Some((AXUM_GCRA, ADDRESS)) => filling(gcra::<IpAddr>(rate)),
        Some((AXUM_GCRA, _)) => filling(gcra::<LongText>(rate)),
        Some((LIMITADOR, ADDRESS)) => filling(limitador::<IpAddr>(rate, capacity)),
        Some((LIMITADOR, _)) => filling(limitador::<LongText>(rate, capacity)),
        Some((layer, key)) => {
            let mut client = layers::client(layer, key == LONG_TEXT, Rate::SLOW_IN_A_YEAR);
            Box::new(move |keys| (0..keys).for_each(|key| assert_eq!(client.send(key), 200)))
        }
        None => panic!("no contender is called {name:?}"),
    }
}

fn filling(limiter: impl Batches + 'static) -> Fill {
    Box::new(move |keys| limiter.fill(keys))
}

/// A line about memory in the status of this process.
fn memory_kib(name: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with(name));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.expect("a size")
}
