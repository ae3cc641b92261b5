//! The invariants of leases, against whatever order things come in.

mod ahead;
mod judge;
mod world;

use std::time::Duration;

use proptest::prelude::*;

use self::world::{Checked, Said, World};
use crate::{
    clock::Timestamp,
    decision::Op,
    limiter::limits::Chosen,
    quota::Quota,
    shared::{
        call::Call,
        lease::{LeaseReply, LeaseStatus},
        reply,
    },
};

/// Noon of some day.
const START: u64 = 1_767_268_800_000_000;

const NODES: usize = 4;

#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    /// To this many microseconds about the next end of a whole second.
    ToSecond(i64),
    Spend(usize, u32),
    Send(usize, Said, u64),
    Arrive(usize),
    Hear(usize),
    /// A whole round trip of a node, at once.
    Exchange(usize, Said),
    Ask(Op),
    Die(usize),
}

fn said() -> impl Strategy<Value = Said> {
    let units = || prop_oneof![2 => 0_u32..4, 4 => 2_u32..40, 1 => 0_u32..100_000];
    let micros = prop_oneof![1 => 1_u64..1_000, 4 => 50_000_u64..3_000_000];
    (
        prop_oneof![3 => Just(0_u32), 1 => 0_u32..20],
        units(),
        units(),
        micros,
    )
        .prop_map(|(back, want, demand, micros)| Said {
            back,
            want,
            demand,
            length: Duration::from_micros(micros),
        })
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        4 => (0_u64..6).prop_map(Op::Acquire),
        1 => (0_u64..30).prop_map(Op::Acquire),
        1 => (1_u64..8).prop_map(Op::AcquireUpTo),
        1 => (0_u64..8).prop_map(Op::Hit),
        1 => (0_u64..8).prop_map(Op::Peek),
    ];
    prop_oneof![
        3 => (0_u64..300_000).prop_map(Step::Pass),
        1 => (0_u64..5_000_000).prop_map(Step::Pass),
        1 => (-1_i64..2).prop_map(Step::ToSecond),
        6 => (0..NODES, 0_u32..50).prop_map(|(node, units)| Step::Spend(node, units)),
        4 => (0..NODES, said(), 0_u64..3).prop_map(|(node, said, op)| Step::Send(node, said, op)),
        5 => any::<usize>().prop_map(Step::Arrive),
        5 => any::<usize>().prop_map(Step::Hear),
        6 => (0..NODES, said()).prop_map(|(node, said)| Step::Exchange(node, said)),
        3 => op.prop_map(Step::Ask),
        1 => (0..NODES).prop_map(Step::Die),
    ]
}

impl World {
    fn go(&mut self, step: &Step) -> Checked {
        match step {
            Step::Pass(micros) => self.now += micros,
            Step::ToSecond(off) => {
                let next = (self.now / 1_000_000 + 1) * 1_000_000;
                self.now = next.saturating_add_signed(*off).max(self.now);
            }
            Step::Spend(node, units) => self.spend(*node, *units)?,
            Step::Send(node, said, units) => {
                let op = (Op::Acquire(*units), 1);
                let ops = if *units > 0 { vec![op] } else { Vec::new() };
                self.send(*node, said, ops);
            }
            Step::Arrive(which) => self.arrive(*which)?,
            Step::Hear(which) => self.hear(*which)?,
            Step::Exchange(node, said) => {
                self.send(*node, said, Vec::new());
                self.arrive_last()?;
                self.hear_last()?;
            }
            Step::Ask(op) => drop(self.ask(op)?),
            Step::Die(node) => self.begin(*node),
        }
        self.reserved()
    }
}

