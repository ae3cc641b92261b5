//! `retry_after` is the first instant: a microsecond earlier the same cost is denied.

use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::{LocalLimiter, clock::ManualClock};

use super::{
    alice, cases,
    random_quotas::{Spec, any_move, at, spec, spec_of, start},
};

fn stacked(specs: &[Spec], clock: &ManualClock) -> LocalLimiter {
    let names = ["first", "second", "third"];
    let named = specs.iter().zip(names);
    let quotas: Vec<_> = named.map(|(spec, name)| spec.quota.named(name)).collect();
    LocalLimiter::builder(quotas)
        .max_keys(4)
        .clock(clock.clone())
        .build()
        .expect("good quotas")
}

/// Limits that vary may fall while another quota makes a request wait: their waits are exact alone.
fn list() -> impl Strategy<Value = Vec<Spec>> {
    let constant = spec().prop_filter("it varies", |spec| spec.quota.varying_limits().is_none());
    let varying = prop_oneof![spec_of(5), spec_of(6)];
    prop_oneof![
        4 => prop::collection::vec(constant, 1..4),
        1 => prop::collection::vec(varying, 1..2),
    ]
}

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn admitted_exactly_then(
        specs in list(),
        start in start(),
        trace in prop::collection::vec((any_move(), 0_u64..20), 1..15),
        cost in any::<u64>(),
    ) {
        let clock = ManualClock::at(at(start));
        let limiter = stacked(&specs, &clock);
        let mut now = start;
        for (step, cost) in trace {
            now = step.from(now, start, &specs);
            clock.set(at(now));
            let _ = limiter.hit(&alice(), cost);
        }
        let least = specs.iter().map(Spec::capacity).min().expect("one");
        let _ = limiter.hit(&alice(), least);
        let cost = 1 + cost % least;

        let micro = Duration::from_micros(1);
        let denied = limiter.acquire(&alice(), cost);
        prop_assert!(denied.is_denied());
        // No window of a day may have room for the largest limit of an entry.
        let Some(wait) = denied.retry_after() else {
            prop_assert!(specs[0].quota.varying_limits().is_some());
            return Ok(());
        };
        clock.advance(wait - micro);
        let early = limiter.acquire(&alice(), cost);
        prop_assert!(early.is_denied());
        prop_assert_eq!(early.retry_after(), Some(micro));
        clock.advance(micro);
        prop_assert!(limiter.acquire(&alice(), cost).is_allowed());
    }

    /// A cost beyond one of the quotas never passes, and nobody is advised to wait for it.
    #[test]
    fn a_cost_above_the_capacity_never_fits(
        specs in prop::collection::vec(spec(), 1..4),
        spent in 0_u64..20,
        beyond in 1_u64..1_000,
    ) {
        let clock = ManualClock::new();
        let limiter = stacked(&specs, &clock);
        let _ = limiter.hit(&alice(), spent);
        let least = specs.iter().map(Spec::capacity).min().expect("one");
        for cost in [least + beyond, u64::MAX] {
            let denied = limiter.acquire(&alice(), cost);
            prop_assert!(denied.is_denied());
            prop_assert_eq!(denied.retry_after(), None);
        }
    }
}
