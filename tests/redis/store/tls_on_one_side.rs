//! One side speaks TLS and the other does not.

use std::time::Duration;

use testkit::{child_processes::free_port, needs};
use tower_ratelimit::redis::RedisStoreBuilder;

use super::patient;
use crate::servers::Setup;

/// The text of the error with this scheme in place of the server's.
async fn error_with(store: RedisStoreBuilder, server: Setup, scheme: &str) -> String {
    let server = server.start().await;
    let url = format!("{scheme}://127.0.0.1:{}", server.port());
    let error = store.connect(&url).unwrap().check().await.unwrap_err();
    error.to_string()
}

#[tokio::test]
async fn a_server_that_speaks_tls_is_named_in_the_error() {
    needs!(redis, openssl);
    let error = error_with(patient(), Setup::redis().tls(), "redis").await;
    assert!(error.contains("with rediss"), "{error}");
    let error = error_with(patient(), Setup::redis().tls(), "redis-cluster").await;
    assert!(error.contains("with rediss"), "{error}");
}

#[tokio::test]
async fn where_nobody_listens_the_error_is_not_about_tls() {
    for scheme in ["redis", "rediss"] {
        let url = format!("{scheme}://127.0.0.1:{}", free_port());
        let error = patient().connect(&url).unwrap().check().await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("refused") && !text.contains("TLS"), "{text}");
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_named_in_the_error() {
    needs!(redis);
    // There is never a response, however long a store waits.
    let store = patient().connect_timeout(Duration::from_secs(1));
    let error = error_with(store, Setup::redis(), "rediss").await;
    assert!(error.contains("no TLS"), "{error}");
}
