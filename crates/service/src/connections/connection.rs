//! One connection, from its first byte to its end, and its limits.

use std::{
    convert::Infallible,
    future::Future,
    hash::{BuildHasher as _, RandomState},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use axum::{
    extract::Request,
    response::{IntoResponse as _, Response},
};
use http::{StatusCode, Version};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    request_body_draining::RequestBody,
    slots::Slot,
    timeouts::{ConnectionTimer, HEADER_TIME, TimedIo},
};
use crate::shutdown;

/// The most bytes of a request's header; a longer one gets 431.
const MAX_HEADER: usize = 64 * 1024;

/// The most buffered bytes of one HTTP/2 stream: of a request's body before the server reads it, and of a response
/// before the peer does. On an HTTP/1 connection, `MAX_HEADER` bounds both.
const BUFFER: usize = 64 * 1024;

/// The most header fields of a request, else 431, and of an upstream's response, else 502. Browsers and servers use a
/// quarter of it, and other proxies accept 100.
pub const MAX_FIELDS: usize = 256;

/// How long a peer has to finish an HTTP/2 connection that shuts down.
const GRACE: Duration = Duration::from_secs(5);

/// Serves a connection until it closes. Errors are ignored: the peer has gone or is invalid.
pub(super) async fn connection<I, F, A>(
    (io, slot): (I, Slot),
    limits: ConnectionLimits,
    answer: F,
    stopped: watch::Receiver<bool>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<RequestBody>) -> A + Send + 'static,
    A: Future<Output = Response> + Send + 'static,
{
    let activity = Arc::clone(&slot.activity);
    let timer = &Arc::new(ConnectionTimer::new(limits.idle, activity));
    let mut io = TimedIo::new(io, Arc::clone(timer), slot);
    let is_http2 = match timeout(HEADER_TIME, io.is_http2()).await {
        Ok(Ok(is_http2)) if is_http2 || limits.http1 => is_http2,
        _ => return,
    };
    let service = service_fn(move |request: Request<Incoming>| {
        // In HTTP/1 hyper counts the fields.
        let is_small = request.headers().len() <= MAX_FIELDS;
        let (request, unread) = match request.version() {
            Version::HTTP_2 => (request.map(RequestBody::of_stream), None),
            _ => RequestBody::of_connection(request, timer),
        };
        // Boxed, since each future around it has room for it twice, and an idle connection keeps that room.
        let response = is_small.then(|| Box::pin(answer(request)));
        let answer = timer.begin(async {
            let response = match response {
                Some(response) => response.await,
                None => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.into_response(),
            };
            match unread {
                Some(unread) => unread.respond(response),
                None => response,
            }
        });
        async { Ok::<_, Infallible>(answer.await) }
    });
    let builder = builder(limits);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    // Biased, so that the connection reads pending bytes first: one that has read nothing closes without a response.
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = timer.is_over() => {
            if is_http2 {
                // GOAWAY, so that a peer that reads sends no further request.
                connection.as_mut().graceful_shutdown();
                drop(timeout(GRACE, connection).await);
            }
            return;
        }
        () = shutdown::wait(stopped) => connection.as_mut().graceful_shutdown(),
        () = aged(limits) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = connection => {}
        () = timer.is_over() => {}
    }
}

/// A server of both versions with the limits of a connection.
fn builder(limits: ConnectionLimits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .max_buf_size(MAX_HEADER)
        .max_headers(MAX_FIELDS)
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.ping)
        .keep_alive_timeout(limits.ping)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(MAX_HEADER as u32)
        .initial_stream_window_size(BUFFER as u32)
        .max_send_buf_size(BUFFER);
    builder
}

/// Completes when a connection that opens now reaches its maximum age.
async fn aged(limits: ConnectionLimits) {
    match limits.next_age() {
        Some(age) => sleep(age).await,
        None => std::future::pending().await,
    }
}

/// The default number of connections.
pub const MAX_CONNECTIONS: usize = 4096;

/// How long a connection may be idle between requests. Load balancers close theirs after 60 seconds; if the server
/// closed first, they would send requests into closed connections.
const IDLE_TIME: Duration = Duration::from_secs(75);

/// The interval of HTTP/2 pings, and how long the peer may take to answer one.
const PING_TIME: Duration = Duration::from_secs(20);

/// [`PING_TIME`] of a listener whose streams are shares of limits: a dead client's share can pass to its next stream.
const SHARES_PING_TIME: Duration = Duration::from_secs(5);

/// The limits of a listener's connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// The most connections; one more waits until another closes.
    pub most: usize,
    /// The most concurrent requests of an HTTP/2 connection; RFC 9113 (6.5.2) recommends at least 100.
    pub(super) streams: u32,
    /// The longest idle time between requests.
    pub idle: Duration,
    /// The age at which a connection shuts down, plus or minus a tenth.
    pub(super) age: Option<Duration>,
    /// Whether HTTP/1 is accepted as well.
    pub(super) http1: bool,
    /// The interval of HTTP/2 pings, and how long the peer may take to answer one.
    pub(super) ping: Duration,
}

impl ConnectionLimits {
    /// The limits of HTTP for any client.
    pub const fn http(most: usize) -> Self {
        Self {
            most,
            streams: 100,
            idle: IDLE_TIME,
            age: None,
            http1: true,
            ping: PING_TIME,
        }
    }

    /// The limits of gRPC. Proxies keep their connections, so an idle one stays open until it is old or does not
    /// answer pings.
    pub const fn grpc(age: Duration) -> Self {
        Self {
            most: usize::MAX,
            streams: 200,
            idle: Duration::MAX,
            age: if age.is_zero() { None } else { Some(age) },
            http1: false,
            ping: PING_TIME,
        }
    }

    /// These limits for a listener of the quota service, if it has that service.
    #[must_use]
    pub const fn with_shares(mut self, has_shares: bool) -> Self {
        if has_shares {
            self.ping = SHARES_PING_TIME;
        }
        self
    }

    /// The maximum age of the next connection.
    fn next_age(&self) -> Option<Duration> {
        self.age.map(jittered)
    }
}

/// The time plus or minus a tenth, so that connections do not close together.
fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().hash_one(0);
    let tenths = (random % 2_001) as f64 / 10_000.0;
    time.mul_f64(0.9 + tenths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_of_zero_is_none() {
        assert_eq!(ConnectionLimits::grpc(Duration::ZERO).next_age(), None);
        let day = Duration::from_secs(86_400);
        assert!(ConnectionLimits::grpc(day).next_age().is_some());
    }

    #[test]
    fn ages_differ_by_a_tenth_at_most() {
        let day = Duration::from_secs(86_400);
        let ages: Vec<Duration> = (0..1_000).map(|_| jittered(day)).collect();
        let around = day.mul_f64(0.899)..day.mul_f64(1.101);
        assert!(ages.iter().all(|age| around.contains(age)));
        assert!(ages.iter().any(|age| *age != ages[0]), "they differ");
    }
}
