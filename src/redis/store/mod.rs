//! The connection to Redis: one handle, [`RedisStore`], that many limiters share.
//!
//! A call checks the breaker, takes a place among the calls in flight, takes the connection, sends one command and waits, all within one deadline. Its outcome is reported to the breaker.
//! The breaker stops calls after failures in a row, and runs trials until Redis works again. In a
//! cluster each server has all of these for itself, and a call goes to the server that owns its
//! key's slot.

mod address;
mod builder;
mod cluster;
mod connection;
mod connector;
mod credentials;
mod error;
mod in_flight;
mod pipeline;
mod probe;
pub(crate) mod redis_store;
pub(crate) mod script_by_digest;
mod slots;

#[cfg(test)]
mod tests;

pub use self::{builder::RedisStoreBuilder, redis_store::RedisStore};
