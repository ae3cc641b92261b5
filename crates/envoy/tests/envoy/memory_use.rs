//! 300,000 descriptors leave no more memory than a few thousand: those that clients invent are
//! counted, named and listed.

use std::{fmt::Write as _, ops::Range};

use tokio::runtime::{Builder, Runtime};
use tower_ratelimit::{LocalStore, clock::ManualClock};
use tower_ratelimit_envoy::{
    decide::{Modes, RateLimits},
    limiters_by_period::Counters,
    lyft::Rules,
    protobuf_messages::{Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, Unit},
};

const RULES: &str = "domain: rl
descriptors:
  - {key: counted, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: denied, rate_limit: {unit: year, requests_per_unit: 0}}
  - {key: named, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: bucket, rate_limit: {unit: year, requests_per_unit: 10, algorithm: token_bucket}}
  - {key: log, rate_limit: {unit: year, requests_per_unit: 10, algorithm: sliding_log}}
";

/// The keys of a request's descriptors. The last two have no rule, and one of them has its own
/// limit.
const KEYS: [&str; 7] = [
    "counted",
    "denied",
    "named",
    "bucket",
    "log",
    "own",
    "unmatched",
];

/// The number of rounds in which each key has equally many requests.
const ROUNDS: u32 = 25;

/// More than the most periods with a ready counter.
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

/// Sends requests with the descriptors of these numbers. No two are equal, and all have one length.
fn call(
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
fn three_hundred_thousand_descriptors_take_no_more_memory_than_some() {
    let runtime = Builder::new_current_thread().build().unwrap();
    // Far fewer than the first descriptors, so that even the last kind of memory is full.
    let store = LocalStore::builder()
        .max_keys(4_096)
        .clock(ManualClock::new());
    let store = store.build().unwrap();
    let limits = RateLimits::new(Counters::local(&store), Modes::default());
    limits.set_rules(Rules::builder().parse([("rules.yaml", RULES)]).unwrap());
    let mut request = request();
    let mut held = |numbers| {
        let memory = allocation_counter::measure(|| {
            call(&runtime, &limits, &mut request, numbers);
        });
        memory.bytes_current
    };
    let some = held(0..100_000);
    let more = held(100_000..300_000);
    assert!(store.evictions() > 125_000);
    assert!(some < 10_000_000, "{some} bytes");
    // The list of denied keys starts a second part by the clock, of some 300,000 bytes. Four bytes for
    // each descriptor would be more.
    assert!(more < 800_000, "{more} bytes more than {some}");
    let names = limits.statistics().all().len();
    assert!((10_000..10_020).contains(&names), "{names} names");
    let top = limits.top().report(5_000);
    assert!(top.denials() > 75_000 && top.keys().len() <= 4_096);
}
