//! The script decides as the local limiter does, in every field, whatever is asked of it when.

use std::time::Duration;

use proptest::{prelude::*, test_runner::TestRunner};
use tower_ratelimit::{
    Key, Limiter, LimiterError, LocalLimiter, ManualClock, Op, Receipt, RedisLimiter, RedisStore,
};

use crate::{
    quotas::{self, Move, Spec, any_move, at},
    servers::{Server, Setup, no_redis, no_valkey},
};

/// Operations that are asked at one time, without waiting for each other's answers.
type Burst = (Move, Vec<Ask>);

/// Something to ask. A refund's receipt is of one of the decisions before, of none, or of a time
/// at which nothing may have happened.
#[derive(Debug, Clone, Copy)]
struct Ask {
    op: Op,
    receipt: Held,
}

#[derive(Debug, Clone, Copy)]
enum Held {
    None,
    Earlier(usize),
    Of(u64),
}

/// The last microsecond that leaves room for the longest refill below 2^53.
const LATEST: u64 = 6_000_000_000_000_000;

fn ask() -> impl Strategy<Value = Ask> {
    let units =
        || prop_oneof![4 => 0_u64..4, 3 => 0_u64..40, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    let op = prop_oneof![
        7 => units().prop_map(Op::Acquire),
        2 => units().prop_map(Op::AcquireUpTo),
        1 => units().prop_map(Op::Peek),
        2 => units().prop_map(Op::Hit),
        3 => units().prop_map(|units| Op::Refund(units, None)),
        1 => Just(Op::Reset),
    ];
    let receipt = prop_oneof![
        2 => Just(Held::None),
        5 => any::<usize>().prop_map(Held::Earlier),
        1 => (0..LATEST).prop_map(Held::Of),
    ];
    (op, receipt).prop_map(|(op, receipt)| Ask { op, receipt })
}

impl Ask {
    fn op(self, before: &[Receipt]) -> Op {
        match (self.op, self.receipt) {
            (Op::Refund(units, _), Held::Earlier(n)) if !before.is_empty() => {
                Op::Refund(units, Some(before[n % before.len()]))
            }
            (Op::Refund(units, _), Held::Of(micros)) => {
                Op::Refund(units, Some(Receipt::new(at(micros))))
            }
            (op, _) => op,
        }
    }
}

fn trace() -> impl Strategy<Value = Vec<Burst>> {
    let asks = prop_oneof![
        3 => prop::collection::vec(ask(), 1..2),
        1 => prop::collection::vec(ask(), 2..6),
        // Alike in a row, of which the script is told once.
        1 => (ask(), 2_usize..20).prop_map(|(ask, times)| vec![ask; times]),
    ];
    prop::collection::vec((any_move(), asks), 1..14)
}

fn start() -> impl Strategy<Value = u64> {
    let last = LATEST - (1 << 60) / 1_000;
    prop_oneof![Just(0), Just(1_767_225_612_345_678), Just(last), 0..=last]
}

fn block() -> impl Strategy<Value = Option<Duration>> {
    let micros = prop_oneof![1_u64..5_000_000, 1_u64..100_000_000_000];
    prop::option::weighted(0.2, micros.prop_map(Duration::from_micros))
}

/// A limiter of each kind for the same quotas and the same clock.
struct Pair {
    local: LocalLimiter,
    redis: RedisLimiter,
    clock: ManualClock,
}

impl Pair {
    fn new(store: &RedisStore, specs: &[Spec], block: Option<Duration>, start: u64) -> Self {
        let clock = ManualClock::at(at(start));
        let names = ["first", "second", "third"];
        let named = specs.iter().zip(names);
        let quotas: Vec<_> = named.map(|(spec, name)| spec.quota.named(name)).collect();
        // A second tier, so that the clock is read under the lock even for a lone bucket.
        let mut local = LocalLimiter::builder(quotas.clone())
            .tier("other", quotas.clone())
            .max_keys(4)
            .clock(clock.clone());
        let mut redis = RedisLimiter::builder(quotas)
            .name("differential")
            .remember_denials(false)
            .on_failure(tower_ratelimit::limiter::OnFailure::deny())
            .test_clock(clock.clone());
        if let Some(block) = block {
            local = local.block_for(block);
            redis = redis.block_for(block);
        }
        Self {
            local: local.build().expect("good quotas"),
            redis: redis.build(store).expect("good quotas"),
            clock,
        }
    }

    async fn agree(
        &self,
        key: &Key,
        specs: &[Spec],
        start: u64,
        trace: &[Burst],
    ) -> Result<(), TestCaseError> {
        let mut receipts = Vec::new();
        let mut now = start;
        for (step, asks) in trace {
            now = step.from(now, start, specs).min(LATEST);
            self.clock.set(at(now));
            let ops: Vec<_> = asks.iter().map(|ask| ask.op(&receipts)).collect();
            let answers: Vec<_> = ops.iter().map(|op| self.redis.apply(key, *op)).collect();
            for (op, answer) in ops.into_iter().zip(answers) {
                let expected = self.local.apply(key, op).await.expect("it is local");
                let decision = answer.await.map_err(|error| broken(&error))?;
                receipts.push(decision.receipt());
                prop_assert_eq!(decision, expected, "{:?} at {}", op, now);
            }
        }
        Ok(())
    }
}

fn broken(error: &LimiterError) -> TestCaseError {
    TestCaseError::fail(format!("{error}: {:?}", std::error::Error::source(error)))
}

/// Runs traces over quotas of `specs` against the server, unless `PROPTEST_CASES` says how many.
fn agreement(
    server: &Server,
    cases: u32,
    specs: impl Strategy<Value = Vec<Spec>>,
    runtime: &tokio::runtime::Runtime,
) {
    let mut config = ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    // A busy machine must not look like a failing server.
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    let store = store.connect(&server.url()).expect("a good address");
    let number = std::cell::Cell::new(0_u64);
    let inputs = (specs, block(), start(), trace());
    let outcome = TestRunner::new(config).run(&inputs, |(specs, block, start, trace)| {
        number.set(number.get() + 1);
        let key = Key::from(number.get());
        let pair = Pair::new(&store, &specs, block, start);
        runtime.block_on(pair.agree(&key, &specs, start, &trace))
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

macro_rules! alone {
    ($($name:ident = $algorithm:literal;)*) => {
        $(
            #[test]
            fn $name() {
                if no_redis() {
                    return;
                }
                let runtime = runtime();
                let server = runtime.block_on(Server::start());
                let specs = quotas::spec_of($algorithm).prop_map(|spec| vec![spec]);
                agreement(&server, 1_500, specs, &runtime);
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
}

#[test]
fn stacks() {
    if no_redis() {
        return;
    }
    let runtime = runtime();
    let server = runtime.block_on(Server::start());
    let specs = prop::collection::vec(quotas::spec(), 2..4);
    agreement(&server, 2_500, specs, &runtime);
}

#[test]
fn on_valkey() {
    if no_valkey() {
        return;
    }
    let runtime = runtime();
    let server = runtime.block_on(Setup::valkey().start());
    let specs = prop::collection::vec(quotas::spec(), 1..4);
    agreement(&server, 1_000, specs, &runtime);
}
