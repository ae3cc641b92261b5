//! Leased mode: grants, ends, repeats, and units that other nodes hold.

use super::*;
use crate::wire::{RowStatus, StoreCall, reply};
use tower_ratelimit_core::{clock::Timestamp, limiter::limits_in_force::Chosen};

/// Ten nodes hold units while the bucket refills, and spend all of them at once: no more than the burst.
#[test]
fn a_full_bucket_and_all_that_is_held_are_no_more_than_the_burst() {
    let quota = Quota::per_second(1_000);
    let mut world = World::new(&[quota], 10, START);
    for node in 0..10 {
        let reply = world.lease(
            node,
            &Request {
                length: Duration::from_secs(60),
                ..request_of(50, 500)
            },
        );
        assert!(reply.units >= 2, "{reply:?}");
    }
    world.now += 2 * SECOND;
    let spent = world.spend_all();
    assert_eq!(spent + world.fill(1_100), 1_000);
    assert!(spent >= 400, "{spent}");
}

/// Units that are spent as the lease ends stay in a log for a whole period from then on.
#[test]
fn a_log_counts_what_was_held_from_the_end_of_the_lease() {
    let quota = Quota::per_second(100).sliding_log();
    let mut world = World::new(&[quota], 1, START);
    let reply = world.lease(0, &request_of(40, 40));
    assert_eq!(reply.units, 40);
    world.now += SECOND * 99 / 100;
    assert_eq!(world.spend_all(), 40);
    for _ in 0..40 {
        world.fill(100);
        world.now += SECOND / 20;
    }
}

#[test]
fn no_unit_of_a_window_or_slice_is_spent_in_the_next() {
    for quota in [
        Quota::per_second(10).fixed_window(),
        Quota::per(10, Duration::from_secs(5))
            .sliding_window()
            .slices(5),
    ] {
        // Shortly before the end no more than is asked for until then.
        for (left, units) in [(100_000, 2), (10_000, 0)] {
            let mut world = World::new(&[quota], 1, START + SECOND - left);
            assert_eq!(world.lease(0, &request_of(5, 5)).units, units);
        }
        let mut world = World::new(&[quota], 1, START + SECOND - 250_000);
        let reply = world.lease(0, &request_of(5, 5));
        assert_eq!(
            (reply.units, reply.ttl),
            (5, Duration::from_micros(250_000))
        );
        // It is the first call that counts them, in the window that was.
        world.now += 250_000;
        assert_eq!(world.spend_all(), 0);
        assert_eq!(world.fill(20), if quota.slice_count() > 1 { 5 } else { 10 });
    }
}

/// A message about a row that has ended charges nothing twice.
#[test]
fn units_reported_after_the_end_were_charged_at_the_end() {
    let mut world = World::new(&[Quota::per_second(10).fixed_window()], 1, START);
    let request = Request {
        length: Duration::from_millis(100),
        ..request_of(4, 10)
    };
    assert_eq!(world.lease(0, &request).units, 4);
    world.spend(0, 4).expect("all is well");
    world.now += 200_000;
    let reply = world.lease(0, &request_of(0, 10));
    assert_eq!((reply.status, reply.units), (RowStatus::New, 0));
    assert_eq!(world.fill(20), 6);
}

/// The first reply is lost. If the repeat were treated as one of a known row, units of the earlier row would be
/// subtracted from those granted since.
#[test]
fn the_reply_to_a_repeat_has_the_status_of_the_first_one() {
    let mut world = World::new(&[Quota::per(100, Duration::from_secs(100))], 1, START);
    assert_eq!(world.lease(0, &request_of(10, 10)).units, 10);
    world.send(0, &request_of(8, 10), Vec::new());
    world.spend(0, 10).expect("all is well");
    world.now += SECOND;
    world.arrive_last().expect("all is well");
    let lost = world.last_answer().expect("an answer");
    world.send(0, &request_of(8, 10), Vec::new());
    world.arrive_last().expect("all is well");
    let reply = world.last_answer().expect("an answer");
    assert_eq!([lost.status, reply.status], [RowStatus::New; 2]);
    assert!(
        reply.units < world.nodes[0].spent,
        "the node may not know it by the units"
    );
    world.receive_last().expect("all is well");
    assert_eq!(world.nodes[0].left, reply.units);
    // From the next message on the row is known.
    assert_eq!(world.lease(0, &request_of(8, 10)).status, RowStatus::Known);
}

#[test]
fn a_message_out_of_order_has_no_effect() {
    let mut world = World::new(&[Quota::per_second(100)], 1, START);
    for _ in 0..3 {
        world.lease(0, &request_of(10, 10));
    }
    let before = world.value.clone();
    world.arrive(0).expect("all is well");
    let reply = world.last_answer().expect("an answer");
    assert_eq!(
        (reply.status, reply.units, reply.ttl),
        (RowStatus::Stale, 0, Duration::ZERO)
    );
    assert_eq!(world.value, before);
}

/// With equal shares the node with all the load would get a hundredth.
#[test]
fn a_hot_node_among_idle_ones_gets_nearly_half() {
    let mut world = World::new(&[Quota::per_second(10_000)], 101, START);
    for node in 0..100 {
        world.lease(node, &request_of(0, 8));
    }
    let reply = world.lease(100, &request_of(10_000, 10_000));
    assert!((4_000..=5_000).contains(&reply.units), "{reply:?}");
}

