//! A million descriptors leave no more behind than some: each that a client makes up is counted, named and listed.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{fmt::Write as _, ops::Range};

use tokio::runtime::{Builder, Runtime};
use tower_ratelimit::{LocalStore, ManualClock};
use tower_ratelimit_server::{
    counters::Counters,
    decide::{Modes, RateLimits},
    lyft::Rules,
    messages::{Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, Unit},
};

const RULES: &str = "domain: rl
descriptors:
  - {key: counted, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: denied, rate_limit: {unit: year, requests_per_unit: 0}}
  - {key: named, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: bucket, rate_limit: {unit: year, requests_per_unit: 10, algorithm: token_bucket}}
  - {key: log, rate_limit: {unit: year, requests_per_unit: 10, algorithm: sliding_log}}
";

/// The keys of a request's descriptors. The last two have no rule, but one of them a limit of its own.
const KEYS: [&str; 7] = [
    "counted",
    "denied",
    "named",
    "bucket",
    "log",
    "own",
    "unmatched",
];

/// How many requests have each key as often as the others.
const ROUNDS: u32 = 25;

/// More than the periods that counters are kept ready for.
const PERIODS: u32 = 1_100;

fn request() -> RateLimitRequest {
    let keys = (0..ROUNDS).flat_map(|_| KEYS);
    let descriptors = keys.map(|key| RateLimitDescriptor {
        entries: vec![Entry {
            key: key.to_owned(),
            value: String::new(),
        }],
        limit: (key == "own").then(|| RateLimitOverride {
            requests_per_unit: 0,
            unit: Unit::Hour.into(),
            unit_multiplier: None,
        }),
        ..RateLimitDescriptor::default()
    });
    RateLimitRequest {
        domain: "rl".to_owned(),
        descriptors: descriptors.collect(),
        hits_addend: 0,
    }
}

/// Asks until the descriptors of these numbers have come. No two are equal, and all are of one length.
fn ask(
    runtime: &Runtime,
    limits: &RateLimits,
    request: &mut RateLimitRequest,
    numbers: Range<u32>,
) {
    let mut next = numbers.start;
    while next < numbers.end {
        for descriptor in &mut request.descriptors {
            let value = &mut descriptor.entries[0].value;
            value.clear();
            write!(value, "a{next:07}").unwrap();
            if let Some(limit) = &mut descriptor.limit {
                limit.unit_multiplier = Some(1 + next % PERIODS);
            }
            next += 1;
        }
        runtime.block_on(limits.decide(request)).unwrap();
    }
}

#[test]
fn a_million_descriptors_take_no_more_memory_than_some() {
    let runtime = Builder::new_current_thread().build().unwrap();
    // Far fewer than the first descriptors, so that even what is given up last has been.
    let store = LocalStore::builder()
        .max_keys(4_096)
        .clock(ManualClock::new());
    let store = store.build().unwrap();
    let limits = RateLimits::new(Counters::local(&store), Modes::default());
    limits.set_rules(Rules::builder().parse([("rules.yaml", RULES)]).unwrap());
    let mut request = request();
    let mut held = |numbers| {
        let memory = allocation_counter::measure(|| {
            ask(&runtime, &limits, &mut request, numbers);
        });
        memory.bytes_current
    };
    let some = held(0..200_000);
    let more = held(200_000..1_000_000);
    assert!(store.evictions() > 500_000);
    assert!(some < 10_000_000, "{some} bytes");
    // The list of keys that are denied begins a second part at times. A byte of each descriptor would be more.
    assert!(more < 500_000, "{more} bytes more than {some}");
    let names = limits.statistics().all().len();
    assert!((10_000..10_020).contains(&names), "{names} names");
    let top = limits.top().report(5_000);
    assert!(top.denials() > 200_000 && top.keys().len() <= 4_096);
}
