//! Redis: the connection that limiters share, the scripts that decide there, and permits as leases.

pub(crate) mod key_name;
pub(crate) mod permits;
pub(crate) mod script;
pub(crate) mod store;

pub use self::store::{
    RedisStore, RedisStoreBuilder, StoreError, StoreErrorKind, StoreHealth, StoreStats,
};
