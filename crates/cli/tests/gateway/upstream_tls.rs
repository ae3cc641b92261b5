//! An upstream by TLS: its certificate, that of the gateway, and equal bytes.

use std::{fs, net::Ipv4Addr, path::Path, process::Command};

use tempfile::TempDir;
use testkit::{
    child_processes::eventually,
    needs,
    servers::certificates::{
        AUTHORITY, CLIENT, make_certificates, make_client_certificate, make_expired_certificate,
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::{
    gateway_process::{Gateway, RULES, bounded},
    metrics::reported,
    recording_upstream::Upstream,
    upstream_tls_relay::{Plain, TlsRelay},
};

const TRUSTING: [&str; 2] = ["--upstream-ca", AUTHORITY];

fn by_http1(upstream: &Upstream) -> Plain {
    Plain {
        http1: Some(upstream.port),
        http2: None,
    }
}

fn certificates() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    make_certificates(folder.path());
    folder
}

/// A folder with a copy of these files.
fn copies(from: &Path, files: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in files {
        fs::copy(from.join(file), folder.path().join(file)).unwrap();
    }
    folder
}

async fn status(gateway: &Gateway) -> u16 {
    let mut wire = gateway.connect().await;
    wire.answer("GET /secret HTTP/1.1").await.0.status()
}

/// The text without what differs from run to run.
fn comparable(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("date:"));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn exchanges_by_tls_have_the_bytes_of_plain_ones() {
    needs!(openssl);
    bounded(async {
        let folder = certificates();
        let (one, other) = (Upstream::start().await, Upstream::start().await);
        let relay = TlsRelay::start(folder.path(), by_http1(&other)).await;
        let plain = Gateway::start(one.port, &[]).await;
        let by_tls = Gateway::start_to(folder, &relay.url(), &TRUSTING).await;
        let upgrade = "connection: upgrade\nupgrade: websocket\nsec-websocket-key: a";
        for (lines, body) in [
            ("GET /a?b=%2f HTTP/1.1\nx-one: 1\nx-two: 2", ""),
            ("GET /hop HTTP/1.1", ""),
            ("GET /trailers HTTP/1.1\nconnection: te\nte: trailers", ""),
            ("POST /b HTTP/1.1\ncontent-length: 3", "abc"),
            (
                "POST /b HTTP/1.1\ntransfer-encoding: chunked",
                "3\r\nabc\r\n0\r\n\r\n",
            ),
            ("GET /limited HTTP/1.1", ""),
            (&format!("GET /chat HTTP/1.1\n{upgrade}"), ""),
        ] {
            let mut responses = Vec::new();
            for gateway in [&plain, &by_tls] {
                let mut wire = gateway.connect().await;
                wire.request(&format!("{lines}\nhost: shop.example")).await;
                wire.send(body).await;
                let (head, body) = if lines.contains("upgrade") {
                    let head = wire.head().await.unwrap();
                    wire.send("hello").await;
                    (
                        head,
                        String::from_utf8(wire.read(5).await.unwrap()).unwrap(),
                    )
                } else {
                    wire.message().await.unwrap()
                };
                responses.push((comparable(&head.0), body));
            }
            assert_eq!(responses[0], responses[1]);
            let requests = [&one, &other].map(|upstream| upstream.requests().pop().unwrap());
            let [plain, by_tls] = requests.map(|(head, body)| (head.0, body));
            assert_eq!(plain, by_tls);
            assert!(plain.0.contains("shop.example"), "{}", plain.0);
        }
    })
    .await;
}

/// A server that answers a handshake in HTTP.
async fn without_tls() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read_u8().await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    port
}

#[tokio::test]
async fn certificate_that_is_not_accepted_is_a_502_with_its_reason() {
    needs!(openssl);
    bounded(async {
        let (good, expired, foreign) = (certificates(), certificates(), certificates());
        make_expired_certificate(expired.path());
        let upstream = Upstream::start().await;
        let plain = format!("https://127.0.0.1:{}", without_tls().await);
        let relay =
            async |folder: &TempDir| TlsRelay::start(folder.path(), by_http1(&upstream)).await;
        let (valid, late) = (relay(&good).await, relay(&expired).await);
        let http2 = [TRUSTING[0], TRUSTING[1], "--upstream-http", "2"];
        let other_name = [TRUSTING[0], TRUSTING[1], "--upstream-name", "other.test"];
        // The name of the foreign authority is that of the good one.
        for (authority, url, options, reason) in [
            (&good, valid.url(), &other_name[..], "other.test"),
            (
                &foreign,
                valid.url(),
                &TRUSTING,
                "BadSignature; --upstream-ca names",
            ),
            (
                &good,
                valid.url(),
                &[],
                "UnknownIssuer; --upstream-ca names",
            ),
            (&expired, late.url(), &TRUSTING, "certificate expired"),
            (&good, plain, &TRUSTING, "is an upstream of http://"),
            (&good, valid.url(), &http2, "--upstream-http selects"),
        ] {
            let folder = copies(authority.path(), &[AUTHORITY]);
            let gateway = Gateway::start_to(folder, &url, options).await;
            for _ in 0..3 {
                assert_eq!(status(&gateway).await, 502, "{reason}");
            }
            gateway.logs(reason).await;
            let log = gateway.process.log();
            let line = "no connection by TLS to the upstream (https://127.0.0.1:";
            assert_eq!(log.matches(line).count(), 1, "{log}");
            let series = r#"ratelimit_gateway_upstream_errors_total{cause="tls"}"#;
            assert_eq!(reported(&gateway, [series]).await, [Some(3.0)], "{log}");
        }
        assert_eq!(upstream.requests().len(), 0);
    })
    .await;
}

