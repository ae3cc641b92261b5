//! Memory for each key, and under a flood of keys; every contender in a process of its own.

use std::{alloc::System, fs, net::IpAddr};

use serde::{Deserialize, Serialize};
use stats_alloc::{Region, StatsAlloc};

use crate::{
    child,
    decision::{Batches, GOVERNOR, LongText, OURS, gcra, governor, ours},
    rate::Rate,
    report::{Report, Row, Table},
};

pub const PER_KEY_1M: &str = "memory per key, 1 M keys";
pub const PER_KEY_10M: &str = "memory per key, 10 M keys";
pub const FLOOD: &str = "resident set, 10 M keys, table for 1 M where there is a bound";

const MILLION: u32 = 1_000_000;

/// What a process found out.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    bytes_per_key: f64,
    resident_mib: f64,
}

/// Kinds of limiter and key, by the names of the rows.
fn names() -> Vec<String> {
    let kinds = [OURS, GOVERNOR, "axum_gcra"];
    let names = kinds.map(|kind| [ADDRESS, LONG_TEXT].map(|key| format!("{kind}, {key}")));
    names.into_iter().flatten().collect()
}

const ADDRESS: &str = "addresses";
const LONG_TEXT: &str = "strings of 100 bytes";

pub fn name(kind: &str, is_long: bool) -> String {
    format!("{kind}, {}", if is_long { LONG_TEXT } else { ADDRESS })
}

pub fn measure(report: &mut Report) {
    per_key(report, PER_KEY_1M, MILLION, &names());
    // axum_gcra walks its whole map after every 8,192 new keys: at 10 M that takes minutes.
    let names: Vec<_> = names()
        .into_iter()
        .filter(|name| !name.starts_with("axum_gcra"))
        .collect();
    per_key(report, PER_KEY_10M, 10 * MILLION, &names);
    flood(report, &names);
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

/// What a process finds out: `keys` keys in a table for `capacity`, where there is a bound.
///
/// # Panics
///
/// When there is no contender of this name.
pub fn run(allocator: &StatsAlloc<System>, name: &str, capacity: u32, keys: u32) -> String {
    let region = Region::new(allocator);
    let limiter = make(name, capacity);
    limiter.fill(keys);
    let change = region.change();
    let bytes = change.bytes_allocated as f64 - change.bytes_deallocated as f64;
    let found = Found {
        bytes_per_key: bytes / f64::from(keys.min(capacity)),
        resident_mib: resident_mib(),
    };
    drop(limiter);
    serde_json::to_string(&found).expect("numbers")
}

fn make(name: &str, capacity: u32) -> Box<dyn Batches> {
    let rate = Rate::SLOW;
    match name.split_once(", ") {
        Some((OURS, ADDRESS)) => Box::new(ours::<IpAddr>(rate, capacity)),
        Some((OURS, _)) => Box::new(ours::<LongText>(rate, capacity)),
        Some((GOVERNOR, ADDRESS)) => Box::new(governor::<IpAddr>(rate)),
        Some((GOVERNOR, _)) => Box::new(governor::<LongText>(rate)),
        Some((_, ADDRESS)) => Box::new(gcra::<IpAddr>(rate)),
        Some(_) => Box::new(gcra::<LongText>(rate)),
        None => panic!("no contender is called {name:?}"),
    }
}

fn resident_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.expect("a resident set") / 1024.0
}
