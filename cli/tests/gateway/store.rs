//! A Redis that refuses the gateway, or is not there.

use testkit::programs::{eventually, free_port};

use crate::{
    gateway::{Gateway, bounded},
    upstream::Upstream,
    wire::Wire,
};

async fn ready(gateway: &Gateway) -> u16 {
    let mut wire = Wire::connect(gateway.http).await;
    wire.answer("GET /readyz HTTP/1.1").await.0.status()
}

#[tokio::test]
async fn store_that_cannot_be_used_is_in_the_log_before_any_request() {
    bounded(async {
        let upstream = Upstream::start().await;
        let url = format!("redis://127.0.0.1:{}", free_port());
        let gateway = Gateway::start(upstream.port, &["--redis", &url]).await;
        gateway.says("Redis cannot be used: ").await;
        gateway
            .says("until it can, store.on_failure of the rules decides")
            .await;
        assert_eq!(ready(&gateway).await, 200);
        let needing =
            Gateway::start(upstream.port, &["--redis", &url, "--ready-needs-store"]).await;
        assert_eq!(ready(&needing).await, 503);
    })
    .await;
}

#[tokio::test]
async fn wrong_password_is_in_the_log_and_readiness_follows_the_store() {
    testkit::needs!(redis);
    bounded(async {
        let upstream = Upstream::start().await;
        let server = testkit::servers::Server::start().await;
        let wrong = server.url().replace("redis://", "redis://nobody:wrong@");
        let options = ["--redis", &wrong, "--ready-needs-store"];
        let gateway = Gateway::start(upstream.port, &options).await;
        gateway.says("Redis cannot be used: ").await;
        let log = gateway.process.log().to_lowercase();
        assert!(log.contains("password") && !log.contains("nobody"), "{log}");
        assert_eq!(ready(&gateway).await, 503);
        let url = server.url();
        let options = ["--redis", &url, "--ready-needs-store"];
        let gateway = Gateway::start(upstream.port, &options).await;
        eventually("readiness", async || {
            (ready(&gateway).await == 200).then_some(())
        })
        .await;
        assert!(!gateway.process.log().contains("cannot be used"));
    })
    .await;
}
