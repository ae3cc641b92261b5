//! Upstream failures: their status, and their cause in the log and in the metrics.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use testkit::child_processes::{eventually, free_port};
use tokio::{io::AsyncWriteExt as _, net::TcpListener};

use crate::{
    gateway_process::{Gateway, bounded},
    raw_http1::Wire,
};

/// An upstream that sends these bytes on each connection, after the header of its request.
async fn responding(response: String) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut wire = Wire::new(stream);
            wire.head().await;
            let (_, mut to) = wire.split();
            let _ = to.write_all(response.as_bytes()).await;
        }
    });
    port
}

fn fields(count: usize) -> String {
    (0..count).map(|at| format!("x-{at}: 1\r\n")).collect()
}

async fn metrics(gateway: &Gateway) -> String {
    let mut wire = Wire::connect(gateway.http).await;
    wire.answer("GET /metrics HTTP/1.1").await.1
}

#[tokio::test]
async fn cause_of_a_502_is_in_the_log_once_and_in_the_metrics() {
    bounded(async {
        let nobody = free_port();
        let closing = responding(String::new()).await;
        let garbled = responding("HTTP/9 what\r\n\r\n".to_owned()).await;
        let many = fields(257);
        let large = responding(format!(
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{many}\r\n"
        ))
        .await;
        let switching =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: a\r\n\r\n";
        let switching = responding(switching.to_owned()).await;
        for (port, cause, line) in [
            (
                nobody,
                "connect",
                "no connection to the upstream (http://127.0.0.1:",
            ),
            (
                closing,
                "closed",
                "closed the connection before its response",
            ),
            (garbled, "invalid", "response cannot be handed on"),
            (
                large,
                "too_large",
                "header of the upstream's response is too large",
            ),
            (switching, "invalid", "a protocol that nobody requested"),
        ] {
            let gateway = Gateway::start(port, &[]).await;
            for _ in 0..3 {
                let (head, _) = gateway.connect().await.answer("GET /secret HTTP/1.1").await;
                assert_eq!(head.status(), 502, "{cause}");
            }
            gateway.logs(line).await;
            let log = gateway.process.log();
            assert_eq!(log.matches(line).count(), 1, "{log}");
            assert!(!log.contains("secret"), "{log}");
            let series = format!("ratelimit_gateway_upstream_errors_total{{cause=\"{cause}\"}} 3");
            let metrics = metrics(&gateway).await;
            assert!(metrics.contains(&series), "{series} in {metrics}");
        }
    })
    .await;
}

/// Starts an upstream that answers one request on each connection, and closes the connection under the next one.
/// Returns its port, and the number of requests that it has read.
async fn forgetful() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let read = Arc::new(AtomicUsize::new(0));
    let requests = Arc::clone(&read);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let requests = Arc::clone(&requests);
            tokio::spawn(async move {
                let mut wire = Wire::new(stream);
                for answers in [true, false] {
                    let head = wire.head().await?;
                    if head.field("content-length") == Some("1") {
                        wire.read(1).await?;
                    }
                    requests.fetch_add(1, Ordering::SeqCst);
                    if answers {
                        wire.send(b"HTTP/1.1 200 OK\r\nServer : x\r\ncontent-length: 0\r\n\r\n")
                            .await;
                    }
                }
                Some(())
            });
        }
    });
    (port, read)
}

/// A server that closes kept connections after some seconds does so under a request now and then.
#[tokio::test]
async fn kept_connection_that_closes_under_a_request_is_no_failure() {
    bounded(async {
        for (line, statuses, most) in [
            ("GET / HTTP/1.1", [200, 200, 200], 5),
            ("QUERY / HTTP/1.1", [200, 200, 200], 5),
            ("PUT / HTTP/1.1\ncontent-length: 0", [200, 200, 200], 5),
            ("POST / HTTP/1.1\ncontent-length: 0", [200, 502, 200], 3),
            ("PUT / HTTP/1.1\ncontent-length: 1", [200, 502, 200], 3),
        ] {
            let (port, requests) = forgetful().await;
            let gateway = Gateway::start(port, &[]).await;
            for status in statuses {
                let mut wire = gateway.connect().await;
                wire.request(&format!("{line}\nhost: test")).await;
                if line.ends_with('1') && line.contains("length") {
                    wire.send("a").await;
                }
                let (head, _) = wire.message().await.unwrap();
                assert_eq!(head.status(), status, "{line}");
            }
            assert!(requests.load(Ordering::SeqCst) <= most, "{line}");
        }
    })
    .await;
}

