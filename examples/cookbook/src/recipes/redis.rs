//! All nodes of a service share one limit, and four nodes have a quarter each while Redis is down.

use tower_ratelimit::{ConfigError, OnFailure, PeerIp, Quota};
use tower_ratelimit::{RateLimitLayer, RedisLimiter, RedisStore};

fn limit(url: &str) -> Result<RateLimitLayer<RedisLimiter>, ConfigError> {
    let store = RedisStore::connect(url)?;
    let limiter = RedisLimiter::builder(Quota::per_minute(100))
        .name("api")
        .on_failure(OnFailure::nodes(4))
        .build(&store)?;
    Ok(RateLimitLayer::new(limiter, PeerIp))
}

// The test, which is not on the page.

use axum::{Router, routing::get};

use crate::test_requests::{Ask, remaining};

fn node(url: &str) -> Router {
    Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit(url).unwrap())
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn two_nodes_share_the_limit() {
    testkit::needs!(redis);
    let server = testkit::servers::Server::start().await;
    let nodes = [node(&server.url()), node(&server.url())];
    // A request that Redis answers too late, on a busy machine, is decided by its node alone.
    for attempt in 1..=100 {
        let ask = Ask::get("/").from([192, 0, 2, attempt]);
        let mut left = Vec::new();
        for node in nodes.iter().cycle().take(4) {
            left.push(remaining(&ask.of(node).await));
        }
        if left == [99, 98, 97, 96] {
            return;
        }
    }
    panic!("they share nothing");
}

#[tokio::test]
async fn without_redis_a_node_has_a_quarter() {
    // Nothing listens there.
    let node = node("redis://127.0.0.1:1");
    assert_eq!(remaining(&Ask::get("/").of(&node).await), 24);
}
