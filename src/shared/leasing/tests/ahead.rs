//! Units that were spent before the store was asked.

use super::*;
use crate::shared::lease::LeaseClause;

const NAME: [u8; 8] = *b"somebody";

fn clause(spent: u32, back: u32) -> LeaseClause {
    LeaseClause {
        name: NAME,
        seq: 7,
        spent,
        back,
        want: 0,
        demand: 0,
        length: Duration::from_secs(10),
        force: true,
    }
}

impl World {
    /// Tells that so many were spent in all, and how many of them were known to be counted.
    fn tell(&mut self, spent: u32, back: u32) -> LeaseReply {
        self.judges.clear();
        let done = self.call(&[], Some(&clause(spent, back)));
        done.expect("all is well").lease.expect("an answer")
    }

    /// What is left, without leave to take it.
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
            let told = world.tell(spent, 0);
            assert_eq!(told.units, 100 - u32::try_from(left).expect("few"));
            assert_eq!(world.left(), left, "{spent} of {quota:?}");
        }
    }
}

/// What is known to be counted is not counted again when the store has forgotten the name.
#[test]
fn row_that_has_ended_counts_only_what_is_new() {
    let mut world = World::with(&[Quota::per_day(100).fixed_window()], 1, START, true);
    world.tell(20, 0);
    world.now += 11 * SECOND;
    let told = world.tell(25, 20);
    assert_eq!((told.status, told.units), (LeaseStatus::New, 25));
    assert_eq!(world.left(), 75);
}

/// A reset takes all that was counted, and none of it comes back.
#[test]
fn reset_does_not_count_again() {
    let mut world = World::with(&[Quota::per_day(100)], 1, START, true);
    world.tell(20, 0);
    let ops = [(Op::Reset, 1)];
    let done = world.call(&ops, Some(&clause(25, 20)));
    assert_eq!(
        done.expect("all is well").lease.map(|told| told.units),
        Some(25)
    );
    world.tell(30, 25);
    assert_eq!(world.left(), 95);
}

#[test]
fn bucket_owes_up_to_its_capacity_and_pays_it_back() {
    for (spent, owed) in [(60, 60), (100, 100), (900, 100)] {
        let quota = Quota::per(100, Duration::from_secs(100));
        let mut world = World::with(&[quota], 1, START, true);
        assert_eq!(world.fill(100), 100);
        world.tell(spent, 0);
        let denied = world.ask(&Op::Acquire(1)).expect("all is well");
        let wait = denied.retry_after().expect("it fits");
        assert_eq!(wait, Duration::from_secs(owed + 1));
        world.now += owed * SECOND;
        assert_eq!(world.left(), 0);
        world.now += 10 * SECOND;
        assert_eq!(world.left(), 10);
    }
}

/// Where no node is ahead, nothing beyond a capacity is believed.
#[test]
fn without_debt_a_bucket_owes_nothing() {
    let mut world = World::new(&[Quota::per(100, Duration::from_secs(100))], 1, START);
    world.fill(100);
    world.tell(60, 0);
    world.now += 10 * SECOND;
    assert_eq!(world.left(), 10);
}
