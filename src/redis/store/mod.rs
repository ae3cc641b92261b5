//! The connection to Redis: one handle, [`RedisStore`], that many limiters share.
//!
//! A call takes a place among those that are under way, asks the breaker, takes the connection,
//! sends one command and waits, all within one deadline. The outcome goes back to the breaker,
//! which stops calls after failures in a row and has trials run until Redis works again. In a cluster
//! each server has all of these for itself, and a call goes to the server that has its key.

mod address;
mod breaker;
mod builder;
mod call;
mod cluster;
mod common;
mod connection;
mod connector;
mod core;
pub(crate) mod error;
pub(crate) mod guard;
pub(crate) mod handle;
pub(crate) mod health;
pub(crate) mod home;
mod listener_thread;
mod membership;
pub(crate) mod pace;
mod probe;
pub(crate) mod script;
mod servers;
mod slots;
mod transport;

#[cfg(test)]
mod tests;

pub use self::{
    builder::RedisStoreBuilder,
    error::{StoreError, StoreErrorKind},
    handle::RedisStore,
    health::{StoreHealth, StoreStats},
};
