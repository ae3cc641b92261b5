//! The service against a small model of it: random rules, random requests.
//!
//! CI runs a few thousand requests. `LYFT_REQUESTS` sets the number for each test.

use std::{env, time::Duration};

use serde_json::json;
use testkit::{needs, servers::Server};
use tower_ratelimit::{
    OnFailure, RedisStore,
    clock::{ManualClock, Timestamp},
};
use tower_ratelimit_envoy::{
    HeaderSet,
    decide::{Modes, RateLimits},
    limiters_by_period::Counters,
    protobuf_messages::Code,
};

use super::{
    model::{Dice, Model, nodes, request},
    test_support::{Bench, SHORT_UNITS, START, modes, rules},
};

/// Generates rules and requests until this many requests were compared.
async fn agreement(requests: u64, limits: impl Fn(u64, Modes) -> (RateLimits, ManualClock)) {
    let wanted = env::var("LYFT_REQUESTS");
    let wanted = wanted.map_or(requests, |number| number.parse().expect("a number"));
    let (mut done, mut over) = (0, 0);
    for seed in 0.. {
        let mut dice = Dice::new(seed, SHORT_UNITS);
        let (nodes, descriptors) = nodes(&mut dice, 3);
        let (shadow, quota) = (dice.one_in(10), dice.one_in(5));
        let modes = modes(|modes| {
            (modes.shadow, modes.quota) = (shadow, quota);
            modes.rls_headers = vec![HeaderSet::Envoy];
        });
        let (limits, clock) = limits(seed, modes);
        let text = json!({"domain": "rl", "descriptors": descriptors}).to_string();
        limits.set_rules(rules(&text));
        let mut model = Model::new(nodes, shadow, quota);
        let mut now = START * 1_000_000;
        for at in 0..200 {
            now += dice.of(&[0, 0, 0, 100_000, 1_000_000, 30_000_000]);
            clock.set(Timestamp::from_micros(now));
            let request = request(&mut dice);
            let reported = limits.decide(&request).await.unwrap();
            let expected = model.decide(now / 1_000_000, &request);
            assert_eq!(
                reported, expected,
                "seed {seed}, request {at}: {request:?}\n{text}"
            );
            over += u64::from(reported.overall_code() == Code::OverLimit);
            done += 1;
        }
        if done >= wanted {
            break;
        }
    }
    eprintln!("{done} requests agreed, {over} of them over a limit");
    assert!((done / 40..done / 2).contains(&over), "{over} of {done}");
}

#[tokio::test]
async fn local_counters_agree_with_the_model() {
    agreement(20_000, |_, modes| {
        let bench = Bench::with("domain: rl\n", modes);
        (bench.limits, bench.clock)
    })
    .await;
}

#[tokio::test]
async fn redis_agrees_with_the_model() {
    needs!(redis);
    let server = Server::start().await;
    agreement(2_000, |seed, modes| {
        let clock = ManualClock::new();
        let store = RedisStore::builder().deadline(Duration::from_secs(20));
        let store = store
            .prefix(seed.to_string())
            .connect(&server.url())
            .unwrap();
        let for_limiters = clock.clone();
        let counters = Counters::redis_with(&store, OnFailure::deny(), move |builder| {
            builder.test_clock(for_limiters.clone())
        });
        (RateLimits::new(counters, modes), clock)
    })
    .await;
}
