//! Random calls of a specialized script: quotas, times, values, and operations.

use proptest::prelude::*;

use super::{
    super::words,
    EPOCH,
    quota_arguments::{Kind, Numbers, Order, Window},
};

/// The row of somebody who holds three units, until some time after [`EPOCH`].
const HOLDER: &str = "nodename\0\0\0\x04\x01\0\0\0\x03\0\0\0\x08\0\x06\x47\x52\x7f\0\0";

#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) time: u64,
    pub(super) numbers: Numbers,
    /// The value that somebody else has written.
    pub(super) value: Option<Vec<u8>>,
    /// Operations before those of the specialized script, which only the general one knows.
    pub(super) rare: Option<Vec<String>>,
    pub(super) rows: Vec<String>,
}

fn numbers(kind: Kind) -> impl Strategy<Value = Numbers> + Clone {
    let time = match kind {
        Kind::Bucket | Kind::Buckets => {
            prop_oneof![1_u64..3_000, 1_000_000..3_000_000_000_u64].boxed()
        }
        // All nanoseconds of the bucket are below 2^52.
        Kind::BucketAnd(..) => prop_oneof![1_u64..9, 1_000..9_000_000_u64].boxed(),
        _ => prop_oneof![1_u64..9, 1_000..9_000_000_u64, Just(3_600_000_000)].boxed(),
    };
    let capacity = prop_oneof![4 => 0..9_u64, 1 => 9..1_000_000_u64];
    let extra = prop_oneof![2 => Just(0_u64), 1 => 0..4_u64];
    let most = match kind {
        // Beyond any limit, as a window counts that is uncapped.
        Kind::FixedWindow | Kind::BucketAnd(Window::Fixed, _) => (1 << 53) - 2_000_000,
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
fn value(kind: Kind, time: u64) -> BoxedStrategy<Vec<u8>> {
    let texts = text_value(state()).prop_map(String::into_bytes);
    let own = text_value(own_state(kind, time)).prop_map(String::into_bytes);
    prop_oneof![2 => own, 1 => texts].boxed()
}

/// A state of such quotas. Parts of it may be as good as new.
fn own_state(kind: Kind, time: u64) -> BoxedStrategy<String> {
    let near = prop_oneof![
        4 => EPOCH - 9_000_000..EPOCH + 9_000_000,
        1 => 0..u64::MAX / 4_000,
    ];
    let bucket = (near.clone(), 0..1_000_u64);
    let bucket = prop_oneof![
        1 => Just("0".to_owned()),
        9 => bucket.prop_map(|(micros, rest)| format!("{micros}{rest:03}")),
    ];
    let window = move |counts: usize| {
        let counts = prop::collection::vec(prop_oneof![2 => Just(0), 3 => 0..12_u64], counts);
        let window = (near.clone(), counts).prop_map(move |(micros, counts)| {
            let numbers = std::iter::once(micros / time).chain(counts);
            let numbers: Vec<_> = numbers.map(|number| number.to_string()).collect();
            numbers.join(":")
        });
        prop_oneof![1 => Just("0".to_owned()), 9 => window].boxed()
    };
    match kind {
        Kind::Bucket => bucket.boxed(),
        Kind::Buckets => (bucket.clone(), bucket)
            .prop_map(|(one, two)| format!("{one};{two}"))
            .boxed(),
        Kind::FixedWindow => window(1),
        Kind::SlidingWindow => window(2),
        Kind::SeveralSlices(slices) => window(1 + usize::try_from(slices).expect("few")),
        Kind::BucketAnd(alone, order) => {
            let counts = match alone {
                Window::Fixed => 1,
                Window::Sliding => 2,
            };
            let both = (bucket, window(counts));
            both.prop_map(move |(bucket, window)| match order {
                Order::BucketFirst => format!("{bucket};{window}"),
                Order::WindowFirst => format!("{window};{bucket}"),
            })
            .boxed()
        }
    }
}

/// A state of any quotas.
fn state() -> impl Strategy<Value = String> {
    let near = prop_oneof![EPOCH - 9_000_000..EPOCH + 9_000_000, 0..u64::MAX / 4_000];
    let state = (near, 0..1_000_u64, 0..12_u64, 0..12_u64);
    (0..8_u8, state).prop_map(|(form, (micros, rest, one, two))| match form {
        6 => format!("{micros}{rest:03};{}{rest:03}", micros + one),
        7 => format!("0;{micros}{rest:03}"),
        0 => "0".to_owned(),
        1 => format!("{micros}{rest:03}"),
        2 => format!("{}:{one}", micros / (1 + rest)),
        3 => format!("{}:{one}:{two}", micros / (1 + rest)),
        4 => format!("{micros}{rest:03}|{one}"),
        _ => format!("{micros}9999{rest:03}"),
    })
}

fn text_value(state: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let near = prop_oneof![EPOCH - 9_000_000..EPOCH + 9_000_000, 0..u64::MAX / 4_000];
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

/// Operations that only the general script knows. Receipts are of times and ends before and after.
fn rare(kind: Kind) -> impl Strategy<Value = Vec<String>> {
    let near = || EPOCH - 9_000_000..EPOCH + 9_000_000_u64;
    let charge = (
        near(),
        0..1_000_u64,
        prop_oneof![1_u64..9, 1_000..9_000_000_u64],
    );
    let charge = prop_oneof![
        1 => Just("_ _ _ _".to_owned()),
        4 => charge.prop_map(|(end, rest, unit)| format!("{end} {rest} {unit} {rest}")),
    ];
    let charges = prop::collection::vec(charge, kind.width());
    let receipt = (near(), charges).prop_map(|(at, charges)| format!("{at} {}", charges.join(" ")));
    let receipt = prop_oneof![1 => Just("_".to_owned()), 3 => receipt].boxed();
    let debts = prop::collection::vec(0..4_u64, kind.width());
    let debts = debts.prop_map(|debts| {
        debts
            .iter()
            .map(|debt| format!(" {debt}"))
            .collect::<String>()
    });
    let row = prop_oneof![
        2 => (1..9_u64).prop_map(|units| format!("u {units} 1")),
        2 => (0..9_u64, debts.clone()).prop_map(|(units, debts)| format!("o {units} 1{debts}")),
        2 => (0..9_u64).prop_map(|units| format!("h {units} 1")),
        3 => (0..9_u64, receipt.clone()).prop_map(|(units, of)| format!("r {units} 1 {of}")),
        3 => (0..4_u64, receipt, 0..4_u64, 0..4_u64, debts).prop_map(
            |(missing, of, back, all, debts)| {
                let debts = if missing > 0 { debts } else { String::new() };
                format!("s {missing} 1 {of} {back} {all}{debts}")
            }
        ),
        1 => (0..3_000_000_u64).prop_map(|micros| format!("b 0 1 {micros} 7")),
        1 => Just("x 0 1".to_owned()),
    ];
    prop::collection::vec(row, 1..3).prop_map(|rows| words(&rows.join(" ")))
}

pub(super) fn trace(kind: Kind) -> impl Strategy<Value = Vec<Step>> {
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
        let value = prop::option::weighted(0.1, value(kind, usual.time));
        let rare = prop::option::weighted(0.2, rare(kind));
        let step = (jump, numbers, value, rare, rows(kind));
        prop::collection::vec(step, 1..20).prop_map(move |steps| {
            let mut time = EPOCH + start;
            let steps = steps.into_iter().map(|(jump, numbers, value, rare, rows)| {
                time = time.saturating_add_signed(jump);
                Step { time, numbers, value, rare, rows }
            });
            steps.collect()
        })
    })
}
