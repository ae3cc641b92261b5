//! The proxy: sends a request to the upstream, and its response back, without trailers that the client did not
//! request.

use std::{
    convert::Infallible,
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{body::Body, response::Response};
use http::{
    HeaderValue, Request, StatusCode, Uri, Version,
    header::{
        ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TE, TRAILER,
        TRANSFER_ENCODING, UPGRADE,
    },
    request::Parts,
    uri::{Authority, PathAndQuery},
};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::{sync::watch, time::timeout};
use tower_ratelimit::{concurrency::RequestPermits, rate_limit::Spent, rules::NeedsTrailers};
use tower_service::Service;

use crate::{
    bodies::{ChargedBody, Download, Progress, Upload},
    denied_page::{self, problem},
    hop_by_hop_headers::{self, Hop, RequestPermit, lists},
    settings::{Settings, Upstream, UpstreamHttp},
    upstream::{
        Cause, Connector, Failures, Http1Connections, Http2Connections, Refusal, Sent,
        TlsToUpstream, no_http2,
    },
    websocket,
};
use tower_ratelimit_service::errors::ServeError;

/// A service that forwards requests. Clones share the connections.
#[derive(Clone)]
pub(crate) struct Proxy(Arc<Inner>);

struct Inner {
    upstream: Upstream,
    /// The host that the upstream receives; `None` is the client's.
    own_host: Option<Authority>,
    failures: Failures,
    timeout: Duration,
    silence: Duration,
    max_body: u64,
    http1: Http1Connections,
    http2: Http2Connections,
    /// Whether the gateway is stopping, and closes WebSockets.
    stopped: watch::Receiver<bool>,
}

impl Proxy {
    /// # Errors
    ///
    /// When a setting about the upstream is wrong.
    pub(crate) fn new(
        settings: &Settings,
        tls: Option<&TlsToUpstream>,
        max_in_flight: u32,
        stopped: watch::Receiver<bool>,
    ) -> Result<Self, ServeError> {
        let upstream = &settings.upstream;
        let own_host = settings.to_upstream.own_host(upstream)?;
        let target = upstream.target(upstream.authority.clone(), None);
        let target =
            target.ok_or_else(|| ServeError(format!("--upstream: {upstream} is no address")))?;
        let connector = |offered| Connector::new(tls.cloned(), offered);
        let http2 = connector(settings.to_upstream.upstream_http);
        Ok(Self(Arc::new(Inner {
            upstream: upstream.clone(),
            own_host,
            failures: Failures::new(upstream.clone()),
            timeout: settings.limits.timeout,
            silence: settings.idle_timeout(),
            max_body: settings.max_body(),
            http1: Http1Connections::new(connector(UpstreamHttp::Http1)),
            http2: Http2Connections::new(http2, target, max_in_flight),
            stopped,
        })))
    }
}

impl Service<Request<ChargedBody>> for Proxy {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ChargedBody>) -> Self::Future {
        let proxy = Arc::clone(&self.0);
        Box::pin(async move { Ok(proxy.hand_on(request).await.unwrap_or_else(problem)) })
    }
}

impl Inner {
    async fn hand_on(&self, mut request: Request<ChargedBody>) -> Result<Response, StatusCode> {
        let hop = request
            .extensions_mut()
            .remove::<Hop>()
            .ok_or(StatusCode::INTERNAL_SERVER_ERROR)?;
        let (mut parts, body) = request.into_parts();
        let is_websocket = hop_by_hop_headers::requests_websocket(&parts);
        let client = is_websocket.then(|| parts.extensions.remove()).flatten();
        let permits = parts.extensions.remove::<RequestPermits>();
        let is_grpc = is_grpc(&parts);
        let body = Upload::new(body, self.max_body);
        let body = if is_grpc {
            body.of_messages(self.silence)
        } else {
            body.paced(self.timeout)
        };
        let progress = body.progress().clone();
        let hides_trailers = needs_trailers(&parts) && !lists(&parts.headers, TE, "trailers");
        let request = self.outgoing(parts, body, &hop)?;
        let is_http2 = client.is_none() && self.http2.takes(is_grpc);
        let target = is_http2.then(|| self.http2_target(&request)).transpose()?;
        let response = self.exchange(request, target, is_grpc);
        let response = self.in_time(response, &progress, is_grpc).await?;
        let mut response = self.answer(response, client, progress, (hop.permit, permits))?;
        if hides_trailers {
            response.headers_mut().remove(TRAILER);
            response.extensions_mut().insert(Hidden);
        }
        Ok(response)
    }

    /// Sends a request, by HTTP/2 to a target. One without a body is sent once more, on another connection, if its own
    /// closed under it: servers close kept connections without a word.
    async fn exchange(
        &self,
        request: Request<Upload>,
        target: Option<Uri>,
        is_grpc: bool,
    ) -> Result<Response<Incoming>, Refusal> {
        let copy = copy(&request);
        let response = match target.clone() {
            Some(target) => self.by_http2(request, target, is_grpc).await,
            None => self.by_http1(request, false).await,
        };
        match (response, copy) {
            (Err(refusal), Some(copy)) if refusal.allows_another_try(copy.method()) => match target
            {
                Some(target) => self.by_http2(copy, target, is_grpc).await,
                None => self.by_http1(copy, true).await,
            },
            (response, _) => response,
        }
    }