fn quota() -> impl Strategy<Value = Quota> {
    let numbers = (1_u64..80, 1_u64..5, 0_u32..3, 0_u8..6);
    numbers.prop_map(|(limit, seconds, soft, algorithm)| {
        let quota = Quota::per(limit, Duration::from_secs(seconds)).soft(soft * 10);
        match algorithm {
            0 => quota,
            1 => quota.burst(limit / 2 + 1),
            2 => quota.refill_every(Duration::from_millis(500)),
            3 => quota.fixed_window(),
            4 => quota
                .sliding_window()
                .slices(1 + u32::from(limit % 3 == 0) * 4),
            _ => quota.sliding_log(),
        }
    })
}

fn quotas() -> impl Strategy<Value = Vec<Quota>> {
    prop_oneof![
        4 => prop::collection::vec(quota(), 1),
        1 => prop::collection::vec(quota(), 2..4),
    ]
}

proptest! {
    /// What nodes spend and what the store admits comes to no more than one limiter would admit.
    #[test]
    fn no_more_is_admitted_than_by_one_limiter(
        quotas in quotas(),
        steps in prop::collection::vec(step(), 1..160),
    ) {
        let mut world = World::new(&quotas, NODES, START);
        for (at, step) in steps.iter().enumerate() {
            if let Err(error) = world.go(step) {
                let value = world.value.as_ref().map(|value| value.escape_ascii().to_string());
                prop_assert!(false, "step {at}, {step:?}: {error}; {value:?}");
            }
        }
    }
}

fn said_of(want: u32, demand: u32) -> Said {
    Said {
        back: 0,
        want,
        demand,
        length: Duration::from_secs(1),
    }
}

const SECOND: u64 = 1_000_000;

impl World {
    /// Has a node ask, and be answered, and says what it was told.
    fn lease(&mut self, node: usize, said: &Said) -> LeaseReply {
        self.send(node, said, Vec::new());
        let answer = self.arrive_last().and_then(|()| self.last_answer());
        self.hear_last()
            .and_then(|()| self.reserved())
            .expect("all is well");
        answer.expect("an answer")
    }

    /// How many of these units the store admits, one after another.
    fn fill(&mut self, units: u64) -> u64 {
        (0..units)
            .map(|_| self.ask(&Op::Acquire(1)).expect("all is well").charged())
            .sum()
    }

    fn spend_all(&mut self) -> u64 {
        let before = self.spent;
        for node in 0..self.nodes.len() {
            self.spend(node, u32::MAX).expect("all is well");
        }
        self.spent - before
    }
}

/// Ten nodes hold while the bucket fills, and then all is spent at once: no more than the burst.
#[test]
fn a_full_bucket_and_all_that_is_held_are_no_more_than_the_burst() {
    let quota = Quota::per_second(1_000);
    let mut world = World::new(&[quota], 10, START);
    for node in 0..10 {
        let told = world.lease(
            node,
            &Said {
                length: Duration::from_secs(60),
                ..said_of(50, 500)
            },
        );
        assert!(told.units >= 2, "{told:?}");
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
    let told = world.lease(0, &said_of(40, 40));
    assert_eq!(told.units, 40);
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
        // So late no more than is asked for until then.
        for (left, units) in [(100_000, 2), (10_000, 0)] {
            let mut world = World::new(&[quota], 1, START + SECOND - left);
            assert_eq!(world.lease(0, &said_of(5, 5)).units, units);
        }
        let mut world = World::new(&[quota], 1, START + SECOND - 250_000);
        let told = world.lease(0, &said_of(5, 5));
        assert_eq!((told.units, told.ttl), (5, Duration::from_micros(250_000)));
        // It is the first call that counts them, in the window that was.
        world.now += 250_000;
        assert_eq!(world.spend_all(), 0);
        assert_eq!(world.fill(20), if quota.slice_count() > 1 { 5 } else { 10 });
    }
}

/// A message of a row that has ended counts nothing twice.
#[test]
fn what_is_told_after_the_end_was_counted_at_the_end() {
    let mut world = World::new(&[Quota::per_second(10).fixed_window()], 1, START);
    let said = Said {
        length: Duration::from_millis(100),
        ..said_of(4, 10)
    };
    assert_eq!(world.lease(0, &said).units, 4);
    world.spend(0, 4).expect("all is well");
    world.now += 200_000;
    let told = world.lease(0, &said_of(0, 10));
    assert_eq!((told.status, told.units), (LeaseStatus::New, 0));
    assert_eq!(world.fill(20), 6);
}

