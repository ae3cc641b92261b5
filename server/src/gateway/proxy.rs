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
    download::Download,
    failures::{Cause, Failures},
    hop_by_hop_headers::{self, Hop},
    permit::RequestPermit,
    problem_response::problem,
    progress::Progress,
    settings::Settings,
    upgrade,
    upload::Upload,
};
use crate::connections::MAX_FIELDS;

/// How long an idle connection to the upstream is kept. Some servers close theirs after 5 seconds, and a request must
/// not be sent into a closing connection.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// The most buffered bytes on an HTTP/1.1 connection: of a response, its header included, before the client reads it,
/// and of a request before the upstream does.
const BUFFER: usize = 32 * 1024;

/// The most bytes of an HTTP/2 response in flight to a client that does not read. The window of a connection is the
/// sum of those of all its requests, so that one cannot block the others.
const WINDOW: u32 = 64 * 1024;

/// The largest window of HTTP/2.
const MAX_WINDOW: u32 = (1 << 31) - 1;

/// The number of HTTP/2 connections to an upstream: many servers accept no more than 100 streams on one.
const CONNECTIONS: usize = 8;

/// A service that forwards requests. Clones share the connections.
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
    /// Whether the gateway is stopping, and closes WebSockets.
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

/// The client of the upstream, for this many concurrent requests. Buffers on both sides are bounded: otherwise memory
/// would grow with the number of clients that do not read.
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

/// The window of a connection with this many streams.
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
        let hop = request
            .extensions_mut()
            .remove::<Hop>()
            .ok_or(StatusCode::INTERNAL_SERVER_ERROR)?;
        let (mut parts, body) = request.into_parts();
        let client = upgrade::take_upgrade(&mut parts);
        let is_grpc = is_grpc(&parts);
        let body = if is_grpc {
            body.of_messages(self.silence)
        } else {
            body.paced(self.timeout)
        };
        let progress = body.progress().clone();
        let mut request = self.outgoing(parts, body, &hop)?;
        if is_grpc {
            // In HTTP/2 the target has the host.
            drop(request.headers_mut().remove(HOST));
        } else {
            add_connection_fields(&mut request, client.is_some());
        }
        let response = if is_grpc {
            self.http2().request(request)
        } else {
            self.http1.request(request)
        };
        let response = self.in_time(response, &progress, is_grpc).await?;
        self.answer(response, client, progress, hop.permit)
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
        hop_by_hop_headers::hand_on(&mut parts.headers, &parts.uri, parts.version, hop);
        let path = parts.uri.path_and_query().cloned();
        let uri = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.upstream.clone())
            .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
            .build()
            .map_err(|_| StatusCode::BAD_REQUEST)?;
        let mut request = Request::new(body);
        *request.method_mut() = parts.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = parts.headers;
        Ok(request)
    }

    /// Waits for the head of the response while the request progresses. gRPC clients do not know 408.
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
            if progress.parts() != parts {
                continue;
            }
            if progress.is_awaited() && !is_grpc {
                return Err(StatusCode::REQUEST_TIMEOUT);
            }
            self.failures.note(Cause::Timeout, "");
            return Err(StatusCode::GATEWAY_TIMEOUT);
        }
    }

    fn answer(
        &self,
        mut response: Response<Incoming>,
        client: Option<hyper::upgrade::OnUpgrade>,
        progress: Progress,
        permit: RequestPermit,
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
            let until = (self.stopped.clone(), permit);
            upgrade::tunnel(client, upstream, self.silence, until);
            hop_by_hop_headers::end_connection(
                response.headers_mut(),
                hop_by_hop_headers::Nominated::All,
            );
            upgrade::add_fields(response.headers_mut());
            return Ok(response.map(|_| Body::empty()));
        }
        hop_by_hop_headers::end_connection(
            response.headers_mut(),
            hop_by_hop_headers::Nominated::All,
        );
        *response.version_mut() = Version::HTTP_11;
        let silence = self.silence;
        let download = |body| Body::new(Download::new(body, progress, silence, permit));
        Ok(response.map(download))
    }
}

/// Adds the fields about the connection to the upstream, which speaks HTTP/1.1.
fn add_connection_fields(request: &mut Request<Upload>, is_upgrade: bool) {
    let has_body = !request.body().is_end_stream();
    let headers = request.headers_mut();
    if headers.contains_key(TE) {
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    // Without it hyper would drop the body of a GET.
    if has_body && !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if is_upgrade {
        upgrade::add_fields(headers);
    }
}

type Refusal = hyper_util::client::legacy::Error;

/// Whether a request needs HTTP/2 end to end.
fn is_grpc(parts: &Parts) -> bool {
    let kind = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
    // `application/grpc-web` also works over HTTP/1.1.
    parts.version == Version::HTTP_2 && rest.is_some_and(|rest| !rest.starts_with(b"-"))
}