    /// Sends a request by HTTP/1.1, on a connection of its own if `is_anew`.
    async fn by_http1(
        &self,
        mut request: Request<Upload>,
        is_anew: bool,
    ) -> Result<Response<Incoming>, Refusal> {
        add_connection_fields(&mut request);
        let response = self.http1.request(request, is_anew).await;
        if response.as_ref().is_err_and(Refusal::is_connect) {
            self.http2.forget_selection();
        }
        response
    }

    /// Sends a request by HTTP/2, or by HTTP/1.1 if the upstream selects that. gRPC needs HTTP/2.
    async fn by_http2(
        &self,
        request: Request<Upload>,
        target: Uri,
        is_grpc: bool,
    ) -> Result<Response<Incoming>, Refusal> {
        match self.http2.request(request, target).await? {
            Sent::Response(response) => Ok(response),
            Sent::Unsent(_) if is_grpc => Err(no_http2()),
            Sent::Unsent(request) => self.by_http1(*request, false).await,
        }
    }

    /// The target of a request by HTTP/2: its host becomes `:authority`.
    fn http2_target(&self, request: &Request<Upload>) -> Result<Uri, StatusCode> {
        let Some(host) = request.headers().get(HOST) else {
            return Ok(request.uri().clone());
        };
        let host = Authority::try_from(host.as_bytes()).map_err(|_| StatusCode::BAD_REQUEST)?;
        self.target(host, request.uri().path_and_query().cloned())
    }

    fn target(&self, host: Authority, path: Option<PathAndQuery>) -> Result<Uri, StatusCode> {
        let target = self.upstream.target(host, path);
        target.ok_or(StatusCode::BAD_REQUEST)
    }

    fn outgoing(
        &self,
        mut parts: Parts,
        body: Upload,
        hop: &Hop,
    ) -> Result<Request<Upload>, StatusCode> {
        hop_by_hop_headers::hand_on(&mut parts.headers, parts.version, hop);
        // The body gets the framing of the upstream's connection.
        parts.headers.remove(TRANSFER_ENCODING);
        if let Some(host) = &self.own_host
            && let Ok(host) = HeaderValue::from_str(host.as_str())
        {
            parts.headers.insert(HOST, host);
        }
        if parts.extensions.get::<Spent>().is_some() {
            // An encoded response is not read.
            let identity = HeaderValue::from_static("identity");
            parts.headers.insert(ACCEPT_ENCODING, identity);
        }
        if needs_trailers(&parts) {
            parts
                .headers
                .insert(TE, HeaderValue::from_static("trailers"));
        }
        let path = parts.uri.path_and_query().cloned();
        let mut request = Request::new(body);
        *request.method_mut() = parts.method;
        *request.uri_mut() = self.target(self.upstream.authority.clone(), path)?;
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
        (permit, permits): (RequestPermit, Option<RequestPermits>),
    ) -> Result<Response, StatusCode> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let agreed = client.filter(|_| hop_by_hop_headers::is_websocket(response.headers()));
            let client = agreed.ok_or_else(|| {
                self.failures.note(
                    Cause::Invalid,
                    ": it changes to a protocol that nobody requested",
                );
                StatusCode::BAD_GATEWAY
            })?;
            let upstream = hyper::upgrade::on(&mut response);
            let until = (self.stopped.clone(), (permit, permits));
            websocket::tunnel(client, upstream, self.silence, until);
            hop_by_hop_headers::end_connection(response.headers_mut());
            hop_by_hop_headers::add_websocket_fields(response.headers_mut());
            return Ok(response.map(|_| Body::empty()));
        }
        hop_by_hop_headers::end_connection(response.headers_mut());
        denied_page::mark(&mut response);
        *response.version_mut() = Version::HTTP_11;
        let silence = self.silence;
        let download = |body| Body::new(Download::new(body, progress, silence, permit));
        Ok(response.map(download))
    }
}

/// A copy of a request that has no body and no expectation of the connection.
fn copy(request: &Request<Upload>) -> Option<Request<Upload>> {
    let headers = request.headers();
    if !request.body().is_end_stream()
        || headers.contains_key(EXPECT)
        || headers.contains_key(UPGRADE)
    {
        return None;
    }
    let mut copy = Request::new(Upload::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = headers.clone();
    Some(copy)
}

/// Adds the fields about the connection to the upstream, which speaks HTTP/1.1.
fn add_connection_fields(request: &mut Request<Upload>) {
    let has_body = !request.body().is_end_stream();
    let headers = request.headers_mut();
    if headers.contains_key(TE) {
        headers
            .entry(CONNECTION)
            .or_insert(HeaderValue::from_static("te"));
    }
    // Without it hyper would drop the body of a GET.
    if has_body && !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Whether a rule reads a trailer of the response.
fn needs_trailers(parts: &Parts) -> bool {
    parts.extensions.get::<NeedsTrailers>().is_some()
}

/// Whether a request needs HTTP/2 end to end.
fn is_grpc(parts: &Parts) -> bool {
    let kind = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
    // `application/grpc-web` also works over HTTP/1.1.
    parts.version == Version::HTTP_2 && rest.is_some_and(|rest| !rest.starts_with(b"-"))
}

/// In the extensions of a response whose trailers the rules alone read.
#[derive(Clone, Copy)]
struct Hidden;

/// The response without its trailers, if it is marked. The rules have to read it before.
pub(crate) fn hide_trailers(mut response: Response) -> Response {
    match response.extensions_mut().remove::<Hidden>() {
        Some(Hidden) if !response.body().is_end_stream() => {
            response.map(|body| Body::from_stream(body.into_data_stream()))
        }
        _ => response,
    }
}
