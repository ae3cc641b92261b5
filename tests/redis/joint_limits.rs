//! Limits of all nodes that are charged together: what one denies is given back to the others, and no
//! limit is ever passed.

use std::{future::pending, time::Duration};

use futures_util::FutureExt as _;
use testkit::{AGE, needs, servers::Server};
use tower_ratelimit::{
    ConfigErrorKind, Decision, Global, Key, OnFailure, PeerIp, Priority, Quota, RateLimitLayer,
    RedisLimiter, RedisStore,
    decision::{Degradation, Op, Outcome},
    limiter::{JointLimiter, Tier},
    shared::{Mode, RedisLimiterBuilder},
};

use crate::canned_script_replies::{self, FakeServer};

async fn store(server: &Server) -> RedisStore {
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    store.connect(&server.url()).unwrap()
}

fn limiter(quota: Quota, store: &RedisStore) -> RedisLimiter {
    let builder = RedisLimiter::builder(quota);
    builder.on_failure(OnFailure::deny()).build(store).unwrap()
}

fn joint(keys: impl IntoIterator<Item = u64>) -> Vec<Key> {
    keys.into_iter().map(Key::from).collect()
}

async fn left(limiter: &RedisLimiter, key: u64) -> u64 {
    let key = Key::from(key);
    limiter.peek(&key, 1).await.unwrap().remaining().unwrap()
}

fn lasting(limit: u64, name: &'static str) -> Quota {
    Quota::per(limit, AGE).fixed_window().named(name)
}

async fn request(limiter: &JointLimiter<RedisLimiter>, keys: &[Key], op: Op) -> Decision {
    let in_class = (&Tier::DEFAULT, Priority::CRITICAL);
    let answer = testkit::apply_each(limiter, in_class, keys, &[op]);
    answer.await.unwrap()
}

/// A lease that ends cannot take back what was spent of it, so it is not spent before the others have
/// let the request pass.
#[tokio::test]
async fn denied_requests_spend_nothing_of_a_lease() {
    needs!(redis);
    let server = Server::start().await;
    let store = store(&server).await;
    let leased = Quota::per(1_000, AGE).named("everybody");
    let leased = RedisLimiter::builder(leased).mode(Mode::leased());
    let leased = leased.on_failure(OnFailure::deny()).build(&store).unwrap();
    let each = RedisLimiter::builder(lasting(1, "each")).remember_denials(false);
    let each = each.on_failure(OnFailure::deny()).build(&store).unwrap();
    assert!(each.acquire(&Key::from(1), 1).await.unwrap().is_allowed());
    let both = JointLimiter::new([leased.clone(), each]).unwrap();
    for _ in 0..20 {
        assert!(
            request(&both, &joint([99, 1]), Op::Acquire(1))
                .await
                .is_denied()
        );
    }
    let values: u64 = server.send(["DBSIZE"]).await.unwrap();
    assert_eq!(values, 1, "the store was asked for a lease");
    for passes in [true, false, false] {
        let decision = request(&both, &joint([99, 2]), Op::Acquire(1)).await;
        assert_eq!(decision.is_allowed(), passes);
    }
    assert_eq!(left(&leased, 99).await, 999);
}

/// Three nodes call at once. Denied for a moment may be what would have passed, so fewer than the limit
/// may pass; more never do, and in the end each limit is charged for what passed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_of_three_nodes_at_once_never_pass_either_limit() {
    needs!(redis);
    let server = Server::start().await;
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let store = store(&server).await;
        let limits = [lasting(30, "each"), lasting(100, "everybody")].map(|quota| {
            let builder = RedisLimiter::builder(quota).remember_denials(false);
            builder.on_failure(OnFailure::deny()).build(&store).unwrap()
        });
        nodes.push(JointLimiter::new(limits).unwrap());
    }
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..1_200_u64 {
        let node = nodes[number as usize % 3].clone();
        tasks.spawn(async move {
            let client = number % 8;
            let decision = request(&node, &joint([client, 99]), Op::Acquire(1)).await;
            decision.is_allowed().then_some(client)
        });
    }
    let mut admitted = [0; 8];
    while let Some(client) = tasks.join_next().await {
        if let Some(client) = client.unwrap() {
            admitted[client as usize] += 1;
        }
    }
    let total: u64 = admitted.iter().sum();
    assert!(total <= 100, "{total} passed");
    let [each, everybody] = nodes[0].limiters() else {
        panic!("two limits");
    };
    assert_eq!(left(everybody, 99).await, 100 - total);
    for (client, admitted) in admitted.into_iter().enumerate() {
        assert!(admitted <= 30, "{admitted} of one client");
        assert_eq!(left(each, client as u64).await, 30 - admitted);
    }
    // Nothing is lost: what is left passes now.
    for client in 0..8 {
        while request(&nodes[1], &joint([client, 99]), Op::Acquire(1))
            .await
            .is_allowed()
        {}
    }
    assert_eq!(left(everybody, 99).await, 0);
}

