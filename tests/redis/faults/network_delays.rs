//! Redis is well, and far, or becomes so all at once.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{FutureExt as _, future::join_all};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tower_ratelimit::{
    Decision, Key, OnFailure, Quota, RedisLimiter, RedisStore, decision::Op, limiter::Tier,
};

use crate::canned_script_replies::{self, FakeServer};

/// How long a key is hot, in milliseconds.
const HOT_FOR: u64 = 1_000;

/// The distance of a server, which a test changes.
type Distance = Arc<Mutex<Duration>>;

/// A limiter with the default deadline of 50 ms, and the distance of its server.
async fn limiter(round_trip: Duration) -> (RedisLimiter, Distance) {
    let distance = Distance::new(Mutex::new(round_trip));
    let way = Arc::clone(&distance);
    let server = FakeServer::new(move |words| {
        let (takes, answer) = (*way.lock().unwrap(), canned_script_replies::of_alike(words));
        async move {
            sleep(takes).await;
            Ok(answer)
        }
        .boxed()
    });
    let store = RedisStore::builder().connection(server).unwrap();
    let quota = Quota::per_second(1_000_000);
    let builder = RedisLimiter::builder(quota).tier("b", quota);
    let limiter = builder.on_failure(OnFailure::allow()).build(&store);
    let limiter = limiter.unwrap();
    let first = limiter.acquire(&Key::from("hot"), 1).await.unwrap();
    assert!(!first.is_degraded());
    (limiter, distance)
}

/// Takes from one key so many times in each millisecond for a second. Returns how many requests Redis did not decide,
/// and the number of calls.
async fn hot(limiter: &RedisLimiter, per_millisecond: usize) -> (usize, u64) {
    hot_in_tiers(limiter, &[Tier::DEFAULT], per_millisecond).await
}

/// The tiers take turns.
async fn hot_in_tiers(
    limiter: &RedisLimiter,
    tiers: &[Tier],
    per_millisecond: usize,
) -> (usize, u64) {
    let calls = limiter.store().stats().answered();
    let mut tick = interval(Duration::from_millis(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut answers = Vec::new();
    for _ in 0..HOT_FOR {
        tick.tick().await;
        for _ in 0..per_millisecond {
            let (limiter, tier) = (limiter.clone(), tiers[answers.len() % tiers.len()].clone());
            let take = async move {
                let answer = testkit::apply_in(&limiter, &tier, &Key::from("hot"), Op::Acquire(1));
                answer.await.unwrap()
            };
            answers.push(tokio::spawn(take));
        }
    }
    let answers = join_all(answers).await.into_iter().map(Result::unwrap);
    let lost = answers.filter(Decision::is_degraded).count();
    println!("{lost} lost, {:?}", limiter.store().stats());
    (lost, limiter.store().stats().answered() - calls)
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_far_away_is_decided_by_redis() {
    for (round_trip, per_millisecond) in [(30, 2), (40, 2), (40, 16), (45, 2)] {
        let (limiter, _) = limiter(Duration::from_millis(round_trip)).await;
        let (lost, calls) = hot(&limiter, per_millisecond).await;
        assert_eq!(lost, 0, "{round_trip} ms away, {calls} calls");
        assert_eq!(limiter.store().stats().breaker_openings(), 0);
    }
}

/// A call carries all waiting requests of one tier, not only those before the next one of another tier.
#[tokio::test(start_paused = true)]
async fn a_hot_key_in_alternating_tiers_is_decided_by_redis() {
    let (limiter, _) = limiter(Duration::from_millis(5)).await;
    let tiers = [Tier::DEFAULT, Tier::named("b")];
    for per_millisecond in [1, 16] {
        let (lost, calls) = hot_in_tiers(&limiter, &tiers, per_millisecond).await;
        assert_eq!(lost, 0, "{calls} calls");
    }
}

/// The way changes, and nobody knows until the first answer is late.
#[tokio::test(start_paused = true)]
async fn a_hot_key_is_decided_by_redis_when_the_way_becomes_long() {
    for (round_trip, per_millisecond, most) in [(30, 2, 0), (40, 2, 40), (40, 16, 320)] {
        let (limiter, distance) = limiter(Duration::from_millis(1)).await;
        let (lost, calls) = hot(&limiter, per_millisecond).await;
        assert_eq!(lost, 0, "near, {calls} calls");
        *distance.lock().unwrap() = Duration::from_millis(round_trip);
        let (lost, calls) = hot(&limiter, per_millisecond).await;
        println!("{round_trip} ms, {per_millisecond} in 1 ms: {lost} lost, {calls} calls");
        assert!(
            lost <= most,
            "{round_trip} ms away: {lost} lost, {calls} calls"
        );
    }
}

/// One call in a round trip, however hot the key.
#[tokio::test(start_paused = true)]
async fn a_hot_key_near_by_makes_one_call_in_a_round_trip() {
    for round_trip in [1, 2, 5, 10] {
        let (limiter, _) = limiter(Duration::from_millis(round_trip)).await;
        let (lost, calls) = hot(&limiter, 16).await;
        assert_eq!(lost, 0);
        let round_trips = HOT_FOR / round_trip;
        assert!(
            calls <= round_trips + round_trips / 20 + 2,
            "{round_trip} ms away: {calls} calls"
        );
    }
}
