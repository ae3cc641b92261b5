//! How long connections to the upstream are kept.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::body::to_bytes;
use http::{Request, Uri};
use hyper::{
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use super::*;
use crate::gateway::{
    settings::UpstreamHttp,
    upstream::{Connector, Http1Connections, Http2Connections, LIFETIME, Sent},
};

/// Starts an upstream that speaks one version of HTTP. Returns its address, and the number of its connections.
async fn counting(is_http2: bool) -> (Uri, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let accepted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            accepted.fetch_add(1, Ordering::SeqCst);
            let answer =
                async |_| Ok::<_, Infallible>(http::Response::new(axum::body::Body::empty()));
            let (stream, service) = (TokioIo::new(stream), service_fn(answer));
            if is_http2 {
                let server = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(stream, service));
            } else {
                tokio::spawn(http1::Builder::new().serve_connection(stream, service));
            }
        }
    });
    (format!("http://{address}/").parse().unwrap(), count)
}

fn request(uri: &Uri) -> Request<Upload> {
    let mut request = Request::new(Upload::empty());
    *request.uri_mut() = uri.clone();
    request
}

/// By then the upstream's name may have another address.
#[tokio::test]
async fn connection_gets_no_requests_after_five_minutes() {
    let (uri, count) = counting(false).await;
    let kept = Http1Connections::new(Connector::new(None, UpstreamHttp::Http1));
    for (is_old, connections) in [(false, 1), (false, 1), (true, 2)] {
        if is_old {
            kept.age(LIFETIME);
        }
        let response = kept.request(request(&uri)).await.unwrap();
        let body = axum::body::Body::new(response.into_body());
        to_bytes(body, 1).await.unwrap();
        // The connection returns to the pool in a task of its own.
        tokio::task::yield_now().await;
        assert_eq!(count.load(Ordering::SeqCst), connections);
    }
}

#[tokio::test]
async fn connection_of_http2_gets_no_requests_after_five_minutes() {
    let (uri, count) = counting(true).await;
    let connector = Connector::new(None, UpstreamHttp::Http2);
    let kept = Http2Connections::new(connector, uri.clone(), 8);
    // One round opens each of the connections.
    for (is_old, connections) in [(false, 8), (false, 8), (true, 16)] {
        if is_old {
            kept.age(LIFETIME);
        }
        for _ in 0..8 {
            let sent = kept.request(request(&uri), uri.clone()).await.unwrap();
            assert!(matches!(sent, Sent::Response(_)));
        }
        assert_eq!(count.load(Ordering::SeqCst), connections);
    }
}