#[tokio::test]
async fn what_one_limit_denies_is_given_back_to_the_others_by_receipt() {
    needs!(redis);
    let server = Server::start().await;
    let store = store(&server).await;
    let quotas = [
        lasting(2, "strict"),
        Quota::per_day(100).named("bucket"),
        Quota::per_day(100).sliding_log().named("log"),
        Quota::per_day(100).sliding_window().named("window"),
    ];
    let limits = quotas.map(|quota| limiter(quota, &store));
    let together = JointLimiter::new(limits.clone()).unwrap();
    let key = joint([1, 2, 3, 4]);
    let allowed = request(&together, &key, Op::Acquire(2)).await;
    assert_eq!(
        (allowed.outcome(), allowed.charged()),
        (Outcome::Allowed, 2)
    );
    for cost in [1, 2, 3] {
        let denied = request(&together, &key, Op::Acquire(cost)).await;
        assert_eq!(denied.binding().name(), "strict");
        assert_eq!((denied.is_denied(), denied.charged()), (true, 0));
        for (place, limit) in limits.iter().enumerate().skip(1) {
            assert_eq!(left(limit, place as u64 + 1).await, 98, "after {cost}");
        }
    }
    // The receipt of all gives back to each, once, in one call or in part.
    let settled = request(&together, &key, Op::Settle(1, allowed.receipt())).await;
    let remaining = settled.quotas().map(|quota| quota.remaining());
    assert!(remaining.eq([Some(1), Some(99), Some(99), Some(99)]));
    // As many units as fit all limits are taken of each.
    let taken = request(&together, &key, Op::AcquireUpTo(9)).await;
    assert_eq!((taken.outcome(), taken.charged()), (Outcome::Allowed, 1));
    for (place, limit) in limits.iter().enumerate().skip(1) {
        assert_eq!(left(limit, place as u64 + 1).await, 98);
    }
    let refunded = request(&together, &key, Op::Refund(9, Some(taken.receipt()))).await;
    let remaining = refunded.quotas().map(|quota| quota.remaining());
    assert!(remaining.eq([Some(1), Some(99), Some(99), Some(99)]));
}

#[tokio::test]
async fn a_cached_denial_of_one_limit_calls_none() {
    needs!(redis);
    let server = Server::start().await;
    let store = store(&server).await;
    let limits =
        [lasting(100, "everybody"), lasting(1, "each")].map(|quota| limiter(quota, &store));
    let together = JointLimiter::new(limits.clone()).unwrap();
    assert!(
        request(&together, &joint([1, 2]), Op::Acquire(1))
            .await
            .is_allowed()
    );
    assert!(
        request(&together, &joint([1, 2]), Op::Acquire(1))
            .await
            .is_denied()
    );
    let calls = store.stats().answered();
    for _ in 0..50 {
        let denied = request(&together, &joint([1, 2]), Op::Acquire(1)).await;
        assert!(denied.is_denied());
        assert_eq!(denied.binding().name(), "each");
        assert_eq!(denied.quotas().len(), 2);
    }
    assert_eq!(store.stats().answered(), calls);
    assert_eq!(left(&limits[0], 1).await, 99);
}

/// A client that hangs up before the answer must not leave others charged for what it is denied.
#[tokio::test]
async fn call_that_nobody_waits_for_is_finished() {
    needs!(redis);
    let server = Server::start().await;
    let store = store(&server).await;
    let limits = [lasting(100, "everybody"), lasting(1, "each")].map(|quota| {
        let builder = RedisLimiter::builder(quota).remember_denials(false);
        builder.on_failure(OnFailure::deny()).build(&store).unwrap()
    });
    let together = JointLimiter::new(limits.clone()).unwrap();
    assert!(
        request(&together, &joint([1, 2]), Op::Acquire(1))
            .await
            .is_allowed()
    );
    for _ in 0..20 {
        drop(together.acquire_all(&joint([1, 2]), 1));
    }
    // Each call is finished within the deadline; until then some are charged.
    let given_back = async {
        while left(&limits[0], 1).await != 99 {
            tokio::task::yield_now().await;
        }
    };
    let finished = tokio::time::timeout(Duration::from_secs(60), given_back).await;
    assert!(finished.is_ok(), "{} left", left(&limits[0], 1).await);
}

