//! Tests of settings that cannot work, and of the output of `Debug`.

use std::time::Duration;

use super::fake::Fake;
use crate::{
    error::StoreError,
    health::StoreHealth,
    redis::{RedisStore, RedisStoreBuilder},
    stats::StoreStats,
};
use tower_ratelimit_core::error::ConfigErrorKind;

#[test]
fn prefixes() {
    let longest = "x".repeat(64);
    for prefix in ["ratelimit", "a", "app:rl", "a-b_c.d/e", longest.as_str()] {
        let store = RedisStore::builder()
            .prefix(prefix)
            .connect("redis://localhost");
        assert_eq!(store.unwrap().prefix(), prefix);
    }
    let too_long = "x".repeat(65);
    let refused = [
        "",
        " ",
        "a b",
        "{a}",
        "a*",
        "a?",
        "[a]",
        "a\\b",
        "é",
        "a\n",
        too_long.as_str(),
    ];
    for prefix in refused {
        let error = RedisStore::builder()
            .prefix(prefix)
            .connect("redis://localhost")
            .unwrap_err();
        assert_eq!(error.kind(), ConfigErrorKind::Prefix, "{prefix:?}");
        assert!(
            error.to_string().contains(&format!("{prefix:?}")),
            "{error}"
        );
    }
}

#[test]
fn a_deadline_of_zero_is_refused() {
    for builder in [
        RedisStore::builder().deadline(Duration::ZERO),
        RedisStore::builder().connect_timeout(Duration::ZERO),
    ] {
        let error = builder.connection(Fake::default()).unwrap_err();
        assert_eq!(error.kind(), ConfigErrorKind::Deadline);
    }
}

/// Instants are sums of these durations, and must not overflow.
#[tokio::test]
async fn a_deadline_is_an_hour_at_most() {
    let longest = Duration::from_secs(3_600);
    let builder = || RedisStore::builder().deadline(longest);
    let too_long = longest + Duration::from_nanos(1);
    for time in [too_long, Duration::MAX] {
        for builder in [builder().deadline(time), builder().connect_timeout(time)] {
            let error = builder.connection(Fake::default()).unwrap_err();
            assert_eq!(error.kind(), ConfigErrorKind::Deadline);
            assert!(error.to_string().contains("at most 1 hour"), "{error}");
        }
    }
    builder()
        .connect_timeout(longest)
        .connect("redis://127.0.0.1:1")
        .unwrap();
}

#[test]
fn the_servers_of_a_cluster_have_one_login() {
    let error = RedisStore::cluster(["redis://:a@a:7000", "redis://:b@b:7001"]).unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::Address);
    assert!(error.to_string().contains("different password"), "{error}");
}

#[test]
fn the_addresses_of_sentinels_have_one_login() {
    let servers = ["redis://:a@a", "redis://:a@b/1"];
    let error = RedisStore::sentinel(servers, "main").unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::Address);
    assert!(error.to_string().contains("different database"), "{error}");
}

#[test]
fn defaults() {
    let store = RedisStore::connect("redis://localhost").unwrap();
    assert_eq!(store.prefix(), "rl");
    assert_eq!(store.deadline(), Duration::from_millis(50));
    assert_eq!(store.health(), StoreHealth::Untried);
    assert_eq!(store.stats(), StoreStats::default());
}

#[test]
fn debug_shows_the_address_and_no_login() {
    for address in [
        "redis://user:hunter2@localhost:7000/1",
        "redis-cluster://user:hunter2@localhost:7000",
        "redis-sentinel://user:hunter2@localhost:7000/mymaster?sentinel_password=hunter2",
    ] {
        let text = format!("{:?}", RedisStore::connect(address).unwrap());
        assert!(text.contains("localhost:7000"), "{text}");
        assert!(
            !text.contains("hunter2") && !text.contains("user"),
            "{text}"
        );
    }
}

#[test]
fn handles_go_anywhere() {
    fn is_shareable<T: Send + Sync + 'static>() {}
    is_shareable::<RedisStore>();
    is_shareable::<RedisStoreBuilder>();
    is_shareable::<StoreError>();
    is_shareable::<StoreStats>();
}
