//! Proxies that send each command to the server of its first key.

use testkit::{needs, servers::ShardingProxy};
use tower_ratelimit::{
    Key, OnFailure, Quota, RedisLimiter, RedisStore,
    store::{StoreErrorKind, StoreHealth},
};

use super::{fault, patient};

const REQUESTS: u64 = 100;

/// How many of a hundred decisions about as many keys Redis made.
async fn decided_by_redis(store: &RedisStore) -> usize {
    let builder = RedisLimiter::builder(Quota::per_day(10)).name("behind");
    let limiter = builder.on_failure(OnFailure::local()).build(store).unwrap();
    let mut decided = 0;
    for key in 0..REQUESTS {
        let decision = limiter.acquire(&Key::from(key), 1).await.unwrap();
        decided += usize::from(!decision.is_degraded());
    }
    decided
}

/// How many keys the servers have, and whether each has some.
async fn spread(proxy: &ShardingProxy) -> (u64, bool) {
    let (mut sum, mut has_each) = (0, true);
    for server in proxy.servers() {
        let keys: Vec<String> = server.send(["KEYS", "rl:v1:behind*"]).await.unwrap();
        sum += keys.len() as u64;
        has_each &= !keys.is_empty();
    }
    (sum, has_each)
}

async fn all_decisions_are_made_behind(proxy: &ShardingProxy) {
    let store = patient().sharding_proxy().connect(&proxy.url()).unwrap();
    let decided = decided_by_redis(&store).await;
    println!("{decided} of {REQUESTS} by Redis: {:?}", store.stats());
    assert_eq!(decided as u64, REQUESTS);
    assert_eq!(spread(proxy).await, (REQUESTS, true));
    store.check().await.unwrap();
}

#[tokio::test]
async fn redis_decides_all_requests_behind_envoy() {
    needs!(redis, envoy);
    let proxy = ShardingProxy::envoy().await;
    all_decisions_are_made_behind(&proxy).await;
}

#[tokio::test]
async fn redis_decides_all_requests_behind_twemproxy() {
    needs!(redis, twemproxy);
    let proxy = ShardingProxy::twemproxy().await;
    all_decisions_are_made_behind(&proxy).await;
}

/// The page's permissions for servers behind a proxy, whose default user is the proxy's.
const PERMISSIONS: &str = "-@all +eval +evalsha +script|load +get +set +time";

#[tokio::test]
async fn the_pages_permissions_suffice_behind_a_proxy() {
    needs!(redis, envoy);
    let proxy = ShardingProxy::envoy().await;
    for server in proxy.servers() {
        let user: Vec<_> = ["ACL", "SETUSER", "default", "resetkeys", "~rl:*"]
            .into_iter()
            .chain(PERMISSIONS.split(' '))
            .collect();
        server.send::<()>(user).await.unwrap();
    }
    let store = patient().sharding_proxy().connect(&proxy.url()).unwrap();
    store.check().await.unwrap();
    assert_eq!(decided_by_redis(&store).await as u64, REQUESTS);
}

/// Each of the others would pass if only its key were tried.
#[tokio::test]
async fn a_check_finds_the_one_server_behind_a_proxy_that_refuses() {
    needs!(redis, envoy);
    let proxy = ShardingProxy::envoy().await;
    let refusing = &proxy.servers()[1];
    let refuse = ["ACL", "SETUSER", "default", "-eval"];
    refusing.send::<()>(refuse).await.unwrap();
    let store = patient().sharding_proxy().connect(&proxy.url()).unwrap();
    for _ in 0..3 {
        assert_eq!(fault(&store).await, StoreErrorKind::Refused);
    }
    assert!(store.health() == StoreHealth::Up, "{:?}", store.health());
}