#[tokio::test]
async fn limits_that_cannot_be_taken_back_are_refused() {
    let store = RedisStore::connect("redis://localhost").unwrap();
    let everybody = || limiter(lasting(9, "everybody"), &store);
    let refused = |builder: RedisLimiterBuilder| {
        let limiter = builder.build(&store).unwrap();
        JointLimiter::new([everybody(), limiter]).unwrap_err()
    };
    let leaky = Quota::per_second(5).leaky_bucket(9).named("queue");
    let login = Quota::per_second(5).named("login");
    for (builder, names) in [
        (
            RedisLimiter::builder(leaky),
            ["\"queue\"", "a leaky bucket"],
        ),
        (
            RedisLimiter::builder(login).tier("slow", leaky),
            ["\"login\"", "a leaky bucket"],
        ),
        (
            RedisLimiter::builder(login).block_for(Duration::from_secs(9)),
            ["\"login\"", "block_for"],
        ),
    ] {
        let error = refused(builder);
        assert_eq!(error.kind(), ConfigErrorKind::Joint);
        let text = error.to_string();
        assert!(names.iter().all(|name| text.contains(name)), "{text}");
    }
    let layer =
        RateLimitLayer::try_all([everybody().by(Global), limiter(login, &store).by(PeerIp)]);
    assert!(layer.is_ok());
    let tiered = RedisLimiter::builder(login).tier("pro", Quota::per_day(1).named("pro"));
    let tiered = JointLimiter::new([everybody(), tiered.build(&store).unwrap()]).unwrap();
    let answer = testkit::apply_each(
        &tiered,
        (&Tier::named("gold"), Priority::CRITICAL),
        &joint([1, 2]),
        &[Op::Acquire(1)],
    );
    assert!(answer.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_denial_takes_no_longer_than_one_deadline() {
    let deadline = Duration::from_millis(100);
    let takes = deadline * 3 / 4;
    let store = RedisStore::builder().deadline(deadline);
    // It takes its time for what is acquired, denies it of one limit, and never answers what is given back.
    let server = FakeServer::new(move |words| {
        let has = |text: &str| words.iter().any(|word| word.contains(text));
        if words.iter().any(|word| word == "r") {
            return pending().boxed();
        }
        // One of a hundred a day comes back in a microsecond.
        let reply = if has("strict") {
            canned_script_replies::of_bucket(true, 86_400_000_000 - 864_000_000 + 1)
        } else {
            canned_script_replies::of_bucket(false, 7_000)
        };
        async move {
            tokio::time::sleep(takes).await;
            Ok(reply)
        }
        .boxed()
    });
    let store = store.connection(server).unwrap();
    let limits = ["roomy", "strict"].map(|name| {
        let builder = RedisLimiter::builder(Quota::per_day(100).named(name)).name(name);
        builder.on_failure(OnFailure::deny()).build(&store).unwrap()
    });
    let together = JointLimiter::new(limits).unwrap();
    for _ in 0..3 {
        let started = tokio::time::Instant::now();
        let denied = request(&together, &joint([1, 2]), Op::Acquire(1)).await;
        let took = started.elapsed();
        assert!(denied.is_denied() && !denied.is_degraded());
        assert!((takes..=deadline).contains(&took), "{took:?}");
        // The refunds time out meanwhile.
        tokio::time::sleep(deadline).await;
    }
    assert_eq!(store.stats().degraded(Degradation::TimedOut), 3);
}

#[tokio::test]
async fn limits_that_are_charged_together_take_no_quota_that_cannot_be_taken_back() {
    let store = RedisStore::connect("redis://localhost").unwrap();
    let quota = Quota::per_second(5).named("own");
    let limit = limiter(quota, &store);
    limit.set_quota("own", quota.leaky_bucket(9)).unwrap();
    limit.set_quota("own", quota).unwrap();
    let others = [
        lasting(9, "everybody"),
        quota.leaky_bucket(2).named("queue"),
    ];
    let [everybody, queue] = others.map(|quota| limiter(quota, &store));
    // One that was refused leaves no trace.
    assert!(JointLimiter::new([limit.clone(), queue]).is_err());
    limit.set_quota("own", quota.leaky_bucket(9)).unwrap();
    limit.set_quota("own", quota).unwrap();

    let together = JointLimiter::new([everybody, limit.clone()]).unwrap();
    for limit in [&limit, &together.limiters()[1]] {
        let error = limit.set_quota("own", quota.leaky_bucket(9)).unwrap_err();
        assert_eq!(error.kind(), ConfigErrorKind::Joint);
        let text = error.to_string();
        assert!(
            text.contains("\"own\"") && text.contains("a leaky bucket"),
            "{text}"
        );
        limit.set_quota("own", quota.fixed_window()).unwrap();
    }
}

/// Without its store each limit falls back by itself, and the limits are still charged together.
#[tokio::test]
async fn fallback_charges_all_or_none_too() {
    let store = RedisStore::builder().deadline(Duration::from_millis(200));
    // Nobody listens there.
    let store = store.connect("redis://127.0.0.1:1").unwrap();
    let limits = [lasting(100, "everybody"), lasting(2, "each")];
    let limits = limits.map(|quota| RedisLimiter::builder(quota).build(&store).unwrap());
    let together = JointLimiter::new(limits.clone()).unwrap();
    let mut passed = Vec::new();
    for _ in 0..10 {
        let decision = request(&together, &joint([1, 2]), Op::Acquire(1)).await;
        assert!(decision.is_degraded());
        passed.extend(decision.is_allowed().then(|| decision.receipt()));
    }
    assert_eq!(passed.len(), 2);
    assert_eq!(left(&limits[0], 1).await, 98);
    let refund = Op::Refund(1, passed.pop());
    assert!(
        request(&together, &joint([1, 2]), refund)
            .await
            .is_degraded()
    );
    assert_eq!(left(&limits[0], 1).await, 99);
    assert_eq!(left(&limits[1], 2).await, 1);
}
