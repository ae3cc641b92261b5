//! Real servers, started and killed by the tests that use them.
//!
//! ```ignore
//! if no_redis() {
//!     return;
//! }
//! let mut server = Setup::redis().password("secret").start().await;
//! let proxy = Proxy::before(server.address()).await;
//! let limiter = RedisLimiter::connect(&server.url_through(proxy.port()), quota)?;
//! ```
#![allow(dead_code, reason = "each test file uses a part")]

mod certificates;
mod cluster;
mod nodes;
mod proxy;
mod sentinel;
mod server;
mod setup;

pub(crate) use self::{
    cluster::Cluster,
    proxy::{Flow, Proxy},
    sentinel::Sentinels,
    server::{Server, connect},
    setup::{
        PRIMARY_NAME, Setup, faketime_library, no_fake_clock, no_openssl, no_redis, no_valkey,
    },
};
