//! The limiter answers as the oracle does, whatever it has to decide and when.

use std::{cell::Cell, env, time::Duration};

use proptest::{prelude::*, test_runner::TestRunner};

use tower_ratelimit::limiter::OnChange;

use super::{
    cases,
    random_quotas::{Spec, spec, spec_of, start},
    trace_generator::{Setup, agrees, one_tier, tiers, trace},
};

/// The operations of all tests here together, unless `ORACLE_OPERATIONS` sets another number.
const OPERATIONS: u32 = 20_000;
const LONGEST: usize = 40;

/// Runs this share of all operations, in percent, through limiters of such tiers.
fn agreement(
    share: u32,
    tiers: impl Strategy<Value = Vec<Vec<Spec>>>,
    block_for: impl Strategy<Value = Option<Duration>>,
) {
    let all = env::var("ORACLE_OPERATIONS").map(|all| all.parse().expect("a number"));
    let all = all.unwrap_or(OPERATIONS);
    // A trace has half of the longest on average.
    let traces = u64::from(all) * u64::from(share) / 100 / (LONGEST as u64 / 2);
    let config = cases(u32::try_from(traces).expect("not so many").max(1));
    let operations = Cell::new(0);
    let on_change = prop_oneof![3 => Just(OnChange::Keep), 2 => Just(OnChange::Fresh)];
    let setup = (tiers, block_for, on_change);
    let setup = setup.prop_map(|(tiers, block_for, on_change)| {
        let setup = Setup {
            tiers,
            block_for,
            on_change,
        };
        setup.with_accepted_quotas()
    });
    let inputs = (setup, start(), trace(LONGEST));
    let outcome = TestRunner::new(config).run(&inputs, |(setup, start, trace)| {
        operations.set(operations.get() + trace.len());
        agrees(&setup, start, trace)
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    eprintln!("{} operations", operations.get());
}

fn none() -> impl Strategy<Value = Option<Duration>> {
    Just(None)
}

fn block() -> impl Strategy<Value = Option<Duration>> {
    let nanos = prop_oneof![
        1_u64..5_000_000_000,
        1_u64..100_000_000_000_000,
        Just(60_000_000_000)
    ];
    nanos.prop_map(|nanos| Some(Duration::from_nanos(nanos)))
}

#[test]
fn token_bucket() {
    agreement(10, one_tier(spec_of(0), 1..2), none());
}

#[test]
fn leaky_bucket() {
    agreement(10, one_tier(spec_of(1), 1..2), none());
}

#[test]
fn windows_and_log() {
    let spec = prop_oneof![spec_of(2), spec_of(3), spec_of(4)];
    agreement(15, one_tier(spec, 1..2), none());
}

#[cfg(feature = "calendar")]
#[test]
fn calendars() {
    agreement(5, one_tier(spec_of(7), 1..3), none());
}

#[test]
fn windows_that_vary() {
    let spec = prop_oneof![1 => spec_of(5), 3 => spec_of(6)];
    agreement(10, one_tier(spec, 1..3), none());
}

#[cfg(feature = "calendar")]
#[test]
fn windows_that_vary_in_a_zone() {
    let spec = prop_oneof![1 => spec_of(8), 3 => spec_of(9)];
    agreement(5, one_tier(spec, 1..3), none());
}

#[test]
fn lists() {
    agreement(10, one_tier(spec(), 2..4), none());
}

#[test]
fn tiers_that_share_and_do_not() {
    agreement(30, tiers(), none());
}

#[test]
fn blocks() {
    let setups = prop_oneof![1 => one_tier(spec(), 1..3), 2 => tiers()];
    agreement(20, setups, block());
}
