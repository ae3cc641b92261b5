//! Long bodies and connections.

use testkit::child_processes::eventually;

use crate::{
    gateway_process::{Gateway, bounded},
    raw_http1::Wire,
    recording_upstream::{CHUNK, LARGE, Upstream},
};

async fn both() -> (Upstream, Gateway) {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(upstream.port, &[]).await;
    (upstream, gateway)
}

/// Far below the size of the bodies, and above the usual memory of the process.
const MEMORY: u64 = 60_000;

#[tokio::test]
async fn bodies_of_any_size_take_no_memory() {
    bounded(async {
        let (_upstream, gateway) = both().await;
        let mut wire = gateway.connect().await;
        wire.request("POST /count HTTP/1.1\nhost: test\ntransfer-encoding: chunked")
            .await;
        let chunk = [format!("{CHUNK:x}\r\n").as_bytes(), &[b'x'; CHUNK], b"\r\n"].concat();
        for _ in 0..LARGE / CHUNK {
            wire.send(&chunk).await;
        }
        wire.send("0\r\n\r\n").await;
        assert_eq!(wire.message().await.unwrap().1, LARGE.to_string());
        assert!(gateway.peak_memory() < MEMORY, "{}", gateway.peak_memory());

        wire.request("GET /download HTTP/1.1\nhost: test").await;
        assert!(wire.head().await.unwrap().is_chunked());
        let mut length = 0;
        while let Ok(chunk) = wire.chunk().await.unwrap() {
            length += chunk.len();
        }
        assert_eq!(length, LARGE);
        assert!(gateway.peak_memory() < MEMORY, "{}", gateway.peak_memory());
    })
    .await;
}

#[tokio::test]
async fn events_come_when_they_are_sent() {
    bounded(async {
        let (upstream, gateway) = both().await;
        let mut wire = gateway.connect().await;
        wire.request("GET /events HTTP/1.1\nhost: test").await;
        let head = wire.head().await.unwrap();
        assert_eq!(head.field("content-type"), Some("text/event-stream"));
        for event in ["data: one\n\n", "data: two\n\n"] {
            assert_eq!(wire.chunk().await.unwrap().unwrap(), event.as_bytes());
            upstream.steps.add_permits(1);
        }
        assert_eq!(wire.chunk().await, Some(Err(String::new())));
    })
    .await;
}

#[tokio::test]
async fn web_sockets_go_through_and_nothing_else() {
    bounded(async {
        let (upstream, gateway) = both().await;
        let mut wire = gateway.connect().await;
        let upgrade = "connection: Upgrade\nupgrade: WebSocket\nsec-websocket-key: a";
        let (head, _) = wire.answer(&format!("GET /chat HTTP/1.1\n{upgrade}")).await;
        assert_eq!(head.status(), 101);
        assert_eq!(head.field("upgrade"), Some("websocket"));
        assert_eq!(head.field("x-agreed"), Some("1"));
        let (head, _) = upstream.only();
        assert_eq!(head.field("connection"), Some("upgrade"));
        assert_eq!(head.field("sec-websocket-key"), Some("a"));
        wire.send("hello").await;
        assert_eq!(wire.read(5).await.unwrap(), b"HELLO");
        wire.send(" again").await;
        assert_eq!(wire.read(6).await.unwrap(), b" AGAIN");

        // The limit applies as to any request.
        let mut reported = Vec::new();
        for _ in 0..3 {
            let mut wire = gateway.connect().await;
            let (head, _) = wire
                .answer(&format!("GET /limited HTTP/1.1\n{upgrade}"))
                .await;
            reported.push(head.status());
        }
        assert_eq!(reported, [200, 200, 429]);
        // An upstream that agrees to an upgrade without a request for it is broken.
        for lines in [
            "GET /other HTTP/1.1\nconnection: upgrade\nupgrade: websocket",
            "GET /other HTTP/1.1\nconnection: upgrade\nupgrade: other",
            "GET /chat HTTP/1.1\nconnection: upgrade\nupgrade: h2c",
            "GET /chat HTTP/1.1\nupgrade: websocket",
            "POST /chat HTTP/1.1\nconnection: upgrade\nupgrade: websocket",
        ] {
            let (head, _) = gateway.connect().await.answer(lines).await;
            assert_eq!(head.status(), 502, "{lines}");
        }
        let mut wire = gateway.connect().await;
        wire.answer("GET / HTTP/1.1\nconnection: upgrade\nupgrade: h2c")
            .await;
        let (head, _) = upstream.requests().pop().unwrap();
        assert_eq!(head.field("upgrade"), None);
    })
    .await;
}

