//! The proxy: sends a request to the upstream, and its response back.

use std::{
    array,
    convert::Infallible,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{body::Body, response::Response};
use http::{
    HeaderValue, Request, StatusCode, Uri, Version,
    header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TE, TRANSFER_ENCODING},
    request::Parts,
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Builder, Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tokio::{sync::watch, time::timeout};
use tower_service::Service;

use super::{
    answer::problem,
    download::Download,
    failures::{Cause, Failures},
    fields::{self, Hop},
    progress::Progress,
    settings::Settings,
    ticket::Ticket,
    upgrade,
    upload::Upload,
};
use crate::connections::MAX_FIELDS;

/// How long a connection to the upstream is kept without a request: less than the 5 seconds of servers that close
/// theirs soon, so that none is sent into one that is just closed.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// The most bytes of a response by HTTP/1.1 that are read ahead of the client, its header among them, and of a request that
/// wait for the upstream.
const BUFFER: usize = 32 * 1024;

/// How many bytes of an answer by HTTP/2 may be on their way to a client that does not read. The window of a connection
/// has room for as many of all requests that there may be, so that none is stopped by those of others.
const WINDOW: u32 = 64 * 1024;

/// The largest window that HTTP/2 has.
const MAX_WINDOW: u32 = (1 << 31) - 1;

/// The connections to an upstream by HTTP/2: many servers take no more than 100 streams on one.
const CONNECTIONS: usize = 8;

/// A service that hands requests on. A clone is a handle to the same connections.
#[derive(Clone)]
pub(super) struct Proxy(Arc<Inner>);

struct Inner {
    upstream: Authority,
    failures: Failures,
    timeout: Duration,
    silence: Duration,
    http1: Client<HttpConnector, Upload>,
    http2: [Client<HttpConnector, Upload>; CONNECTIONS],
    next: AtomicUsize,
    /// Whether the gateway takes no more requests, and closes WebSockets.
    stopped: watch::Receiver<bool>,
}

impl Proxy {
    pub(super) fn new(
        settings: &Settings,
        max_in_flight: u32,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let mut builder = client(max_in_flight);
        Self(Arc::new(Inner {
            upstream: settings.upstream.0.clone(),
            failures: Failures::new(settings.upstream.0.clone()),
            timeout: settings.timeout,
            silence: settings.idle_timeout,
            http1: builder.build(connector.clone()),
            http2: array::from_fn(|_| builder.http2_only(true).build(connector.clone())),
            next: AtomicUsize::new(0),
            stopped,
        }))
    }
}

/// The client of the upstream, for so many requests at a time. What waits on either side is bounded: bytes that the
/// gateway has read would otherwise grow with the number of clients that do not read.
pub(super) fn client(max_in_flight: u32) -> Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIME)
        .http1_max_buf_size(BUFFER)
        .http1_max_headers(MAX_FIELDS)
        .http2_max_send_buf_size(BUFFER)
        .http2_initial_stream_window_size(WINDOW)
        .http2_initial_connection_window_size(all_windows(max_in_flight));
    builder
}

/// The window of a connection on which there may be so many streams.
fn all_windows(streams: u32) -> u32 {
    let all = WINDOW.saturating_mul(streams.saturating_add(1));
    all.min(MAX_WINDOW)
}

impl Service<Request<Upload>> for Proxy {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Upload>) -> Self::Future {
        let proxy = Arc::clone(&self.0);
        Box::pin(async move { Ok(proxy.hand_on(request).await.unwrap_or_else(problem)) })
    }
}

