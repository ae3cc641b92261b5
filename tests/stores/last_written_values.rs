//! The values that a node wrote last: they save statements and change no answer.

use std::{sync::Arc, time::Duration};

use proptest::{collection::vec, prelude::*};
use testkit::{clock::PausedClock, contract::quotas};
use tokio::time::{advance, sleep};
use tower_ratelimit::{
    Clock as _, Decision, Key, Limiter as _, OnFailure, Op, Quota, StoreError, Timestamp,
    shared::{Cas, CompareAndSwap, MemoryStore, SharedLimiter, Store, Versioned, Write},
};

use super::versions::Versions;

fn node<S: Store>(quota: Quota, store: S) -> SharedLimiter<S> {
    SharedLimiter::builder(quota)
        .name("node")
        .remember_denials(false)
        .on_failure(OnFailure::deny())
        .build_on(store)
        .unwrap()
}

async fn acquire<S: Store>(limiter: &SharedLimiter<S>) -> Decision {
    limiter.acquire(&Key::from("alice"), 1).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn decision_that_nobody_contends_is_one_statement() {
    for quota in quotas() {
        let versions = Versions::new();
        let limiter = node(quota, Cas::new(versions.clone()));
        assert!(acquire(&limiter).await.is_allowed());
        assert_eq!(versions.statements(), (1, 1), "{quota:?}");
        for _ in 1..10 {
            assert!(acquire(&limiter).await.is_allowed());
            assert_eq!(versions.statements(), (0, 1), "{quota:?}");
        }
        for _ in 0..3 {
            assert!(acquire(&limiter).await.is_denied());
            assert_eq!(versions.statements(), (1, 0), "{quota:?}");
        }
        // The denial has reported the value.
        limiter.reset(&Key::from("alice")).await.unwrap();
        assert_eq!(versions.statements(), (0, 1), "{quota:?}");
        // Time that was reported long ago is sent again.
        sleep(Duration::from_secs(2)).await;
        assert!(acquire(&limiter).await.is_allowed());
        assert_eq!(versions.statements(), (1, 1), "{quota:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn value_that_others_write_is_read_first_until_they_leave() {
    let versions = Versions::new();
    let [one, two] = [(); 2].map(|()| {
        let store = Cas::new(versions.clone());
        node(Quota::per_minute(100), store)
    });
    acquire(&one).await;
    acquire(&two).await;
    versions.statements();
    acquire(&one).await;
    assert_eq!(versions.statements(), (1, 2), "one more for what was stale");
    acquire(&two).await;
    assert_eq!(versions.statements(), (1, 2));
    for _ in 0..5 {
        acquire(&one).await;
        assert_eq!(versions.statements(), (1, 1), "others write it");
        acquire(&two).await;
        assert_eq!(versions.statements(), (1, 1), "others write it");
    }
    acquire(&one).await;
    assert_eq!(versions.statements(), (1, 1));
    acquire(&one).await;
    assert_eq!(versions.statements(), (1, 1), "nobody has written it since");
    assert_eq!(acquire(&one).await.remaining(), Some(100 - 17));
    assert_eq!(versions.statements(), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn long_values_are_not_kept() {
    let versions = Versions::new();
    let quota = Quota::per_minute(1_000).sliding_log();
    let limiter = node(quota, Cas::new(versions.clone()));
    for _ in 0..200 {
        acquire(&limiter).await;
        sleep(Duration::from_millis(1)).await;
    }
    versions.statements();
    assert_eq!(acquire(&limiter).await.remaining(), Some(1_000 - 201));
    assert_eq!(versions.statements(), (1, 1));
}

/// A database that is as far away as this.
struct Far(Versions, Duration);

impl CompareAndSwap for Far {
    type Version = u64;

    async fn load(&self, key: &str) -> Result<(Versioned<u64>, Timestamp), StoreError> {
        sleep(self.1).await;
        let found = self.0.load(key).await;
        sleep(self.1).await;
        found
    }

    async fn swap(
        &self,
        key: &str,
        old: Option<u64>,
        new: &Write,
    ) -> Result<Option<u64>, StoreError> {
        sleep(self.1).await;
        let swapped = self.0.swap(key, old, new).await;
        sleep(self.1).await;
        swapped
    }
}

/// A call that is done to a remembered value has a time that is no later than the database's, and
/// earlier by an answer's time at most.
#[tokio::test(start_paused = true)]
async fn the_estimated_time_is_never_ahead() {
    let way = Duration::from_millis(20);
    let versions = Versions::new();
    let clock = versions.clock();
    let limiter = node(Quota::per_minute(100), Cas::new(Far(versions.clone(), way)));
    for at in 0..60 {
        let started = clock.now();
        let charged = acquire(&limiter).await.receipt().charged_at();
        match versions.statements() {
            (0, 1) => assert!(charged <= started, "{at}: {charged:?} at {started:?}"),
            reported => assert_eq!(
                (charged, reported),
                (started.saturating_add(way), (1, 1)),
                "{at}"
            ),
        }
        assert!(
            charged.saturating_add(2 * way) >= started,
            "{at}: {charged:?} at {started:?}"
        );
        sleep(Duration::from_millis(7)).await;
    }
}

/// A step of a trace.
#[derive(Debug, Clone)]
enum Step {
    Op(Op),
    /// Gives back, or charges beyond, what the last acquire of the trace got.
    Settle(u64),
    Wait(Duration),
    /// Somebody removes all values.
    Clear,
    /// Somebody writes all values again.
    Touch,
}

fn any_step() -> impl Strategy<Value = (usize, u8, Step)> {
    let op = prop_oneof![
        6 => (1_u64..4).prop_map(Op::Acquire),
        2 => (1_u64..12).prop_map(Op::AcquireUpTo),
        2 => (0_u64..4).prop_map(Op::Peek),
        2 => (1_u64..4).prop_map(Op::Hit),
        1 => (1_u64..4).prop_map(|cost| Op::Refund(cost, None)),
        1 => Just(Op::Reset),
        1 => Just(Op::Block(Duration::from_secs(3))),
    ];
    let step = prop_oneof![
        12 => op.prop_map(Step::Op),
        2 => (0_u64..6).prop_map(Step::Settle),
        3 => (0_u64..100_000_000).prop_map(|micros| Step::Wait(Duration::from_micros(micros / 100))),
        1 => (0_u64..100_000_000).prop_map(|micros| Step::Wait(Duration::from_micros(micros))),
        1 => Just(Step::Clear),
        1 => Just(Step::Touch),
    ];
    (0_usize..3, 0_u8..2, step)
}

/// Three nodes on a database answer as they do on a store in memory, whoever writes in between.
async fn compare(quota: Quota, steps: Vec<(usize, u8, Step)>) {
    let versions = Versions::new();
    let clock: PausedClock = versions.clock();
    let memory = MemoryStore::with_clock(clock);
    let expected = node(quota, memory.clone());
    let nodes = [1, 2, 3].map(|seed| {
        let store = Cas::new(versions.clone()).seed(seed);
        node(quota, Arc::new(store))
    });
    let mut receipt = None;
    for (at, key, step) in steps {
        let op = match step {
            Step::Op(op) => op,
            Step::Settle(cost) => match receipt.clone() {
                Some(receipt) => Op::Settle(cost, receipt),
                None => continue,
            },
            Step::Wait(time) => {
                advance(time).await;
                continue;
            }
            Step::Clear => {
                versions.clear();
                memory.clear();
                continue;
            }
            Step::Touch => {
                versions.touch();
                continue;
            }
        };
        let key = Key::from(u64::from(key));
        let got = nodes[at].apply(&key, op.clone()).await.unwrap();
        let wanted = expected.apply(&key, op.clone()).await.unwrap();
        assert_eq!(got, wanted, "{op:?} on {quota:?}");
        if matches!(op, Op::Acquire(_)) {
            receipt = Some(got.receipt());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nodes_answer_as_on_one_memory(at in 0_usize..5, steps in vec(any_step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(compare(quotas()[at], steps));
    }
}
