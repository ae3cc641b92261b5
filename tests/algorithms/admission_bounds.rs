//! The bound that each algorithm states, in whatever window of time one looks.

use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::{
    clock::{Clock as _, ManualClock},
    decision::Outcome,
};

use super::{
    alice, cases,
    random_quotas::{Move, Spec, UPTIME, at, forward, limiter, spec, spec_of},
};

/// Microseconds at which units passed, and how many.
type Admitted = Vec<(u64, u64)>;

const START: u64 = 1_767_225_612_345_678;

fn trace() -> impl Strategy<Value = Vec<(Move, u64, bool)>> {
    let cost = prop_oneof![4 => 1_u64..4, 1 => 1_u64..40];
    prop::collection::vec((forward(), cost, any::<bool>()), 1..60)
}

/// The units that pass of a trace, in which half of the requests take less if need be.
fn admitted(spec: Spec, trace: Vec<(Move, u64, bool)>) -> Admitted {
    let clock = ManualClock::at(at(START));
    let limiter = limiter(spec, &clock);
    let mut now = START;
    let mut admitted = Vec::new();
    for (step, cost, greedy) in trace {
        now = step.from(now, START, &[spec]);
        clock.set(at(now));
        let decision = if greedy {
            limiter.acquire_up_to(&alice(), cost)
        } else {
            limiter.acquire(&alice(), cost)
        };
        if decision.charged() > 0 {
            admitted.push((now, decision.charged()));
        }
    }
    admitted
}

/// The most that passed within any half-open window of `span` nanoseconds.
fn most_within(admitted: &Admitted, span: u128) -> u64 {
    let from = |first: usize| {
        let begin = admitted[first].0;
        let within = admitted[first..]
            .iter()
            .take_while(|(time, _)| u128::from(time - begin) * 1_000 < span);
        within.map(|(_, units)| units).sum()
    };
    (0..admitted.len()).map(from).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn token_bucket_admits_burst_and_limit_in_a_period(spec in spec_of(0), trace in trace()) {
        let admitted = admitted(spec, trace);
        let period = spec.quota.period().as_nanos();
        // T is rounded down, so a period is worth a little more than the limit of them; a step may
        // bring tokens that came before the period began.
        let step = spec.extras.refill_every.unwrap_or(1).unsigned_abs();
        let interval = u128::from(spec.interval());
        let refilled = (period + step - 1).div_ceil(interval);
        let bound = u128::from(spec.capacity()) + refilled;
        prop_assert!(u128::from(most_within(&admitted, period)) <= bound);
        if step == 1 && period % interval == 0 {
            let stated = spec.capacity() + spec.quota.limit();
            prop_assert!(most_within(&admitted, period) <= stated);
        }
    }

    #[test]
    fn fixed_window_admits_limit_in_a_window_and_twice_in_a_period(
        spec in spec_of(2),
        trace in trace(),
    ) {
        let admitted = admitted(spec, trace);
        let period = spec.quota.period().as_nanos();
        prop_assert!(most_within(&admitted, period) <= 2 * spec.capacity());
        let window = |time: u64| u128::from(time) * 1_000 / period;
        for (time, _) in &admitted {
            let same = admitted.iter().filter(|(other, _)| window(*other) == window(*time));
            prop_assert!(same.map(|(_, units)| units).sum::<u64>() <= spec.capacity());
        }
    }

    #[test]
    fn sliding_window_admits_limit_in_all_but_a_slice_and_twice_in_a_period(
        spec in spec_of(3),
        trace in trace(),
    ) {
        let admitted = admitted(spec, trace);
        let period = spec.quota.period().as_nanos();
        let slices = u128::from(spec.extras.slices);
        let whole = period / slices * (slices - 1);
        // A trailing window has both of its ends.
        let trailing = if slices > 1 { whole + 1 } else { 0 };
        prop_assert!(most_within(&admitted, trailing) <= spec.capacity());
        prop_assert!(most_within(&admitted, period) <= 2 * spec.capacity());
    }

    #[test]
    fn sliding_log_admits_limit_in_a_period(spec in spec_of(4), trace in trace()) {
        let admitted = admitted(spec, trace);
        let period = spec.quota.period().as_nanos();
        prop_assert!(most_within(&admitted, period) <= spec.capacity());
    }

    /// Requests of cost 1 start at least T apart, in order of arrival, and none waits for longer
    /// than the queue is.
    #[test]
    fn leaky_bucket_starts_one_each_interval(
        spec in spec_of(1),
        trace in prop::collection::vec(forward(), 1..60),
    ) {
        let clock = ManualClock::at(at(START));
        let limiter = limiter(spec, &clock);
        let (mut now, mut last) = (START, None);
        let interval = u128::from(spec.interval());
        for step in trace {
            now = step.from(now, START, &[spec]);
            clock.set(at(now));
            let decision = limiter.acquire(&alice(), 1);
            let wait = match decision.outcome() {
                Outcome::Allowed => Duration::ZERO,
                Outcome::Delayed(wait) => wait,
                _ => continue,
            };
            let queue = u128::from(spec.capacity() - 1) * interval;
            prop_assert!(wait.as_nanos() <= queue.next_multiple_of(1_000));
            let start = u128::from(now) * 1_000 + wait.as_nanos();
            if let Some(last) = last {
                // Each wait is rounded up to a microsecond.
                prop_assert!(start + 999 >= last + interval, "{start} after {last}");
            }
            last = Some(start);
        }
    }

    /// Denials and looks change nothing, whatever their cost.
    #[test]
    fn what_is_denied_consumes_nothing(spec in spec(), trace in trace()) {
        let clock = ManualClock::at(at(START));
        let (quiet, bothered) = (limiter(spec, &clock), limiter(spec, &clock));
        let mut now = START;
        for (step, cost, _) in trace {
            now = step.from(now, START, &[spec]);
            clock.set(at(now));
            let fits = spec.capacity() - bothered.hit(&alice(), 0).charged();
            prop_assert!(bothered.acquire(&alice(), fits + 1).is_denied());
            prop_assert!(bothered.acquire(&alice(), u64::MAX).is_denied());
            let _ = bothered.peek(&alice(), cost);
            prop_assert!(bothered.acquire(&alice(), 0).is_allowed());
            prop_assert_eq!(bothered.acquire(&alice(), cost), quiet.acquire(&alice(), cost));
        }
        prop_assert_eq!(bothered.tracked_keys(), quiet.tracked_keys());
    }

    /// At the end of `reset_after` a key is as good as one that was never seen.
    #[test]
    fn idle_key_is_a_fresh_key(spec in spec(), trace in trace(), longer in any::<u64>()) {
        let clock = ManualClock::at(at(START));
        let used = limiter(spec, &clock);
        let mut now = START;
        for (step, cost, _) in trace {
            now = step.from(now, START, &[spec]);
            clock.set(at(now));
            let _ = used.hit(&alice(), cost);
        }
        let reset_after = used.peek(&alice(), 1).binding().reset_after().expect("known");
        let longer = if longer % 2 == 0 { 0 } else { longer % 10_000_000 };
        clock.advance(reset_after + Duration::from_micros(longer));
        // A limiter is not valid for longer.
        prop_assume!(clock.now() < at(START + UPTIME));
        prop_assert_eq!(used.tracked_keys(), 0);
        let fresh = limiter(spec, &clock);
        for cost in [0, 1, spec.capacity(), 1, u64::MAX] {
            prop_assert_eq!(used.acquire(&alice(), cost), fresh.acquire(&alice(), cost));
        }
    }
}
