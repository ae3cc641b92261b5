//! The script for one quota of one algorithm decides as the general one does, or leaves it to that.

use std::cell::RefCell;

use proptest::prelude::*;
use testkit::needs;

use super::{
    BUCKETS, GENERAL, LONE_BUCKET, LONE_FIXED_WINDOW, LONE_SLIDING_LOG, LONE_SLIDING_WINDOW,
    recorded::{Calls, Recorded},
    runner, runtime, words,
};
use crate::servers::Server;

/// The time before which and after which calls are made.
const EPOCH: u64 = 1_767_225_612_000_000;

/// The row of somebody who holds three units, until some time after [`EPOCH`].
const HOLDER: &str = "nodename\0\0\0\x04\x01\0\0\0\x03\0\0\0\x08\0\x06\x47\x52\x7f\0\0";

#[derive(Debug, Clone, Copy)]
enum Kind {
    Bucket,
    /// Two; the second has twice the capacity and a third of the time of a unit.
    Buckets,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
}

/// A quota: of a bucket the nanoseconds of a unit, of a window the microseconds of the period.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    time: u64,
    capacity: u64,
    extra: u64,
    /// By how much the most that can count is more than the capacity.
    more: u64,
}

#[derive(Debug, Clone)]
struct Step {
    time: u64,
    numbers: Numbers,
    /// The value that somebody else has written.
    value: Option<Vec<u8>>,
    rows: Vec<String>,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Bucket,
        Self::Buckets,
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SlidingLog,
    ];

    fn script(self) -> &'static str {
        match self {
            Self::Bucket => LONE_BUCKET,
            Self::Buckets => BUCKETS,
            Self::FixedWindow => LONE_FIXED_WINDOW,
            Self::SlidingWindow => LONE_SLIDING_WINDOW,
            Self::SlidingLog => LONE_SLIDING_LOG,
        }
    }

    fn lone(self, numbers: Numbers) -> Vec<String> {
        let Numbers {
            time,
            capacity,
            extra,
            more,
        } = numbers;
        let most = capacity + more;
        words(&match self {
            Self::Bucket => format!("{time} {} {}", time * capacity, time * most),
            Self::Buckets => {
                let third = time.div_ceil(3);
                let first = format!("2 {time} {} {}", time * capacity, time * most);
                let second = [third, 2 * third * capacity, third * (2 * capacity + more)];
                let [one, full, most] = second;
                format!("{first} {one} {full} {most}")
            }
            Self::FixedWindow => format!("{time} {capacity} {extra} {most}"),
            Self::SlidingWindow => {
                let unit = time * 1_000 / capacity.max(1);
                format!("{time} {capacity} {extra} {most} {unit}")
            }
            Self::SlidingLog => {
                let unit = time * 1_000 / capacity.max(1);
                format!("{time} {capacity} {extra} {unit}")
            }
        })
    }

    fn general(self, numbers: Numbers) -> Vec<String> {
        let Numbers {
            time,
            capacity,
            extra,
            more,
        } = numbers;
        let most = capacity + more;
        let parts = |nanos: u64| format!("{} {}", nanos / 1_000, nanos % 1_000);
        let unit = parts(time * 1_000 / capacity.max(1));
        let most_u = if more > 0 {
            most.to_string()
        } else {
            "_".to_owned()
        };
        words(&match self {
            Self::Bucket => {
                let most = if more > 0 {
                    parts(time * most)
                } else {
                    "_ _".to_owned()
                };
                format!("_ _ 1 t 1 {capacity} 0 {} 0 _ {most}", parts(time))
            }
            Self::Buckets => {
                let third = time.div_ceil(3);
                let slot = |time: u64, capacity: u64| {
                    let most = if more > 0 {
                        parts(time * (capacity + more))
                    } else {
                        "_ _".to_owned()
                    };
                    format!("t 1 {capacity} 0 {} 0 _ {most}", parts(time))
                };
                format!(
                    "_ _ 2 {} {}",
                    slot(time, capacity),
                    slot(third, 2 * capacity)
                )
            }
            Self::FixedWindow => {
                format!("_ _ 1 f 1 {capacity} {extra} {unit} {time} 0 {most_u} _")
            }
            Self::SlidingWindow => {
                format!("_ _ 1 s 1 {capacity} {extra} {unit} {time} 1 {most_u} _")
            }
            Self::SlidingLog => {
                format!("_ _ 1 g 1 {capacity} {extra} {unit} {time} 0 _ _")
            }
        })
    }
}

