//! Redis: the connection that limiters share, and the scripts that decide.

#[doc(hidden)]
pub mod script;
#[doc(hidden)]
pub mod store;

pub use self::store::RedisStoreBuilder;
