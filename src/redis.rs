//! Redis as the store of limits that all nodes share.

pub use tower_ratelimit_store::redis::RedisStoreBuilder;