#[tokio::test]
async fn files_for_the_upstream_are_read_again() {
    needs!(openssl);
    bounded(async {
        let (first, next) = (certificates(), certificates());
        let upstream = Upstream::start().await;
        let relay = TlsRelay::start(first.path(), by_http1(&upstream)).await;
        let folder = copies(first.path(), &[AUTHORITY]);
        let gateway = Gateway::start_to(folder, &relay.url(), &TRUSTING).await;
        assert_eq!(status(&gateway).await, 200);
        // Open connections stay, so the next one is the upstream's to close.
        relay.exchange(next.path());
        let mut wire = gateway.connect().await;
        assert_eq!(wire.answer("GET /cut HTTP/1.1").await.0.status(), 502);
        assert_eq!(status(&gateway).await, 502);

        let authority = gateway.folder.path().join(AUTHORITY);
        fs::write(&authority, "half a file").unwrap();
        gateway.process.hang_up();
        gateway
            .logs("the certificates for the upstream stay as they were: --upstream-ca")
            .await;
        fs::copy(next.path().join(AUTHORITY), &authority).unwrap();
        gateway.process.hang_up();
        gateway
            .logs("read the certificates for the upstream again")
            .await;
        assert_eq!(status(&gateway).await, 200);
    })
    .await;
}

#[tokio::test]
async fn gateway_presents_its_certificate() {
    needs!(openssl);
    bounded(async {
        let folder = certificates();
        make_client_certificate(folder.path());
        let upstream = Upstream::start().await;
        let relay = TlsRelay::start_for_known_clients(folder.path(), by_http1(&upstream)).await;
        let files = [AUTHORITY, CLIENT[0], CLIENT[1]];
        let start = async |options: &[&str]| {
            let folder = copies(folder.path(), &files);
            Gateway::start_to(folder, &relay.url(), options).await
        };
        let without = start(&TRUSTING).await;
        assert_eq!(status(&without).await, 502);
        without.logs("CertificateRequired").await;
        let [cert, key] = CLIENT;
        let own = ["--upstream-cert", cert, "--upstream-key", key];
        let with = start(&[&TRUSTING[..], &own].concat()).await;
        assert_eq!(status(&with).await, 200);
        assert_eq!(upstream.requests().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn upstream_receives_its_own_host_on_request() {
    needs!(openssl);
    bounded(async {
        let folder = certificates();
        let upstream = Upstream::start().await;
        let relay = TlsRelay::start(folder.path(), by_http1(&upstream)).await;
        let own = [&TRUSTING[..], &["--upstream-host", "upstream"]].concat();
        let named = [&own[..], &["--upstream-name", "localhost"]].concat();
        let port = relay.port;
        for (options, host) in [
            (&TRUSTING[..], "test".to_owned()),
            (&own, format!("127.0.0.1:{port}")),
            (&named, format!("localhost:{port}")),
        ] {
            let folder = copies(folder.path(), &[AUTHORITY]);
            let gateway = Gateway::start_to(folder, &relay.url(), options).await;
            assert_eq!(status(&gateway).await, 200);
            let (head, _) = upstream.requests().pop().unwrap();
            assert_eq!(head.field("host"), Some(&*host));
            assert_eq!(head.field("x-forwarded-host"), Some("test"));
        }
    })
    .await;
}

#[tokio::test]
async fn silent_upstream_delays_nobody_beyond_the_timeout() {
    bounded(async {
        // It accepts connections, and never answers the handshake.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://127.0.0.1:{}", silent.local_addr().unwrap().port());
        let folder = tempfile::tempdir().unwrap();
        let gateway = Gateway::start_to(folder, &url, &["--timeout", "200ms"]).await;
        assert_eq!(status(&gateway).await, 504);
        let folder = tempfile::tempdir().unwrap();
        let gateway = Gateway::start_to(folder, &url, &["--timeout", "1h"]).await;
        assert_eq!(status(&gateway).await, 502);
        gateway.logs("no handshake within 10s").await;
    })
    .await;
}

#[tokio::test]
async fn wrong_options_about_the_upstream_prevent_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("rules.yaml"), RULES).unwrap();
    fs::write(path.join("text.pem"), "no certificate").unwrap();
    let log = path.join("log");
    for (upstream, options, reason) in [
        (
            "http://a",
            &["--upstream-ca", "text.pem"][..],
            "need an upstream of https://",
        ),
        (
            "http://a",
            &["--upstream-name", "b"],
            "need an upstream of https://",
        ),
        (
            "https://a",
            &["--upstream-ca", "text.pem"],
            "--upstream-ca text.pem:\nno certificate in PEM",
        ),
        (
            "https://a",
            &["--upstream-ca", "none.pem"],
            "--upstream-ca none.pem:\nNo such file",
        ),
        (
            "https://a",
            &["--upstream-cert", "text.pem"],
            "--upstream-key",
        ),
        (
            "https://a",
            &["--upstream-name", "a b"],
            "--upstream-name: \"a b\" is no name of a server",
        ),
        (
            "https://a",
            &["--upstream-http", "3"],
            "possible values: auto, 1, 2",
        ),
        (
            "https://a",
            &["--upstream-host", "b"],
            "possible values: keep, upstream",
        ),
        ("https://a/path", &[], "an upstream is http:// or https://"),
        ("ftp://a", &[], "an upstream is http:// or https://"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
        command
            .current_dir(path)
            .args(["gateway", "rules.yaml", "--http", "off", "--admin", "off"])
            .args(["--listen", "127.0.0.1:0", "--upstream", upstream])
            .args(options);
        fs::write(&log, "").unwrap();
        let mut process = testkit::child_processes::Process::start(&mut command, &log);
        eventually(reason, async || process.has_ended().then_some(())).await;
        let log = process.log();
        assert!(log.contains(reason), "{reason}: {log}");
    }
}
