//! Peers that do not read, and HTTP/2 connections without a request.

use std::{
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll},
};

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    task::JoinHandle,
    time::{Instant, timeout},
};

use super::{super::*, REQUEST, slot};

/// A body without end that is always ready.
#[derive(Default)]
struct Endless(Arc<AtomicUsize>);

impl HttpBody for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        const PART: &[u8] = &[b'a'; 1 << 14];
        self.0.fetch_add(PART.len(), Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(PART)))))
    }
}

fn served() -> (DuplexStream, watch::Sender<bool>) {
    let (client, server) = duplex(1 << 16);
    let (stop, stopped) = watch::channel(false);
    let answer = |request: Request<RequestBody>| async move {
        match request.uri().path() {
            "/endless" => Response::new(Body::new(Endless::default())),
            _ => Response::new(Body::empty()),
        }
    };
    tokio::spawn(connection(
        (server, slot()),
        ConnectionLimits::http(1),
        answer,
        stopped,
    ));
    (client, stop)
}

/// A client that answers settings and pings.
async fn client() -> (SendRequest<Body>, JoinHandle<()>, watch::Sender<bool>) {
    let (client, stop) = served();
    let io = TokioIo::new(client);
    let (sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
    let connection = tokio::spawn(async { drop(connection.await) });
    (sender, connection, stop)
}

fn get(path: &str) -> Request {
    let uri = format!("http://test{path}");
    Request::get(uri).body(Body::empty()).unwrap()
}

/// The seconds until the connection closes.
async fn end(connection: JoinHandle<()>) -> u64 {
    let start = Instant::now();
    let hour = Duration::from_secs(3600);
    timeout(hour, connection).await.expect("an end").unwrap();
    start.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn answer_that_is_not_read_ends_the_connection() {
    let (mut client, _stop) = served();
    let request = REQUEST.replace("/ ", "/endless ");
    client.write_all(request.as_bytes()).await.unwrap();
    sleep(Duration::from_secs(70)).await;
    let mut read = Vec::new();
    let mut client = client.take(1 << 24);
    client.read_to_end(&mut read).await.unwrap();
    assert!(read.len() < 1 << 24);
}

#[tokio::test(start_paused = true)]
async fn unread_response_is_not_polled() {
    const BETWEEN: usize = 1 << 16;
    let (mut client, server) = duplex(BETWEEN);
    let (_stop, stopped) = watch::channel(false);
    let polled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&polled);
    let answer = move |_| {
        let count = Arc::clone(&count);
        let body = Endless(Arc::clone(&count));
        async { Response::new(Body::new(body)) }
    };
    let limits = ConnectionLimits::http(1);
    tokio::spawn(connection((server, slot()), limits, answer, stopped));
    client.write_all(REQUEST.as_bytes()).await.unwrap();
    sleep(Duration::from_secs(30)).await;
    let polled = polled.load(Ordering::Relaxed);
    assert!(polled > BETWEEN && polled <= 3 * BETWEEN, "{polled}");
}

#[tokio::test(start_paused = true)]
async fn slowly_read_response_continues() {
    let (mut client, _stop) = served();
    let request = REQUEST.replace("/ ", "/endless ");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut part = vec![0; 1 << 16];
    for _ in 0..20 {
        sleep(Duration::from_secs(40)).await;
        client.read_exact(&mut part).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn stream_that_is_not_read_ends_the_connection() {
    let (mut sender, connection, _stop) = client().await;
    let _unread = sender.send_request(get("/endless")).await.unwrap();
    let seconds = end(connection).await;
    assert!((60..70).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn connection_without_streams_is_kept_as_long_as_any() {
    let (mut sender, connection, _stop) = client().await;
    sender.send_request(get("/")).await.unwrap();
    sleep(Duration::from_secs(70)).await;
    sender.send_request(get("/")).await.unwrap();
    let seconds = end(connection).await;
    assert!((75..80).contains(&seconds), "{seconds}");

    let (_sender, connection, _stop) = client().await;
    let seconds = end(connection).await;
    assert!((75..80).contains(&seconds), "{seconds}");
}
