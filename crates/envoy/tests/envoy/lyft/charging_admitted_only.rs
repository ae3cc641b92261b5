//! Charges of requests that pass only, with random rules and requests.
//!
//! CI runs a few thousand requests. `LYFT_REQUESTS` sets their number.

use std::env;

use serde_json::json;
use tower_ratelimit::clock::Timestamp;
use tower_ratelimit_envoy::{
    decide::RateLimits,
    protobuf_messages::{Code, DescriptorStatus, RateLimitRequest},
};

use super::{
    model::{Dice, nodes, request},
    test_support::{Bench, SHORT_UNITS, START, charge_admitted},
};

/// The status of each descriptor.
async fn looks(limits: &RateLimits, request: &RateLimitRequest) -> Vec<DescriptorStatus> {
    let mut looks = request.clone();
    for descriptor in &mut looks.descriptors {
        descriptor.hits_addend = Some(0);
        descriptor.is_negative_hits = false;
    }
    limits.decide(&looks).await.unwrap().statuses
}

#[tokio::test]
async fn denied_requests_leave_everything_as_it_was() {
    let wanted = env::var("LYFT_REQUESTS");
    let wanted = wanted.map_or(10_000, |number| number.parse().expect("a number"));
    let (mut done, mut denied) = (0_u64, 0_u64);
    for seed in 0.. {
        let mut dice = Dice::new(seed, SHORT_UNITS);
        let (_, descriptors) = nodes(&mut dice, 3);
        let mut modes = charge_admitted();
        modes.quota = dice.one_in(5);
        let text = json!({"domain": "rl", "descriptors": descriptors}).to_string();
        let bench = Bench::with(&text, modes);
        let mut now = START * 1_000_000;
        for at in 0..200 {
            now += dice.of(&[0, 0, 0, 100_000, 1_000_000, 30_000_000]);
            bench.clock.set(Timestamp::from_micros(now));
            let request = request(&mut dice);
            let before = looks(&bench.limits, &request).await;
            let dry = bench.limits.dry_run(&request).await.unwrap();
            let reported = bench.decide(&request).await.unwrap();
            let after = looks(&bench.limits, &request).await;
            let place = format!("seed {seed}, request {at}: {request:?}\n{text}");
            // Equal descriptors of a request may together exceed the limit.
            let is_over = reported.overall_code() == Code::OverLimit;
            assert!(is_over || dry.overall_code() == Code::Ok, "{place}");
            if is_over {
                assert_eq!(after, before, "{place}");
                denied += 1;
            }
            done += 1;
        }
        if done >= wanted {
            break;
        }
    }
    assert!(
        (done / 40..done / 2).contains(&denied),
        "{denied} of {done}"
    );
}