/// Its first reply is lost. Were the repeat taken for one of a row that was known, what the node has spent of
/// the row before would be taken off units that it was granted since.
#[test]
fn a_repeat_says_that_its_message_made_the_row() {
    let mut world = World::new(&[Quota::per(100, Duration::from_secs(100))], 1, START);
    assert_eq!(world.lease(0, &said_of(10, 10)).units, 10);
    world.send(0, &said_of(8, 10), Vec::new());
    world.spend(0, 10).expect("all is well");
    world.now += SECOND;
    world.arrive_last().expect("all is well");
    let lost = world.last_answer().expect("an answer");
    world.send(0, &said_of(8, 10), Vec::new());
    world.arrive_last().expect("all is well");
    let told = world.last_answer().expect("an answer");
    assert_eq!([lost.status, told.status], [LeaseStatus::New; 2]);
    assert!(
        told.units < world.nodes[0].spent,
        "the node may not know it by the units"
    );
    world.hear_last().expect("all is well");
    assert_eq!(world.nodes[0].left, told.units);
    // From the next message on the row is known.
    assert_eq!(world.lease(0, &said_of(8, 10)).status, LeaseStatus::Known);
}

#[test]
fn a_message_out_of_order_has_no_effect() {
    let mut world = World::new(&[Quota::per_second(100)], 1, START);
    for _ in 0..3 {
        world.lease(0, &said_of(10, 10));
    }
    let before = world.value.clone();
    world.arrive(0).expect("all is well");
    let told = world.last_answer().expect("an answer");
    assert_eq!(
        (told.status, told.units, told.ttl),
        (LeaseStatus::Stale, 0, Duration::ZERO)
    );
    assert_eq!(world.value, before);
}

/// By equal shares the one that has all the load would get a hundredth.
#[test]
fn a_hot_node_among_idle_ones_gets_nearly_half() {
    let mut world = World::new(&[Quota::per_second(10_000)], 101, START);
    for node in 0..100 {
        world.lease(node, &said_of(0, 8));
    }
    let told = world.lease(100, &said_of(10_000, 10_000));
    assert!((4_000..=5_000).contains(&told.units), "{told:?}");
}

#[test]
fn as_many_have_rows_as_there_may_be() {
    let mut world = World::new(&[Quota::per_second(1_000_000)], 0, START);
    let mut tell = |node: u64, now: u64| {
        world.now = now;
        world.lease_unchecked(node, &said_of(2, 2))
    };
    for node in 0..1_024 {
        assert_eq!(tell(node, START).units, 2, "{node}");
    }
    let told = tell(1_024, START);
    assert_eq!((told.status, told.units), (LeaseStatus::New, 0));
    assert_eq!(tell(1_024, START + SECOND).units, 2);
    assert_eq!(world.read().holders.rows.len(), 1);
}

