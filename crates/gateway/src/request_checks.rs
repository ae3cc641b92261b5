//! Checks of a request before the proxy: limits of size and number, the host, the client, the rules, and the wait for
//! a body that a rule needs.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Instant,
};

use axum::{
    body::Body,
    extract::{ConnectInfo, Request},
    response::Response,
};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode, Version,
    header::{CONNECTION, HOST, TRANSFER_ENCODING},
    request::Parts,
    uri::Authority,
};
use http_body::Body as _;
use metrics::{Counter, Histogram, counter, histogram};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
};
use tower_layer::Layer as _;
use tower_ratelimit::{
    ClientIp, Key, KeyExtractor as _,
    concurrency::ConcurrencyBody,
    key::AddressOrigin,
    mcp::McpBodyLayer,
    rate_limit::{self, DeclaredBody, DeclaredLayer, SpendBody, UploadCount, UploadLayer},
    rules::{HoldingRulesLayer, HoldingRulesLimit, Rules, RulesHandle},
};
use tower_ratelimit_rulefile::pattern::Host;
use tower_service::Service as _;
use tracing::warn;

use crate::{
    bodies::CallBody,
    denied_page::{self, CallOrProblem, DeniedPage, ReadCall, problem, too_many},
    hop_by_hop_headers::{self, Hop},
    proxy::{self, Proxy},
    settings::Settings,
    upstream::TlsToUpstream,
};
use tower_ratelimit_service::{
    admin::Room,
    connections::{ConnectionSlots, KeyCounts, Peer, PerClient, RequestBody},
    cors::CorsFields,
    errors::ServeError,
    metrics::{GATEWAY_DURATION, GATEWAY_REQUESTS, REFUSED_WAITS},
    shutdown::Draining,
};

/// The proxy behind its checks and rules.
pub(crate) struct CheckedProxy {
    limit: HoldingRulesLimit<UploadCount<Proxy>, CallOrProblem>,
    page: Option<DeniedPage>,
    rules: RulesHandle,
    /// Reads the requests whose reservation or call is in their body.
    bodies: BodyWaits,
    in_flight: Arc<Semaphore>,
    /// A limit of its own: WebSockets last, and would leave no room for requests.
    web_sockets: Arc<Semaphore>,
    max_in_flight: u32,
    max_body: u64,
    draining: Draining,
    answers: Answers,
    /// Whether a trusted proxy that names no client has been logged.
    has_warned: AtomicBool,
}

impl CheckedProxy {
    /// # Errors
    ///
    /// When a setting about the upstream is wrong.
    pub(crate) fn new(
        settings: &Settings,
        (layer, page): (&HoldingRulesLayer<CallOrProblem>, Option<&DeniedPage>),
        tls: Option<&TlsToUpstream>,
        draining: Draining,
        stopped: watch::Receiver<bool>,
    ) -> Result<Self, ServeError> {
        let most = settings.limits.max_in_flight.min(Semaphore::MAX_PERMITS);
        let max_in_flight = u32::try_from(most).unwrap_or(u32::MAX);
        let proxy = Proxy::new(settings, tls, max_in_flight, stopped)?;
        let rules = layer.handle();
        Ok(Self {
            limit: layer.layer(UploadLayer.layer(proxy)),
            page: page.cloned(),
            bodies: BodyWaits::new(rules.clone(), max_in_flight),
            rules,
            in_flight: Arc::new(Semaphore::new(max_in_flight as usize)),
            web_sockets: Arc::new(Semaphore::new(max_in_flight as usize)),
            max_in_flight,
            max_body: settings.max_body(),
            draining,
            answers: Answers::new(),
            has_warned: AtomicBool::new(false),
        })
    }

