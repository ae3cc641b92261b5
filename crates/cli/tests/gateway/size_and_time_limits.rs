//! Limits of size, time and number, and an upstream that fails.

use testkit::child_processes::{eventually, free_port};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    gateway_process::{Gateway, bounded},
    recording_upstream::Upstream,
};

#[tokio::test]
async fn bodies_have_their_limit_announced_or_not() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &["--max-body", "10"]).await;
        let post = |fields: &str, body: &str| {
            let request = format!("POST / HTTP/1.1\r\nhost: test\r\n{fields}\r\n\r\n{body}");
            async {
                let mut wire = gateway.connect().await;
                wire.send(request).await;
                wire.message().await.unwrap().0.status()
            }
        };
        assert_eq!(post("content-length: 10", "0123456789").await, 200);
        let chunked = "transfer-encoding: chunked";
        assert_eq!(post(chunked, "a\r\n0123456789\r\n0\r\n\r\n").await, 200);
        assert_eq!(upstream.requests().len(), 2);
        assert_eq!(post("content-length: 11", "").await, 413);
        assert_eq!(
            post("content-length: 11\r\nexpect: 100-continue", "").await,
            413
        );
        assert_eq!(post(chunked, "a\r\n0123456789\r\n1\r\n0\r\n").await, 413);
        assert_eq!(upstream.requests().len(), 2);
    })
    .await;
}

#[tokio::test]
async fn headers_have_their_limit() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        for (length, status) in [(60_000, 200), (70_000, 431), (1_000_000, 431)] {
            let lines = format!("GET / HTTP/1.1\nx-long: {}", "a".repeat(length));
            let (head, _) = gateway.connect().await.answer(&lines).await;
            assert_eq!(head.status(), status, "{length}");
        }
    })
    .await;
}

#[tokio::test]
async fn upstream_that_is_not_there_is_a_bad_gateway() {
    bounded(async {
        let gateway = Gateway::start(free_port(), &[]).await;
        let (head, body) = gateway.connect().await.answer("GET / HTTP/1.1").await;
        assert_eq!(head.status(), 502);
        assert_eq!(head.field("content-type"), Some("application/problem+json"));
        assert!(body.contains("\"status\":502"), "{body}");

        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let mut wire = gateway.connect().await;
        assert_eq!(wire.answer("GET /cut HTTP/1.1").await.0.status(), 502);
        // The client's connection stays open.
        assert_eq!(wire.answer("GET / HTTP/1.1").await.0.status(), 200);
    })
    .await;
}

#[tokio::test]
async fn late_upstream_is_reported() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &["--timeout", "50ms"]).await;
        let (head, _) = gateway.connect().await.answer("GET /silent HTTP/1.1").await;
        assert_eq!(head.status(), 504);
    })
    .await;
}

#[tokio::test]
async fn one_request_too_many_is_not_taken() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &["--max-in-flight", "1"]).await;
        let mut first = gateway.connect().await;
        first.request("GET /wait HTTP/1.1\nhost: test").await;
        eventually("the request", async || {
            (upstream.requests().len() == 1).then_some(())
        })
        .await;
        let mut second = gateway.connect().await;
        let (head, _) = second.answer("GET /limited HTTP/1.1").await;
        assert_eq!(head.status(), 503);
        upstream.steps.add_permits(1);
        assert_eq!(first.message().await.unwrap().1, "waited");
        eventually("room", async || {
            (second.answer("GET / HTTP/1.1").await.0.status() == 200).then_some(())
        })
        .await;
        // Rejected requests were not counted.
        for status in [200, 200, 429] {
            let (head, _) = second.answer("GET /limited HTTP/1.1").await;
            assert_eq!(head.status(), status);
        }
    })
    .await;
}

