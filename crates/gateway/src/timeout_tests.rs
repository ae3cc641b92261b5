//! Timeouts of exchanges, in tokio's paused time.

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Bytes;
use http_body::{Body, Frame};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
    sync::{mpsc, watch},
    time::{Instant, sleep},
};

use super::{
    bodies::{Download, Progress, Upload, UploadError},
    websocket::hand_on,
};

/// A body whose parts the test sends.
struct Parts(mpsc::UnboundedReceiver<Bytes>);

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.0.poll_recv(cx);
        part.map(|part| part.map(|part| Ok(Frame::data(part))))
    }
}

fn parts() -> (mpsc::UnboundedSender<Bytes>, Parts) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Parts(receiver))
}

fn part(length: usize) -> Bytes {
    vec![b'a'; length].into()
}

async fn next<B: Body + Unpin>(body: &mut B) -> Option<Result<Frame<B::Data>, B::Error>> {
    poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// The seconds until a body with one part of this length a second times out.
async fn patience(length: usize) -> u64 {
    let (sender, body) = parts();
    let mut upload = Upload::new(body, u64::MAX).paced(MINUTE);
    let start = Instant::now();
    let client = tokio::spawn(async move {
        for _ in 0..1000 {
            sleep(Duration::from_secs(1)).await;
            let _ = sender.send(part(length));
        }
        sender
    });
    let ended = loop {
        match next(&mut upload).await {
            Some(Ok(_)) if !client.is_finished() => {}
            ended => break ended,
        }
    };
    let slow = matches!(ended, Some(Err(UploadError::Slow)));
    assert_eq!(slow, !client.is_finished());
    start.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn body_comes_with_the_least_rate() {
    assert_eq!(patience(500).await, 1000);
    assert_eq!(patience(0).await, 60);
    // 500 bytes are worth a second: at 250 a second the time grows by half.
    assert!((118..=122).contains(&patience(250).await));
}

#[tokio::test(start_paused = true)]
async fn upstream_that_does_not_read_is_no_fault_of_the_client() {
    let (sender, body) = parts();
    let mut upload = Upload::new(body, u64::MAX).paced(MINUTE);
    for _ in 0..3 {
        sender.send(part(1)).unwrap();
        next(&mut upload).await.unwrap().unwrap();
        assert!(!upload.progress().is_awaited());
        sleep(HOUR).await;
    }
    let start = Instant::now();
    let frame = next(&mut upload).await;
    assert!(matches!(frame, Some(Err(UploadError::Slow))));
    assert_eq!(start.elapsed().as_secs(), 60);
    assert!(upload.progress().is_awaited());
}

#[tokio::test(start_paused = true)]
async fn exchange_ends_when_both_directions_are_silent() {
    let (to_upstream, request) = parts();
    let (to_client, response) = parts();
    let mut upload = Upload::new(request, u64::MAX).of_messages(HOUR);
    let progress = upload.progress().clone();
    let mut download = Download::new(response, progress, HOUR, ());
    let start = Instant::now();
    // Each direction alone exceeds the silence limit.
    let talk = async {
        for sender in [&to_upstream, &to_client, &to_upstream] {
            sleep(HOUR * 3 / 4).await;
            sender.send(part(1)).unwrap();
        }
    };
    let uploaded = async {
        while let Some(Ok(_)) = next(&mut upload).await {}
        start.elapsed()
    };
    let downloaded = async {
        while let Some(Ok(_)) = next(&mut download).await {}
        start.elapsed()
    };
    let ((), uploaded, downloaded) = tokio::join!(talk, uploaded, downloaded);
    let expected = (HOUR * 9 / 4 + HOUR).as_secs();
    assert_eq!([uploaded.as_secs(), downloaded.as_secs()], [expected; 2]);
}

#[tokio::test(start_paused = true)]
async fn silence_can_be_as_long_as_anybody_likes() {
    let (sender, body) = parts();
    let mut download = Download::new(body, Progress::new(), Duration::MAX, ());
    let late = async {
        sleep(HOUR * 24 * 365).await;
        sender.send(part(1)).unwrap();
    };
    let (frame, ()) = tokio::join!(next(&mut download), late);
    assert!(matches!(frame, Some(Ok(_))));
}

#[tokio::test(start_paused = true)]
async fn tunnel_ends_when_both_directions_are_silent() {
    let (_stop, stopped) = watch::channel(false);
    let (mut client, one) = duplex(64);
    let (mut upstream, other) = duplex(64);
    let start = Instant::now();
    let tunnel = tokio::spawn(hand_on(one, other, HOUR, stopped));
    let mut byte = [0];
    for _ in 0..3 {
        sleep(HOUR * 3 / 4).await;
        client.write_all(b"a").await.unwrap();
        upstream.read_exact(&mut byte).await.unwrap();
        sleep(HOUR * 3 / 4).await;
        upstream.write_all(b"b").await.unwrap();
        client.read_exact(&mut byte).await.unwrap();
    }
    assert_eq!(client.read(&mut byte).await.unwrap(), 0);
    assert_eq!(upstream.read(&mut byte).await.unwrap(), 0);
    tunnel.await.unwrap();
    assert_eq!(start.elapsed().as_secs(), (HOUR * 9 / 2 + HOUR).as_secs());
}

#[tokio::test(start_paused = true)]
async fn tunnel_hands_on_what_comes_after_one_end_is_closed() {
    let (_stop, stopped) = watch::channel(false);
    let (mut client, one) = duplex(64);
    let (mut upstream, other) = duplex(64);
    let tunnel = tokio::spawn(hand_on(one, other, HOUR, stopped));
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let mut text = String::new();
    upstream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "question");
    upstream.write_all(b"answer").await.unwrap();
    drop(upstream);
    text.clear();
    client.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "answer");
    tunnel.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn end_that_ignores_the_other_ones_end_is_closed_after_a_minute() {
    for ends_at_the_client in [true, false] {
        let (_stop, stopped) = watch::channel(false);
        let (mut client, one) = duplex(64);
        let (mut upstream, other) = duplex(64);
        let start = Instant::now();
        let tunnel = tokio::spawn(hand_on(one, other, HOUR, stopped));
        sleep(MINUTE * 10).await;
        if ends_at_the_client {
            client.shutdown().await.unwrap();
        } else {
            upstream.shutdown().await.unwrap();
        }
        tunnel.await.unwrap();
        assert_eq!(start.elapsed().as_secs(), (MINUTE * 11).as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn end_that_does_not_read_is_silence() {
    let (_stop, stopped) = watch::channel(false);
    let (mut client, one) = duplex(64);
    let (_upstream, other) = duplex(64);
    let start = Instant::now();
    let tunnel = tokio::spawn(hand_on(one, other, HOUR, stopped));
    // More than all buffers hold.
    while client.write_all(&[b'a'; 64]).await.is_ok() {}
    tunnel.await.unwrap();
    assert_eq!(start.elapsed().as_secs(), HOUR.as_secs());
}

/// The close frame for clients, and the masked one.
const CLOSE: &[u8] = b"\x88\x02\x03\xe9";
const MASKED: &[u8] = b"\x88\x82\0\0\0\0\x03\xe9";

/// Three frames, the last with a length of two bytes.
fn frames() -> Vec<u8> {
    let long = [&b"\x82\x7e\0\x80"[..], &[b'x'; 128]].concat();
    [&b"\x81\x02hi\x89\0"[..], &long].concat()
}

/// The bytes that a client and its upstream receive if the gateway stops after this many bytes of the upstream.
async fn stopped_after(bytes: usize, replies: bool) -> [Vec<u8>; 2] {
    let (client, one) = duplex(1024);
    let (upstream, other) = duplex(1024);
    let (stop, stopped) = watch::channel(false);
    let tunnel = tokio::spawn(hand_on(one, other, HOUR, stopped));
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_upstream, mut to_upstream) = tokio::io::split(upstream);
    let all = frames();
    to_upstream.write_all(&all[..bytes]).await.unwrap();
    // Paused time advances when nothing else can run.
    sleep(HOUR / 4).await;
    stop.send_replace(true);
    sleep(HOUR / 4).await;
    to_client.write_all(b"\x81\x80late").await.unwrap();
    to_upstream.write_all(&all[bytes..]).await.unwrap();
    sleep(HOUR / 4).await;
    if replies {
        to_client.write_all(MASKED).await.unwrap();
    }
    to_client.shutdown().await.unwrap();
    let mut got = [Vec::new(), Vec::new()];
    from_upstream.read_to_end(&mut got[1]).await.unwrap();
    // The client got a close frame already, so it gets no second one.
    to_upstream.write_all(CLOSE).await.unwrap();
    to_upstream.shutdown().await.unwrap();
    from_client.read_to_end(&mut got[0]).await.unwrap();
    tunnel.await.unwrap();
    got
}

#[tokio::test(start_paused = true)]
async fn close_frame_follows_a_whole_frame_and_is_the_last() {
    let all = frames();
    let ends = [0, 4, 6, all.len()];
    for bytes in 0..=all.len() {
        let [client, upstream] = stopped_after(bytes, true).await;
        let end = ends.into_iter().find(|end| *end >= bytes).unwrap();
        assert_eq!(client, [&all[..end], CLOSE].concat(), "{bytes}");
        assert_eq!(upstream, [&b"\x81\x80late"[..], MASKED].concat(), "{bytes}");
    }
}

#[tokio::test(start_paused = true)]
async fn client_that_only_ends_is_closed_to_the_upstream() {
    let [_, upstream] = stopped_after(0, false).await;
    assert_eq!(upstream, [&b"\x81\x80late"[..], MASKED].concat());
}

#[tokio::test(start_paused = true)]
async fn web_socket_that_the_upstream_closed_is_not_closed_twice() {
    let (mut client, one) = duplex(64);
    let (mut upstream, other) = duplex(64);
    let (stop, stopped) = watch::channel(false);
    let tunnel = tokio::spawn(hand_on(one, other, HOUR, stopped));
    let normal = b"\x88\x02\x03\xe8";
    upstream.write_all(normal).await.unwrap();
    sleep(HOUR / 4).await;
    stop.send_replace(true);
    sleep(HOUR / 4).await;
    drop(upstream);
    let mut got = Vec::new();
    client.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, normal);
    drop(client);
    tunnel.await.unwrap();
}

mod kept_connections {
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
    use crate::{
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
            let response = kept.request(request(&uri), false).await.unwrap();
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
}

mod unread {
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
    use testkit::in_memory_connection::Pipe;
    use tokio::{io::DuplexStream, sync::Mutex};
    use tower_service::Service;

    use super::*;
    use tower_ratelimit_service::{
        connections::{self, ConnectionLimits, Listener},
        shutdown,
    };

    /// The capacity of a pipe; the remaining bytes are in the gateway.
    const PIPE: usize = 1024;

    /// The bound in crates/gateway/docs/gateway.md.
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
        let upstream = crate::upstream::client().build::<_, Body>(endless);
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
}
