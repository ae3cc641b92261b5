//! Limits shared by all nodes through Redis.

mod store;

pub use self::store::{
    RedisStore, RedisStoreBuilder, StoreError, StoreErrorKind, StoreHealth, StoreStats,
};
