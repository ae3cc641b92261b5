//! The connection to Redis: one handle, [`RedisStore`], that many limiters share.
//!
//! A call takes a place among those that are under way, asks the breaker, takes the connection,
//! sends one command and waits, all within one deadline. The outcome goes back to the breaker,
//! which stops calls after failures in a row and has trials run until Redis works again.

mod address;
mod breaker;
mod builder;
mod fault;
mod gate;
mod handle;
mod health;
mod link;
mod opener;
mod pace;
mod script;
mod shared;
mod trial;
mod wire;

#[cfg(test)]
mod tests;

pub use self::{
    builder::RedisStoreBuilder,
    fault::{StoreError, StoreErrorKind},
    handle::RedisStore,
    health::{StoreHealth, StoreStats},
};
pub(in crate::limiter) use self::{pace::Place, script::Script};
