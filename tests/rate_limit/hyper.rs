//! Plain hyper, over a socket: what a client reads byte by byte.

use std::{
    convert::Infallible,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tower::{ServiceBuilder, service_fn};
use tower_ratelimit::{Global, LocalLimiter, Quota, RateLimitLayer, clock::ManualClock};

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

/// Serves one connection after another, all under one limit.
async fn serve(layer: RateLimitLayer) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = ServiceBuilder::new()
                .layer(layer.clone())
                .service(service_fn(hello));
            http1::Builder::new()
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
                .await
                .unwrap();
        }
    });
    address
}

/// The head and the body of the answer to one request.
fn exchange(server: SocketAddr, method: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server).unwrap();
    let request = format!("{method} / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn content_length(head: &str) -> Vec<&str> {
    let lines = head.lines();
    lines
        .filter_map(|line| line.strip_prefix("content-length: "))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_head_request_gets_the_length_of_the_body_of_get() {
    let server = serve(RateLimitLayer::new(Quota::per_day(1), Global)).await;
    let (head, body) = exchange(server, "GET");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(body, "hello");

    let (head, body) = exchange(server, "GET");
    assert!(head.starts_with("HTTP/1.1 429"), "{head}");
    assert!(!body.is_empty());
    let length = body.len().to_string();
    assert_eq!(content_length(&head), [&length]);

    let (head, body) = exchange(server, "HEAD");
    assert!(head.starts_with("HTTP/1.1 429"), "{head}");
    assert_eq!(content_length(&head), [&length]);
    assert_eq!(body, "");
}

#[cfg(feature = "tokio")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_queue_in_a_leaky_bucket() {
    // Time stands still for the limiter; those that wait do so for a millisecond or two.
    let limiter = LocalLimiter::builder(Quota::per_second(1_000).leaky_bucket(2))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let server = serve(RateLimitLayer::new(limiter, Global)).await;
    let heads = tokio::task::spawn_blocking(move || [(); 4].map(|()| exchange(server, "GET").0));
    let heads = heads.await.unwrap();
    let lines = heads.each_ref().map(|head| head.lines().next().unwrap());
    assert_eq!(lines[..3], ["HTTP/1.1 200 OK"; 3]);
    assert_eq!(lines[3], "HTTP/1.1 429 Too Many Requests");
    assert!(heads[3].contains("retry-after: 1"), "{}", heads[3]);
}

/// Without a timer a request that should wait is an error of the server, not allowed.
#[cfg(not(feature = "tokio"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_timer_nothing_waits() {
    let limiter = LocalLimiter::builder(Quota::per_second(1_000).leaky_bucket(2))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let server = serve(RateLimitLayer::new(limiter, Global)).await;
    let heads = tokio::task::spawn_blocking(move || [(); 2].map(|()| exchange(server, "GET").0));
    let heads = heads.await.unwrap();
    assert!(heads[0].starts_with("HTTP/1.1 200"), "{}", heads[0]);
    assert!(heads[1].starts_with("HTTP/1.1 503"), "{}", heads[1]);
}
