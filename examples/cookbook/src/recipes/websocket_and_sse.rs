//! An address may open ten streams or sockets a minute, and have two streams open at the same time.

use axum::{Router, routing::get};
use tower_ratelimit::{Concurrency, ConcurrencyLayer, PeerIp, Quota, RateLimitLayer};

fn app() -> Router {
    // Counts requests. A socket's is the one with the upgrade.
    let opened = RateLimitLayer::new(Quota::per_minute(10).named("opened"), PeerIp);
    // Holds a permit until the response's stream ends.
    let open = ConcurrencyLayer::new(Concurrency::max(2).named("open"), PeerIp);
    Router::new()
        .route("/events", get(events).layer(open))
        .route("/socket", get(socket))
        .layer(opened)
}

// The test, which is not on the page.

use std::{convert::Infallible, net::SocketAddr};

use axum::{
    extract::{
        ConnectInfo, WebSocketUpgrade,
        ws::{Message, WebSocket},
    },
    response::{
        Response, Sse,
        sse::{self, KeepAlive},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_stream::Stream;
use tower_ratelimit::{Key, LocalLimiter};

use crate::test_requests::{Ask, listen, remaining, text};

async fn events() -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
    let events = ["one", "two"].map(|data| Ok(sse::Event::default().data(data)));
    Sse::new(tokio_stream::iter(events)).keep_alive(KeepAlive::default())
}

async fn socket(upgrade: WebSocketUpgrade, ConnectInfo(peer): ConnectInfo<SocketAddr>) -> Response {
    upgrade.on_upgrade(move |socket| echo(socket, Key::from(peer.ip())))
}

/// Charges each message, which no layer sees.
async fn echo(mut socket: WebSocket, client: Key) {
    let messages = LocalLimiter::new(Quota::per_hour(3));
    while let Some(Ok(Message::Text(text))) = socket.recv().await {
        if messages.acquire(&client, 1).is_denied()
            || socket.send(Message::Text(text)).await.is_err()
        {
            return;
        }
    }
}

#[tokio::test]
async fn a_stream_is_open_until_it_was_read_or_dropped() {
    let app = app();
    let open = async || Ask::get("/events").of(&app).await;
    let (first, second) = (open().await, open().await);
    assert_eq!(open().await.status(), 429);
    assert!(text(first).await.contains("data: two"));
    let third = open().await;
    assert_eq!(third.status(), 200);
    assert_eq!(open().await.status(), 429);
    drop(second);
    assert_eq!(open().await.status(), 200);
    // Every attempt was counted as one that opens a stream.
    for _ in 6..10 {
        open().await;
    }
    drop(third);
    assert_eq!(remaining(&open().await), 0);
}

/// Opens a socket, and returns the head of the response.
async fn connect(address: SocketAddr) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = "GET /socket HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                   sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    (stream, String::from_utf8(head).unwrap())
}

#[tokio::test]
async fn a_socket_counts_once_and_its_handler_counts_messages() {
    let (listener, address) = listen().await;
    let app = app().into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, app).await });
    let (mut stream, head) = connect(address).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.contains("x-ratelimit-remaining: 9"), "{head}");
    for _ in 0..3 {
        // A text of two bytes, masked with zeros; the answer is not masked.
        stream.write_all(b"\x81\x82\0\0\0\0hi").await.unwrap();
        let mut echo = [0; 4];
        stream.read_exact(&mut echo).await.unwrap();
        assert_eq!(&echo, b"\x81\x02hi");
    }
    stream.write_all(b"\x81\x82\0\0\0\0hi").await.unwrap();
    // Closed, not answered by a text.
    assert_ne!(stream.read_u8().await.ok(), Some(0x81));
    // Sockets hold no permit: more than two are open.
    let mut open = Vec::new();
    for left in [8, 7, 6] {
        let head = head_of_next(&mut open, address).await;
        assert!(
            head.contains(&format!("x-ratelimit-remaining: {left}")),
            "{head}"
        );
    }
    while head_of_next(&mut open, address)
        .await
        .starts_with("HTTP/1.1 101")
    {
        assert!(open.len() < 1_000, "there is no limit");
    }
}

async fn head_of_next(open: &mut Vec<TcpStream>, address: SocketAddr) -> String {
    let (stream, head) = connect(address).await;
    open.push(stream);
    head
}
