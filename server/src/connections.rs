//! Connections: accepted, read within limits, and ended without losing a request.

mod paced;
#[cfg(test)]
mod tests;

use std::{
    convert::Infallible, future::Future, net::SocketAddr, pin::pin, sync::Arc, time::Duration,
};

use axum::{extract::Request, response::Response};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::{sleep, timeout},
};

use self::paced::{Pace, Paced};
use crate::{error::ServeError, life, tls::Tls};

/// The most bytes of a request's header; more are answered 431.
const MAX_HEADER: usize = 64 * 1024;

/// How long a request's header may take from its first byte, and a connection until then when it is new.
const HEADER_TIME: Duration = Duration::from_secs(10);

/// How long a connection is kept between requests. More than the 60 seconds for which load balancers keep theirs:
/// they would send a request into one that is just closed.
const IDLE_TIME: Duration = Duration::from_secs(75);

/// How many connections are taken by default.
pub(crate) const MAX_CONNECTIONS: usize = 4096;

/// How long no part of an answer may be read that is there.
const UNREAD_TIME: Duration = Duration::from_secs(60);

/// How long a peer has to take the end of a connection by HTTP/2.
const GRACE: Duration = Duration::from_secs(5);

/// How many requests there may be at a time on a connection by HTTP/2; RFC 9113 (6.5.2) wants no fewer allowed.
const MAX_STREAMS: u32 = 100;

/// How often a peer that speaks HTTP/2 is asked whether it is there.
pub(crate) const PING_TIME: Duration = Duration::from_secs(20);

/// How long a listener rests that could not take a connection.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// The other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) is_tls: bool,
}

/// Listens on the address that an option tells; also the address that it has got.
pub(crate) async fn listen(
    address: SocketAddr,
    option: &str,
) -> Result<(TcpListener, SocketAddr), ServeError> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.and_then(|listener| {
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    listener.map_err(|error| ServeError(format!("{option}: {address}: {error}")))
}

/// The same for a service that can be had or not.
pub(crate) async fn listen_unless_off(
    address: SocketAddr,
    option: &str,
) -> Result<(TcpListener, SocketAddr), ServeError> {
    let listener = listen(address, option).await;
    listener.map_err(|ServeError(text)| ServeError(format!("{text}; say another address, or off")))
}

/// Answers all requests until it is stopped, and then those that are under way.
pub(crate) async fn serve<F, A>(
    listener: TcpListener,
    tls: Option<Tls>,
    max_connections: usize,
    answer: F,
    stopped: watch::Receiver<bool>,
) where
    F: Fn(Request<Incoming>, Peer) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response> + Send + 'static,
{
    let (alive, mut ended) = mpsc::channel::<Infallible>(1);
    let room = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
    let start = |stream: TcpStream, address, permit: Option<OwnedSemaphorePermit>| {
        let (tls, alive, stopped) = (tls.clone(), alive.clone(), stopped.clone());
        let is_tls = tls.is_some();
        let answer = answer.clone();
        let answer = move |request| answer(request, Peer { address, is_tls });
        tokio::spawn(async move {
            agree(stream, tls, answer, stopped).await;
            drop((alive, permit));
        });
    };
    let mut until = pin!(life::wait(stopped.clone()));
    loop {
        // One too many is not refused: it waits in the queue of the system.
        let accepted = async {
            let permit = Arc::clone(&room).acquire_owned().await.ok();
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            () = &mut until => break,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, address)) => start(stream, address, permit),
            // There are too many open files, or the client is gone.
            Err(_) => sleep(PAUSE).await,
        }
    }
    for (stream, address) in waiting(listener) {
        start(stream, address, None);
    }
    drop(alive);
    ended.recv().await;
}

/// Serves a connection, once there is an agreement about TLS where that is spoken.
async fn agree<F, A>(stream: TcpStream, tls: Option<Tls>, answer: F, stopped: watch::Receiver<bool>)
where
    F: Fn(Request<Incoming>) -> A + Send + 'static,
    A: Future<Output = Response> + Send + 'static,
{
    // An answer is written at once, not when more has come together.
    drop(stream.set_nodelay(true));
    match tls {
        None => connection(stream, answer, stopped).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                connection(stream, answer, stopped).await;
            }
        }
    }
}

/// The connections that are there already. The listener is asked past the runtime, which may not have heard of them.
fn waiting(listener: TcpListener) -> Vec<(TcpStream, SocketAddr)> {
    let Ok(listener) = listener.into_std() else {
        return Vec::new();
    };
    let accepted = std::iter::from_fn(|| listener.accept().ok());
    let accepted = accepted.filter_map(|(stream, address)| {
        stream.set_nonblocking(true).ok()?;
        Some((TcpStream::from_std(stream).ok()?, address))
    });
    accepted.collect()
}

/// Serves a connection until its end. Its errors are its peer's, which is gone, or makes no sense.
async fn connection<I, F, A>(io: I, answer: F, stopped: watch::Receiver<bool>)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> A + Send + 'static,
    A: Future<Output = Response> + Send + 'static,
{
    let pace = Arc::new(Pace::default());
    let mut io = Paced::new(io, Arc::clone(&pace));
    match timeout(HEADER_TIME, io.is_http2()).await {
        Ok(Ok(true)) => speak_http2(io, &pace, answer, stopped).await,
        Ok(Ok(false)) => speak_http1(io, &pace, answer, stopped).await,
        _ => {}
    }
}

async fn speak_http1<I, F, A>(
    io: Paced<I>,
    pace: &Arc<Pace>,
    answer: F,
    stopped: watch::Receiver<bool>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> A,
    A: Future<Output = Response>,
{
    let service = service_fn(move |request| {
        let answer = pace.begin(answer(request));
        async { Ok::<_, Infallible>(answer.await) }
    });
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEADER);
    let connection = builder.serve_connection(TokioIo::new(io), service);
    let mut connection = pin!(connection.with_upgrades());
    // First the connection reads what is there: one that has read nothing ends without an answer.
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = pace.is_over() => return,
        () = life::wait(stopped) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = connection => {}
        () = pace.is_over() => {}
    }
}

async fn speak_http2<I, F, A>(
    io: Paced<I>,
    pace: &Arc<Pace>,
    answer: F,
    stopped: watch::Receiver<bool>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> A,
    A: Future<Output = Response> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answer = pace.begin(answer(request));
        async { Ok::<_, Infallible>(answer.await) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_TIME)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER as u32);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
    // First the connection reads what is there: one that has read nothing ends without an answer.
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = pace.is_over() => {
            // A peer that reads is told, so that it sends no request into the end.
            connection.as_mut().graceful_shutdown();
            drop(timeout(GRACE, connection).await);
            return;
        }
        () = life::wait(stopped) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = connection => {}
        () = pace.is_over() => {}
    }
}
