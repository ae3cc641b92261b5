//! Refunds, resets, blocks, quotas that change, and tiers.

use super::*;
use tower_ratelimit::{Limiter, decision::Op, limiter::Tier};

const BURST: u64 = 1_000;

fn quota() -> Quota {
    Quota::per_hour(1).burst(BURST)
}

/// Two nodes; the first holds units, and what has passed on it.
async fn holding(wire: &Wire) -> (Node, Node, u64) {
    let mut nodes = nodes(2, quota(), wire);
    let passed = Passed::default();
    passed.load(&nodes[..1], 2, 100 * MS).await;
    let stats = nodes[0].mode_stats();
    assert!(stats.granted > stats.settled + stats.returned + 50);
    let (two, one) = (nodes.pop().unwrap(), nodes.pop().unwrap());
    (one, two, passed.count())
}

#[tokio::test(start_paused = true)]
async fn reset_on_the_holder_s_node_makes_the_key_new_at_once() {
    let wire = Wire::new();
    let (one, two, _) = holding(&wire).await;
    let _ = one.reset(&key()).await.unwrap();
    let all = two.acquire_up_to(&key(), 2 * BURST).await.unwrap();
    assert_eq!(all.charged(), BURST);
    assert_eq!(at_once(&one, 1), 0);
}

#[tokio::test(start_paused = true)]
async fn reset_on_another_node_leaves_what_is_reserved() {
    let wire = Wire::new();
    let (one, two, passed) = holding(&wire).await;
    let _ = two.reset(&key()).await.unwrap();
    let all = two.acquire_up_to(&key(), 2 * BURST).await.unwrap();
    let spent = at_once(&one, BURST);
    assert!(
        spent > 20 && all.charged() + spent <= BURST,
        "{spent}, {all:?}"
    );
    sleep(2 * LENGTH).await;
    let rest = two.acquire_up_to(&key(), 2 * BURST).await.unwrap();
    let count = all.charged() + spent + rest.charged();
    // Units without an earlier report count after it.
    assert!((BURST - passed..=BURST).contains(&count), "{count}");
}

#[tokio::test(start_paused = true)]
async fn block_ends_the_node_s_own_lease() {
    let wire = Wire::new();
    let (one, two, _) = holding(&wire).await;
    let _ = one.block(&key(), 10 * LENGTH).await.unwrap();
    assert!(one.acquire(&key(), 1).await.unwrap().is_blocked());
    assert!(two.acquire(&key(), 1).await.unwrap().is_blocked());
}

#[tokio::test(start_paused = true)]
async fn block_on_another_node_ends_the_lease_by_its_end() {
    let wire = Wire::new();
    let (one, two, _) = holding(&wire).await;
    let _ = two.block(&key(), 10 * LENGTH).await.unwrap();
    sleep(LENGTH).await;
    assert!(one.acquire(&key(), 1).await.unwrap().is_blocked());
}

/// Neither those that were paid for by a lease nor those that the store charged.
#[tokio::test(start_paused = true)]
async fn open_requests_of_a_larger_quota_give_no_burst() {
    let wire = Wire::new();
    let (one, two, _) = holding(&wire).await;
    let mut open = Vec::new();
    for node in [&one, &two] {
        for _ in 0..100 {
            let begun = node.acquire(&key(), 1).await.unwrap();
            open.push((node, begun.receipt()));
        }
    }
    let charged = open.iter().filter(|(_, receipt)| receipt.charged() > 0);
    assert!(charged.count() >= 100);
    for node in [&one, &two] {
        let smaller = Quota::per_hour(1).burst(5);
        node.set_quota("default", smaller).unwrap();
    }
    let mut passed = 0;
    for (node, receipt) in open {
        let _ = node.refund(&key(), 1, Some(receipt)).await.unwrap();
        passed += node.acquire(&key(), 1).await.unwrap().charged();
    }
    assert!(passed <= 10, "{passed} at one instant");
}

#[tokio::test(start_paused = true)]
async fn smaller_quota_is_in_force_at_once_on_its_node() {
    let wire = Wire::new();
    let (one, _, passed) = holding(&wire).await;
    one.set_quota("default", Quota::per_hour(1).burst(10))
        .unwrap();
    let more = at_once(&one, BURST);
    assert_eq!(more, 0, "after {passed}");
    assert!(one.acquire(&key(), 1).await.unwrap().is_denied());
}

#[tokio::test(start_paused = true)]
async fn larger_quota_is_in_force_at_once_on_its_node() {
    let wire = Wire::new();
    let (one, _, passed) = holding(&wire).await;
    one.set_quota("default", Quota::per_hour(1).burst(2 * BURST))
        .unwrap();
    sleep(LENGTH).await;
    let all = one.acquire_up_to(&key(), 3 * BURST).await.unwrap();
    // A bucket keeps how far it is from full.
    assert_eq!(all.charged(), 2 * BURST - passed);
}

#[tokio::test(start_paused = true)]
async fn refund_to_a_live_lease_is_a_matter_of_its_node() {
    let wire = Wire::new();
    let (one, two, passed) = holding(&wire).await;
    let calls = wire.calls();
    let taken = one.acquire(&key(), 3).await.unwrap();
    assert!(taken.is_leased());
    let refunded = one.refund(&key(), 3, Some(taken.receipt())).await.unwrap();
    assert_eq!(wire.calls(), calls);
    assert_eq!(refunded.remaining(), taken.remaining().map(|left| left + 3));
    drop(one);
    sleep(LENGTH).await;
    let all = two.acquire_up_to(&key(), 2 * BURST).await.unwrap();
    assert_eq!(all.charged(), BURST - passed);
}

