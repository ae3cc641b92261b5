//! The version of HTTP for the upstream: ALPN with nginx and Caddy, gRPC and WebSockets by TLS.

use std::{collections::HashSet, fs, path::Path};

use tempfile::TempDir;
use testkit::{
    needs,
    servers::certificates::{AUTHORITY, CERTIFICATE, KEY, make_certificates},
};
use tonic::Code;

use crate::{
    gateway_process::{Gateway, bounded},
    http2::{about, health, health_client},
    recording_upstream::Upstream,
    server_processes::{Program, is_missing},
    upstream_tls_relay::{Plain, TlsRelay},
};

fn certificates() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    make_certificates(folder.path());
    folder
}

/// A gateway that trusts the authority of this folder.
async fn gateway(trusted: &Path, url: &str, version: &str) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(trusted.join(AUTHORITY), folder.path().join(AUTHORITY)).unwrap();
    let options = ["--upstream-ca", AUTHORITY, "--upstream-http", version];
    Gateway::start_to(folder, url, &options).await
}

/// The version and the host that the server reports.
async fn seen(gateway: &Gateway) -> String {
    let mut wire = gateway.connect().await;
    wire.request("GET /a HTTP/1.1\nhost: shop.example").await;
    let (head, body) = wire.message().await.unwrap();
    assert_eq!(head.status(), 200, "{}", gateway.process.log());
    body
}

/// The most requests that nginx accepts on one connection here; 1,000 by default.
const REQUESTS_OF_A_CONNECTION: u32 = 100;

async fn nginx(folder: &Path, http2: &str, tls: bool) -> Program {
    let ssl = if tls { "ssl" } else { "" };
    let (cert, key) = (folder.join(CERTIFICATE), folder.join(KEY));
    let (cert, key) = (cert.display(), key.display());
    Program::start(
        "nginx",
        &["-c", "config", "-p", ".", "-e", "/dev/null"],
        |port| {
            format!(
                "daemon off;
             worker_processes 1;
             pid pid;
             events {{}}
             http {{
                 access_log off;
                 client_body_temp_path a;
                 proxy_temp_path b;
                 fastcgi_temp_path c;
                 uwsgi_temp_path d;
                 scgi_temp_path e;
                 server {{
                     listen 127.0.0.1:{port} {ssl} {http2};
                     ssl_certificate {cert};
                     ssl_certificate_key {key};
                     keepalive_requests {REQUESTS_OF_A_CONNECTION};
                     add_header Number-Of-Connection $connection;
                     location / {{ return 200 \"$server_protocol $host\"; }}
                 }}
             }}\n"
            )
        },
    )
    .await
}

#[tokio::test]
async fn nginx_selects_the_version_by_alpn() {
    needs!(openssl);
    if is_missing("nginx", "nginx") {
        return;
    }
    bounded(async {
        let folder = certificates();
        let both = nginx(folder.path(), "http2", true).await;
        let only1 = nginx(folder.path(), "", true).await;
        for (server, version, expected) in [
            (&both, "auto", "HTTP/2.0 shop.example"),
            (&both, "1", "HTTP/1.1 shop.example"),
            (&both, "2", "HTTP/2.0 shop.example"),
            (&only1, "auto", "HTTP/1.1 shop.example"),
            (&only1, "1", "HTTP/1.1 shop.example"),
        ] {
            let url = format!("https://127.0.0.1:{}", server.port);
            let gateway = gateway(folder.path(), &url, version).await;
            for _ in 0..20 {
                assert_eq!(seen(&gateway).await, expected);
            }
        }
    })
    .await;
}

/// Nine times the requests that nginx accepts on one connection.
#[tokio::test]
async fn connections_that_nginx_ends_are_replaced() {
    needs!(openssl);
    if is_missing("nginx", "nginx") {
        return;
    }
    bounded(async {
        let folder = certificates();
        let server = nginx(folder.path(), "http2", true).await;
        let url = format!("https://127.0.0.1:{}", server.port);
        let gateway = gateway(folder.path(), &url, "auto").await;
        let mut wire = gateway.connect().await;
        let mut connections = HashSet::new();
        for _ in 0..9 * REQUESTS_OF_A_CONNECTION {
            let (head, _) = wire.answer("GET /a HTTP/1.1").await;
            assert_eq!(head.status(), 200, "{}", gateway.process.log());
            connections.insert(head.field("number-of-connection").unwrap().to_owned());
        }
        assert!(connections.len() >= 9, "{connections:?}");
    })
    .await;
}

#[tokio::test]
async fn upstream_without_tls_speaks_http2_on_request() {
    if is_missing("nginx", "nginx") {
        return;
    }
    needs!(openssl);
    bounded(async {
        let folder = certificates();
        let server = nginx(folder.path(), "http2", false).await;
        let options = ["--upstream-http", "2"];
        let gateway = Gateway::start(server.port, &options).await;
        assert_eq!(seen(&gateway).await, "HTTP/2.0 shop.example");
        let server = nginx(folder.path(), "", false).await;
        for version in ["auto", "1"] {
            let gateway = Gateway::start(server.port, &["--upstream-http", version]).await;
            assert_eq!(seen(&gateway).await, "HTTP/1.1 shop.example");
        }
    })
    .await;
}

#[tokio::test]
async fn caddy_selects_the_version_by_alpn() {
    needs!(openssl);
    if is_missing("caddy", "caddy") {
        return;
    }
    bounded(async {
        let folder = certificates();
        let (cert, key) = (folder.path().join(CERTIFICATE), folder.path().join(KEY));
        let arguments = ["run", "--config", "config", "--adapter", "caddyfile"];
        let caddy = Program::start("caddy", &arguments, |port| {
            format!(
                "{{
    admin off
    auto_https off
    default_sni localhost
}}
https://:{port} {{
    bind 127.0.0.1
    tls {} {}
    respond \"{{http.request.proto}} {{http.request.host}}\"
}}
",
                cert.display(),
                key.display()
            )
        });
        let caddy = caddy.await;
        let url = format!("https://127.0.0.1:{}", caddy.port);
        for (version, expected) in [
            ("auto", "HTTP/2.0 shop.example"),
            ("1", "HTTP/1.1 shop.example"),
            ("2", "HTTP/2.0 shop.example"),
        ] {
            let gateway = gateway(folder.path(), &url, version).await;
            assert_eq!(seen(&gateway).await, expected);
        }
    })
    .await;
}

