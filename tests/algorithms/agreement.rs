//! The limiter answers as the oracle does, whatever is asked of it when.

use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::{Decision, LocalLimiter, ManualClock, Receipt};

use super::{
    alice, cases,
    quotas::{self, Move, Spec, any_move, at, start},
    stack::{Answer, Ask, Stack, ask_limiter, nanos},
};

/// Something to ask; a refund's receipt depends on what came before.
#[derive(Debug, Clone, Copy)]
struct Question {
    ask: Ask,
    receipt: Held,
}

#[derive(Debug, Clone, Copy)]
enum Held {
    None,
    /// Of one of the decisions before, however old.
    Earlier(usize),
    /// Of a time at which nothing may have happened.
    Of(u64),
}

fn question() -> impl Strategy<Value = Question> {
    let units =
        || prop_oneof![4 => 0_u64..4, 3 => 0_u64..40, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    let ask = prop_oneof![
        7 => units().prop_map(Ask::Acquire),
        2 => units().prop_map(Ask::AcquireUpTo),
        1 => units().prop_map(Ask::Peek),
        2 => units().prop_map(Ask::Hit),
        3 => units().prop_map(|units| Ask::Refund(units, None)),
        1 => Just(Ask::Reset),
    ];
    let receipt = prop_oneof![
        2 => Just(Held::None),
        5 => any::<usize>().prop_map(Held::Earlier),
        1 => any::<u64>().prop_map(Held::Of),
    ];
    (ask, receipt).prop_map(|(ask, receipt)| Question { ask, receipt })
}

impl Question {
    fn ask(self, before: &[Receipt]) -> Ask {
        match (self.ask, self.receipt) {
            (Ask::Refund(units, _), Held::Earlier(n)) if !before.is_empty() => {
                Ask::Refund(units, Some(before[n % before.len()]))
            }
            (Ask::Refund(units, _), Held::Of(micros)) => {
                Ask::Refund(units, Some(Receipt::new(at(micros))))
            }
            (ask, _) => ask,
        }
    }
}

fn trace() -> impl Strategy<Value = Vec<(Move, Question)>> {
    prop::collection::vec((any_move(), question()), 1..30)
}

fn limiter(specs: &[Spec], block: Option<Duration>, clock: &ManualClock) -> LocalLimiter {
    // In a list each needs a name of its own.
    let names = ["first", "second", "third"];
    let named = specs.iter().zip(names);
    let quotas: Vec<_> = named.map(|(spec, name)| spec.quota.named(name)).collect();
    let builder = LocalLimiter::builder(quotas)
        .max_keys(4)
        .clock(clock.clone());
    let builder = match block {
        Some(block) => builder.block_for(block),
        None => builder,
    };
    builder.build().expect("good quotas")
}

fn agrees(
    specs: &[Spec],
    block: Option<Duration>,
    start: u64,
    trace: Vec<(Move, Question)>,
) -> Result<(), TestCaseError> {
    let clock = ManualClock::at(at(start));
    let limiter = limiter(specs, block, &clock);
    let mut oracle = Stack::new(specs, block);
    let mut receipts = Vec::new();
    let mut now = start;
    for (step, question) in trace {
        now = step.from(now, start, specs);
        clock.set(at(now));
        let ask = question.ask(&receipts);
        let expected = oracle.ask(nanos(now), ask);
        let decision: Decision = ask_limiter(&limiter, &alice(), ask);
        receipts.push(decision.receipt());
        prop_assert_eq!(Answer::from(&decision), expected, "{:?} at {}", ask, now);
    }
    Ok(())
}

macro_rules! alone {
    ($($name:ident = $algorithm:literal;)*) => {
        proptest! {
            #![proptest_config(cases(1_500))]
            $(
                #[test]
                fn $name(spec in quotas::spec_of($algorithm), start in start(), trace in trace()) {
                    agrees(&[spec], None, start, trace)?;
                }
            )*
        }
    };
}

alone! {
    token_bucket = 0;
    leaky_bucket = 1;
    fixed_window = 2;
    sliding_window = 3;
    sliding_log = 4;
}

proptest! {
    #![proptest_config(cases(2_500))]

    #[test]
    fn stacks(
        specs in prop::collection::vec(quotas::spec(), 2..4),
        start in start(),
        trace in trace(),
    ) {
        agrees(&specs, None, start, trace)?;
    }
}

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn blocks(
        specs in prop::collection::vec(quotas::spec(), 1..3),
        block in prop_oneof![1_u64..5_000_000, 1_u64..100_000_000_000],
        start in start(),
        trace in trace(),
    ) {
        agrees(&specs, Some(Duration::from_micros(block)), start, trace)?;
    }
}
