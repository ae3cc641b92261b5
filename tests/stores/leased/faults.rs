//! Calls that go wrong, and a store that is away.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn nothing_is_counted_twice_or_lost_whatever_happens_to_calls() {
    let faults = [
        Fault::LostRequest,
        Fault::LostReply,
        Fault::Again(Duration::ZERO),
        Fault::Again(20 * MS),
    ];
    for (seed, fault) in faults.into_iter().enumerate() {
        for quota in [
            Quota::per_day(10_000).fixed_window(),
            Quota::per_hour(1).burst(10_000),
        ] {
            let wire = Wire::new();
            let node = |at| {
                let seed = 100 * seed as u64 + at;
                leased(quota, seed).build_on(wire.clone()).unwrap()
            };
            let nodes: Vec<_> = (0..4).map(node).collect();
            let passed = Passed::default();
            // Every third call goes wrong.
            wire.next((0..100).map(|at| (at % 3 == 1).then_some(fault)));
            passed.load(&nodes, 2, 3 * SECOND).await;
            let charged = passed.count();
            assert!(charged <= 10_000, "{charged} with {fault:?}");
            // A lost answer may have charged for requests that were not allowed, and no more.
            let lost = sum(&nodes, |stats| stats.asked).min(10_000);
            assert!(charged + lost >= 10_000, "{charged} with {fault:?}");
            assert!(charged > 9_000, "{charged} with {fault:?}");
        }
    }
}

/// While a node holds enough, no request waits, whatever the store does.
#[tokio::test(start_paused = true)]
async fn store_that_hangs_holds_up_nobody_whose_node_holds_enough() {
    let wire = Wire::new();
    let nodes = nodes(1, Quota::per_hour(1).burst(100_000), &wire);
    let passed = Passed::default();
    passed.load(&nodes, 20, 500 * MS).await;
    let before = (passed.count(), nodes[0].mode_stats());
    wire.all(Some(Fault::LostRequest));
    let taken = at_once(&nodes[0], 100_000);
    let held = before.1.granted - before.1.settled - before.1.returned;
    assert!(taken > 1_000 && taken <= held, "{taken} of {held}");
    // And the store has counted all of them in the end.
    wire.all(None);
    sleep(3 * LENGTH).await;
    let left = 100_000 - before.0 - taken;
    let decision = nodes[0].acquire_up_to(&key(), 100_000).await.unwrap();
    assert!(
        (left - 50..=left).contains(&decision.charged()),
        "{decision:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn without_the_store_units_are_spent_until_their_end_and_the_fallback_decides_then() {
    let wire = Wire::new();
    let quota = Quota::per_hour(1).burst(100_000);
    let node = leased(quota, 1).on_failure(OnFailure::allow());
    let node = node.build_on(wire.clone()).unwrap();
    let passed = Passed::default();
    passed.load(std::slice::from_ref(&node), 20, 500 * MS).await;
    wire.all(Some(Fault::Fails));
    sleep(LENGTH / 4).await;
    for _ in 0..1_000 {
        let Pending::Ready(answer) = node.acquire(&key(), 1) else {
            panic!("units are held");
        };
        let decision = answer.unwrap();
        assert!(decision.is_leased() && !decision.is_degraded());
    }
    sleep(LENGTH).await;
    for _ in 0..1_000 {
        let decision = node.acquire(&key(), 1).await.unwrap();
        assert!(decision.is_allowed() && decision.is_degraded());
    }
    wire.all(None);
    sleep(3 * LENGTH).await;
    // All that was granted is counted, and nothing more.
    let stats = node.mode_stats();
    assert_eq!(stats.settled + stats.returned + stats.ended, stats.granted);
    let first = node.acquire(&key(), 1).await.unwrap();
    assert!(!first.is_degraded());
    let left = 100_000 - passed.count() - 1_000 - 1;
    let held = stats.ended;
    assert!(
        (left - held..=left).contains(&first.remaining().unwrap()),
        "{first:?}, {stats:?}"
    );
}

#[test]
fn runtime_that_ends_takes_no_lease_along_for_good() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    let first = runtime();
    let (wire, node) = first.block_on(async {
        let wire = Wire::new();
        let nodes = nodes(1, Quota::per_second(10_000), &wire);
        Passed::default().load(&nodes, 4, 100 * MS).await;
        // A call is under way when all ends.
        wire.all(Some(Fault::LostRequest));
        Passed::default().load(&nodes, 40, 10 * MS).await;
        (wire, nodes[0].clone())
    });
    drop(first);
    wire.all(None);
    runtime().block_on(async {
        sleep(4 * LENGTH).await;
        let passed = Passed::default();
        let before = node.mode_stats().local;
        passed.load(std::slice::from_ref(&node), 4, 500 * MS).await;
        assert!(passed.count() > 1_500, "{}", passed.count());
        assert!(node.mode_stats().local > before + 1_000);
    });
}

/// The runtime in which leases were kept exists, but nobody drives it any more.
#[test]
fn leases_are_kept_in_the_runtime_that_is_driven() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    let [first, second] = [runtime(), runtime()];
    let node = first.block_on(async {
        let nodes = nodes(1, Quota::per_second(10_000), &Wire::new());
        Passed::default().load(&nodes, 4, 100 * MS).await;
        nodes[0].clone()
    });
    let before = node.mode_stats();
    assert!(before.granted > before.settled + before.returned);
    second.block_on(async {
        sleep(4 * LENGTH).await;
        let nodes = [node.clone()];
        Passed::default().load(&nodes, 4, 100 * MS).await;
        sleep(4 * LENGTH).await;
    });
    let after = node.mode_stats();
    assert!(after.granted > before.granted);
    let held = before.granted - before.settled - before.returned;
    assert!(after.ended <= held, "{after:?}");
    assert_eq!(after.granted, after.settled + after.returned + after.ended);
    drop(first);
}