#[tokio::test]
async fn head_has_a_length_and_no_body() {
    bounded(async {
        let (_upstream, gateway) = both().await;
        let mut wire = gateway.connect().await;
        wire.request("HEAD / HTTP/1.1\nhost: test").await;
        let head = wire.head().await.unwrap();
        assert_eq!(head.field("content-length"), Some("1234"));
        assert_eq!(wire.answer("GET / HTTP/1.1").await.1, "ok");
    })
    .await;
}

#[tokio::test]
async fn body_is_awaited_only_where_it_is_wanted() {
    bounded(async {
        let (upstream, gateway) = both().await;
        let expecting =
            "POST /limited HTTP/1.1\nhost: test\nexpect: 100-continue\ncontent-length: 3";
        for _ in 0..2 {
            let mut wire = gateway.connect().await;
            wire.request(expecting).await;
            assert_eq!(wire.head().await.unwrap().status(), 100);
            wire.send("abc").await;
            assert_eq!(wire.message().await.unwrap().0.status(), 200);
        }
        assert_eq!(upstream.requests()[1].1, "abc");
        let mut wire = gateway.connect().await;
        wire.request(expecting).await;
        assert_eq!(wire.head().await.unwrap().status(), 429);
    })
    .await;
}

#[tokio::test]
async fn trailers_go_both_ways() {
    bounded(async {
        let (upstream, gateway) = both().await;
        let mut wire = gateway.connect().await;
        wire.request("GET /trailers HTTP/1.1\nhost: test\nconnection: te\nte: trailers")
            .await;
        let (head, body) = wire.message().await.unwrap();
        assert_eq!(head.field("trailer"), Some("x-sum"));
        assert_eq!(body, "bodyx-sum: 7");

        // Also with a method that usually has no body.
        for method in ["POST", "GET"] {
            let lines = format!("{method} / HTTP/1.1\nhost: test\ntransfer-encoding: chunked");
            wire.request(&format!("{lines}\ntrailer: x-sum")).await;
            wire.send("2\r\nab\r\n1\r\nc\r\n0\r\nx-sum: 6\r\n\r\n")
                .await;
            assert_eq!(wire.message().await.unwrap().1, "ok");
            let (_, body) = upstream.requests().pop().unwrap();
            assert_eq!(body, "abcx-sum: 6", "{method}");
        }
    })
    .await;
}

#[tokio::test]
async fn response_that_breaks_off_is_not_whole_for_the_client() {
    bounded(async {
        let (upstream, gateway) = both().await;
        let mut wire = gateway.connect().await;
        wire.request("GET /break HTTP/1.1\nhost: test").await;
        wire.head().await.unwrap();
        assert_eq!(wire.chunk().await, Some(Ok(b"abc".to_vec())));
        upstream.steps.add_permits(1);
        assert_eq!(wire.chunk().await, None);
    })
    .await;
}

#[tokio::test]
async fn client_that_goes_takes_its_request_along() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &["--max-in-flight", "1"]).await;
        let mut wire = gateway.connect().await;
        wire.request("GET /silent HTTP/1.1\nhost: test").await;
        eventually("the request", async || {
            (upstream.requests().len() == 1).then_some(())
        })
        .await;
        drop::<Wire>(wire);
        eventually("room", async || {
            let mut wire = gateway.connect().await;
            (wire.answer("GET / HTTP/1.1").await.0.status() == 200).then_some(())
        })
        .await;
    })
    .await;
}