/// The holder's own units go with a reset, and those of others stay reserved until they end.
#[test]
fn a_reset_leaves_what_others_hold() {
    let mut world = World::new(&[Quota::per(100, Duration::from_secs(100))], 2, START);
    assert_eq!(world.lease(0, &said_of(30, 30)).units, 30);
    assert_eq!(world.lease(1, &said_of(20, 60)).units, 20);
    world.fill(10);
    world.send(1, &said_of(0, 60), vec![(Op::Reset, 1)]);
    world.arrive_last().expect("all is well");
    let told = world.last_answer().expect("an answer");
    assert_eq!(
        (told.status, told.units, told.others),
        (LeaseStatus::Known, 0, 30)
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
fn nobody_is_granted_units_of_a_subject_that_is_blocked() {
    let mut world = World::new(&[Quota::per_second(100)], 2, START);
    world.lease(0, &said_of(10, 10));
    world
        .ask(&Op::Block(Duration::from_secs(5)))
        .expect("all is well");
    let told = world.lease(1, &said_of(10, 10));
    assert_eq!((told.units, told.others), (0, 10));
    let back = Said {
        back: 10,
        ..said_of(10, 10)
    };
    assert_eq!(world.lease(0, &back).units, 0);
}

/// Nothing is left of leases in the value when the last one has ended.
#[test]
fn a_value_without_rows_is_as_if_there_had_been_none() {
    for quota in [
        Quota::per_second(100),
        Quota::per_second(100).fixed_window(),
        Quota::per_second(100).sliding_window(),
        Quota::per_second(100).sliding_log(),
    ] {
        let [mut leased, mut strict] = [(); 2].map(|()| World::new(&[quota], 2, START));
        let said = Said {
            length: Duration::from_millis(100),
            ..said_of(0, 8)
        };
        leased.lease(0, &said);
        leased.lease(1, &said);
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

/// A queue's answer is a place in it, and nobody has places to give away.
#[test]
fn a_queue_has_no_leases() {
    let quotas = [
        Quota::per_second(100),
        Quota::per_second(100).leaky_bucket(10),
    ];
    let mut world = World::new(&quotas, 1, START);
    world.judges.clear();
    assert_eq!(world.lease(0, &said_of(10, 10)).units, 0);
    assert!(world.value.is_none());
}

#[test]
fn a_node_is_to_pause_while_all_want_more_than_there_is() {
    let mut world = World::new(&[Quota::per_second(100)], 3, START);
    let told = world.lease(0, &said_of(50, 50));
    assert_eq!((told.units, told.pause), (50, Duration::ZERO));
    let told = world.lease(1, &said_of(50, 50));
    assert_eq!((told.units, told.pause), (16, Duration::from_millis(20)));
    assert_eq!((told.others, told.hold), (50, Duration::from_millis(20)));
}

/// Nobody can spend more than the smallest quota has, whatever was asked for.
#[test]
fn demand_for_more_than_there_ever_is_takes_from_no_other_share() {
    let quotas = [
        Quota::per(100, Duration::from_secs(100)),
        Quota::per_day(9_000),
    ];
    let mut world = World::new(&quotas, 2, START);
    let told = world.lease(0, &said_of(u32::MAX, u32::MAX));
    assert_eq!(told.units, 50);
    assert_eq!(world.row(0).map(|row| row.demand), Some(100));
    assert_eq!(world.lease(1, &said_of(100, 100)).units, 16);
}

/// A node that says nothing of leases hears how long a denial is to be held to while there are some.
#[test]
fn denial_beside_leases_says_how_long_to_hold_to_it() {
    let mut world = World::new(&[Quota::per(100, Duration::from_secs(100))], 2, START);
    let hold = |world: &World| {
        let ops = [(Op::Acquire(80), 1)];
        let call = Call::new(&world.plan, Chosen::Tier(0), &ops);
        let now = Timestamp::from_micros(world.now);
        let applied = call
            .apply(world.value.as_deref(), now)
            .expect("one of ours");
        let tier = world.plan.of(Chosen::Tier(0)).expect("the default tier");
        let answered = reply::of_store(&applied.reply, &tier, (1, false)).expect("a reply");
        assert!(answered.rows[0].first.is_denied());
        answered.hold
    };
    world.fill(30);
    assert_eq!(hold(&world), None);
    assert_eq!(world.lease(0, &said_of(0, 30)).units, 0);
    assert_eq!(hold(&world), None, "nobody holds any");
    assert_eq!(world.lease(1, &said_of(30, 30)).units, 23);
    assert_eq!(hold(&world), Some(Duration::from_millis(20)));
    world.now += SECOND - 8;
    assert_eq!(hold(&world), Some(Duration::from_micros(2)));
    world.now += 8;
    assert_eq!(hold(&world), None, "all are spent");
}