/// A bucket gives nothing back for a lease that has ended, and a window does, once.
#[tokio::test(start_paused = true)]
async fn refund_to_a_lease_that_has_ended() {
    for (quota, back) in [(quota(), 0), (Quota::per_day(BURST).fixed_window(), 3)] {
        let wire = Wire::new();
        let nodes = nodes(1, quota, &wire);
        let (one, passed) = (&nodes[0], Passed::default());
        passed.load(&nodes, 2, 100 * MS).await;
        let taken = one.acquire(&key(), 3).await.unwrap();
        assert!(taken.is_leased());
        sleep(3 * LENGTH).await;
        let before = one.peek(&key(), 1).await.unwrap().remaining().unwrap();
        let _ = one.refund(&key(), 3, Some(taken.receipt())).await.unwrap();
        let after = one.peek(&key(), 1).await.unwrap().remaining().unwrap();
        assert_eq!(after - before, back, "{quota:?}");
        assert_eq!(after, BURST - passed.count() - 3 + back);
    }
}

#[tokio::test(start_paused = true)]
async fn receipt_of_an_earlier_lease_is_none_of_the_next_one() {
    let wire = Wire::new();
    let nodes = nodes(1, quota(), &wire);
    let (one, passed) = (&nodes[0], Passed::default());
    // The first grant of a lease, and then the first of another.
    let taken = loop {
        passed.load(&nodes, 2, MS).await;
        let taken = one.acquire(&key(), 3).await.unwrap();
        if taken.is_leased() {
            break taken;
        }
    };
    sleep(3 * LENGTH).await;
    loop {
        passed.load(&nodes, 2, MS).await;
        if one.acquire(&key(), 3).await.unwrap().is_leased() {
            break;
        }
    }
    let before = one.peek(&key(), 1).await.unwrap().remaining();
    let _ = one.refund(&key(), 3, Some(taken.receipt())).await.unwrap();
    assert_eq!(one.peek(&key(), 1).await.unwrap().remaining(), before);
}

#[tokio::test(start_paused = true)]
async fn settlement_of_a_leased_reservation_needs_no_call() {
    let wire = Wire::new();
    let (one, _, passed) = holding(&wire).await;
    let calls = wire.calls();
    let taken = one
        .apply(&key(), Op::Reserve(5))
        .into_future()
        .await
        .unwrap();
    let settle = |cost| one.apply(&key(), Op::Settle(cost, taken.receipt()));
    let settled = settle(2).into_future().await.unwrap();
    assert_eq!(settled.remaining(), Some(BURST - passed - 2));
    assert_eq!(wire.calls(), calls);
}

/// A key that changes its tier is counted as one.
#[tokio::test(start_paused = true)]
async fn tiers_lease_apart_and_count_together() {
    let wire = Wire::new();
    let tier = Tier::named("gold");
    let node = |seed| {
        let builder = leased(quota(), seed).tier("gold", quota());
        builder.build_on(wire.clone()).unwrap()
    };
    let nodes = [node(1), node(2)];
    let mut passed = 0;
    for _ in 0..200 {
        for node in &nodes {
            for tier in [&Tier::DEFAULT, &tier] {
                for _ in 0..2 {
                    let decision = testkit::apply_in(node, tier, &key(), Op::Acquire(1));
                    passed += decision.into_future().await.unwrap().charged();
                }
            }
        }
    }
    assert!(sum(&nodes, |stats| stats.local) > 500);
    sleep(3 * LENGTH).await;
    let rest = nodes[0].acquire_up_to(&key(), 2 * BURST).await.unwrap();
    assert_eq!(passed + rest.charged(), BURST);
}

/// A denial that another node's lease caused is over when that node gives back: a node that wants
/// too little to lease does not cache it for the reported time, nor does a strict one.
#[tokio::test(start_paused = true)]
async fn denial_for_units_that_another_node_held_is_over_when_they_come_back() {
    let quota = Quota::per_hour(1).burst(BURST);
    for mode in [Mode::strict(), Mode::leased().length(LENGTH)] {
        let wire = Wire::new();
        let (one, two, _) = holding(&wire).await;
        let _ = two.acquire_up_to(&key(), 2 * BURST).await.unwrap();
        let other = leased(quota, 7).mode(mode).build_on(wire.clone()).unwrap();
        let denied = other.acquire(&key(), 2).await.unwrap();
        assert!(denied.is_denied(), "units are held: {denied:?}");
        assert!(denied.retry_after().unwrap() > 100 * LENGTH);
        let again = at_once_for(&other, 2);
        assert!(again.is_some_and(|again| again.is_denied()), "{mode:?}");
        drop(one);
        sleep(30 * MS).await;
        let now = other.acquire(&key(), 2).await.unwrap();
        assert!(now.is_allowed(), "{mode:?}: {now:?}");
        // Where nobody holds any, it stays cached until its time.
        let _ = two.acquire_up_to(&key(), 2 * BURST).await.unwrap();
        let last = other.acquire(&key(), 1).await.unwrap();
        sleep(100 * LENGTH).await;
        let calls = wire.calls();
        let again = other.acquire(&key(), 1).await.unwrap();
        assert!(again.is_denied(), "{last:?}");
        assert_eq!(wire.calls(), calls, "{mode:?}");
    }
}
