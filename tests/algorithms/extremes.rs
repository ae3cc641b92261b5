//! Times at which numbers would overflow: nothing panics, and nothing is given away.

use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::{
    Limiter as _, LocalLimiter, Quota,
    clock::{ManualClock, Timestamp},
    limiter::Pending,
};

use super::{
    alice, cases,
    operations_of_a_trace::Request,
    random_quotas::{Spec, at, spec},
    trace_generator::{request, with_receipt},
};

/// Any time, and those next to the year 2554, the last one in nanoseconds.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(u64::MAX),
        any::<u64>(),
        (u64::MAX / 1_000 - 5..u64::MAX / 1_000 + 5),
        (0_u64..5),
    ]
}

#[test]
fn clock_that_steps_from_the_end_of_time_to_its_start_still_counts() {
    let clock = ManualClock::at(Timestamp::from_micros(u64::MAX / 1_000));
    let builder = LocalLimiter::builder(Quota::per_day(1)).clock(clock.clone());
    let limiter = builder.build().expect("a good quota");
    clock.set(Timestamp::from_micros(0));
    assert!(limiter.acquire(&alice(), 1).is_allowed());
    assert!(limiter.acquire(&alice(), 1).is_denied());
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn any_time_goes(
        specs in prop::collection::vec(spec(), 1..4),
        block in prop::option::of(1_u64..1 << 59),
        start in time(),
        trace in prop::collection::vec((time(), request()), 1..20),
    ) {
        let clock = ManualClock::at(at(start));
        // A limiter that blocks keys lets none owe units.
        let specs: Vec<Spec> = match block {
            Some(_) => specs.into_iter().map(|spec| spec.with_debt(0)).collect(),
            None => specs,
        };
        let names = ["first", "second", "third"];
        let named = specs.iter().zip(names).map(|(spec, name)| spec.quota.named(name));
        let builder = LocalLimiter::builder(named.collect::<Vec<_>>())
            .max_keys(4)
            .clock(clock.clone());
        let limiter = match block {
            Some(nanos) => builder.block_for(Duration::from_nanos(nanos)),
            None => builder,
        };
        let limiter = limiter.build().expect("good quotas");
        let most = specs.iter().map(|spec| spec.capacity() + spec.extras.debt).min();
        let mut receipts = Vec::new();
        for (time, request) in trace {
            clock.set(at(time));
            let request: Request = with_receipt(request, receipts.len());
            let op = request.op(&receipts);
            let is_supported = limiter.facts().supports(&op);
            let Pending::Ready(decision) = limiter.apply(&alice(), op);
            prop_assert_eq!(decision.is_ok(), is_supported);
            let Ok(decision) = decision else { continue };
            receipts.push(decision.receipt());
            prop_assert!(Some(decision.charged()) <= most);
            for (status, spec) in decision.quotas().zip(&specs) {
                prop_assert!(status.remaining() <= Some(spec.quota.capacity()));
            }
            let _ = limiter.tracked_keys();
        }
    }
}
