//! HAProxy, Caddy and Apache in front of the gateway: clients behind trusted ones have their own
//! limits, and no client chooses its address.

use std::{fs, net::Ipv4Addr};

use crate::{
    gateway_process::{Gateway, bounded},
    raw_http1::Wire,
    recording_upstream::Upstream,
    server_processes::{Program, is_missing},
};

/// The address of the proxies' connections.
const PROXY: Ipv4Addr = Ipv4Addr::LOCALHOST;
const ALICE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const BOB: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// A gateway that trusts these networks, with a proxy in front of it.
struct Chain {
    upstream: Upstream,
    _gateway: Gateway,
    proxy: Program,
}

impl Chain {
    async fn start(trust: &str, option: &str) -> Self {
        let arguments = ["-db", "-f", "config"];
        Self::start_program(trust, "haproxy", &arguments, |port, gateway| {
            format!(
                "global
                     nbthread 1
                 defaults
                     mode http
                     timeout connect 60s
                     timeout client 60s
                     timeout server 60s
                 frontend clients
                     bind 127.0.0.1:{port}
                     {option}
                     default_backend gateway
                 backend gateway
                     http-reuse always
                     server gateway 127.0.0.1:{gateway} source {PROXY}\n"
            )
        })
        .await
    }

    async fn start_program(
        trust: &str,
        program: &str,
        arguments: &[&str],
        config: impl Fn(u16, u16) -> String,
    ) -> Self {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let rules = format!(
            "client_ip: {{trust: [{trust}]}}\nrules: [{{name: each, key: client_ip, quota: 2/day}}]\n"
        );
        fs::write(gateway.folder.path().join("rules.yaml"), rules).unwrap();
        gateway.process.hang_up();
        gateway.logs("read the rules again").await;
        let proxy = Program::start(program, arguments, |port| config(port, gateway.port)).await;
        Self {
            upstream,
            _gateway: gateway,
            proxy,
        }
    }

    /// The status for a client at this address, which sends this `X-Forwarded-For`.
    async fn status(&self, from: Ipv4Addr, forwarded: &str) -> u16 {
        let mut wire = Wire::connect_from(from, self.proxy.port).await;
        let forwarded = match forwarded {
            "" => String::new(),
            addresses => format!("\nx-forwarded-for: {addresses}"),
        };
        let lines = format!("GET / HTTP/1.1\nconnection: close{forwarded}");
        wire.answer(&lines).await.0.status()
    }

    /// Fails unless each client has a limit of its own, and its denied uploads keep the connection.
    async fn limits_each(&self) {
        for client in [ALICE, BOB] {
            assert_eq!(self.status(client, "").await, 200);
            // The proxy appends an address or replaces all, so the ones before it are ignored.
            assert_eq!(self.status(client, "192.0.2.1, 127.0.0.1").await, 200);
            for forwarded in ["", "192.0.2.2", "127.0.0.1", "unknown"] {
                assert_eq!(
                    self.status(client, forwarded).await,
                    429,
                    "{client} {forwarded}"
                );
            }
            let mut wire = Wire::connect_from(client, self.proxy.port).await;
            let body = "x".repeat(UPLOAD);
            for _ in 0..3 {
                wire.send(format!(
                    "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {UPLOAD}\r\n\r\n{body}"
                ))
                .await;
                assert_eq!(wire.message().await.unwrap().0.status(), 429, "{client}");
            }
        }
        let (first, _) = self.upstream.requests().remove(0);
        let list = first.field("x-forwarded-for");
        assert_eq!(list, Some("127.0.0.2, 127.0.0.1"));
    }
}

/// The bytes of a denied upload.
const UPLOAD: usize = 100_000;

#[tokio::test]
async fn clients_behind_haproxy_have_their_own_limits() {
    if is_missing("haproxy", "haproxy") {
        return;
    }
    bounded(async {
        let chain = Chain::start("127.0.0.1", "option forwardfor").await;
        chain.limits_each().await;
    })
    .await;
}

#[tokio::test]
async fn clients_behind_caddy_have_their_own_limits() {
    if is_missing("caddy", "caddy") {
        return;
    }
    bounded(async {
        let arguments = ["run", "--config", "config", "--adapter", "caddyfile"];
        let chain = Chain::start_program("127.0.0.1", "caddy", &arguments, |port, gateway| {
            format!(
                "{{
    admin off
    auto_https off
}}
http://:{port} {{
    bind 127.0.0.1
    reverse_proxy 127.0.0.1:{gateway}
}}
"
            )
        });
        chain.await.limits_each().await;
    })
    .await;
}

#[tokio::test]
async fn clients_behind_apache_have_their_own_limits() {
    if is_missing("apache2", "apache2-bin") {
        return;
    }
    bounded(async {
        // One process, in the foreground.
        let arguments = ["-X", "-f", "config", "-d", "."];
        let chain = Chain::start_program("127.0.0.1", "apache2", &arguments, |port, gateway| {
            let modules = ["mpm_event", "authz_core", "proxy", "proxy_http"].map(|name| {
                format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n")
            });
            let modules = modules.concat();
            format!(
                "ServerName localhost
PidFile pid
DefaultRuntimeDir .
Mutex file:.
ErrorLog /dev/stderr
Listen 127.0.0.1:{port}
{modules}
ProxyPass / http://127.0.0.1:{gateway}/
"
            )
        });
        chain.await.limits_each().await;
    })
    .await;
}

#[tokio::test]
async fn without_trust_haproxy_is_the_client() {
    if is_missing("haproxy", "haproxy") {
        return;
    }
    bounded(async {
        let chain = Chain::start("192.0.2.0/24", "option forwardfor").await;
        for (client, status) in [(ALICE, 200), (BOB, 200), (ALICE, 429), (BOB, 429)] {
            assert_eq!(chain.status(client, "").await, status, "{client}");
        }
        let (first, _) = chain.upstream.requests().remove(0);
        assert_eq!(first.field("x-forwarded-for"), Some("127.0.0.1"));
    })
    .await;
}

/// The misconfiguration that the page warns about.
#[tokio::test]
async fn haproxy_with_if_none_lets_clients_choose_their_address() {
    if is_missing("haproxy", "haproxy") {
        return;
    }
    bounded(async {
        let chain = Chain::start("127.0.0.1", "option forwardfor if-none").await;
        for forwarded in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
            assert_eq!(chain.status(ALICE, forwarded).await, 200, "{forwarded}");
        }
    })
    .await;
}
