//! A rejected call leaves the connection and the other calls on it alone.

use std::{future::poll_fn, time::Duration};

use bytes::Bytes;
use testkit::limiter;
use tokio::{net::TcpStream, sync::mpsc, time::timeout};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Code, Status};
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

use super::echo_service::{Kind, Running};

const STREAMS: [Kind; 2] = [Kind::ClientStreaming, Kind::Bidirectional];

/// Fails a test that would hang; nothing depends on how long it is.
async fn soon<F: Future>(future: F) -> F::Output {
    timeout(Duration::from_secs(60), future)
        .await
        .expect("it hangs")
}

fn code<T>(result: Result<T, Status>) -> Code {
    result.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn rejected_calls_of_every_kind_keep_the_connection() {
    let (limiter, clock) = limiter(Quota::per_minute(4));
    let server = Running::new(RateLimitLayer::new(limiter, PeerIp)).await;
    let mut client = server.client().await;
    for _ in 0..3 {
        for kind in Kind::ALL {
            assert_eq!(soon(client.call(kind)).await.unwrap().1, "abc");
        }
        for kind in Kind::ALL {
            let denied = soon(client.call(kind)).await;
            assert_eq!(code(denied), Code::ResourceExhausted);
        }
        clock.advance(Duration::from_secs(60));
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_client_that_is_still_sending_is_stopped() {
    let (limiter, clock) = limiter(Quota::per_minute(1));
    let server = Running::new(RateLimitLayer::new(limiter, PeerIp)).await;
    let mut client = server.client().await;
    client.call(Kind::Unary).await.unwrap();
    for kind in STREAMS {
        let (sender, messages) = mpsc::channel::<&str>(1);
        sender.send("a").await.unwrap();
        let denied = soon(client.streaming(kind, ReceiverStream::new(messages))).await;
        assert_eq!(code(denied), Code::ResourceExhausted, "{kind:?}");
        soon(sender.closed()).await;
    }
    clock.advance(Duration::from_secs(60));
    assert_eq!(
        soon(client.call(Kind::ClientStreaming)).await.unwrap().1,
        "abc"
    );
    assert_eq!(server.connections(), 1);
}

/// More than fits into any window of flow control: nobody reads it.
#[tokio::test]
async fn a_client_that_never_stops_sending_is_stopped() {
    let (limiter, clock) = limiter(Quota::per_minute(1));
    let server = Running::new(RateLimitLayer::new(limiter, PeerIp)).await;
    let mut client = server.client().await;
    client.call(Kind::Unary).await.unwrap();
    for kind in [STREAMS, STREAMS].concat() {
        let chunk = Bytes::from(vec![0; 64 * 1_024]);
        let endless = tokio_stream::iter(std::iter::repeat(chunk));
        let denied = soon(client.streaming(kind, endless)).await;
        assert_eq!(code(denied), Code::ResourceExhausted, "{kind:?}");
    }
    clock.advance(Duration::from_secs(60));
    assert_eq!(
        soon(client.call(Kind::Bidirectional)).await.unwrap().1,
        "abc"
    );
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_stream_that_passed_goes_on_while_others_are_rejected() {
    let (limiter, _) = limiter(Quota::per_minute(1));
    let server = Running::new(RateLimitLayer::new(limiter, PeerIp)).await;
    let mut client = server.client().await;
    let (sender, messages) = mpsc::channel(1);
    let stream = client.open(Kind::Bidirectional, ReceiverStream::new(messages));
    let mut replies = soon(stream).await.unwrap().into_inner();
    for message in ["a", "b", "c"] {
        for kind in Kind::ALL {
            let denied = soon(client.clone().call(kind)).await;
            assert_eq!(code(denied), Code::ResourceExhausted);
        }
        sender.send(message).await.unwrap();
        assert_eq!(soon(replies.next()).await.unwrap().unwrap(), message);
    }
    drop(sender);
    assert!(soon(replies.next()).await.is_none());
    assert_eq!(server.connections(), 1);
}

/// gRPC over HTTP/2 requires one HEADERS frame with END_STREAM, and after it a RST_STREAM of
/// NO_ERROR when the client has not ended its side.
#[tokio::test]
async fn an_early_answer_is_one_frame_and_a_reset_without_error() {
    let (limiter, _) = limiter(Quota::per_minute(1));
    let server = Running::new(RateLimitLayer::new(limiter, PeerIp).cost(|_| 2)).await;
    let socket = TcpStream::connect(server.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        client = soon(client.ready()).await.unwrap();
        let request = http::Request::post(format!(
            "http://{}{}",
            server.address,
            Kind::ClientStreaming.path()
        ));
        let request = request
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let (response, mut upload) = client
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        let response = soon(response).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        assert_eq!(response.headers()["grpc-status"], "8");
        assert_eq!(response.headers()["grpc-retry-pushback-ms"], "-1");
        assert!(response.body().is_end_stream());
        let reset = soon(poll_fn(|cx| upload.poll_reset(cx))).await.unwrap();
        assert_eq!(reset, h2::Reason::NO_ERROR);
    }
    assert_eq!(server.connections(), 1);
}
