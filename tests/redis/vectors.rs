//! The decision vectors hold in Redis, too.

use std::time::Duration;

use testkit::{
    charge_vectors::{self, Setup, Tiered},
    decision_vectors::{self, Subject},
    needs,
};
use tower_ratelimit::{
    OnFailure, Quota, RedisLimiter, RedisStore, clock::ManualClock, shared::RedisLimiterBuilder,
};

use crate::servers::{self, Server};

struct Redis(RedisStore);

impl Redis {
    fn at(server: &Server) -> Self {
        // A busy machine must not look like a failing server.
        let patience = Duration::from_secs(20);
        let store = RedisStore::builder().deadline(patience);
        let store = store.connect_timeout(patience);
        Self(store.connect(&server.url()).unwrap())
    }

    /// The limiter of a vector, which has its counts to itself.
    fn limiter_of(
        &self,
        name: &str,
        builder: RedisLimiterBuilder,
        clock: ManualClock,
    ) -> RedisLimiter {
        let accepted = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let limiter = builder
            .name(name.replace(|letter| !accepted(letter), "."))
            .remember_denials(false)
            .on_failure(OnFailure::deny())
            .test_clock(clock)
            .build(&self.0);
        limiter.unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

impl Subject for Redis {
    type Limiter = RedisLimiter;

    fn limiter(&self, name: &str, quotas: Vec<Quota>, clock: ManualClock) -> RedisLimiter {
        self.limiter_of(name, RedisLimiter::builder(quotas), clock)
    }

    fn set_quota(&self, limiter: &RedisLimiter, name: &str, quota: Quota) {
        limiter.set_quota(name, quota).unwrap();
    }
}

impl Tiered for Redis {
    /// Another kind of quota is counted under another key.
    const LEFT_OUT: &'static [&'static str] = &["changed_quota_joins_the_counter_of_its_kind"];

    fn tiered(&self, name: &str, setup: Setup, clock: ManualClock) -> RedisLimiter {
        let mut builder = RedisLimiter::builder(setup.quotas);
        for (tier, quotas) in setup.tiers {
            builder = builder.tier(tier, quotas);
        }
        if let Some(block) = setup.block_for {
            builder = builder.block_for(block);
        }
        self.limiter_of(name, builder, clock)
    }
}

#[tokio::test]
async fn every_vector_holds() {
    needs!(redis);
    let server = Server::start().await;
    decision_vectors::every_vector_holds(&Redis::at(&server)).await;
    let calls = server.command_count("evalsha").await;
    assert!(calls > 470, "{calls} calls: each step is one, at least");
}

#[tokio::test]
async fn every_vector_holds_in_valkey() {
    needs!(valkey);
    let server = servers::Setup::valkey().start().await;
    decision_vectors::every_vector_holds(&Redis::at(&server)).await;
}

#[tokio::test]
async fn every_vector_of_the_calendar_holds() {
    needs!(redis);
    let server = Server::start().await;
    charge_vectors::every_calendar_vector_holds(&Redis::at(&server)).await;
}

#[tokio::test]
async fn every_vector_of_charges_holds() {
    needs!(redis);
    let server = Server::start().await;
    charge_vectors::every_vector_holds(&Redis::at(&server)).await;
}
