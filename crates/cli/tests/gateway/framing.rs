//! Requests that two servers might read in two ways: the upstream receives an unambiguous one, or
//! none.

use crate::{
    gateway_process::{Gateway, bounded},
    raw_http1::Wire,
    recording_upstream::Upstream,
};

/// The status of the first response to these bytes, and the number of responses.
async fn answers(gateway: &Gateway, bytes: &str) -> (u16, usize) {
    let mut wire = gateway.connect().await;
    wire.send(bytes).await;
    let first = wire.message().await.expect("an answer").0.status();
    // After a response to an ambiguous request, the connection closes; otherwise it serves another
    // request.
    wire.request("GET /after HTTP/1.1\nhost: test\nconnection: close")
        .await;
    let rest = String::from_utf8(wire.rest().await).unwrap();
    (first, 1 + rest.matches("HTTP/1.1 ").count())
}

#[tokio::test]
async fn length_with_a_transfer_encoding_is_not_used() {
    bounded(async {
        for fields in [
            "content-length: 4\r\ntransfer-encoding: chunked",
            "transfer-encoding: chunked\r\ncontent-length: 4",
            "content-length: 40\r\ncontent-length: 40\r\ntransfer-encoding: chunked",
        ] {
            let upstream = Upstream::start().await;
            let gateway = Gateway::start(upstream.port, &[]).await;
            // If the length counted, the bytes after the first chunk would be a request.
            let body = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: test\r\n\r\n";
            let request = format!("POST / HTTP/1.1\r\nhost: test\r\n{fields}\r\n\r\n{body}");
            assert_eq!(answers(&gateway, &request).await, (200, 1), "{fields}");
            let (head, body) = upstream.only();
            assert_eq!(head.field("content-length").or(Some("0")), Some("0"));
            assert_eq!(body, "");
        }
    })
    .await;
}

#[tokio::test]
async fn requests_in_doubt_are_refused() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        for fields in [
            "host: test\r\ncontent-length: 4\r\ncontent-length: 5",
            "host: test\r\ncontent-length: 4, 5",
            "host: test\r\ncontent-length: +4",
            "host: test\r\ncontent-length: 0x4",
            "host: test\r\ntransfer-encoding: chunked, identity",
            "host: test\r\ntransfer-encoding: gzip",
            "host: test\r\ntransfer-encoding : chunked",
            "host: test\r\nx-folded: a\r\n content-length: 4",
            "host: test\r\nx-folded: a\r\n\tb",
            "host: test\r\nx-null: a\0b",
            "host: test\r\n: nameless",
            "host: test\r\nhost: other",
            "x-no-host: 1",
        ] {
            let request = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\nabcd");
            let (status, _) = answers(&gateway, &request).await;
            assert_eq!(status, 400, "{fields:?}");
        }
        for line in [
            "GET / HTTP/1.1 ",
            "GET  / HTTP/1.1",
            "GET /\tHTTP/1.1",
            "GET / HTTP/1.2",
            "GET shop.example HTTP/1.1",
            "GET shop.example:80 HTTP/1.1",
            "GET * HTTP/1.1",
            "OPTIONS shop.example HTTP/1.1",
        ] {
            let request = format!("{line}\r\nhost: test\r\n\r\n");
            assert_eq!(answers(&gateway, &request).await.0, 400, "{line:?}");
        }
        for line in ["GET http://test/ HTTP/1.1", "GET / HTTP/1.0"] {
            let request = format!("{line}\r\nhost: test\r\nhost: other\r\n\r\n");
            assert_eq!(answers(&gateway, &request).await.0, 400, "{line:?}");
        }
        let mut wire = gateway.connect().await;
        let (head, _) = wire.answer("CONNECT other:80 HTTP/1.1").await;
        assert_eq!(head.status(), 501);
        let requests = upstream.requests();
        let requests: Vec<_> = requests.iter().map(|(head, _)| head.first_line()).collect();
        // The second request on a connection that stayed open after 400.
        assert!(
            requests.iter().all(|line| line.contains("/after")),
            "{requests:?}"
        );
    })
    .await;
}

