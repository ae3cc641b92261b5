//! Plans, and the scripts that are for them.

use std::time::Duration;

use super::*;
use crate::limiter::tier_set::LimitTerms;

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
fn a_lone_quota_of_small_numbers_has_a_script_of_its_own() {
    let lone = |quota: Quota| plan(quota).specialized_script();
    let is = |quota, expected| lone(quota) == Some(expected);
    assert!(is(Quota::per(1, 52 * DAY), SpecializedScript::Bucket));
    assert!(lone(Quota::per(1, 53 * DAY)).is_none());
    assert!(lone(Quota::per(9, DAY).refill_every(DAY)).is_none());

    let third = Duration::from_nanos(1_000_333);
    assert!(is(
        Quota::per(1, 53 * DAY).fixed_window(),
        SpecializedScript::FixedWindow
    ));
    assert!(lone(Quota::per(1, third).fixed_window()).is_none());

    let sliding = |units| Quota::per(units, DAY).sliding_window();
    assert!(is(sliding(100_000), SpecializedScript::SlidingWindow));
    assert!(lone(sliding(1_000_000)).is_none());
    assert!(is(sliding(9).slices(2), SpecializedScript::SeveralSlices));
    assert!(is(sliding(9).slices(30), SpecializedScript::SeveralSlices));
    assert!(lone(sliding(9).slices(32)).is_none());
    assert!(lone(sliding(100_000_000).slices(2)).is_none());

    let log = |period| Quota::per(9, period).sliding_log();
    assert!(is(log(104 * DAY), SpecializedScript::SlidingLog));
    assert!(lone(log(105 * DAY)).is_none());
    assert!(lone(log(third)).is_none());
}

fn plan_of_two(first: Quota, second: Quota) -> TierPlan {
    let quotas = [first.named("first"), second.named("second")];
    let plan = Plan::new(&TierSet::new(LimitTerms::of(quotas)).expect("good quotas"));
    let plan = plan.of(Chosen::Tier(0)).expect("the default tier");
    plan.into_owned()
}

#[test]
fn several_short_buckets_have_a_script_of_their_own() {
    let [second, day] = [Quota::per_second(2), Quota::per(9, DAY)];
    let lone = |first, second| plan_of_two(first, second).specialized_script();
    assert_eq!(lone(second, day), Some(SpecializedScript::Buckets));
    assert!(lone(second, Quota::per(1, 53 * DAY)).is_none());
}

#[test]
fn a_bucket_and_a_window_have_a_script_of_their_own() {
    let [bucket, day] = [Quota::per_second(2), Quota::per(9, DAY)];
    let [fixed, sliding] = [day.fixed_window(), day.sliding_window()];
    let lone = |first, second| plan_of_two(first, second).specialized_script();
    let is = |first, second, expected| lone(first, second) == Some(expected);
    assert!(is(bucket, fixed, SpecializedScript::BucketFixedWindow));
    assert!(is(fixed, bucket, SpecializedScript::BucketFixedWindow));
    assert!(is(bucket, sliding, SpecializedScript::BucketSlidingWindow));
    assert!(is(sliding, bucket, SpecializedScript::BucketSlidingWindow));
    for other in [sliding.slices(2), day.sliding_log(), day.leaky_bucket(3)] {
        assert!(lone(bucket, other).is_none());
    }
    assert!(lone(fixed, sliding).is_none());
    assert!(lone(Quota::per(1, 53 * DAY), fixed).is_none());
}

#[test]
fn the_arguments_of_a_bucket_and_a_window_have_the_bucket_s_first() {
    let [bucket, window] = [Quota::per_second(2), Quota::per(9, DAY).fixed_window()];
    for (plan, letter) in [
        (plan_of_two(bucket, window), "b"),
        (plan_of_two(window, bucket), "w"),
    ] {
        let arguments = plan.constant_arguments(plan.specialized_script()).join(" ");
        let numbers = "500000000 1000000000 1000000000 86400000000 9 0 9";
        assert_eq!(arguments, format!("{letter} {numbers}"));
    }
}

#[test]
fn only_the_general_script_does_rare_operations() {
    let is_simple = |quota, op: Op| limits_plan(quota).is_simple(Chosen::Tier(0), &op);
    let bucket = Quota::per_second(10);
    for op in [Op::Acquire(1), Op::Reserve(1), Op::Peek(1), Op::Deny(1)] {
        assert!(is_simple(bucket, op.clone()));
        assert!(!is_simple(bucket.leaky_bucket(3), op));
    }
    for op in [
        Op::Reset,
        Op::Hit(1),
        Op::Refund(1, None),
        Op::AcquireUpTo(1),
    ] {
        assert!(!is_simple(bucket, op));
    }
}
