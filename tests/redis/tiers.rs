//! Tiers, receipts and blocks in Redis: nothing is given out twice, and nobody is kept out for nothing.
//! That they are those of the local limiter in every field is tested by the differential traces.

use std::time::Duration;

use redis::Value;
use testkit::{needs, servers::Server};
use tower_ratelimit::{
    Decision, Key, OnFailure, Quota, RedisLimiter, RedisStore,
    clock::{ManualClock, Timestamp},
    decision::{Op, Receipt},
    limiter::{RequestQuota, Tier},
    shared::RedisLimiterBuilder,
};

const SMALL: Tier = Tier::named("small");
const MINUTE: Duration = Duration::from_secs(60);

/// A limiter at one instant, which the clock keeps.
struct Bench {
    server: Server,
    limiter: RedisLimiter,
    clock: ManualClock,
}

impl Bench {
    async fn new(builder: RedisLimiterBuilder) -> Self {
        let server = Server::start().await;
        let store = RedisStore::builder().deadline(Duration::from_secs(20));
        let store = store.connect(&server.url()).unwrap();
        let clock = ManualClock::at(Timestamp::from_secs(1_767_225_600));
        let builder = builder.name("bench").remember_denials(false);
        let builder = builder.on_failure(OnFailure::deny());
        let limiter = builder.test_clock(clock.clone()).build(&store).unwrap();
        Self {
            server,
            limiter,
            clock,
        }
    }

    async fn request(&self, tier: Tier, op: Op) -> Decision {
        let key = Key::from("alice");
        testkit::apply_in(&self.limiter, &tier, &key, op)
            .await
            .unwrap()
    }

    /// How many requests pass at once, at most 2,000.
    async fn passes(&self, tier: Tier) -> usize {
        let mut passed = 0;
        while passed < 2_000
            && self
                .request(tier.clone(), Op::Acquire(1))
                .await
                .is_allowed()
        {
            passed += 1;
        }
        passed
    }

    /// The receipts of those of so many reservations that passed.
    async fn reserve(&self, times: usize) -> Vec<Receipt> {
        let mut receipts = Vec::new();
        for _ in 0..times {
            let decision = self.request(Tier::DEFAULT, Op::Reserve(1)).await;
            receipts.extend(decision.is_allowed().then(|| decision.receipt()));
        }
        receipts
    }

    async fn value(&self) -> String {
        let keys: Vec<String> = self.server.send(["KEYS", "*"]).await.unwrap();
        assert_eq!(keys.len(), 1, "{keys:?}");
        self.server.send(["GET", &keys[0]]).await.unwrap()
    }
}

#[tokio::test]
async fn smaller_tier_gives_nothing_of_the_others_back() {
    needs!(redis);
    let hundred = Quota::per_minute(100);
    let ten = Quota::per_minute(10);
    for (large, small) in [
        (hundred, ten.burst(2)),
        (hundred.leaky_bucket(99), ten.leaky_bucket(1)),
        (hundred.fixed_window(), ten.fixed_window()),
        (hundred.sliding_window(), ten.sliding_window()),
        (hundred.sliding_log(), ten.sliding_log()),
    ] {
        let bench = Bench::new(RedisLimiter::builder(large).tier("small", small)).await;
        assert_eq!(bench.passes(Tier::DEFAULT).await, 100, "{large:?}");
        for op in [
            Op::Acquire(1),
            Op::Peek(1),
            Op::Deny(1),
            Op::Hit(5),
            Op::Refund(0, None),
        ] {
            let decision = bench.request(SMALL, op.clone()).await;
            assert_eq!(decision.remaining(), Some(0), "{op:?} of {small:?}");
            let passed = bench.passes(Tier::DEFAULT).await;
            assert_eq!(passed, 0, "after {op:?} of {small:?}");
        }
    }
}

#[tokio::test]
async fn tiers_that_count_unlike_have_a_limit_each_when_alternated() {
    needs!(redis);
    let builder = RedisLimiter::builder(Quota::per_minute(100));
    let bench = Bench::new(builder.tier("small", Quota::per_hour(10))).await;
    let mut passed = 0;
    for _ in 0..200 {
        for tier in [Tier::DEFAULT, SMALL] {
            let decision = bench.request(tier, Op::Acquire(1)).await;
            passed += usize::from(decision.is_allowed());
        }
    }
    assert_eq!(passed, 110);
}

