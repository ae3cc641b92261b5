//! Clients that do not read their gRPC responses.

use std::{convert::Infallible, net::Ipv4Addr};

use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http2::{Builder as Client, SendRequest},
    server::conn::http2::Builder as Server,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

use crate::gateway_process::{Gateway, bounded};

/// More than all buffers of a stream.
const LARGE: usize = 4 << 20;

/// More than the windows of a connection to the upstream once allowed.
const UNREAD: usize = 24;

/// An upstream that responds with a large body; its port.
async fn upstream() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(async |_: Request<Incoming>| {
                let body = Full::new(Bytes::from_static(&[b'a'; LARGE]));
                Ok::<_, Infallible>(Response::new(body))
            });
            stream.set_nodelay(true).unwrap();
            let server = Server::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), answer));
        }
    });
    port
}

/// A client with the smallest windows.
async fn connect(gateway: &Gateway) -> SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, gateway.port)).await;
    let stream = stream.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = Client::new(TokioExecutor::new())
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(65_535)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

fn call() -> Request<Empty<Bytes>> {
    let request = Request::post("http://shop.example/a").header("content-type", "application/grpc");
    request.body(Empty::new()).unwrap()
}

#[tokio::test]
async fn client_that_does_not_read_blocks_no_other() {
    bounded(async {
        let gateway = Gateway::start(upstream().await, &[]).await;
        let mut idler = connect(&gateway).await;
        let mut unread = Vec::new();
        for _ in 0..UNREAD {
            unread.push(idler.send_request(call()).await.unwrap());
        }
        let mut reader = connect(&gateway).await;
        for _ in 0..UNREAD {
            let answer = reader.send_request(call()).await.unwrap();
            let body = answer.into_body().collect().await.unwrap();
            assert_eq!(body.to_bytes().len(), LARGE);
        }
        // The other connection is still open.
        assert!(!idler.is_closed());
    })
    .await;
}
