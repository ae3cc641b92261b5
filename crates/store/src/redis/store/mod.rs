//! The connection to Redis: one handle, [`RedisStore`], that many limiters share.
//!
//! In: a script with keys and arguments, and the time until which somebody waits for the reply. Out: the reply, or an error
//! whose kind tells a call that was not sent from one that the server may have run.
//!
//! 1. `redis_store.rs` finds the pipeline of the call. In a cluster each server has one, with everything below, and a call
//!    goes to the server that owns the slot of its key (`cluster.rs`, `slots.rs`).
//! 2. `pipeline.rs` checks the breaker (`breaker.rs`), and takes a place among the calls in flight (`in_flight.rs`). A
//!    call that gets none in time is not sent.
//! 3. It takes the connection, or waits for it to open (`connection.rs`, `connector.rs`), and sends the script's digest;
//!    the text goes only to a server that does not know it (`script_by_digest.rs`). A call that a closed connection did
//!    not take is sent once more, by a new one.
//! 4. All of this is within one deadline. The outcome goes to the breaker, which stops calls after failures in a row, and
//!    runs trials until Redis works again (`probe.rs`).
//!
//! Example: the server hangs. Calls time out at the deadline; the third in a row opens the breaker and closes the
//! connection. Calls then fail at once, and each limiter's fallback decides, until a trial has a reply.

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
pub mod redis_store;
pub mod script_by_digest;
mod slots;

#[cfg(test)]
mod tests;

pub use self::{builder::RedisStoreBuilder, redis_store::RedisStore};
