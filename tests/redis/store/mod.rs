//! A store finds its server, notices what happens to it, and recovers.

mod clusters;
mod log_lines;
mod password_file;
mod sentinels;
mod server_connection;
mod sharding_proxies;
mod tls;
mod tls_on_one_side;

use std::time::Duration;

use tower_ratelimit::{RedisStore, redis::RedisStoreBuilder, store::StoreErrorKind};

/// No test depends on a machine's being fast.
fn patient() -> RedisStoreBuilder {
    RedisStore::builder()
        .deadline(Duration::from_secs(10))
        .connect_timeout(Duration::from_secs(10))
}

async fn fault(store: &RedisStore) -> StoreErrorKind {
    match store.check().await {
        Ok(()) => panic!("it works"),
        Err(error) => error.kind(),
    }
}