impl Inner {
    async fn hand_on(&self, mut request: Request<Upload>) -> Result<Response, StatusCode> {
        let hop = request.extensions_mut().remove::<Hop>();
        let hop = hop.ok_or(StatusCode::INTERNAL_SERVER_ERROR)?;
        let (mut parts, body) = request.into_parts();
        let client = upgrade::asked(&mut parts);
        let is_grpc = is_grpc(&parts);
        let body = match is_grpc {
            true => body.of_messages(self.silence),
            false => body.paced(self.timeout),
        };
        let progress = body.progress().clone();
        let mut request = self.outgoing(parts, body, &hop)?;
        match is_grpc {
            // In HTTP/2 the target has the host.
            true => drop(request.headers_mut().remove(HOST)),
            false => say_connection(&mut request, client.is_some()),
        }
        let response = match is_grpc {
            true => self.http2().request(request),
            false => self.http1.request(request),
        };
        let response = self.in_time(response, &progress, is_grpc).await?;
        self.answer(response, client, progress, hop.ticket)
    }

    fn http2(&self) -> &Client<HttpConnector, Upload> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.http2[turn % CONNECTIONS]
    }

    fn outgoing(
        &self,
        mut parts: Parts,
        body: Upload,
        hop: &Hop,
    ) -> Result<Request<Upload>, StatusCode> {
        fields::hand_on(&mut parts.headers, &parts.uri, parts.version, hop);
        let path = parts.uri.path_and_query().cloned();
        let uri = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.upstream.clone())
            .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        let uri = uri.build().map_err(|_| StatusCode::BAD_REQUEST)?;
        let mut request = Request::new(body);
        *request.method_mut() = parts.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = parts.headers;
        Ok(request)
    }

    /// Waits for the head of the response, as long as the request goes on. Clients of gRPC know no 408.
    async fn in_time(
        &self,
        response: impl Future<Output = Result<Response<Incoming>, Refusal>>,
        progress: &Progress,
        is_grpc: bool,
    ) -> Result<Response<Incoming>, StatusCode> {
        let mut response = pin!(response);
        loop {
            let parts = progress.parts();
            if let Ok(answered) = timeout(self.timeout, response.as_mut()).await {
                return answered.map_err(|error| self.failures.status(&error));
            }
            match progress.parts() == parts {
                true if progress.is_awaited() && !is_grpc => {
                    return Err(StatusCode::REQUEST_TIMEOUT);
                }
                true => {
                    self.failures.note(Cause::Timeout, "");
                    return Err(StatusCode::GATEWAY_TIMEOUT);
                }
                false => {}
            }
        }
    }

    fn answer(
        &self,
        mut response: Response<Incoming>,
        client: Option<hyper::upgrade::OnUpgrade>,
        progress: Progress,
        ticket: Ticket,
    ) -> Result<Response, StatusCode> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let agreed = client.filter(|_| upgrade::is_websocket(response.headers()));
            let client = agreed.ok_or_else(|| {
                self.failures.note(
                    Cause::Invalid,
                    ": it changes to a protocol that nobody requested",
                );
                StatusCode::BAD_GATEWAY
            })?;
            let upstream = hyper::upgrade::on(&mut response);
            let until = (self.stopped.clone(), ticket);
            upgrade::tunnel(client, upstream, self.silence, until);
            fields::end_connection(response.headers_mut(), fields::Nominated::All);
            upgrade::say(response.headers_mut());
            return Ok(response.map(|_| Body::empty()));
        }
        fields::end_connection(response.headers_mut(), fields::Nominated::All);
        *response.version_mut() = Version::HTTP_11;
        let silence = self.silence;
        let download = |body| Body::new(Download::new(body, progress, silence, ticket));
        Ok(response.map(download))
    }
}

/// Adds the fields about the connection to the upstream, which speaks HTTP/1.1.
fn say_connection(request: &mut Request<Upload>, is_upgrade: bool) {
    let has_body = !request.body().is_end_stream();
    let headers = request.headers_mut();
    if headers.contains_key(TE) {
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    // Without it the body of a GET would be left out.
    if has_body && !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if is_upgrade {
        upgrade::say(headers);
    }
}

type Refusal = hyper_util::client::legacy::Error;

/// Whether a request needs HTTP/2 all the way.
fn is_grpc(parts: &Parts) -> bool {
    let kind = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
    // `application/grpc-web` goes by HTTP/1.1, too.
    parts.version == Version::HTTP_2 && rest.is_some_and(|rest| !rest.starts_with(b"-"))
}