#[tokio::test]
async fn steps_are_counted_apart() {
    needs!(redis);
    let quota = Quota::per_minute(5);
    let builder = RedisLimiter::builder(quota);
    let bench = Bench::new(builder.tier("small", quota.refill_every(MINUTE))).await;
    assert_eq!(bench.passes(Tier::DEFAULT).await, 5);
    assert_eq!(bench.passes(SMALL).await, 5);
}

#[tokio::test]
async fn late_refunds_stay_within_twice_the_burst() {
    needs!(redis);
    let bench = Bench::new(RedisLimiter::builder(Quota::per_minute(5))).await;
    let mut open = Vec::new();
    for _ in 0..300 {
        open.extend(bench.reserve(1).await);
        bench.clock.advance(MINUTE / 5);
    }
    let mut passed = 0;
    for receipt in open {
        bench.request(Tier::DEFAULT, Op::Settle(0, receipt)).await;
        passed += bench.passes(Tier::DEFAULT).await;
    }
    assert!((5..=10).contains(&passed), "{passed} at one instant");
}

#[tokio::test]
async fn what_is_filled_and_finished_again_and_again_stays_bounded() {
    needs!(redis);
    let bench = Bench::new(RedisLimiter::builder(Quota::per_minute(5))).await;
    let mut open = Vec::new();
    for _ in 0..60 {
        let mut filled = bench.reserve(6).await;
        open.extend(filled.pop());
        for receipt in filled {
            bench
                .request(Tier::DEFAULT, Op::Refund(1, Some(receipt)))
                .await;
        }
        bench.clock.advance(MINUTE / 5);
    }
    let mut passed = 0;
    for receipt in open {
        bench
            .request(Tier::DEFAULT, Op::Refund(1, Some(receipt)))
            .await;
        passed += bench.passes(Tier::DEFAULT).await;
    }
    assert!(passed <= 10, "{passed} at one instant");
}

#[tokio::test]
async fn key_blocked_by_hand_stays_out_of_a_limiter_without_blocks() {
    needs!(redis);
    let bench = Bench::new(RedisLimiter::builder(Quota::per_minute(5))).await;
    let blocked = bench.request(Tier::DEFAULT, Op::Block(MINUTE)).await;
    assert_eq!(blocked.retry_after(), Some(MINUTE));
    for op in [Op::Acquire(0), Op::Acquire(1), Op::Peek(0), Op::Hit(1)] {
        let decision = bench.request(Tier::DEFAULT, op).await;
        assert!(decision.is_blocked(), "{decision:?}");
    }
    assert!(bench.value().await.ends_with('h'), "a mark");
    // A block by hand does not get longer, and not shorter, when the clock steps back.
    bench.clock.step_back(MINUTE);
    let longer = bench.request(Tier::DEFAULT, Op::Peek(1)).await;
    assert_eq!(longer.retry_after(), Some(2 * MINUTE));
    bench.clock.advance(2 * MINUTE);
    assert!(
        bench
            .request(Tier::DEFAULT, Op::Acquire(1))
            .await
            .is_allowed()
    );

    bench.request(Tier::DEFAULT, Op::Block(MINUTE)).await;
    bench
        .request(Tier::DEFAULT, Op::Block(Duration::ZERO))
        .await;
    assert!(
        bench
            .request(Tier::DEFAULT, Op::Acquire(1))
            .await
            .is_allowed()
    );
}

#[tokio::test]
async fn logins_that_succeed_block_nobody_and_those_that_fail_do() {
    needs!(redis);
    let builder = RedisLimiter::builder(Quota::per_minute(5));
    let bench = Bench::new(builder.block_for(60 * MINUTE)).await;
    for fail in [0, 1] {
        let open = bench.reserve(6).await;
        assert_eq!(open.len(), 5);
        let denied = bench.request(Tier::DEFAULT, Op::Reserve(1)).await;
        assert!(denied.is_denied() && !denied.is_blocked());
        for (receipt, n) in open.into_iter().zip(0..) {
            let cost = u64::from(n < fail);
            bench
                .request(Tier::DEFAULT, Op::Settle(cost, receipt))
                .await;
        }
        let next = bench.request(Tier::DEFAULT, Op::Peek(1)).await;
        assert!(next.is_allowed(), "{fail} of six failed");
    }
    for failed in 2..=5 {
        bench.clock.advance(MINUTE / 50);
        let one = bench.reserve(1).await.remove(0);
        let settled = bench.request(Tier::DEFAULT, Op::Settle(1, one)).await;
        assert!(settled.is_allowed(), "never a denial");
        let blocked = bench.request(Tier::DEFAULT, Op::Peek(0)).await.is_blocked();
        assert_eq!(blocked, failed == 5, "{failed} failed");
    }
    bench.request(Tier::DEFAULT, Op::Reset).await;
    assert_eq!(bench.value().await, "0", "nothing is left of it");
}

