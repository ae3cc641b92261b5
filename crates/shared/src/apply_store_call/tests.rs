//! Invariants of leases, with messages lost, repeated and in any order.

mod admission_judge;
mod eventual;
mod leased;
mod simulated_nodes;

use std::time::Duration;

use proptest::prelude::*;

use self::simulated_nodes::{Checked, World};
use crate::wire::{NodeMessage, NodeReply, NodeReport};
use tower_ratelimit_core::{decision::Op, quota::Quota};

/// Noon of some day.
const START: u64 = 1_767_268_800_000_000;

const NODES: usize = 4;

/// The request of a node in a message.
#[derive(Debug, Clone)]
struct Request {
    back: u32,
    want: u32,
    demand: u32,
    length: Duration,
}

impl Request {
    /// The message that reports these units.
    fn message(&self, name: [u8; 8], seq: u32, (spent, back): (u32, u32)) -> NodeMessage {
        NodeMessage {
            name,
            seq,
            length: self.length,
            report: NodeReport::Lease {
                spent,
                back,
                want: self.want,
                demand: self.demand,
            },
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    /// To this many microseconds about the next end of a whole second.
    ToSecond(i64),
    Spend(usize, u32),
    Send(usize, Request, u64),
    Arrive(usize),
    Receive(usize),
    /// A whole round trip of a node, at once.
    Exchange(usize, Request),
    Ask(Op),
    Die(usize),
}

fn request() -> impl Strategy<Value = Request> {
    let units = || prop_oneof![2 => 0_u32..4, 4 => 2_u32..40, 1 => 0_u32..100_000];
    let micros = prop_oneof![1 => 1_u64..1_000, 4 => 50_000_u64..3_000_000];
    (
        prop_oneof![3 => Just(0_u32), 1 => 0_u32..20],
        units(),
        units(),
        micros,
    )
        .prop_map(|(back, want, demand, micros)| Request {
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
        4 => (0..NODES, request(), 0_u64..3).prop_map(|(node, request, op)| Step::Send(node, request, op)),
        5 => any::<usize>().prop_map(Step::Arrive),
        5 => any::<usize>().prop_map(Step::Receive),
        6 => (0..NODES, request()).prop_map(|(node, request)| Step::Exchange(node, request)),
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
            Step::Send(node, request, units) => {
                let op = (Op::Acquire(*units), 1);
                let ops = if *units > 0 { vec![op] } else { Vec::new() };
                self.send(*node, request, ops);
            }
            Step::Arrive(which) => self.arrive(*which)?,
            Step::Receive(which) => self.receive(*which)?,
            Step::Exchange(node, request) => {
                self.send(*node, request, Vec::new());
                self.arrive_last()?;
                self.receive_last()?;
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
    /// Nodes and the store together admit no more than one limiter would.
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

fn request_of(want: u32, demand: u32) -> Request {
    Request {
        back: 0,
        want,
        demand,
        length: Duration::from_secs(1),
    }
}

const SECOND: u64 = 1_000_000;

impl World {
    /// A round trip of a node. Returns the reply.
    fn lease(&mut self, node: usize, request: &Request) -> NodeReply {
        self.send(node, request, Vec::new());
        let answer = self.arrive_last().and_then(|()| self.last_answer());
        self.receive_last()
            .and_then(|()| self.reserved())
            .expect("all is well");
        answer.expect("an answer")
    }

    /// The number of these units that the store admits, one after another.
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
