//! The decision vectors hold in Redis, too.

use std::time::Duration;

use tower_ratelimit::{ManualClock, OnFailure, Quota, RedisLimiter, RedisStore};

use crate::{
    common::decisions::{self, Subject},
    servers::{Server, Setup, no_redis, no_valkey},
};

struct Redis(RedisStore);

impl Redis {
    fn at(server: &Server) -> Self {
        // A busy machine must not look like a failing server.
        let patience = Duration::from_secs(20);
        let store = RedisStore::builder().deadline(patience);
        let store = store.connect_limit(patience);
        Self(store.connect(&server.url()).unwrap())
    }
}

impl Subject for Redis {
    type Limiter = RedisLimiter;

    fn limiter(&self, name: &str, quotas: Vec<Quota>, clock: ManualClock) -> RedisLimiter {
        let builder = RedisLimiter::builder(quotas)
            .name(name.replace('@', "."))
            .remember_denials(false)
            .on_failure(OnFailure::deny())
            .test_clock(clock);
        let limiter = builder.build(&self.0);
        limiter.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn set_quota(&self, limiter: &RedisLimiter, name: &str, quota: Quota) {
        limiter.set_quota(name, quota).unwrap();
    }
}

#[tokio::test]
async fn every_vector_holds() {
    if no_redis() {
        return;
    }
    let server = Server::start().await;
    decisions::every_vector_holds(&Redis::at(&server)).await;
    let calls = server.command_count("evalsha").await;
    assert!(calls > 470, "{calls} calls: each step is one, at least");
}

#[tokio::test]
async fn every_vector_holds_in_valkey() {
    if no_valkey() {
        return;
    }
    let server = Setup::valkey().start().await;
    decisions::every_vector_holds(&Redis::at(&server)).await;
}
