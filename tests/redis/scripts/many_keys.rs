//! One call with many keys is as good as a call for each of them.

use proptest::prelude::*;
use testkit::needs;

use super::{
    GENERAL, LONE_QUOTA, SEVERAL_QUOTAS, runner, runtime,
    script_write_recorder::{Calls, Outcome, Recorded},
    words,
};
use crate::servers::Server;

/// The values of keys before the first call, if they have any.
#[derive(Debug, Clone, Copy)]
enum Before {
    Nothing,
    Foreign,
    /// Not a text at all.
    List,
    Blocked,
}

/// The operations of each key, as arguments of one call.
type Requests = Vec<Vec<String>>;

/// Arguments of a call before the operations.
type Plan = Vec<String>;

/// Plans of the general script: one slot or some, with and without a block.
fn plan() -> impl Strategy<Value = Plan> {
    let slot = prop_oneof![
        Just("t 1 5 0 1000000 7 0 _ _ _"),
        Just("t 1 4 1 1000000 0 2000000 _ _ _"),
        Just("l 1 3 0 500000 0 _ _ _ _"),
        Just("f 1 4 0 250000 0 1000000 0 _ _"),
        Just("s 1 6 0 500000 0 1000000 3 _ _"),
        Just("g 1 4 0 250000 0 1000000 0 _ _"),
    ];
    let block = prop_oneof![3 => Just("_ _"), 1 => Just("700000 3")];
    (block, prop::collection::vec(slot, 1..4)).prop_map(|(block, slots)| {
        let count = slots.len().to_string();
        let all = [block, count.as_str()].into_iter().chain(slots);
        all.flat_map(words).collect()
    })
}

/// A `*` stands for a number for each slot.
fn operation() -> BoxedStrategy<Vec<String>> {
    let known = known_operation();
    let rare = prop_oneof![
        Just("u 3 1"),
        Just("h 2 2"),
        Just("r 1 1 _"),
        Just("o 4 1 *"),
        Just("s 1 1 _ 0 2 *"),
        Just("s 0 1 _ 1 0"),
        Just("b 0 1 400000 0"),
        Just("x 0 1"),
    ];
    prop_oneof![3 => known, 1 => rare.prop_map(words)].boxed()
}

fn known_operation() -> BoxedStrategy<Vec<String>> {
    let letter = prop_oneof![4 => Just("a"), 2 => Just("v"), 1 => Just("p"), 1 => Just("d")];
    (letter, 0..7_u64, 1..5_u64)
        .prop_map(|(letter, cost, times)| words(&format!("{letter} {cost} {times}")))
        .boxed()
}

fn before() -> impl Strategy<Value = Before> {
    prop_oneof![
        6 => Just(Before::Nothing),
        1 => Just(Before::Foreign),
        1 => Just(Before::List),
        1 => Just(Before::Blocked),
    ]
}

/// Times, and the operations on each key then.
/// A lease clause, or none.
fn clause() -> BoxedStrategy<Vec<String>> {
    let clause = (0..3_u64, 1..4_u64, 0..3_u64, 0..3_u64, 0..9_u64);
    let clause = clause.prop_map(|(name, seq, spent, back, want)| {
        words(&format!(
            "c 7 {name} {seq} {spent} {back} {want} {want} 2000000 _"
        ))
    });
    prop_oneof![1 => Just(Vec::new()), 2 => clause].boxed()
}

fn trace(
    keys: usize,
    operation: BoxedStrategy<Vec<String>>,
    clause: BoxedStrategy<Vec<String>>,
) -> impl Strategy<Value = Vec<(u64, Requests)>> {
    let rows = prop::collection::vec(operation, 1..4).prop_map(|rows| rows.concat());
    // Mostly alike, so that `=` stands for them.
    let own = (clause.clone(), rows.clone()).prop_map(|(clause, rows)| [clause, rows].concat());
    let requests = (
        rows.clone(),
        prop::collection::vec((0..3_u8, clause, own), keys),
    );
    let requests = requests.prop_map(|(usual, all)| {
        let each = all.into_iter();
        each.map(|(which, clause, own)| match which {
            0 => own,
            1 => [clause, usual.clone()].concat(),
            _ => usual.clone(),
        })
        .collect()
    });
    let time = 1_767_225_612_000_000..1_767_225_618_000_000_u64;
    prop::collection::vec((time, requests), 1..5)
}

fn scene(
    plan: impl Strategy<Value = Plan>,
    operation: BoxedStrategy<Vec<String>>,
    clause: BoxedStrategy<Vec<String>>,
) -> impl Strategy<Value = (Plan, Vec<Before>, Vec<(u64, Requests)>)> {
    let keys = prop::collection::vec(before(), 1..7);
    (plan, keys).prop_flat_map(move |(plan, keys)| {
        let slots = plan.get(2).cloned().unwrap_or_default();
        let expanded = operation.clone().prop_map(move |words| {
            let words = words.into_iter();
            let words = words.map(|word| match &*word {
                "*" => vec!["2".to_owned(); slots.parse().expect("the number of slots")],
                _ => vec![word],
            });
            words.flatten().collect::<Vec<_>>()
        });
        let trace = trace(keys.len(), expanded.boxed(), clause.clone());
        (Just(plan), Just(keys), trace)
    })
}

