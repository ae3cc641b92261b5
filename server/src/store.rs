//! The place where everything is counted: this process, or Redis.

use tower_ratelimit::{
    LocalStore, OnFailure, RedisStore, RedisStoreBuilder,
    rules::{Rules, RulesBuilder},
};

use crate::{
    counters::Counters,
    error::{ServeError, fault},
};

/// Where everything is counted.
#[derive(Clone)]
pub(crate) enum Store {
    Local(LocalStore),
    Redis(RedisStore),
}

impl Store {
    pub(crate) fn counters(&self, on_failure: OnFailure) -> Counters {
        match self {
            Self::Local(store) => Counters::local(store),
            Self::Redis(store) => Counters::redis(store, on_failure),
        }
    }

    /// Reads rules of requests that count here.
    pub(crate) fn request_rules(&self) -> RulesBuilder {
        match self.clone() {
            Self::Local(store) => Rules::builder().store(store),
            Self::Redis(store) => Rules::builder().store(store),
        }
    }

    /// The store in the labels of metrics.
    pub(crate) const fn backend(&self) -> &'static str {
        match self {
            Self::Local(_) => "local",
            Self::Redis(_) => "redis",
        }
    }
}

/// The store at this address, whose keys begin with the prefix.
pub(crate) fn redis(
    store: RedisStoreBuilder,
    prefix: Option<&str>,
    address: &str,
) -> Result<RedisStore, ServeError> {
    let store = prefix.into_iter().fold(store, RedisStoreBuilder::prefix);
    store
        .connect(address)
        .map_err(|error| fault("--redis", &error))
}
