//! Plans, and the scripts that are for them.

use std::time::Duration;

use super::*;
use tower_ratelimit_core::limiter::limits_in_force::LimitTerms;

const DAY: Duration = Duration::from_secs(86_400);

fn limits_plan(quota: Quota) -> Plan {
    Plan::new(&TierSet::new(LimitTerms::of(quota)).expect("a good quota"))
}

fn plan(quota: Quota) -> TierPlan {
    let plan = limits_plan(quota);
    let plan = plan.of(Chosen::Tier(0)).expect("the default tier");
    plan.into_owned()
}

#[test]
fn quotas_of_small_numbers_have_a_script_of_their_own() {
    let script = |quota: Quota| plan(quota).specialized_script();
    let is = |quota, expected| script(quota) == Some(expected);
    assert!(is(Quota::per(1, 52 * DAY), SpecializedScript::Lone));
    assert!(script(Quota::per(1, 53 * DAY)).is_none());
    assert!(script(Quota::per(9, DAY).refill_every(DAY)).is_none());
    assert!(script(Quota::per(9, DAY).leaky_bucket(3)).is_none());
    assert!(script(Quota::per(9, DAY).sliding_log()).is_none());

    let third = Duration::from_nanos(1_000_333);
    assert!(is(
        Quota::per(1, 53 * DAY).fixed_window(),
        SpecializedScript::Lone
    ));
    assert!(script(Quota::per(1, third).fixed_window()).is_none());

    let sliding = |units| Quota::per(units, DAY).sliding_window();
    assert!(is(sliding(100_000), SpecializedScript::Lone));
    assert!(script(sliding(1_000_000)).is_none());
    assert!(is(sliding(9).slices(2), SpecializedScript::Several));
    assert!(is(sliding(9).slices(30), SpecializedScript::Several));
    assert!(script(sliding(9).slices(32)).is_none());
    assert!(script(sliding(100_000_000).slices(2)).is_none());
}

fn plan_of_two(first: Quota, second: Quota) -> TierPlan {
    let quotas = [first.named("first"), second.named("second")];
    let plan = Plan::new(&TierSet::new(LimitTerms::of(quotas)).expect("good quotas"));
    let plan = plan.of(Chosen::Tier(0)).expect("the default tier");
    plan.into_owned()
}

#[test]
fn lists_of_buckets_and_windows_have_a_script_of_their_own() {
    let [bucket, day] = [Quota::per_second(2), Quota::per(9, DAY)];
    let [fixed, sliding] = [day.fixed_window(), day.sliding_window()];
    let script = |first, second| plan_of_two(first, second).specialized_script();
    for (first, second) in [
        (bucket, day),
        (bucket, fixed),
        (sliding, bucket),
        (fixed, sliding.slices(2)),
    ] {
        assert_eq!(script(first, second), Some(SpecializedScript::Several));
    }
    for other in [day.sliding_log(), day.leaky_bucket(3)] {
        assert!(script(bucket, other).is_none());
    }
    assert!(script(bucket, Quota::per(1, 53 * DAY)).is_none());
}

#[test]
fn a_list_has_the_arguments_of_each_quota() {
    let [bucket, window] = [Quota::per_second(2), Quota::per(9, DAY).sliding_window()];
    let plan = plan_of_two(window.slices(4), bucket);
    let arguments = plan.constant_arguments(plan.specialized_script()).join(" ");
    let window = "s 21600000000 9 9 5";
    let bucket = "t 500000000 1000000000 1000000000 1";
    assert_eq!(arguments, format!("2 {window} {bucket}"));
}

#[test]
fn only_the_general_script_does_rare_operations() {
    let is_specialized = |quota, op: Op| limits_plan(quota).is_specialized(Chosen::Tier(0), &op);
    let bucket = Quota::per_second(10);
    for op in [Op::Acquire(1), Op::Reserve(1), Op::Peek(1), Op::Deny(1)] {
        assert!(is_specialized(bucket, op.clone()));
        assert!(!is_specialized(bucket.leaky_bucket(3), op));
    }
    for op in [
        Op::Reset,
        Op::Hit(1),
        Op::Refund(1, None),
        Op::AcquireUpTo(1),
    ] {
        assert!(!is_specialized(bucket, op));
    }
}