#[test]
fn no_more_nodes_have_rows_than_allowed() {
    let mut world = World::new(&[Quota::per_second(1_000_000)], 0, START);
    let mut lease = |node: u64, now: u64| {
        world.now = now;
        world.lease_unchecked(node, &request_of(2, 2))
    };
    for node in 0..1_024 {
        assert_eq!(lease(node, START).units, 2, "{node}");
    }
    let reply = lease(1_024, START);
    assert_eq!((reply.status, reply.units), (RowStatus::New, 0));
    assert_eq!(lease(1_024, START + SECOND).units, 2);
    assert_eq!(world.read().nodes.rows.len(), 1);
}

/// A reset drops the units of its node. Those of other nodes stay reserved until they end.
#[test]
fn a_reset_leaves_what_others_hold() {
    let mut world = World::new(&[Quota::per(100, Duration::from_secs(100))], 2, START);
    assert_eq!(world.lease(0, &request_of(30, 30)).units, 30);
    assert_eq!(world.lease(1, &request_of(20, 60)).units, 20);
    world.fill(10);
    world.send(1, &request_of(0, 60), vec![(Op::Reset, 1)]);
    world.arrive_last().expect("all is well");
    let reply = world.last_answer().expect("an answer");
    assert_eq!(
        (reply.status, reply.units, reply.others),
        (RowStatus::Known, 0, 30)
    );
    assert_eq!(world.fill(100), 70);
    world.now += SECOND;
    assert_eq!(
        world.fill(100),
        1,
        "one came in a second, and what was held was spent"
    );
}

#[test]
fn no_units_of_a_blocked_subject_are_granted() {
    let mut world = World::new(&[Quota::per_second(100)], 2, START);
    world.lease(0, &request_of(10, 10));
    world
        .ask(&Op::Block(Duration::from_secs(5)))
        .expect("all is well");
    let reply = world.lease(1, &request_of(10, 10));
    assert_eq!((reply.units, reply.others), (0, 10));
    let back = Request {
        back: 10,
        ..request_of(10, 10)
    };
    assert_eq!(world.lease(0, &back).units, 0);
}

/// A value has no trace of leases when the last one has ended.
#[test]
fn a_value_without_rows_is_as_if_there_had_been_none() {
    for quota in [
        Quota::per_second(100),
        Quota::per_second(100).fixed_window(),
        Quota::per_second(100).sliding_window(),
        Quota::per_second(100).sliding_log(),
    ] {
        let [mut leased, mut strict] = [(); 2].map(|()| World::new(&[quota], 2, START));
        let request = Request {
            length: Duration::from_millis(100),
            ..request_of(0, 8)
        };
        leased.lease(0, &request);
        leased.lease(1, &request);
        assert!(
            leased
                .value
                .as_ref()
                .is_some_and(|value| value.contains(&b'&'))
        );
        for world in [&mut leased, &mut strict] {
            world.fill(5);
            world.now += 100_000;
            world.fill(1);
        }
        assert_eq!(leased.value, strict.value);
    }
}

/// Only the store can assign a place in a queue.
#[test]
fn a_queue_has_no_leases() {
    let quotas = [
        Quota::per_second(100),
        Quota::per_second(100).leaky_bucket(10),
    ];
    let mut world = World::new(&quotas, 1, START);
    world.judges.clear();
    assert_eq!(world.lease(0, &request_of(10, 10)).units, 0);
    assert!(world.value.is_none());
}

#[test]
fn a_node_is_to_pause_while_all_want_more_than_there_is() {
    let mut world = World::new(&[Quota::per_second(100)], 3, START);
    let reply = world.lease(0, &request_of(50, 50));
    assert_eq!((reply.units, reply.pause), (50, Duration::ZERO));
    let reply = world.lease(1, &request_of(50, 50));
    assert_eq!((reply.units, reply.pause), (16, Duration::from_millis(20)));
    assert_eq!((reply.others, reply.hold), (50, Duration::from_millis(20)));
}

/// No node can spend more than the smallest quota has, whatever its demand.
#[test]
fn demand_for_more_than_there_ever_is_takes_from_no_other_share() {
    let quotas = [
        Quota::per(100, Duration::from_secs(100)),
        Quota::per_day(9_000),
    ];
    let mut world = World::new(&quotas, 2, START);
    let reply = world.lease(0, &request_of(u32::MAX, u32::MAX));
    assert_eq!(reply.units, 50);
    assert_eq!(world.row(0).map(|row| row.demand), Some(100));
    assert_eq!(world.lease(1, &request_of(100, 100)).units, 16);
}

/// A node without a message learns how long to cache a denial while other nodes hold units.
#[test]
fn a_denial_without_a_message_has_the_time_to_cache_it() {
    let mut world = World::new(&[Quota::per(100, Duration::from_secs(100))], 2, START);
    let hold = |world: &World| {
        let ops = [(Op::Acquire(80), 1)];
        let call = StoreCall::new(&world.plan, Chosen::Tier(0), &ops);
        let now = Timestamp::from_micros(world.now);
        let applied = call
            .apply(world.value.as_deref(), now)
            .expect("one of ours");
        let tier = world.plan.of(Chosen::Tier(0)).expect("the default tier");
        let answered = reply::of_store(applied.reply, &tier.reply, &call).expect("a reply");
        assert!(answered.runs[0].decision.is_denied());
        answered.hold
    };
    world.fill(30);
    assert_eq!(hold(&world), None);
    assert_eq!(world.lease(0, &request_of(0, 30)).units, 0);
    assert_eq!(hold(&world), None, "no node holds any");
    assert_eq!(world.lease(1, &request_of(30, 30)).units, 23);
    assert_eq!(hold(&world), Some(Duration::from_millis(20)));
    world.now += SECOND - 8;
    assert_eq!(hold(&world), Some(Duration::from_micros(2)));
    world.now += 8;
    assert_eq!(hold(&world), None, "all are spent");
}
