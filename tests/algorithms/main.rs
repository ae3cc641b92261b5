//! The promises of the algorithms: their definitions as an oracle, their bounds, and what blocks,
//! soft limits, tiers and changes of quota do to them.

mod admission_bounds;
mod all_or_none;
mod block_for;
#[cfg(feature = "calendar")]
mod calendar;
mod clock_steps;
mod counting_beyond_limits;
mod expected_decision;
mod extremes;
mod fresh_counts_after_a_change;
mod late_refunds;
mod logins;
mod memory;
mod operations_of_a_trace;
mod oracle_agreement;
mod per_request_quota_model;
mod priority;
mod quota;
mod quota_text;
mod quotas_by_time_of_day;
mod receipt_bytes;
mod receipts_after_quota_change;
mod refunds;
mod retry_after;
mod set_quota;
mod soft_limits;
mod spending;
mod tiered_key_model;
mod tiers;
mod token_bucket;
mod trace_generator;
#[cfg(feature = "calendar")]
mod varying_in_zones;
mod vectors;
mod wall_clock;

use std::env;

use proptest::prelude::ProptestConfig;
use testkit::{
    charge_vectors::utc,
    oracle::{self, random_quotas},
};
use tower_ratelimit::{Decision, Headers, Key, LocalLimiter, Quota, clock::ManualClock};

/// The number of cases, unless `PROPTEST_CASES` sets another number.
fn cases(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    config.failure_persistence = None;
    config
}

fn alice() -> Key {
    Key::from("alice")
}

/// A limiter whose clock stands at an instant in UTC.
fn limiter_at(quota: Quota, at: &str) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::at(utc(at));
    let builder = LocalLimiter::builder(quota)
        .max_keys(8)
        .clock(clock.clone());
    (builder.build().expect("a good quota"), clock)
}

/// The fields of these names in a response with the decision.
fn fields<const N: usize>(decision: &Decision, names: [&str; N]) -> [Option<String>; N] {
    let mut fields = http::HeaderMap::new();
    Headers::new().apply(decision, &mut fields);
    names.map(|name| {
        let value = fields.get(name)?.to_str();
        Some(value.expect("a text").to_owned())
    })
}

/// The quota in every algorithm. Each allows as much at once.
fn every_algorithm(quota: Quota) -> [Quota; 7] {
    let second = std::time::Duration::from_secs(1);
    [
        quota,
        quota.refill_every(second),
        quota.leaky_bucket(quota.limit() - 1),
        quota.fixed_window(),
        quota.sliding_window(),
        quota.sliding_window().slices(5),
        quota.sliding_log(),
    ]
}
