//! Eventual mode: units that nodes report after they have spent them.

use super::*;
use crate::wire::{NodeMessage, NodeReport, RowStatus};

const NAME: [u8; 8] = *b"somebody";

fn report(total: u32, counted: u32) -> NodeMessage {
    NodeMessage {
        name: NAME,
        seq: 7,
        length: Duration::from_secs(10),
        report: NodeReport::Eventual { total, counted },
    }
}

impl World {
    /// Reports so many units in total, with those that the store has confirmed.
    fn report(&mut self, spent: u32, back: u32) -> NodeReply {
        self.judges.clear();
        let done = self.call(&[], Some(&report(spent, back)));
        done.expect("all is well").lease.expect("an answer")
    }

    /// The units that are left.
    fn left(&mut self) -> u64 {
        let look = self.ask(&Op::Peek(1)).expect("all is well");
        look.remaining().expect("it is counted")
    }
}

fn quotas() -> [Quota; 5] {
    let quota = Quota::per(100, Duration::from_secs(100));
    [
        quota,
        quota.refill_every(Duration::from_secs(10)),
        quota.fixed_window(),
        quota.sliding_window(),
        quota.sliding_log(),
    ]
}

#[test]
fn units_are_counted_once_in_whatever_order_messages_come() {
    for quota in quotas() {
        let mut world = World::with(&[quota], 1, START, true);
        for (spent, left) in [(5, 95), (5, 95), (9, 91), (5, 91), (9, 91), (20, 80)] {
            let reply = world.report(spent, 0);
            assert_eq!(reply.units, 100 - u32::try_from(left).expect("few"));
            assert_eq!(world.left(), left, "{spent} of {quota:?}");
        }
    }
}

/// Confirmed units are not charged again when the store has dropped the name.
#[test]
fn row_that_has_ended_counts_only_what_is_new() {
    let mut world = World::with(&[Quota::per_day(100).fixed_window()], 1, START, true);
    world.report(20, 0);
    world.now += 11 * SECOND;
    let reply = world.report(25, 20);
    assert_eq!((reply.status, reply.units), (RowStatus::New, 25));
    assert_eq!(world.left(), 75);
}

/// A reset drops all counted units, and none of them is charged again.
#[test]
fn reset_does_not_count_again() {
    let mut world = World::with(&[Quota::per_day(100)], 1, START, true);
    world.report(20, 0);
    let ops = [(Op::Reset, 1)];
    let done = world.call(&ops, Some(&report(25, 20)));
    assert_eq!(
        done.expect("all is well").lease.map(|reply| reply.units),
        Some(25)
    );
    world.report(30, 25);
    assert_eq!(world.left(), 95);
}

#[test]
fn bucket_owes_up_to_its_capacity_and_pays_it_back() {
    for (spent, owed) in [(60, 60), (100, 100), (900, 100)] {
        let quota = Quota::per(100, Duration::from_secs(100));
        let mut world = World::with(&[quota], 1, START, true);
        assert_eq!(world.fill(100), 100);
        world.report(spent, 0);
        let denied = world.ask(&Op::Acquire(1)).expect("all is well");
        let wait = denied.retry_after().expect("it fits");
        assert_eq!(wait, Duration::from_secs(owed + 1));
        world.now += owed * SECOND;
        assert_eq!(world.left(), 0);
        world.now += 10 * SECOND;
        assert_eq!(world.left(), 10);
    }
}

/// Without eventual mode a value beyond the capacity is corrected.
#[test]
fn without_debt_a_bucket_owes_nothing() {
    let mut world = World::new(&[Quota::per(100, Duration::from_secs(100))], 1, START);
    world.fill(100);
    world.report(60, 0);
    world.now += 10 * SECOND;
    assert_eq!(world.left(), 10);
}
