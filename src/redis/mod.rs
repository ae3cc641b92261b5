//! Redis: the connection that limiters share, the scripts that decide, and permits as leases.

pub(crate) mod permits;
pub(crate) mod script;
pub(crate) mod store;

pub use self::store::RedisStoreBuilder;