    pub(crate) async fn answer(&self, request: Request<RequestBody>, peer: Peer) -> Response {
        let keeps_connection = request.version() == Version::HTTP_2;
        let pending = self.answers.begin();
        let rules = self.rules.rules();
        let cors = CorsFields::of(rules.cors_origins(), request.headers());
        let answer = self.limited(request, peer, &rules).await;
        let mut response = answer.unwrap_or_else(problem);
        // The upstream's errors have its own fields.
        if let Some(cors) = cors.filter(|_| !denied_page::is_of_upstream(&response)) {
            cors.add(&mut response);
        }
        pending.respond(response.status());
        // A request sent into a closing connection would be lost.
        let is_tunnel = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if self.draining.has_begun() && !keeps_connection && !is_tunnel {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response
    }

    async fn limited(
        &self,
        request: Request<RequestBody>,
        peer: Peer,
        rules: &Rules,
    ) -> Result<Response, StatusCode> {
        let (mut parts, body) = request.into_parts();
        check(&parts, &body, self.max_body)?;
        parts.extensions.insert(ConnectInfo(peer.address));
        let client_ip = rules.client_ip();
        let is_trusted = client_ip.trusts(peer.address.ip());
        hop_by_hop_headers::receive(&mut parts, is_trusted, client_ip.header_name());
        if is_trusted {
            check_client(client_ip, &parts, &self.has_warned);
        }
        let page = self.page.as_ref();
        let page = page.filter(|_| denied_page::prefers_html(&parts.headers));
        let body = match self.bodies.read_call(&mut parts, body, peer).await {
            Ok(body) => self.bodies.read(&mut parts, body, peer).await,
            Err(refusal) => return Ok(refusal),
        };
        let Some(body) = body else {
            return Ok(denied_page::replaced(too_many(), page));
        };
        // Only now: a request whose body does not come would keep the place from others.
        let permit = Arc::new(self.place_for(&parts)?);
        parts.extensions.insert(Hop { peer, permit });
        let request = Request::from_parts(parts, body);
        match self.limit.clone().call(request).await {
            Ok(response) => {
                let response = proxy::hide_trailers(response.map(followed));
                Ok(denied_page::replaced(response, page))
            }
            Err(never) => match never {},
        }
    }

    /// A place among the active requests or WebSockets.
    fn place_for(&self, parts: &Parts) -> Result<OwnedSemaphorePermit, StatusCode> {
        let semaphore = if hop_by_hop_headers::requests_websocket(parts) {
            &self.web_sockets
        } else {
            &self.in_flight
        };
        let place = Arc::clone(semaphore).try_acquire_owned();
        place.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
    }

    /// The slots of the clients' connections.
    pub(crate) fn connections(&self, settings: &Settings) -> Arc<ConnectionSlots> {
        ConnectionSlots::new(settings.limits.max_connections, self.per_client(settings))
    }

    /// The connection limit of each client, by the rules in force.
    fn per_client(&self, settings: &Settings) -> Option<PerClient> {
        let most = settings.connections_per_client()?;
        let rules = self.rules.clone();
        let key = move |address| {
            let rules = rules.rules();
            let client_ip = rules.client_ip();
            // The connections of a trusted proxy carry many clients.
            (!client_ip.trusts(address)).then(|| client_ip.prefix().key(address))
        };
        let key = Arc::new(key);
        Some(PerClient { most, key })
    }

    /// The active requests and WebSockets.
    pub(crate) fn rooms(&self) -> Vec<Room> {
        let most = self.max_in_flight as usize;
        let room = |name, semaphore: &Semaphore| Room {
            name,
            used: most.saturating_sub(semaphore.available_permits()),
            most,
        };
        vec![
            room("requests", &self.in_flight),
            room("WebSockets", &self.web_sockets),
        ]
    }

    /// Waits for active requests and upgraded connections, and for the charges of the last responses.
    pub(crate) async fn all_answered(&self) {
        // In the order in which a request passes them.
        for semaphore in [&*self.bodies.room, &self.in_flight, &self.web_sockets] {
            drop(semaphore.acquire_many(self.max_in_flight).await);
        }
        rate_limit::settled().await;
    }
}

/// The body of a response, in a wrapper only if rules hold a permit or follow it.
fn followed(body: ConcurrencyBody<SpendBody<Body>>) -> Body {
    match body.try_into_inner() {
        Ok(charged) => charged.try_into_inner().unwrap_or_else(Body::new),
        Err(held) => Body::new(held),
    }
}

/// Whether the body has no coding except chunked: the upstream would not learn about another one (RFC 9112, 6.1).
fn is_only_chunked(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(only), None) => only
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"chunked"),
        _ => false,
    }
}

