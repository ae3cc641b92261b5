//! An operation of its own for each of several limits of all nodes.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, StatusCode};
use testkit::{AGE, Probe, needs, servers::Server};
use tower::{Layer, ServiceExt};
use tower_ratelimit::{
    Decision, Global, Key, OnFailure, Priority, Quota, RateLimitLayer, RedisLimiter, RedisStore,
    decision::Op,
    limiter::{JointLimiter, Tier},
    observe::Event,
    shared::Mode,
};

fn store(server: &Server) -> RedisStore {
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    store.connect(&server.url()).unwrap()
}

fn lasting(limit: u64, name: &'static str) -> Quota {
    Quota::per(limit, AGE).fixed_window().named(name)
}

fn limiter(quota: Quota, mode: Mode, store: &RedisStore) -> RedisLimiter {
    let builder = RedisLimiter::builder(quota).mode(mode);
    builder.on_failure(OnFailure::deny()).build(store).unwrap()
}

fn keys() -> [Key; 2] {
    [Key::from(1), Key::from(2)]
}

const DEFAULT: (&Tier, Priority) = (&Tier::DEFAULT, Priority::CRITICAL);

async fn each(limiter: &JointLimiter<RedisLimiter>, ops: [Op; 2]) -> Decision {
    let answer = testkit::apply_each(limiter, DEFAULT, &keys(), &ops);
    answer.await.unwrap()
}

fn charged(decision: &Decision) -> Vec<u64> {
    decision.charged_by_each().collect()
}

/// A denial that is cached on this node would be answered without a call.
#[tokio::test]
async fn used_units_are_charged_though_another_limit_has_a_cached_denial() {
    needs!(redis);
    let server = Server::start().await;
    let store = store(&server);
    let day = |limit: u64, name| Quota::per_day(limit).fixed_window().named(name);
    let quotas = [day(1, "requests"), day(100, "tokens").debt(50)];
    let limits = quotas.map(|quota| limiter(quota, Mode::strict(), &store));
    let both = JointLimiter::new(limits).unwrap();
    let reserved = each(&both, [Op::Acquire(1), Op::Acquire(10)]).await;
    assert_eq!(charged(&reserved), [1, 10]);
    for tokens in [30, 70, 40, 0] {
        let denied = each(&both, [Op::Acquire(1), Op::Spend(tokens)]).await;
        assert!(denied.is_denied());
        assert_eq!(charged(&denied), [0, tokens]);
    }
    let settled = each(
        &both,
        [
            Op::Settle(0, reserved.receipt()),
            Op::Settle(25, reserved.receipt()),
        ],
    )
    .await;
    assert_eq!(charged(&settled), [0, 0], "all was owed");
    let requests = both.limiters()[0].peek(&Key::from(1), 1).await.unwrap();
    assert_eq!(requests.remaining(), Some(1));
}

/// Units of a lease are spent last, and what was used already does not deny them.
#[tokio::test]
async fn limit_that_spends_does_not_hold_back_a_lease() {
    needs!(redis);
    let server = Server::start().await;
    let store = store(&server);
    let everybody = limiter(
        Quota::per(1_000, AGE).named("everybody"),
        Mode::leased(),
        &store,
    );
    let tokens = limiter(lasting(5, "tokens"), Mode::strict(), &store);
    let both = JointLimiter::new([everybody, tokens]).unwrap();
    let mut sum = [0; 2];
    for _ in 0..20 {
        let spent = each(&both, [Op::Acquire(3), Op::Spend(2)]).await;
        let own = spent.charged_by_each();
        sum.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
    }
    assert_eq!(sum, [60, 5]);
    // The other way round: a denied reservation spends nothing of the lease.
    let denied = each(&both, [Op::Acquire(3), Op::Reserve(1)]).await;
    assert!(denied.is_denied());
    assert_eq!(charged(&denied), [0, 0]);
    let left = both.limiters()[0].peek(&Key::from(1), 1).await.unwrap();
    assert_eq!(left.remaining(), Some(940));
}

/// The answer of one limit is in force though the server of another one is gone.
#[tokio::test]
async fn a_limit_settles_its_charge_though_another_one_does_not_answer() {
    needs!(redis);
    let (server, mut other) = (Server::start().await, Server::start().await);
    let limits = [(&server, "requests"), (&other, "tokens")].map(|(server, name)| {
        let store = RedisStore::builder().deadline(Duration::from_secs(2));
        let store = store.connect(&server.url()).unwrap();
        limiter(lasting(100, name), Mode::strict(), &store)
    });
    let both = JointLimiter::new(limits).unwrap();
    let receipt = each(&both, [Op::Reserve(10), Op::Reserve(20)])
        .await
        .receipt();
    other.kill9();
    let settle = |cost| Op::Settle(cost, receipt.clone());
    let settled = each(&both, [settle(4), settle(5)]).await;
    let errors = settled.parts().map(|part| part.error().is_some());
    assert!(errors.eq([false, true]), "{settled:?}");
    let left = settled.parts().map(|part| {
        part.quotas()
            .map(|quota| quota.remaining())
            .collect::<Vec<_>>()
    });
    assert!(left.eq([vec![Some(96)], vec![None]]), "{settled:?}");
    // The charge of a limit that did not answer is not settled again by the other's receipt.
    let requests = both.limiters()[0].peek(&Key::from(1), 1).await.unwrap();
    assert_eq!(requests.remaining(), Some(96));
    // An operation that others must not make by themselves fails as before.
    let reserves = [Op::Reserve(1), settle(5)];
    let failed = testkit::apply_each(&both, DEFAULT, &keys(), &reserves)
        .await
        .map(|decision| decision.is_degraded());
    assert!(matches!(failed, Err(_) | Ok(true)));
    let requests = both.limiters()[0].peek(&Key::from(1), 1).await.unwrap();
    assert_eq!(requests.remaining(), Some(96));
}

/// The denial of one limit is known, so its request is charged to both at once.
#[tokio::test]
async fn a_limit_that_does_not_charge_a_request_that_exceeds_another_one_is_reported() {
    needs!(redis);
    let (server, mut other) = (Server::start().await, Server::start().await);
    let limits = [(&server, "requests", 1), (&other, "tokens", 100)];
    let limits = limits.map(|(server, name, units)| {
        let store = RedisStore::builder().deadline(Duration::from_secs(2));
        let store = store.connect(&server.url()).unwrap();
        let quota = Quota::per_day(units).fixed_window().named(name);
        limiter(quota, Mode::strict(), &store).by(Global)
    });
    let errors = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&errors);
    let layer = RateLimitLayer::all(limits).elastic(|| true);
    let layer = layer.observer(move |event: &Event<'_>| {
        if let Event::Corrected(corrected) = event {
            let error = corrected.error().map(ToString::to_string);
            reported.lock().unwrap().push(error.unwrap_or_default());
        }
    });
    let service = layer.layer(Probe::default());
    let send = || service.clone().oneshot(Request::new(String::new()));
    for _ in 0..2 {
        assert_eq!(send().await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(*errors.lock().unwrap(), [""; 0]);
    other.kill9();
    assert_eq!(send().await.unwrap().status(), StatusCode::OK);
    let errors = errors.lock().unwrap();
    assert!(
        matches!(&**errors, [error] if error.contains("store")),
        "{errors:?}"
    );
}