impl Before {
    fn set(self, calls: &mut Calls, key: &str) {
        match self {
            Self::Nothing => {}
            Self::Foreign => calls.run(&["SET", key, "12x"]),
            Self::List => calls.run(&["RPUSH", key, "1"]),
            Self::Blocked => calls.run(&["SET", key, "1767225615000000007!1767225613000000001h"]),
        }
    }
}

/// The lease clause that a key's arguments begin with, if they do, and the operations.
fn clause_of(rows: &[String]) -> (&[String], &[String]) {
    let is_leased = rows.first().is_some_and(|word| word == "c");
    rows.split_at(if is_leased { 10 } else { 0 })
}

/// The arguments of a call with these operations on its keys.
fn arguments(time: u64, plan: &Plan, requests: &[Vec<String>]) -> Vec<String> {
    let mut arguments = vec![time.to_string()];
    arguments.extend_from_slice(plan);
    let mut before = None;
    for rows in requests {
        let (clause, rows) = clause_of(rows);
        arguments.extend_from_slice(clause);
        if before == Some(rows) {
            arguments.push("=".to_owned());
        } else {
            arguments.push(rows.len().to_string());
            arguments.extend_from_slice(rows);
        }
        before = Some(rows);
    }
    arguments
}

fn agree(script: &str, scenes: impl Strategy<Value = (Plan, Vec<Before>, Vec<(u64, Requests)>)>) {
    let server = runtime().block_on(Server::start());
    let (script, mut calls) = (Recorded::new(script), Calls::new(&server));
    let calls = std::cell::RefCell::new(&mut calls);
    let outcome = runner(150).run(&scenes, |(plan, keys, trace)| {
        let calls = &mut **calls.borrow_mut();
        calls.run(&["FLUSHALL"]);
        let named = |name: &str| -> Vec<String> {
            (0..keys.len()).map(|at| format!("{name}:{at}")).collect()
        };
        let (together, alone) = (named("together"), named("alone"));
        for (at, before) in keys.iter().enumerate() {
            before.set(calls, &together[at]);
            before.set(calls, &alone[at]);
        }
        for (time, requests) in trace {
            let one = calls.call(&script, &together, &arguments(time, &plan, &requests));
            let mut each = Outcome {
                replies: vec![],
                writes: vec![],
            };
            for (key, rows) in alone.iter().zip(&requests) {
                let rows = std::slice::from_ref(rows);
                let arguments = arguments(time, &plan, rows);
                let own = calls.call(&script, std::slice::from_ref(key), &arguments);
                each.replies.extend(own.replies);
                each.writes.extend(own.writes);
            }
            prop_assert_eq!(one, each, "{:?} at {}", requests, time);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn general() {
    needs!(redis);
    agree(GENERAL, scene(plan(), operation(), clause()));
}

#[test]
fn lone() {
    needs!(redis);
    for (script, plan) in [
        (LONE_QUOTA, "t 1000000007 5000000035 6000000000"),
        (LONE_QUOTA, "f 1000000 5 6"),
        (LONE_QUOTA, "s 1000000 5 6"),
        (
            SEVERAL_QUOTAS,
            "2 t 1000000007 5000000035 6000000000 1 t 300000000 900000000 900000000 1",
        ),
        (SEVERAL_QUOTAS, "1 s 300000 5 6 4"),
        (
            SEVERAL_QUOTAS,
            "3 t 300000007 1500000035 1500000035 1 f 1000000 5 6 1 s 1000000 5 6 2",
        ),
    ] {
        let none = Just(Vec::new()).boxed();
        agree(script, scene(Just(words(plan)), known_operation(), none));
    }
}

#[test]
fn an_error_is_the_subject_s_own() {
    needs!(redis);
    let server = runtime().block_on(Server::start());
    let mut calls = Calls::new(&server);
    calls.run(&["SET", "foreign", "12x"]);
    calls.run(&["RPUSH", "list", "1"]);
    let keys = ["one", "foreign", "list", "two"].map(str::to_owned);
    let requests = vec![words("a 1 1"); 4];
    let general = words("_ _ 1 t 1 5 0 1000000 7 0 _ _ _");
    let lone = words("t 1000000007 5000000035 5000000035");
    for (code, plan, foreign) in [
        (GENERAL, general, b"-RATELIMIT ".as_slice()),
        (LONE_QUOTA, lone, b""),
    ] {
        let outcome = calls.call(
            &Recorded::new(code),
            &keys,
            &arguments(7_000_000, &plan, &requests),
        );
        let [one, not_ours, list, two] = outcome.replies.try_into().unwrap();
        assert_eq!(one, two);
        assert!(not_ours.starts_with(foreign) && not_ours.is_empty() == foreign.is_empty());
        assert!(list.starts_with(b"-WRONGTYPE "), "{}", list.escape_ascii());
        assert_eq!(outcome.writes.iter().flatten().count(), 2);
        calls.run(&["DEL", "one", "two"]);
    }
}