#[tokio::test]
async fn grpc_goes_by_tls_and_web_sockets_by_http1() {
    needs!(openssl);
    bounded(async {
        let folder = certificates();
        let (_reporter, tonic) = health().await;
        let upstream = Upstream::start().await;
        let plain = Plain {
            http1: Some(upstream.port),
            http2: Some(tonic),
        };
        let relay = TlsRelay::start(folder.path(), plain).await;
        let gateway = gateway(folder.path(), &relay.url(), "auto").await;
        let mut client = health_client(&gateway);
        assert_eq!(
            client
                .check(about("shop"))
                .await
                .unwrap()
                .into_inner()
                .status,
            1
        );
        let error = client.check(about("none")).await.unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        assert_eq!(relay.connections()[0], 0);

        let mut wire = gateway.connect().await;
        let upgrade = "GET /chat HTTP/1.1\nconnection: upgrade\nupgrade: websocket";
        assert_eq!(wire.answer(upgrade).await.0.status(), 101);
        wire.send("hello").await;
        assert_eq!(wire.read(5).await.unwrap(), b"HELLO");
        assert_eq!(relay.connections()[0], 1);
    })
    .await;
}

#[tokio::test]
async fn grpc_to_an_upstream_without_http2_is_a_502() {
    needs!(openssl);
    bounded(async {
        let folder = certificates();
        let upstream = Upstream::start().await;
        let plain = Plain {
            http1: Some(upstream.port),
            http2: None,
        };
        let relay = TlsRelay::start(folder.path(), plain).await;
        let gateway = gateway(folder.path(), &relay.url(), "auto").await;
        let error = health_client(&gateway).check(about("shop")).await;
        assert_ne!(error.unwrap_err().code(), Code::Ok);
        gateway.logs("it does not agree on HTTP/2").await;
        assert_eq!(upstream.requests().len(), 0);
    })
    .await;
}

/// Clients choose hosts, and the gateway the number of its connections.
#[tokio::test]
async fn hosts_of_clients_open_no_connections() {
    needs!(openssl);
    bounded(async {
        let folder = certificates();
        let (_reporter, tonic) = health().await;
        let plain = Plain {
            http1: None,
            http2: Some(tonic),
        };
        let relay = TlsRelay::start(folder.path(), plain).await;
        let gateway = gateway(folder.path(), &relay.url(), "2").await;
        let mut wire = gateway.connect().await;
        for host in 0..100 {
            wire.request(&format!("GET / HTTP/1.1\nhost: host{host}.example"))
                .await;
            assert!(wire.message().await.is_some());
        }
        assert!(relay.connections()[1] <= 8, "{:?}", relay.connections());
    })
    .await;
}
