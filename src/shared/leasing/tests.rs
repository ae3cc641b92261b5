//! The invariants of leases, against whatever order things come in.

mod judge;
mod world;

use std::time::Duration;

use proptest::prelude::*;

use self::world::{Checked, Said, World};
use crate::{decision::Op, quota::Quota, shared::lease::LeaseStatus};

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