/// Rejects requests that cannot be forwarded.
fn check(parts: &Parts, body: &RequestBody, max_body: u64) -> Result<(), StatusCode> {
    let connect = Method::CONNECT;
    if parts.method.as_str().eq_ignore_ascii_case(connect.as_str()) {
        return Err(StatusCode::NOT_IMPLEMENTED);
    }
    // The rules match paths only, and the upstream might interpret another target as one.
    let path = parts.uri.path();
    let is_of_server = path == "*" && parts.method == Method::OPTIONS;
    if !path.starts_with('/') && !is_of_server {
        return Err(StatusCode::BAD_REQUEST);
    }
    if !has_valid_host(parts) {
        return Err(StatusCode::BAD_REQUEST);
    }
    if !is_only_chunked(&parts.headers) {
        return Err(StatusCode::NOT_IMPLEMENTED);
    }
    if body.size_hint().lower() > max_body {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    Ok(())
}

/// Whether a request names exactly one host, wherever it names any. RFC 9112 (3.2) requires 400 otherwise; RFC 9113
/// (8.3.1) for hosts that differ. HTTP/1.0 allows requests without a host.
fn has_valid_host(parts: &Parts) -> bool {
    let mut lines = parts.headers.get_all(HOST).iter();
    let (line, another) = (lines.next(), lines.next());
    let authority = parts.uri.authority().map(Authority::as_str);
    let of_target = authority.map(|authority| Host::parse(authority.as_bytes()));
    let of_field = line.map(HeaderValue::as_bytes).map(Host::parse);
    match (of_target, of_field) {
        _ if another.is_some() => false,
        (Some(of_target), Some(of_field)) => of_target.is_some() && of_target == of_field,
        (Some(only), None) | (None, Some(only)) => only.is_some(),
        (None, None) => parts.version < Version::HTTP_11,
    }
}

/// Checks a request of a trusted proxy.
fn check_client(client_ip: &ClientIp, parts: &Parts, has_warned: &AtomicBool) {
    if !has_warned.load(Ordering::Relaxed)
        && let Ok(client) = client_ip.resolve(parts)
        && client.origin() == AddressOrigin::Malformed
        && !has_warned.swap(true, Ordering::Relaxed)
    {
        let (proxy, field) = (client.ip(), client_ip.header_name());
        warn!(
            "the trusted proxy {proxy} wrote no address into {field}: such requests count as its own; this is logged once"
        );
    }
}

/// The most requests of a client that wait for their bodies.
const MOST: usize = 16;

/// Reads the bodies of requests before the rules decide, which reservations and calls of MCP need. What needs no body is
/// decided first, and a client has few requests that wait. A request that waits takes no place of those in flight.
pub(crate) struct BodyWaits {
    rules: RulesHandle,
    declared: DeclaredLayer,
    room: Arc<Semaphore>,
    /// The requests of each client that wait.
    clients: Arc<KeyCounts>,
    refused: Counter,
}

/// The end of a wait before the body's end.
enum Ended {
    /// The rules decide without the body.
    Decided,
    /// The client has too many requests that wait.
    Refused,
}

impl BodyWaits {
    /// At most `most` requests wait: beyond that, requests are decided without a body that has to be awaited.
    pub(crate) fn new(rules: RulesHandle, most: u32) -> Self {
        let of_body = rules.clone();
        let refused = counter!(REFUSED_WAITS);
        refused.increment(0);
        Self {
            rules,
            declared: DeclaredLayer::by(move |parts| of_body.spend_body(parts)),
            room: Arc::new(Semaphore::new(most as usize)),
            clients: Arc::default(),
            refused,
        }
    }

    /// The body of a request, read whole if a rule depends on the call of MCP in it; or the response that
    /// refuses it. A request that ends meanwhile counts at its rules.
    pub(crate) async fn read_call(
        &self,
        parts: &mut Parts,
        body: RequestBody,
        peer: Peer,
    ) -> Result<CallBody, Response> {
        if !self.rules.needs_call(parts) {
            return Ok(DeclaredBody::new(body));
        }
        parts.extensions.insert(ReadCall);
        let client = self.client(parts, peer);
        let mut request = UnreadRequest {
            rules: &self.rules,
            parts,
            is_read: false,
        };
        let layer = McpBodyLayer::default();
        let mut reading = pin!(layer.read(request.parts, body));
        let read = match poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
            Poll::Ready(read) => read,
            Poll::Pending => match (self.clients.enter(client, MOST), self.room.try_acquire()) {
                (Some(_wait), Ok(_place)) => reading.await,
                (None, _) => {
                    self.refused.increment(1);
                    Err(too_many())
                }
                (Some(_), Err(_)) => Err(problem(StatusCode::SERVICE_UNAVAILABLE)),
            },
        };
        request.is_read = true;
        read
    }

    /// The body whose beginning was read; `None` if its client has too many requests that wait. A request that ends
    /// meanwhile counts at its rules.
    pub(crate) async fn read(
        &self,
        parts: &mut Parts,
        body: CallBody,
        peer: Peer,
    ) -> Option<DeclaredBody<CallBody>> {
        let mut request = UnreadRequest {
            rules: &self.rules,
            parts,
            is_read: false,
        };
        let read = self
            .declared
            .read_until(request.parts, body, |parts| self.wait(parts, peer));
        let (body, ended) = read.await;
        request.is_read = true;
        if let Some(Ended::Refused) = ended {
            self.refused.increment(1);
            return None;
        }
        Some(body)
    }

    /// The client whose waits count.
    fn client(&self, parts: &Parts, peer: Peer) -> Key {
        let rules = self.rules.rules();
        let client_ip = rules.client_ip();
        let client = client_ip.extract(parts);
        client.unwrap_or_else(|_| client_ip.prefix().key(peer.address.ip()))
    }

    /// Ends if nobody has to wait for the body of this request.
    fn wait(&self, parts: &Parts, peer: Peer) -> impl Future<Output = Ended> + Send + use<> {
        let denied = self.rules.denied_without_body(parts);
        let client = self.client(parts, peer);
        let (clients, room) = (Arc::clone(&self.clients), Arc::clone(&self.room));
        async move {
            let mut denied = pin!(denied);
            if poll_fn(|cx| Poll::Ready(denied.as_mut().poll(cx).is_ready())).await {
                return Ended::Decided;
            }
            let Some(_wait) = clients.enter(client, MOST) else {
                return Ended::Refused;
            };
            let Ok::<OwnedSemaphorePermit, _>(_place) = room.try_acquire_owned() else {
                return Ended::Decided;
            };
            denied.await;
            Ended::Decided
        }
    }
}

