//! Redis: the connection that limiters share, the scripts that decide, and permits as leases.

pub(crate) mod permits;
pub(crate) mod script;
pub(crate) mod store;

pub use self::store::{RedisStore, RedisStoreBuilder};
pub use crate::store::{
    error::{StoreError, StoreErrorKind},
    health::StoreHealth,
    stats::StoreStats,
};