fn numbers(kind: Kind) -> impl Strategy<Value = Numbers> + Clone {
    let time = match kind {
        Kind::Bucket | Kind::Buckets => {
            prop_oneof![1_u64..3_000, 1_000_000..3_000_000_000_u64].boxed()
        }
        _ => prop_oneof![1_u64..9, 1_000..9_000_000_u64, Just(3_600_000_000)].boxed(),
    };
    let capacity = prop_oneof![4 => 0..9_u64, 1 => 9..1_000_000_u64];
    let extra = prop_oneof![2 => Just(0_u64), 1 => 0..4_u64];
    let most = match kind {
        // Beyond any limit, as a window counts that is uncapped.
        Kind::FixedWindow => (1 << 53) - 2_000_000,
        _ => 9,
    };
    let more = prop_oneof![2 => Just(0_u64), 1 => 0..9_u64, 1 => Just(most)];
    (time, capacity, extra, more).prop_map(move |(time, capacity, extra, more)| Numbers {
        time: time.max(1),
        capacity,
        extra: extra.min(capacity),
        more,
    })
}

/// A value that may have been written with other quotas, by hand, or by somebody else.
fn value(kind: Kind) -> BoxedStrategy<Vec<u8>> {
    let texts = text_value().prop_map(String::into_bytes);
    match kind {
        Kind::SlidingLog => prop_oneof![4 => log_value(), 1 => texts].boxed(),
        _ => texts.boxed(),
    }
}

/// A log, with entries that are in order or not, and a head whose count is right or not.
fn log_value() -> impl Strategy<Value = Vec<u8>> {
    let entry = (EPOCH - 9_000_000..EPOCH + 9_000_000, 0..4_u32);
    let entries = prop_oneof![
        5 => prop::collection::vec(entry.clone(), 0..6),
        1 => prop::collection::vec(entry, 250..300),
    ];
    let most = |choice: i64| prop_oneof![9 => Just(0_i64), 1 => -choice..=choice];
    let block = prop_oneof![
        4 => Just(String::new()),
        1 => (EPOCH - 9_000_000..EPOCH + 9_000_000).prop_map(|micros| format!("!{micros}007h")),
    ];
    let parts = (entries, prop::bool::weighted(0.1), most(9), most(10), block);
    parts.prop_map(|(mut entries, is_mixed, more, longer, block)| {
        if !is_mixed {
            entries.sort_unstable();
        }
        let total: i64 = entries.iter().map(|(_, count)| i64::from(*count)).sum();
        let bytes = entries.iter().flat_map(|(micros, count)| {
            let (micros, count) = (micros.to_be_bytes(), count.to_be_bytes());
            [&micros[1..], &count[1..]].concat()
        });
        let bytes: Vec<u8> = bytes.collect();
        let length = (bytes.len() as i64 + longer).max(0);
        let head = format!("{}:{length}{block}", (total + more).max(0));
        let line: &[u8] = if bytes.is_empty() { b"" } else { b"\n" };
        [head.as_bytes(), line, &bytes].concat()
    })
}

fn text_value() -> impl Strategy<Value = String> {
    let near = prop_oneof![EPOCH - 9_000_000..EPOCH + 9_000_000, 0..u64::MAX / 4_000];
    let state = (near.clone(), 0..1_000_u64, 0..12_u64, 0..12_u64);
    let state = (0..8_u8, state).prop_map(|(form, (micros, rest, one, two))| match form {
        6 => format!("{micros}{rest:03};{}{rest:03}", micros + one),
        7 => format!("0;{micros}{rest:03}"),
        0 => "0".to_owned(),
        1 => format!("{micros}{rest:03}"),
        2 => format!("{}:{one}", micros / (1 + rest)),
        3 => format!("{}:{one}:{two}", micros / (1 + rest)),
        4 => format!("{micros}{rest:03}|{one}"),
        _ => format!("{micros}9999{rest:03}"),
    });
    let block =
        (near, 0..1_000_u64).prop_map(|(micros, rest)| format!("!{}{rest:03}", micros.max(1)));
    let block = prop_oneof![
        4 => Just(String::new()),
        2 => block.clone().prop_map(|block| block + "h"),
        1 => block,
        1 => prop_oneof![Just("!"), Just("!h"), Just("x"), Just("|"), Just("\nbytes"), Just("!99x")]
            .prop_map(str::to_owned),
        1 => prop_oneof![Just("&8;1:3:1000007"), Just("&8;1:3"), Just("&8;")]
            .prop_map(|head| format!("{head}\n{HOLDER}")),
    ];
    (state, block).prop_map(|(state, block)| state + &block)
}

