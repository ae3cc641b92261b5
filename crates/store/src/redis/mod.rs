//! Redis: the connection that limiters share, the scripts that decide, and permits as leases.

#[doc(hidden)]
pub mod script;
#[doc(hidden)]
pub mod store;

pub use self::store::RedisStoreBuilder;
