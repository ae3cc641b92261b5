//! The specialized scripts decide as the general one does, or leave it to that.

mod quota_arguments;
mod traces;

use std::cell::RefCell;

use proptest::prelude::*;
use testkit::needs;

use self::{
    quota_arguments::{Kind, Numbers, Order, Window},
    traces::trace,
};
use super::{
    GENERAL, runner, runtime,
    script_write_recorder::{Calls, Recorded},
    words,
};
use crate::servers::Server;

/// The time before which and after which calls are made.
const EPOCH: u64 = 1_767_225_612_000_000;

/// How many calls came to the same, and how many were left to the general script.
#[derive(Default, Debug)]
struct Counts {
    alike: u64,
    left: u64,
}

fn agree(kind: Kind) {
    let server = runtime().block_on(Server::start());
    let calls = RefCell::new((Calls::new(&server), Counts::default()));
    let (lone, general) = (Recorded::new(kind.script()), Recorded::new(GENERAL));
    let keys = ["lone", "general"].map(|name| vec![name.to_owned()]);
    let outcome = runner(200).run(&trace(kind), |steps| {
        let (calls, counts) = &mut *calls.borrow_mut();
        calls.run(&["FLUSHALL"]);
        for step in steps {
            if let Some(value) = &step.value {
                calls.set("lone", value);
                calls.set("general", value);
            }
            let arguments = |plan: Vec<String>, rows: &[String]| {
                let own = [step.time.to_string()].into_iter().chain(plan);
                let own = own.chain([rows.len().to_string()]);
                own.chain(rows.iter().cloned()).collect::<Vec<_>>()
            };
            let plan = kind.general(step.numbers);
            if let Some(rare) = &step.rare {
                let rare = arguments(plan.clone(), rare);
                let [own, expected] = [0, 1].map(|at| calls.call(&general, &keys[at], &rare));
                if own.replies[0].starts_with(b"-") {
                    calls.run(&["DEL", "lone", "general"]);
                }
                prop_assert_eq!(own, expected, "{:?}", step);
            }
            let by_general = arguments(plan, &step.rows);
            let expected = calls.call(&general, &keys[1], &by_general);
            let mut outcome = calls.call(
                &lone,
                &keys[0],
                &arguments(kind.lone(step.numbers), &step.rows),
            );
            if outcome.replies[0].is_empty() {
                counts.left += 1;
                prop_assert_eq!(&outcome.writes, &[None]);
                outcome = calls.call(&general, &keys[0], &by_general);
            } else {
                counts.alike += 1;
            }
            if outcome.replies[0].starts_with(b"-") {
                calls.run(&["DEL", "lone", "general"]);
            }
            prop_assert_eq!(outcome, expected, "{:?}", step);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    let counts = &calls.borrow().1;
    eprintln!("{counts:?}");
    assert!(
        counts.alike > 3 * counts.left && counts.left > 0,
        "{counts:?}"
    );
}

/// Otherwise each decision about a subject that is blocked by hand would take two round trips.
#[test]
fn values_of_the_same_quotas_are_known() {
    needs!(redis);
    let server = runtime().block_on(Server::start());
    let mut calls = Calls::new(&server);
    let general = Recorded::new(GENERAL);
    let numbers = Numbers {
        time: 1_000_000_000,
        capacity: 5,
        extra: 0,
        more: 0,
    };
    let keys = ["subject".to_owned()];
    for kind in Kind::ALL {
        let lone = Recorded::new(kind.script());
        let arguments = |plan: Vec<String>, rows: &str| {
            let rows = words(rows);
            let own = [EPOCH.to_string()].into_iter().chain(plan);
            let own = own.chain([rows.len().to_string()]);
            own.chain(rows).collect::<Vec<_>>()
        };
        for before in [
            "b 0 1 400000 7",
            "a 2 1 b 0 1 400000 0",
            "a 1 1 x 0 1",
            "x 0 1",
        ] {
            calls.run(&["FLUSHALL"]);
            let plan = kind.general(numbers);
            calls.call(&general, &keys, &arguments(plan.clone(), before));
            for row in ["p 1 1", "a 1 3", "v 9 2"] {
                let decided = calls.call(&lone, &keys, &arguments(kind.lone(numbers), row));
                assert_ne!(decided.replies, [b""], "{kind:?} after {before:?}");
                let again = calls.call(&general, &keys, &arguments(plan.clone(), "p 0 1"));
                assert_eq!(again.writes, [None], "{kind:?} after {before:?}");
            }
        }
    }
}

#[test]
fn bucket() {
    needs!(redis);
    agree(Kind::Bucket);
}

#[test]
fn buckets() {
    needs!(redis);
    agree(Kind::Buckets);
}

#[test]
fn fixed_window() {
    needs!(redis);
    agree(Kind::FixedWindow);
}

#[test]
fn sliding_window() {
    needs!(redis);
    agree(Kind::SlidingWindow);
}

#[test]
fn several_slices() {
    needs!(redis);
    for slices in [2, 7, 30] {
        agree(Kind::SeveralSlices(slices));
    }
}

#[test]
fn a_bucket_and_a_fixed_window() {
    needs!(redis);
    agree(Kind::BucketAnd(Window::Fixed, Order::BucketFirst));
    agree(Kind::BucketAnd(Window::Fixed, Order::WindowFirst));
}

#[test]
fn a_bucket_and_a_sliding_window() {
    needs!(redis);
    agree(Kind::BucketAnd(Window::Sliding, Order::BucketFirst));
    agree(Kind::BucketAnd(Window::Sliding, Order::WindowFirst));
}
