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
mod cluster_nodes_parser;
mod failing_proxy;
pub mod missing_programs;
mod postgres;
mod redis_server;
mod sentinel;
mod server_settings;
mod sharding_proxy;

pub use self::{
    cluster::Cluster,
    failing_proxy::{Flow, Proxy},
    postgres::{PgBouncer, Postgres},
    redis_server::{Server, connect},
    sentinel::Sentinels,
    server_settings::{PRIMARY_NAME, Setup, faketime_library},
    sharding_proxy::ShardingProxy,
};

/// Ends a test if one of these programs is not installed: `needs!(redis, openssl)`. Where all
/// of them are required, the test fails; see [`missing`](crate::child_processes::missing).
#[macro_export]
macro_rules! needs {
    ($($program:ident),+) => {
        $(if $crate::servers::missing_programs::$program() {
            return;
        })+
    };
}
