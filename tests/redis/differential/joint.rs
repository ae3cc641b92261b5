//! Limits of all nodes that are charged together decide as limits of one store in this process do, each with
//! an operation of its own or all with one.

use std::{cell::Cell, time::Duration};

use proptest::{prelude::*, test_runner::TestRunner};
use testkit::{
    needs,
    oracle::random_quotas::{self, Move, Spec, at, forward},
    servers::Server,
};
use tower_ratelimit::{
    Decision, Key, Limiter, LimiterError, LocalLimiter, LocalStore, OnFailure, Priority, Quota,
    RedisLimiter, RedisStore,
    clock::ManualClock,
    decision::{Op, Receipt},
    limiter::{JointLimiter, Tier},
};

use super::{
    CASES, STORED,
    pair::{broken, of_a_stranger},
    runtime,
    traces::{Held, Kind, LATEST, Request, request, start},
};

const NAMES: [&str; 3] = ["first", "second", "third"];

/// A move of the clock, and after it one operation for all limits, or one for each.
type Step = (Move, Vec<Request>);

fn trace() -> impl Strategy<Value = Vec<Step>> {
    let requests = prop_oneof![
        1 => prop::collection::vec(request(), 1),
        3 => prop::collection::vec(request(), NAMES.len()),
    ];
    prop::collection::vec((forward(), requests), 1..24)
}

/// Quotas that can be taken back in Redis.
fn specs() -> impl Strategy<Value = [Spec; 3]> {
    let leaky_bucket = 1;
    let spec = || {
        let others = STORED
            .into_iter()
            .filter(|algorithm| *algorithm != leaky_bucket);
        prop::sample::select(others.collect::<Vec<_>>()).prop_flat_map(random_quotas::spec_of)
    };
    [spec(), spec(), spec()]
}

fn op(request: &Request, receipt: Option<Receipt>) -> Op {
    let units = request.units;
    match (request.kind, receipt) {
        (Kind::Acquire, _) => Op::Acquire(units),
        (Kind::Reserve, _) => Op::Reserve(units),
        (Kind::Deny, _) => Op::Deny(units),
        (Kind::AcquireUpTo, _) => Op::AcquireUpTo(units),
        (Kind::Hit, _) => Op::Hit(units),
        (Kind::Spend | Kind::Count, _) => Op::Spend(units),
        (Kind::Refund, receipt) => Op::Refund(units, receipt),
        (Kind::Settle, Some(receipt)) => Op::Settle(units, receipt),
        (Kind::Reset, _) => Op::Reset,
        (Kind::Peek | Kind::Block | Kind::Settle, _) => Op::Peek(units),
    }
}

struct Pair {
    redis: JointLimiter<RedisLimiter>,
    local: JointLimiter,
    clock: ManualClock,
    keys: [Key; 3],
    specs: [Spec; 3],
    /// The receipts of both, of each step.
    receipts: Vec<(Receipt, Receipt)>,
    operations: u64,
}

impl Pair {
    fn new(store: &RedisStore, key: &Key, specs: [Spec; 3]) -> Self {
        let clock = ManualClock::new();
        let local = LocalStore::builder().max_keys(64).clock(clock.clone());
        let local = local.build().expect("a good size");
        let named = specs.iter().zip(NAMES);
        let quotas: Vec<_> = named.map(|(spec, name)| spec.quota.named(name)).collect();
        let redis = quotas.iter().map(|quota| {
            let builder = RedisLimiter::builder(*quota)
                .remember_denials(false)
                .on_failure(OnFailure::deny())
                .test_clock(clock.clone());
            builder.build(store).expect("a good quota")
        });
        let locals = quotas.iter().map(|quota| {
            let built = LocalLimiter::builder(*quota).build_in(&local);
            built.expect("a good quota")
        });
        Self {
            redis: JointLimiter::new(redis).expect("quotas that can be taken back"),
            local: JointLimiter::new(locals).expect("limits of one store"),
            clock,
            keys: NAMES.map(|name| Key::tuple([key.clone(), Key::from(name)])),
            specs,
            receipts: Vec::new(),
            operations: 0,
        }
    }

    async fn agree(&mut self, start: u64, trace: &[Step]) -> Result<(), TestCaseError> {
        let mut now = start;
        for (step, requests) in trace {
            now = step.from(now, start, &self.specs).min(LATEST);
            self.clock.set(at(now));
            self.step(requests).await?;
            // Both count alike afterwards.
            let peek = Op::Peek(1);
            let class = Priority::CRITICAL;
            let left = apply(&self.redis, class, &self.keys, std::slice::from_ref(&peek)).await;
            let expected = apply(&self.local, class, &self.keys, &[peek]).await;
            let left = left.map_err(|error| broken(&error))?;
            let expected = expected.map_err(|error| broken(&error))?;
            prop_assert_eq!(left, expected, "after {:?} at {}", requests, now);
        }
        Ok(())
    }

