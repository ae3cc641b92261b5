//! Nodes that load and swap answer as nodes on one memory.

use std::{sync::Arc, time::Duration};

use proptest::{collection::vec, prelude::*};
use testkit::{store_contract::quotas, tokio_paused_clock::PausedClock};
use tokio::time::advance;
use tower_ratelimit::{
    Decision, Key, Limiter as _, OnFailure, Quota,
    decision::Op,
    shared::{Cas, MemoryStore, SharedLimiter, Store},
};

use super::database_in_memory::Versions;

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
async fn decision_is_a_load_and_a_swap_and_a_denial_a_load() {
    for quota in quotas() {
        let versions = Versions::new();
        let limiter = node(quota, Cas::new(versions.clone()));
        for _ in 0..10 {
            assert!(acquire(&limiter).await.is_allowed());
            assert_eq!(versions.statements(), (1, 1), "{quota:?}");
        }
        for _ in 0..3 {
            assert!(acquire(&limiter).await.is_denied());
            assert_eq!(versions.statements(), (1, 0), "{quota:?}");
        }
        limiter.reset(&Key::from("alice")).await.unwrap();
        assert_eq!(versions.statements(), (1, 1), "{quota:?}");
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