fn rows(kind: Kind) -> impl Strategy<Value = Vec<String>> {
    let letter = prop_oneof![5 => Just("a"), 2 => Just("v"), 1 => Just("p"), 1 => Just("d")];
    let letter = match kind {
        Kind::FixedWindow => prop_oneof![2 => letter, 1 => Just("n")].boxed(),
        _ => letter.boxed(),
    };
    let cost = prop_oneof![1 => Just(0_u64), 5 => Just(1_u64), 3 => 2..9_u64, 1 => 9..1_u64 << 53];
    let row = (letter, cost, prop_oneof![3 => Just(1_u64), 2 => 2..20_u64]);
    let row = row.prop_map(|(letter, cost, times)| words(&format!("{letter} {cost} {times}")));
    prop::collection::vec(row, 1..4).prop_map(|rows| rows.concat())
}

fn trace(kind: Kind) -> impl Strategy<Value = Vec<Step>> {
    (numbers(kind), 0..u64::from(u32::MAX)).prop_flat_map(move |(usual, start)| {
        let jump = (2 * usual.time).min(100_000_000);
        // Mostly forward, by less than a unit to some periods, and now and then back.
        let jump = prop_oneof![
            2 => Just(0_i64),
            4 => (0..=jump).prop_map(u64::cast_signed),
            1 => (0..=4 * jump).prop_map(|jump| -jump.cast_signed()),
        ];
        let numbers = prop_oneof![5 => Just(usual), 1 => numbers(kind).prop_map(move |other| Numbers {
            time: usual.time,
            ..other
        })];
        let step = (jump, numbers, prop::option::weighted(0.1, value(kind)), rows(kind));
        prop::collection::vec(step, 1..20).prop_map(move |steps| {
            let mut time = EPOCH + start;
            let steps = steps.into_iter().map(|(jump, numbers, value, rows)| {
                time = time.saturating_add_signed(jump);
                Step { time, numbers, value, rows }
            });
            steps.collect()
        })
    })
}

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
    let outcome = runner(400).run(&trace(kind), |steps| {
        let (calls, counts) = &mut *calls.borrow_mut();
        calls.run(&["FLUSHALL"]);
        for step in steps {
            if let Some(value) = &step.value {
                calls.set("lone", value);
                calls.set("general", value);
            }
            let arguments = |plan: Vec<String>| {
                let length = step.rows.len().to_string();
                let own = [step.time.to_string()]
                    .into_iter()
                    .chain(plan)
                    .chain([length]);
                own.chain(step.rows.clone()).collect::<Vec<_>>()
            };
            let by_general = arguments(kind.general(step.numbers));
            let expected = calls.call(&general, &keys[1], &by_general);
            let mut outcome = calls.call(&lone, &keys[0], &arguments(kind.lone(step.numbers)));
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
        counts.alike > 5 * counts.left && counts.left > 0,
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
fn sliding_log() {
    needs!(redis);
    agree(Kind::SlidingLog);
}

/// Nobody writes such entries, and the short script would count their time for nothing.
#[test]
fn entries_of_nothing_are_left_to_the_general_script() {
    needs!(redis);
    let server = runtime().block_on(Server::start());
    let mut calls = Calls::new(&server);
    let kind = Kind::SlidingLog;
    let numbers = Numbers {
        time: 1_000_000,
        capacity: 5,
        extra: 0,
        more: 0,
    };
    let now = EPOCH + 7;
    for (units, is_left) in [(1_u8, false), (0, true)] {
        let mut value = b"2:20\n".to_vec();
        for (at, units) in [(now - 1_000, 2 - units), (now, units)] {
            value.extend_from_slice(&at.to_be_bytes()[1..]);
            value.extend_from_slice(&[0, 0, units]);
        }
        calls.set("subject", &value);
        let words = ["3", "p", "1", "1"].map(str::to_owned);
        let arguments = [now.to_string()]
            .into_iter()
            .chain(kind.lone(numbers))
            .chain(words);
        let arguments: Vec<_> = arguments.collect();
        let outcome = calls.call(
            &Recorded::new(kind.script()),
            &["subject".to_owned()],
            &arguments,
        );
        assert_eq!(
            outcome.replies[0].is_empty(),
            is_left,
            "{units}: {outcome:?}"
        );
    }
}
