//! A connection, from its first byte to its end.

use std::{convert::Infallible, future::Future, pin::pin, sync::Arc, time::Duration};

use axum::{
    extract::Request,
    response::{IntoResponse as _, Response},
};
use http::StatusCode;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    paced::{HEADER_TIME, Pace, Paced},
    request_body::RequestBody,
    room::Slot,
    terms::Terms,
};
use crate::life;

/// The most bytes of a request's header; more are answered 431.
const MAX_HEADER: usize = 64 * 1024;

/// The most bytes of a request's body that wait for the server, and of a response that wait for the peer, on a stream of
/// HTTP/2. On a connection of HTTP/1, `MAX_HEADER` bounds both.
const BUFFER: usize = 64 * 1024;

/// The most fields of a header, of requests and of an upstream's responses; more are answered 431, or 502. Four times
/// what browsers and servers use, and more than the 100 that other proxies take.
pub(crate) const MAX_FIELDS: usize = 256;

/// How long a peer has to take the end of a connection by HTTP/2.
const GRACE: Duration = Duration::from_secs(5);

/// How often a peer that speaks HTTP/2 is asked whether it is there, and how long it may take to answer.
const PING_TIME: Duration = Duration::from_secs(20);

/// Serves a connection until its end. Its errors are its peer's, which is gone, or makes no sense.
pub(super) async fn connection<I, F, A>(
    (io, place): (I, Slot),
    terms: Terms,
    answer: F,
    stopped: watch::Receiver<bool>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<RequestBody>) -> A + Send + 'static,
    A: Future<Output = Response> + Send + 'static,
{
    let pace = Arc::new(Pace::new(terms.idle, place.standing()));
    let mut io = Paced::new(io, Arc::clone(&pace), place);
    match timeout(HEADER_TIME, io.is_http2()).await {
        Ok(Ok(true)) => speak_http2(io, terms, &pace, answer, stopped).await,
        Ok(Ok(false)) if terms.http1 => speak_http1(io, &pace, answer, stopped).await,
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
    F: Fn(Request<RequestBody>) -> A,
    A: Future<Output = Response>,
{
    let service = service_fn(move |request| {
        let (request, unread) = RequestBody::of_connection(request, pace);
        let answer = answer(request);
        let answer = pace.begin(async {
            let response = answer.await;
            match unread {
                Some(unread) => unread.respond(response),
                None => response,
            }
        });
        async { Ok::<_, Infallible>(answer.await) }
    });
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEADER).max_headers(MAX_FIELDS);
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
    terms: Terms,
    pace: &Arc<Pace>,
    answer: F,
    stopped: watch::Receiver<bool>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<RequestBody>) -> A,
    A: Future<Output = Response> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answer = pace.begin(or_too_large(few_fields(request).map(&answer)));
        async { Ok::<_, Infallible>(answer.await) }
    });
    let builder = http2_builder(terms);
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
        () = aged(terms) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = connection => {}
        () = pace.is_over() => {}
    }
}

/// The limits of a connection by HTTP/2.
fn http2_builder(terms: Terms) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_TIME)
        .keep_alive_timeout(PING_TIME)
        .max_concurrent_streams(terms.streams)
        .max_header_list_size(MAX_HEADER as u32)
        .initial_stream_window_size(BUFFER as u32)
        .max_send_buf_size(BUFFER);
    builder
}

/// The request, unless it has too many fields.
fn few_fields(request: Request<Incoming>) -> Option<Request<RequestBody>> {
    let is_few = request.headers().len() <= MAX_FIELDS;
    is_few.then(|| request.map(RequestBody::of_stream))
}

/// The answer, or that to a request with too many fields, which by HTTP/1 hyper counts.
async fn or_too_large(answer: Option<impl Future<Output = Response>>) -> Response {
    match answer {
        Some(answer) => answer.await,
        None => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.into_response(),
    }
}

/// Waits until a connection that begins now is too old.
async fn aged(terms: Terms) {
    match terms.next_age() {
        Some(age) => sleep(age).await,
        None => std::future::pending().await,
    }
}