/// A request that is read. If its client leaves meanwhile, its rules count it: it was a request.
struct UnreadRequest<'a> {
    rules: &'a RulesHandle,
    parts: &'a mut Parts,
    is_read: bool,
}

impl Drop for UnreadRequest<'_> {
    fn drop(&mut self) {
        if !self.is_read
            && let Ok(runtime) = Handle::try_current()
        {
            let check = self.rules.check(self.parts, None, false);
            runtime.spawn(async move { drop(check.await) });
        }
    }
}

/// The classes of statuses, and the label of a request whose client left before the response.
const CODES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "cancelled"];

/// Counts responses. Each series exists from the start, so that Prometheus sees the first event as an increase.
struct Answers([(Counter, Histogram); CODES.len()]);

/// A request without a response.
struct PendingRequest<'a> {
    answers: &'a Answers,
    since: Instant,
    code: usize,
}

impl Answers {
    /// Counts in the recorder installed at this time.
    fn new() -> Self {
        let series = |code| {
            let requests = counter!(GATEWAY_REQUESTS, "code" => code);
            requests.increment(0);
            (requests, histogram!(GATEWAY_DURATION, "code" => code))
        };
        Self(CODES.map(series))
    }

    /// Starts a request, which counts as cancelled until it gets a response.
    fn begin(&self) -> PendingRequest<'_> {
        PendingRequest {
            answers: self,
            since: Instant::now(),
            code: CODES.len() - 1,
        }
    }
}

impl PendingRequest<'_> {
    /// Counts the request by the status of its response, which has begun.
    fn respond(mut self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100);
        self.code = class.clamp(1, 5) - 1;
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let (requests, seconds) = &self.answers.0[self.code];
        requests.increment(1);
        seconds.record(self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn is_valid_in(version: Version, uri: &str, hosts: &[&str]) -> bool {
        let mut request = Request::get(uri).version(version);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        has_valid_host(&request.body(()).expect("a request").into_parts().0)
    }

    #[test]
    fn authorities_of_http2_are_hosts_and_agree_with_the_field() {
        for (uri, hosts, is_valid) in [
            ("http://a.example/", &[][..], true),
            ("http://a.example:80/", &["A.example."], true),
            ("/", &["a.example"], true),
            ("/", &[], false),
            ("http://u@a.example/", &[], false),
            ("http://a..example/", &[], false),
            ("http://a.example/", &["b.example"], false),
            ("http://a.example/", &["a.example/"], false),
            ("http://a.example/", &["a.example", "a.example"], false),
        ] {
            let result = is_valid_in(Version::HTTP_2, uri, hosts);
            assert_eq!(result, is_valid, "{uri} {hosts:?}");
        }
    }
}