#[tokio::test]
async fn clock_that_steps_back_keeps_no_failures_beyond_a_bucket() {
    needs!(redis);
    let builder = RedisLimiter::builder(Quota::per_minute(5));
    let bench = Bench::new(builder.block_for(Duration::from_millis(1))).await;
    let fail = async || {
        let one = bench.reserve(1).await.remove(0);
        bench.request(Tier::DEFAULT, Op::Settle(1, one)).await;
        let blocked = bench.request(Tier::DEFAULT, Op::Peek(0)).await.is_blocked();
        bench.clock.advance(MINUTE / 5);
        blocked
    };
    for receipt in bench.reserve(5).await {
        bench.request(Tier::DEFAULT, Op::Settle(1, receipt)).await;
    }
    bench.clock.step_back(60 * MINUTE);
    bench.request(Tier::DEFAULT, Op::Refund(5, None)).await;
    bench.clock.advance(MINUTE / 5);
    assert!(fail().await, "it counts as full since now");
    bench.clock.advance(2 * MINUTE);
    assert!(!fail().await, "and flows back from then on");
}

#[tokio::test]
async fn question_that_follows_a_reservation_starts_the_block() {
    needs!(redis);
    let builder = RedisLimiter::builder(Quota::per_minute(1));
    let bench = Bench::new(builder.block_for(60 * MINUTE)).await;
    assert_eq!(bench.reserve(1).await.len(), 1);
    let reserved = bench.request(Tier::DEFAULT, Op::Reserve(1)).await;
    assert_eq!(reserved.retry_after(), Some(MINUTE));
    let never = bench.request(Tier::DEFAULT, Op::Deny(2)).await;
    assert!(!never.is_blocked(), "it could never fit");
    let denied = bench.request(Tier::DEFAULT, Op::Deny(1)).await;
    assert_eq!(denied.retry_after(), Some(60 * MINUTE));
}

#[tokio::test]
async fn values_without_news_are_written_as_before() {
    needs!(redis);
    let minute = Quota::per_minute(4);
    for (quota, value) in [
        (minute, "1767225615000000000"),
        (minute.leaky_bucket(3), "1767225615000000000"),
        (minute.fixed_window(), "29453760:1"),
        (minute.sliding_window(), "29453760:1:0"),
        (minute.refill_every(MINUTE / 4), "1767225615000000000"),
    ] {
        let bench = Bench::new(RedisLimiter::builder(quota).block_for(MINUTE)).await;
        bench.request(Tier::DEFAULT, Op::Reserve(1)).await;
        assert_eq!(bench.value().await, value, "{quota:?}");
        bench.server.send::<Value>(["FLUSHALL"]).await.unwrap();
    }
}

#[tokio::test]
async fn quota_that_changes_its_kind_joins_the_counter_of_another_tier() {
    needs!(redis);
    let minute = Quota::per_minute(5);
    let builder = RedisLimiter::builder(minute).tier("small", minute.fixed_window());
    let bench = Bench::new(builder.tier("other", minute)).await;
    assert_eq!(bench.passes(SMALL).await, 5);
    bench
        .limiter
        .set_quota("default", minute.fixed_window())
        .unwrap();
    assert_eq!(bench.passes(Tier::DEFAULT).await, 0, "one window for both");
    bench.limiter.set_quota("default", minute).unwrap();
    assert_eq!(bench.passes(Tier::DEFAULT).await, 5);
}

#[tokio::test]
async fn receipt_of_a_huge_window_is_settled_by_a_bucket_that_takes_its_place() {
    needs!(redis);
    let window = Quota::per_second(u64::from(u32::MAX)).fixed_window();
    let bench = Bench::new(RedisLimiter::builder(window.uncapped().named("one"))).await;
    let row = Tier::from(RequestQuota::limit(u64::MAX));
    let receipt = bench.request(row, Op::Reserve(5)).await.receipt();
    let years = Quota::per(1, Duration::from_nanos(1 << 54));
    for place in [years.burst(3), years.leaky_bucket(2)].map(|quota| quota.soft(900)) {
        bench.limiter.set_quota("one", place).unwrap();
        // More units than Lua counts one by one: the script divided by their time without end.
        let settle = Op::Settle(8, receipt.clone());
        assert!(bench.request(Tier::DEFAULT, settle).await.is_allowed());
    }
}