    async fn step(&mut self, requests: &[Request]) -> Result<(), TestCaseError> {
        let ops = |receipt: fn(&(Receipt, Receipt)) -> &Receipt| {
            let of = self.receipts.iter().map(receipt).cloned();
            let of: Vec<_> = of.collect();
            let ops = requests.iter();
            let ops = ops.map(|request| op(request, request.held.receipt(&of, of_a_stranger)));
            ops.collect::<Vec<_>>()
        };
        let (own, others) = (ops(|(redis, _)| redis), ops(|(_, local)| local));
        let share = Priority::share(requests[0].share).expect("a share");
        let decided = apply(&self.redis, share, &self.keys, &own).await;
        let expected = apply(&self.local, share, &self.keys, &others).await;
        self.operations += 1;
        let (decision, expected) = match (decided, expected) {
            (Ok(decision), Ok(expected)) => (decision, expected),
            (decided, expected) => {
                prop_assert!(
                    decided.is_err() && expected.is_err(),
                    "{own:?}: {decided:?}, {expected:?}"
                );
                return Ok(());
            }
        };
        // In Redis the units beyond those that all limits have are taken, and refunded.
        if own.iter().any(|op| matches!(op, Op::AcquireUpTo(_))) {
            prop_assert_eq!(decision.outcome(), expected.outcome(), "{:?}", own);
            prop_assert!(
                decision.charged_by_each().eq(expected.charged_by_each()),
                "{own:?}"
            );
            return Ok(());
        }
        prop_assert_eq!(&decision, &expected, "{:?}", own);
        prop_assert!(
            decision.charged_by_each().eq(expected.charged_by_each()),
            "{own:?}"
        );
        let receipts = (decision.receipt(), expected.receipt());
        prop_assert!(
            receipts.0.each().eq(receipts.1.each()),
            "{own:?}: {receipts:?}"
        );
        self.receipts.push(receipts);
        Ok(())
    }
}

/// One operation is for all limits.
async fn apply(
    limiter: &impl Limiter,
    class: Priority,
    keys: &[Key],
    ops: &[Op],
) -> Result<Decision, LimiterError> {
    testkit::apply_each(limiter, (&Tier::DEFAULT, class), keys, ops).await
}

#[test]
fn limits_that_are_charged_together() {
    needs!(redis);
    let runtime = runtime();
    let server = runtime.block_on(Server::start());
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    let store = runtime.block_on(async { store.connect(&server.url()) });
    let store = store.expect("a good address");
    let wanted = std::env::var("DIFFERENTIAL_OPERATIONS");
    let wanted = wanted.map_or(2_000, |n| n.parse().expect("a number"));
    let config = ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 4_000,
        cases: CASES,
        ..ProptestConfig::default()
    };
    let (key, done) = (Cell::new(0_u64), Cell::new(0_u64));
    while done.get() < wanted {
        let inputs = (specs(), start(), trace());
        let outcome = TestRunner::new(config.clone()).run(&inputs, |(specs, start, trace)| {
            key.set(key.get() + 1);
            let mut pair = Pair::new(&store, &Key::from(key.get()), specs);
            let outcome = runtime.block_on(pair.agree(start, &trace));
            done.set(done.get() + pair.operations);
            outcome
        });
        if let Err(error) = outcome {
            panic!("{error}");
        }
    }
    eprintln!("{} operations agreed", done.get());
}

/// The rest of a bucket of 156 days is a difference of numbers beyond 2^53, the largest that Lua counts exactly.
#[test]
fn the_last_units_of_a_long_bucket_fit() {
    needs!(redis);
    let runtime = runtime();
    let server = runtime.block_on(Server::start());
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    let store = runtime.block_on(async { store.connect(&server.url()) });
    let short = Spec::hard(Quota::per_second(1));
    let long = Quota::per(12, Duration::from_nanos(1 << 54)).burst(9);
    let key = Key::from("a");
    let mut pair = Pair::new(
        &store.expect("a good address"),
        &key,
        [short, short, Spec::hard(long)],
    );
    let request = |kind, units| Request {
        tier: 0,
        row: None,
        share: 100,
        kind,
        units,
        held: Held::None,
    };
    for units in [3, 6] {
        let nothing = || request(Kind::Acquire, 0);
        let requests = [nothing(), nothing(), request(Kind::Hit, units)];
        runtime.block_on(pair.step(&requests)).unwrap();
    }
}
