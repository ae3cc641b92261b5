//! The script decides as the local limiter does, in every field, whatever it has to decide and when.
//!
//! In CI a few thousand operations. `DIFFERENTIAL_OPERATIONS` sets another number for each test.

mod joint;
pub(crate) mod pair;
pub(crate) mod traces;

use std::{cell::Cell, time::Duration};

use proptest::{prelude::*, strategy::Union, test_runner::TestRunner};
use testkit::needs;
use tower_ratelimit::{
    Key, Quota, RedisStore, clock::ManualClock, quota::Algorithm, shared::RedisLimiterBuilder,
};

use crate::{
    random_quotas::{self, Move, Spec, any_move, forward},
    servers::{Server, Setup},
};
use pair::Pair;
use traces::{Tiers, alike_tiers, block, start, tiers, trace};

/// How many cases are made before the operations are counted.
const CASES: u32 = 32;

/// Runs traces with `moves` of the clock over `tiers` against the server, until as many operations
/// were compared.
fn agreement(
    server: &Server,
    operations: u64,
    tiers: impl Strategy<Value = Tiers>,
    moves: impl Strategy<Value = Move> + 'static,
) {
    let runtime = runtime();
    let wanted = std::env::var("DIFFERENTIAL_OPERATIONS");
    let wanted = wanted.map_or(operations, |n| n.parse().expect("a number"));
    // A busy machine must not look like a failing server.
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    let store = runtime.block_on(async { store.connect(&server.url()) });
    let store = store.expect("a good address");
    let config = ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 4_000,
        cases: CASES,
        ..ProptestConfig::default()
    };
    let (key, done) = (Cell::new(0_u64), Cell::new(0_u64));
    let inputs = (tiers, block(), start(), trace(moves));
    while done.get() < wanted {
        let outcome =
            TestRunner::new(config.clone()).run(&inputs, |(tiers, block, start, trace)| {
                key.set(key.get() + 1);
                let build =
                    |limiter: RedisLimiterBuilder| limiter.build(&store).expect("good quotas");
                let clock = ManualClock::new();
                let key = Key::from(key.get());
                let mut pair = Pair::new(build, &clock, key, tiers, block, start);
                let outcome = runtime.block_on(pair.agree(&trace));
                done.set(done.get() + pair.operations());
                outcome
            });
        if let Err(error) = outcome {
            panic!("{error}");
        }
    }
    eprintln!("{} operations agreed", done.get());
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

/// The algorithms that a store counts with: all but limits that vary by the time of day.
const STORED: [u8; 6] = [0, 1, 2, 3, 4, 7];

pub(crate) fn any_spec() -> impl Strategy<Value = Spec> + Clone {
    Union::new(STORED.map(|algorithm| random_quotas::spec_of(algorithm).boxed()))
}

macro_rules! alone {
    ($($name:ident = $algorithm:literal;)*) => {
        $(
            #[test]
            fn $name() {
                needs!(redis);
                let server = runtime().block_on(Server::start());
                let specs = random_quotas::spec_of($algorithm).boxed();
                agreement(&server, 4_000, tiers(specs), any_move());
            }
        )*
    };
}

alone! {
    token_bucket = 0;
    leaky_bucket = 1;
    fixed_window = 2;
    sliding_window = 3;
    sliding_log = 4;
    calendar = 7;
}

#[test]
fn mixed() {
    needs!(redis);
    let server = runtime().block_on(Server::start());
    agreement(&server, 6_000, tiers(any_spec()), any_move());
}

#[test]
fn on_valkey() {
    needs!(valkey);
    let server = runtime().block_on(Setup::valkey().start());
    agreement(&server, 4_000, tiers(any_spec()), any_move());
}

/// The limiter in this process keeps these without locks. It tolerates a clock that steps back a little
/// longer than the others do.
#[test]
fn lone_bucket() {
    needs!(redis);
    let server = runtime().block_on(Server::start());
    let specs = (0..2_u8).prop_flat_map(random_quotas::spec_of);
    let tiers = specs.prop_map(|spec| vec![vec![spec]]);
    agreement(&server, 4_000, tiers, forward());
}

/// Each tier has windows alone, so all of them can be charged beyond their limits.
#[test]
fn uncapped() {
    needs!(redis);
    let server = runtime().block_on(Server::start());
    agreement(&server, 4_000, tiers(random_quotas::uncapped()), any_move());
}

#[test]
fn lone_uncapped() {
    needs!(redis);
    let server = runtime().block_on(Server::start());
    let tiers = random_quotas::uncapped().prop_map(|spec| vec![vec![spec]]);
    agreement(&server, 4_000, tiers, forward());
}

/// With the scripts that know one window, as far as its slices allow. It may become a bucket.
#[test]
fn lone_window() {
    needs!(redis);
    let server = runtime().block_on(Server::start());
    let specs = (2..4_u8).prop_flat_map(random_quotas::spec_of);
    let tiers = specs.prop_map(|spec| vec![vec![spec]]);
    agreement(&server, 4_000, tiers, forward());
}

/// With the scripts for a bucket and a window, until a quota changes into another kind or a denial blocks.
#[test]
fn a_bucket_and_a_window() {
    needs!(redis);
    let server = runtime().block_on(Server::start());
    let bucket = random_quotas::spec_of(0).prop_map(|spec| {
        let quota = Quota::per(spec.quota.limit(), spec.quota.period());
        Spec::hard(quota.burst(spec.quota.capacity()))
    });
    let window = (2..4_u8)
        .prop_flat_map(random_quotas::spec_of)
        .prop_map(|spec| with_slices(spec, 1));
    let pair = (bucket, window, any::<bool>()).prop_map(|(bucket, window, is_first)| {
        if is_first {
            vec![bucket, window]
        } else {
            vec![window, bucket]
        }
    });
    agreement(&server, 6_000, alike_tiers(pair, 0..=2), any_move());
}

#[test]
fn several_slices() {
    needs!(redis);
    let server = runtime().block_on(Server::start());
    let tiers = alike_tiers(window_in_slices(), 1..=2);
    agreement(&server, 3_000, tiers, any_move());
}

/// It may become a lone bucket, as in [`lone_bucket`].
#[test]
fn lone_window_in_several_slices() {
    needs!(redis);
    let server = runtime().block_on(Server::start());
    let tiers = alike_tiers(window_in_slices(), 0..=0);
    agreement(&server, 2_000, tiers, forward());
}

fn window_in_slices() -> impl Strategy<Value = Vec<Spec>> {
    (random_quotas::spec_of(3), 2_u32..9).prop_map(|(spec, slices)| vec![with_slices(spec, slices)])
}

/// A sliding window in as many slices. Other quotas stay.
fn with_slices(spec: Spec, slices: u32) -> Spec {
    if spec.quota.algorithm() != Algorithm::SlidingWindow {
        return spec;
    }
    let micros = u64::try_from(spec.quota.period().as_micros()).expect("short");
    let period = micros.next_multiple_of(slices.into());
    let quota = Quota::per(spec.quota.limit(), Duration::from_micros(period));
    let mut sliced = Spec::hard(quota.sliding_window().slices(slices));
    sliced.extras.slices = slices;
    sliced
}
