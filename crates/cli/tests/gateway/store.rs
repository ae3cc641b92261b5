//! Redis behind the gateway: one server, a cluster, sentinels, a server that rejects the gateway,
//! and none.

use std::net::Ipv4Addr;

use testkit::{
    child_processes::{eventually, free_port},
    needs,
    servers::{
        Cluster, Sentinels, Setup, ShardingProxy,
        certificates::{CLIENT, make_client_certificate},
    },
};

use crate::{
    gateway_process::{Gateway, bounded},
    raw_http1::Wire,
    recording_upstream::Upstream,
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
        gateway.logs("Redis cannot be used: ").await;
        gateway
            .logs("until it can, store.on_failure of the rules decides")
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
    needs!(redis);
    bounded(async {
        let upstream = Upstream::start().await;
        let server = testkit::servers::Server::start().await;
        let wrong = server.url().replace("redis://", "redis://nobody:wrong@");
        let options = ["--redis", &wrong, "--ready-needs-store"];
        let gateway = Gateway::start(upstream.port, &options).await;
        gateway.logs("Redis cannot be used: ").await;
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

/// A proxy that the rules trust.
const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 7);

/// Two gateways count the requests of these clients together.
async fn count_together(url: &str, clients: &[&str], more: &[&str]) {
    let upstream = Upstream::start().await;
    // Longer than any delay of Redis on a busy machine.
    let deadline = ["--redis-deadline", "60s"];
    let options = [
        &["--redis", url, "--redis-prefix", "shop"][..],
        &deadline,
        more,
    ]
    .concat();
    let one = Gateway::start(upstream.port, &options).await;
    let other = Gateway::start(upstream.port, &options).await;
    for client in clients {
        let lines = format!("GET /limited HTTP/1.1\nx-forwarded-for: {client}");
        let mut statuses = Vec::new();
        for gateway in [&one, &other, &one, &other] {
            let mut wire = Wire::connect_from(PROXY, gateway.port).await;
            statuses.push(wire.answer(&lines).await.0.status());
        }
        assert_eq!(statuses, [200, 200, 429, 429], "{client}");
    }
}

#[tokio::test]
async fn redis_may_ask_a_gateway_for_a_certificate() {
    needs!(redis, openssl);
    bounded(async {
        let upstream = Upstream::start().await;
        let server = Setup::redis().tls_clients().start().await;
        let authority = server.authority();
        let folder = authority.parent().unwrap();
        make_client_certificate(folder);
        let [certificate, key] = CLIENT.map(|name| folder.join(name));
        let [authority, certificate, key] =
            [&authority, &certificate, &key].map(|file| file.to_str().unwrap());
        let url = server.url();
        let files = [
            ["--redis", &url],
            ["--redis-tls-ca", authority],
            ["--redis-tls-cert", certificate],
            ["--redis-tls-key", key],
        ];
        let options = [files.as_flattened(), &["--ready-needs-store"]].concat();
        let gateway = Gateway::start(upstream.port, &options).await;
        eventually("readiness", async || {
            (ready(&gateway).await == 200).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn gateways_count_together_in_redis() {
    needs!(redis);
    bounded(async {
        let server = Setup::redis().start().await;
        count_together(&server.url(), &["203.0.113.7"], &[]).await;
    })
    .await;
}

/// Their subjects are on several servers.
const CLIENTS: [&str; 8] = [
    "203.0.113.1",
    "203.0.113.2",
    "203.0.113.3",
    "203.0.113.4",
    "203.0.113.5",
    "203.0.113.6",
    "203.0.113.7",
    "203.0.113.8",
];

#[tokio::test]
async fn gateways_count_together_in_a_cluster() {
    needs!(redis);
    bounded(async {
        let cluster = Cluster::start().await;
        let url = cluster.url();
        count_together(&url, &CLIENTS, &[]).await;
    })
    .await;
}

#[tokio::test]
async fn gateways_count_together_by_sentinels() {
    needs!(redis);
    bounded(async {
        let sentinels = Sentinels::start(1).await;
        count_together(&sentinels.url(), &["203.0.113.7"], &[]).await;
    })
    .await;
}

/// Without the option each gateway counts by itself there: the servers do not know its scripts, or the connection
/// ends at once.
async fn count_together_behind(proxy: ShardingProxy) {
    count_together(&proxy.url(), &CLIENTS, &["--redis-sharding-proxy"]).await;
}

#[tokio::test]
async fn gateways_count_together_behind_envoy() {
    needs!(redis, envoy);
    bounded(async { count_together_behind(ShardingProxy::envoy().await).await }).await;
}

#[tokio::test]
async fn gateways_count_together_behind_twemproxy() {
    needs!(redis, twemproxy);
    bounded(async { count_together_behind(ShardingProxy::twemproxy().await).await }).await;
}
