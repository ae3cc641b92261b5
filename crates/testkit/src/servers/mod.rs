//! Real servers, started and killed by the tests that use them.
//!
//! ```ignore
//! needs!(redis);
//! let mut server = Setup::redis().password("secret").start().await;
//! let proxy = Proxy::before(server.address()).await;
//! let limiter = RedisLimiter::connect(&server.url_through(proxy.port()), quota)?;
//! ```

pub mod certificates;
mod cluster;
pub mod missing;
mod nodes;
mod postgres;
mod proxy;
mod sentinel;
mod server;
mod setup;
mod sharding_proxy;

pub use self::{
    cluster::Cluster,
    postgres::{PgBouncer, Postgres},
    proxy::{Flow, Proxy},
    sentinel::Sentinels,
    server::{Server, connect},
    setup::{PRIMARY_NAME, Setup, faketime_library},
    sharding_proxy::ShardingProxy,
};

/// Ends a test if one of these programs is not installed: `needs!(redis, openssl)`. Where all
/// of them are required, the test fails; see [`missing`](crate::programs::missing).
#[macro_export]
macro_rules! needs {
    ($($program:ident),+) => {
        $(if $crate::servers::missing::$program() {
            return;
        })+
    };
}