/// Starts an upstream of HTTP/2 that refuses the first stream unread, and answers the others. Returns its port.
async fn refusing(by_go_away: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let first = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let first = Arc::clone(&first);
            tokio::spawn(async move {
                let mut wire = Wire::new(stream);
                // The connection's preface. The response has empty settings.
                wire.read(24).await?;
                wire.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
                while let Some((stream, kind, _)) = wire.frame().await {
                    // The header of a request.
                    if kind != 1 {
                        continue;
                    }
                    let id = stream.to_be_bytes();
                    if first.fetch_add(1, Ordering::SeqCst) > 0 {
                        // A header with `:status: 200`.
                        let head = [&[0, 0, 1, 1, 5], &id[..], &[0x88]].concat();
                        wire.send(head).await;
                    } else if by_go_away {
                        // The last stream is 0, without an error.
                        let stop = [&[0, 0, 8, 7, 0], &[0; 12][..]].concat();
                        wire.send(stop).await;
                    } else {
                        // `RST_STREAM` with `REFUSED_STREAM`.
                        let refusal = [&[0, 0, 4, 3, 0], &id[..], &[0, 0, 0, 7]].concat();
                        wire.send(refusal).await;
                    }
                }
                Some(())
            });
        }
    });
    port
}

/// A method that may not come twice is sent again, too: nobody has read the request.
#[tokio::test]
async fn stream_that_the_upstream_refuses_unread_is_sent_again() {
    bounded(async {
        for by_go_away in [true, false] {
            let port = refusing(by_go_away).await;
            let gateway = Gateway::start(port, &["--upstream-http", "2"]).await;
            let mut wire = gateway.connect().await;
            let post = "POST / HTTP/1.1\ncontent-length: 0";
            let (head, _) = wire.answer(post).await;
            assert_eq!(head.status(), 200, "{by_go_away} {}", gateway.process.log());
        }
    })
    .await;
}

/// RFC 9112, 5.1: a proxy removes the blank.
#[tokio::test]
async fn blank_before_a_colon_of_the_upstream_is_removed() {
    bounded(async {
        let (port, _) = forgetful().await;
        let gateway = Gateway::start(port, &[]).await;
        let (head, _) = gateway.connect().await.answer("GET / HTTP/1.1").await;
        assert_eq!((head.status(), head.field("server")), (200, Some("x")));
    })
    .await;
}

#[tokio::test]
async fn late_upstream_is_a_cause_too() {
    bounded(async {
        let upstream = crate::recording_upstream::Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &["--timeout", "200ms"]).await;
        let (head, _) = gateway.connect().await.answer("GET /silent HTTP/1.1").await;
        assert_eq!(head.status(), 504);
        gateway.logs("did not respond within --timeout").await;
        let series = "ratelimit_gateway_upstream_errors_total{cause=\"timeout\"} 1";
        eventually(series, async || {
            metrics(&gateway).await.contains(series).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn response_header_has_64_kib_at_most() {
    bounded(async {
        for (length, status) in [(30_000, 200), (70_000, 502)] {
            let long = "a".repeat(length);
            let response =
                format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-long: {long}\r\n\r\n");
            let gateway = Gateway::start(responding(response).await, &[]).await;
            let (head, _) = gateway.connect().await.answer("GET / HTTP/1.1").await;
            assert_eq!(head.status(), status, "{length}");
        }
    })
    .await;
}

/// The limit is equal for requests of each version and for responses.
#[tokio::test]
async fn header_has_256_fields_at_most() {
    bounded(async {
        let (many, more) = (fields(255), fields(256));
        let upstream = responding(format!(
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{many}\r\n"
        ))
        .await;
        let gateway = Gateway::start(upstream, &[]).await;
        for (fields, status) in [(many, 200), (more, 431)] {
            let mut wire = gateway.connect().await;
            wire.send(format!("GET / HTTP/1.1\r\nhost: test\r\n{fields}\r\n"))
                .await;
            assert_eq!(wire.message().await.unwrap().0.status(), status, "HTTP/1.1");
        }
    })
    .await;
}
