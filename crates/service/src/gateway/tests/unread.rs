//! Responses that a client does not read: the bytes that the gateway still reads from the upstream.

use std::{
    future::{Ready, ready},
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{body::Body, response::Response};
use http::{Request, Uri};
use hyper::client::conn::http2::Builder as Http2Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use testkit::pipe::Pipe;
use tokio::{io::DuplexStream, sync::Mutex};
use tower_service::Service;

use super::*;
use crate::{connections::Listener, shutdown};

/// The capacity of a pipe; the remaining bytes are in the gateway.
const PIPE: usize = 1024;

/// The bound in crates/service/docs/gateway.md.
const MOST: usize = 200 * 1024;

/// The window of an HTTP/2 client: bytes that have left the gateway.
const CLIENT_WINDOW: u32 = 65_535;

/// A listener with one connection.
struct One(Mutex<Option<DuplexStream>>);

impl Listener for One {
    type Io = DuplexStream;

    async fn accept(&self) -> io::Result<(DuplexStream, SocketAddr)> {
        match self.0.lock().await.take() {
            Some(pipe) => Ok((pipe, (Ipv4Addr::LOCALHOST, 1).into())),
            None => std::future::pending().await,
        }
    }

    fn waiting(self) -> Vec<(DuplexStream, SocketAddr)> {
        Vec::new()
    }

    fn shown(&self) -> String {
        String::new()
    }
}

/// Connects to an upstream with an endless response, and counts the bytes that it could write.
#[derive(Clone, Default)]
struct Endless(Arc<AtomicUsize>);

impl Service<Uri> for Endless {
    type Response = TokioIo<Pipe>;
    type Error = io::Error;
    type Future = Ready<io::Result<TokioIo<Pipe>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (mut upstream, pipe) = duplex(PIPE);
        let written = Arc::clone(&self.0);
        tokio::spawn(async move {
            let mut head = [0; 4];
            upstream.read_exact(&mut head).await.unwrap();
            let begin = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n";
            upstream.write_all(begin).await.unwrap();
            while let Ok(length) = upstream.write(&[b'x'; PIPE]).await {
                written.fetch_add(length, Ordering::Relaxed);
            }
        });
        ready(Ok(TokioIo::new(Pipe(pipe))))
    }
}

/// A gateway with one client: its end, and the bytes that the upstream could write.
fn gateway() -> (DuplexStream, Arc<AtomicUsize>) {
    let (client, gateway) = duplex(PIPE);
    let endless = Endless::default();
    let written = Arc::clone(&endless.0);
    let upstream = crate::gateway::upstream::client().build::<_, Body>(endless);
    let answer = move |_, _| {
        let response = upstream.get(Uri::from_static("http://upstream/"));
        async move {
            let body = response.await.unwrap().into_body();
            let body = Download::new(body, Progress::new(), HOUR, ());
            Response::new(Body::new(body))
        }
    };
    let (stop, stopped) = shutdown::stop();
    tokio::spawn(async move {
        let listener = One(Mutex::new(Some(gateway)));
        connections::serve(
            listener,
            None,
            (ConnectionLimits::http(1), None),
            answer,
            stopped,
        )
        .await;
        drop(stop);
    });
    (client, written)
}

#[tokio::test(start_paused = true)]
async fn client_by_http1_that_does_not_read_bounds_what_is_read_for_it() {
    let (mut client, written) = gateway();
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    // Paused time advances when nothing else can run: by less than the minute after which the connection closes.
    sleep(MINUTE / 2).await;
    let bytes = written.load(Ordering::Relaxed);
    assert!((1..MOST).contains(&bytes), "{bytes}");
    // Afterwards the client can read all of it.
    let mut taken = vec![0; 4 * MOST];
    client.read_exact(&mut taken).await.unwrap();
    sleep(MINUTE / 2).await;
    let more = written.load(Ordering::Relaxed) - bytes;
    assert!(more > 3 * MOST && more < 5 * MOST, "{more}");
}

#[tokio::test(start_paused = true)]
async fn stream_of_http2_that_is_not_read_bounds_what_is_read_for_it() {
    const STREAMS: usize = 4;
    let (client, written) = gateway();
    let (mut sender, connection) = Http2Client::new(TokioExecutor::new())
        .initial_stream_window_size(CLIENT_WINDOW)
        .initial_connection_window_size(CLIENT_WINDOW * STREAMS as u32)
        .handshake(TokioIo::new(client))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut unread = Vec::new();
    for streams in 1..=STREAMS {
        let request = Request::get("http://shop.example/").body(Body::empty());
        let response = sender.send_request(request.unwrap()).await.unwrap();
        unread.push(response);
        sleep(Duration::from_secs(5)).await;
        let bytes = written.load(Ordering::Relaxed);
        let most = streams * (MOST + CLIENT_WINDOW as usize);
        assert!((streams..most).contains(&bytes), "{streams}: {bytes}");
    }
}
