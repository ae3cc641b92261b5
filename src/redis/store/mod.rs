//! The connection to Redis: one handle, [`RedisStore`], that many limiters share.
//!
//! A call takes a place in the window of calls in flight, checks the breaker, takes the connection,
//! sends one command and waits, all within one deadline. Its outcome is reported to the breaker.
//! The breaker stops calls after failures in a row, and runs trials until Redis works again. In a
//! cluster each server has all of these for itself, and a call goes to the server that owns its
//! key's slot.

mod address;
mod builder;
mod call;
mod cluster;
mod common;
mod connection;
mod connector;
mod error;
pub(crate) mod handle;
pub(crate) mod in_flight_window;
mod membership;
mod pipeline;
mod probe;
pub(crate) mod script;
mod servers;
mod slots;
mod transport;

#[cfg(test)]
mod tests;

pub use self::{builder::RedisStoreBuilder, handle::RedisStore};
