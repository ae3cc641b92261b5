//! Allocations, counted by the allocator of a program of their own: counting takes time.

use std::alloc::System;

use stats_alloc::{Region, StatsAlloc};

use crate::{
    child,
    middleware::{CLIENTS, Case, find, over_baseline, warm},
    report::{Report, Table},
};

pub const ALLOWED: &str = "allocations added to a request, allowed";
pub const DENIED: &str = "allocations added to a request, denied";
pub const SEVERAL: &str = "allocations added to a request, several limits";

/// Requests that are counted.
const COUNT: u32 = 1_000;

pub fn measure(report: &mut Report) {
    for (case, title) in Case::ALL.into_iter().zip([ALLOWED, DENIED, SEVERAL]) {
        let count = |name| {
            let text = child::output(child::COUNTING, &["allocations", name, case.name()]);
            text.trim().parse().expect("a number")
        };
        report.add(Table {
            title: title.to_owned(),
            unit: "alloc.".to_owned(),
            reference: case.reference().to_owned(),
            rows: over_baseline(case, |contender| count(contender.name)),
        });
    }
}

/// Allocations and reallocations in a request.
///
/// # Panics
///
/// When there is no such contender.
pub fn allocations(allocator: &StatsAlloc<System>, name: &str, case: Case) -> f64 {
    let mut client = warm(find(name).client(case.rate()));
    let region = Region::new(allocator);
    for number in 0..COUNT {
        client.send(number % CLIENTS);
    }
    let change = region.change();
    (change.allocations + change.reallocations) as f64 / f64::from(COUNT)
}
