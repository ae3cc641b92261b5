//! TLS connections.

use std::{fs, io, net::Ipv4Addr, path::Path};

use http::Request;
use http_body_util::Empty;
use hyper::{body::Bytes, client::conn::http2::handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use testkit::{
    needs,
    servers::certificates::{
        AUTHORITY, CERTIFICATE, KEY, make_certificates, make_client_certificate,
        make_expired_client_certificate,
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use crate::{
    gateway_process::{Gateway, bounded},
    recording_upstream::Upstream,
    tls_client::connect,
};

const OPTIONS: [&str; 4] = ["--tls-cert", CERTIFICATE, "--tls-key", KEY];

/// Whether the connection gets a response.
async fn answers(connection: io::Result<TlsStream<TcpStream>>) -> bool {
    let Ok(mut stream) = connection else {
        return false;
    };
    let request = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    let mut answer = String::new();
    let sent = stream.write_all(request).await;
    // In TLS 1.3 a client learns only now that it was rejected.
    let read = stream.read_to_string(&mut answer).await;
    sent.and(read)
        .is_ok_and(|_| answer.starts_with("HTTP/1.1 200"))
}

#[tokio::test]
async fn requests_by_tls_are_forwarded_with_the_scheme() {
    needs!(openssl);
    bounded(async {
        let folder = tempfile::tempdir().unwrap();
        make_certificates(folder.path());
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_in(folder, upstream.port, &OPTIONS).await;
        let folder = gateway.folder.path();
        assert!(answers(connect(gateway.port, folder, None, "http/1.1").await).await);
        let (head, _) = upstream.only();
        assert_eq!(head.field("x-forwarded-proto"), Some("https"));
        assert_eq!(head.field("x-forwarded-for"), Some("127.0.0.1"));

        let stream = connect(gateway.port, folder, None, "h2").await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let request = Request::get("https://test/").body(Empty::<Bytes>::new());
        let answer = sender.send_request(request.unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200);

        // Bytes without TLS are rejected, and a silent client blocks no other.
        let _silent = TcpStream::connect((Ipv4Addr::LOCALHOST, gateway.port))
            .await
            .unwrap();
        let mut wire = gateway.connect().await;
        wire.request("GET / HTTP/1.1\nhost: test").await;
        assert!(!wire.rest().await.starts_with(b"HTTP/"));
        assert!(answers(connect(gateway.port, folder, None, "http/1.1").await).await);
    })
    .await;
}

#[tokio::test]
async fn clients_show_a_certificate_if_they_have_to() {
    needs!(openssl);
    bounded(async {
        let folder = tempfile::tempdir().unwrap();
        make_certificates(folder.path());
        make_client_certificate(folder.path());
        let others = tempfile::tempdir().unwrap();
        make_certificates(others.path());
        make_client_certificate(others.path());
        let upstream = Upstream::start().await;
        let options = [&OPTIONS[..], &["--tls-client-ca", AUTHORITY]].concat();
        let gateway = Gateway::start_in(folder, upstream.port, &options).await;
        let folder = gateway.folder.path();
        for (own, expected) in [
            (Some(folder), true),
            (Some(others.path()), false),
            (None, false),
        ] {
            let connection = connect(gateway.port, folder, own, "http/1.1").await;
            assert_eq!(answers(connection).await, expected);
        }
        assert_eq!(upstream.requests().len(), 1);
        make_expired_client_certificate(folder);
        let connection = connect(gateway.port, folder, Some(folder), "http/1.1").await;
        assert!(!answers(connection).await, "it has expired");
        assert_eq!(upstream.requests().len(), 1);
    })
    .await;
}

/// More stalled handshakes than there may be connections.
#[tokio::test]
async fn stalled_handshakes_block_no_client() {
    needs!(openssl);
    bounded(async {
        let folder = tempfile::tempdir().unwrap();
        make_certificates(folder.path());
        let upstream = Upstream::start().await;
        let options = [&OPTIONS[..], &["--max-connections", "64"]].concat();
        let gateway = Gateway::start_in(folder, upstream.port, &options).await;
        let folder = gateway.folder.path();
        // Nothing, and the first bytes of a record.
        for begun in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
            let mut still = Vec::new();
            for _ in 0..150 {
                let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, gateway.port))
                    .await
                    .unwrap();
                let _ = stream.write_all(begun).await;
                still.push(stream);
            }
            for _ in 0..3 {
                assert!(answers(connect(gateway.port, folder, None, "http/1.1").await).await);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn hang_up_reads_the_certificates_again() {
    needs!(openssl);
    bounded(async {
        let folder = tempfile::tempdir().unwrap();
        make_certificates(folder.path());
        let next = tempfile::tempdir().unwrap();
        make_certificates(next.path());
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_in(folder, upstream.port, &OPTIONS).await;
        let folder = gateway.folder.path();
        let is_believed = async |by: &Path| {
            let connection = connect(gateway.port, by, None, "http/1.1").await;
            answers(connection).await
        };
        assert!(is_believed(folder).await && !is_believed(next.path()).await);

        // A key that does not fit is ignored.
        fs::copy(next.path().join(KEY), folder.join(KEY)).unwrap();
        gateway.process.hang_up();
        gateway.logs("the certificates stay as they were").await;
        assert!(is_believed(folder).await);

        fs::copy(next.path().join(CERTIFICATE), folder.join(CERTIFICATE)).unwrap();
        gateway.process.hang_up();
        gateway.logs("read the certificates again").await;
        assert!(is_believed(next.path()).await && !is_believed(folder).await);
    })
    .await;
}