#[tokio::test]
async fn web_sockets_take_no_room_of_requests() {
    const CHAT: &str = "GET /chat HTTP/1.1\nconnection: upgrade\nupgrade: websocket";
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &["--max-in-flight", "1"]).await;
        let mut first = gateway.connect().await;
        assert_eq!(first.answer(CHAT).await.0.status(), 101);
        let mut second = gateway.connect().await;
        assert_eq!(second.answer("GET / HTTP/1.1").await.0.status(), 200);
        assert_eq!(second.answer(CHAT).await.0.status(), 503);
        drop(first);
        eventually("room", async || {
            let mut wire = gateway.connect().await;
            (wire.answer(CHAT).await.0.status() == 101).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn one_connection_too_many_takes_the_place_of_an_idle_one() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &["--max-connections", "2"]).await;
        let mut first = gateway.connect().await;
        let mut second = gateway.connect().await;
        for wire in [&mut first, &mut second] {
            assert_eq!(wire.answer("GET / HTTP/1.1").await.0.status(), 200);
        }
        second.request("GET /wait HTTP/1.1\nhost: test").await;
        eventually("the request", async || {
            (upstream.requests().len() == 3).then_some(())
        })
        .await;
        let mut third = gateway.connect().await;
        assert_eq!(third.answer("GET /third HTTP/1.1").await.0.status(), 200);
        assert!(first.rest().await.is_empty());
        // If all have requests, one more waits.
        third.request("GET /wait HTTP/1.1\nhost: test").await;
        eventually("the request", async || {
            (upstream.requests().len() == 5).then_some(())
        })
        .await;
        let mut fourth = gateway.connect().await;
        fourth.request("GET /fourth HTTP/1.1\nhost: test").await;
        upstream.steps.add_permits(2);
        assert_eq!(second.message().await.unwrap().1, "waited");
        assert_eq!(third.message().await.unwrap().1, "waited");
        assert_eq!(fourth.message().await.unwrap().0.status(), 200);
    })
    .await;
}

/// The response to a request whose body arrives byte by byte, far too slowly.
async fn trickle(gateway: &Gateway, path: &str) -> String {
    let mut wire = gateway.connect().await;
    wire.request(&format!(
        "POST {path} HTTP/1.1\nhost: test\ntransfer-encoding: chunked"
    ))
    .await;
    let (mut from, mut to) = wire.split();
    let trickle = tokio::spawn(async move {
        while to.write_all(b"1\r\na\r\n").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    let mut answer = String::new();
    // Bytes of the client may be in flight when the connection closes.
    let _ = from.read_to_string(&mut answer).await;
    trickle.abort();
    answer
}

#[tokio::test]
async fn slow_body_is_aborted() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &["--timeout", "50ms"]).await;
        // 504 on a machine too busy to reach the upstream in time.
        eventually("408", async || {
            let answer = trickle(&gateway, "/").await;
            answer.starts_with("HTTP/1.1 408").then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn body_that_stops_is_the_client_s_fault() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &["--timeout", "50ms"]).await;
        eventually("408", async || {
            let lines = "POST / HTTP/1.1\ncontent-length: 9";
            let (head, _) = gateway.connect().await.answer(lines).await;
            (head.status() == 408).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn slow_body_after_the_response_is_aborted() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &["--timeout", "200ms"]).await;
        for path in ["/begun", "/done"] {
            let answer = eventually("an answer before the body", async || {
                let answer = trickle(&gateway, path).await;
                answer.starts_with("HTTP/1.1 200").then_some(answer)
            })
            .await;
            assert!(!answer.ends_with("0\r\n\r\n"), "{path}: {answer:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn silence_ends_what_has_begun() {
    const CHAT: &str = "GET /chat HTTP/1.1\nconnection: upgrade\nupgrade: websocket";
    bounded(async {
        let upstream = Upstream::start().await;
        let options = ["--idle-timeout", "50ms", "--max-in-flight", "1"];
        let gateway = Gateway::start(upstream.port, &options).await;
        let mut chat = gateway.connect().await;
        assert_eq!(chat.answer(CHAT).await.0.status(), 101);
        assert_eq!(chat.rest().await, b"");
        let mut events = gateway.connect().await;
        events.request("GET /events HTTP/1.1\nhost: test").await;
        events.head().await.unwrap();
        while let Some(chunk) = events.chunk().await {
            assert_eq!(chunk, Ok(b"data: one\n\n".to_vec()), "no end");
        }
        // Both have released their permits.
        for (lines, status) in [(CHAT, 101), ("GET / HTTP/1.1", 200)] {
            eventually("room", async || {
                let mut wire = gateway.connect().await;
                (wire.answer(lines).await.0.status() == status).then_some(())
            })
            .await;
        }
    })
    .await;
}