/// In HTTP/2 a request has a path.
#[tokio::test]
async fn request_without_a_path_is_no_request() {
    /// `GET` over HTTP, and `host: test`, in HPACK.
    const FIELDS: &[u8] = b"\x82\x86\x0f\x17\x04test";
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let mut wire = gateway.connect().await;
        wire.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        wire.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
        let length = FIELDS.len() as u8;
        wire.send([&[0, 0, length, 1, 0b101, 0, 0, 0, 1], FIELDS].concat())
            .await;
        // Any frame for the stream is a response, also a reset.
        while wire.frame().await.expect("an answer").0 != 1 {}
        assert!(upstream.requests().is_empty());
    })
    .await;
}

#[tokio::test]
async fn options_of_the_whole_server_are_allowed() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let (head, _) = gateway.connect().await.answer("OPTIONS * HTTP/1.1").await;
        assert_eq!(head.status(), 200);
        assert_eq!(upstream.only().0.first_line(), "OPTIONS * HTTP/1.1");
    })
    .await;
}

/// The upstream would read compressed bytes as plain ones.
#[tokio::test]
async fn codings_other_than_chunked_are_not_implemented() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        for codings in ["gzip, chunked", "gzip\r\ntransfer-encoding: chunked"] {
            let fields = format!("host: test\r\ntransfer-encoding: {codings}");
            let request = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n0\r\n\r\n");
            assert_eq!(answers(&gateway, &request).await.0, 501, "{codings:?}");
        }
        assert!(
            upstream
                .requests()
                .iter()
                .all(|(head, _)| head.first_line().contains("/after"))
        );
    })
    .await;
}

#[tokio::test]
async fn malformed_chunk_is_the_failure_of_its_client() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        for chunk in ["zz\r\nabc\r\n", "3\r\nabcdef\r\n", "ffffffffffffffffff\r\n"] {
            let fields = "host: test\r\ntransfer-encoding: chunked";
            let request = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n1\r\na\r\n{chunk}");
            let mut wire = gateway.connect().await;
            wire.send(request).await;
            assert_eq!(
                wire.message().await.expect(chunk).0.status(),
                400,
                "{chunk:?}"
            );
        }
        assert!(!gateway.process.log().contains("upstream failed"));
    })
    .await;
}

#[tokio::test]
async fn bare_line_feeds_do_not_reach_the_upstream() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let mut wire = gateway.connect().await;
        wire.send("GET / HTTP/1.1\nhost: test\nx-a: 1\n\n").await;
        // The upstream fails on such a head, and would not respond.
        assert_eq!(wire.message().await.unwrap().0.status(), 200);
        // The framing of a body is checked strictly.
        let mut wire = gateway.connect().await;
        wire.send("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
        wire.send("4\nabcd\n0\n\n").await;
        assert!(!wire.rest().await.starts_with(b"HTTP/1.1 200"));
        assert_eq!(upstream.requests().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_their_order() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let mut wire = gateway.connect().await;
        let requests = ["/1", "/limited", "/limited", "/limited", "/5"];
        let requests = requests.map(|path| format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"));
        wire.send(requests.concat()).await;
        let mut reported = Vec::new();
        for _ in 0..5 {
            reported.push(wire.message().await.unwrap().0.status());
        }
        assert_eq!(reported, [200, 200, 200, 429, 200]);
    })
    .await;
}

#[tokio::test]
async fn body_of_a_denied_request_is_no_request() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let mut wire = gateway.connect().await;
        for _ in 0..2 {
            assert_eq!(wire.answer("GET /limited HTTP/1.1").await.0.status(), 200);
        }
        let inner = "GET /inner HTTP/1.1\r\nhost: test\r\n\r\n";
        let length = inner.len();
        let request = format!("POST /limited HTTP/1.1\r\nhost: test\r\ncontent-length: {length}");
        let (status, answers) = answers(&gateway, &format!("{request}\r\n\r\n{inner}")).await;
        assert_eq!(status, 429);
        assert!(answers <= 2);
        let requests = upstream.requests();
        assert!(
            requests
                .iter()
                .all(|(head, _)| !head.first_line().contains("/inner"))
        );
        drop::<Wire>(wire);
    })
    .await;
}
