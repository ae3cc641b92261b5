//! Checks of a request before the proxy: limits of size and number, the client, the rules.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{ConnectInfo, Request},
    response::Response,
};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode, Version,
    header::{CONNECTION, TRANSFER_ENCODING},
    request::Parts,
};
use http_body::Body as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower_layer::Layer as _;
use tower_ratelimit::{
    concurrency::ConcurrencyBody,
    rate_limit::{self, SpendBody},
    rules::{HoldingRulesLayer, HoldingRulesLimit, Rules, RulesHandle},
};
use tower_service::Service as _;

use super::{
    body_waits::BodyWaits,
    denied_page::{self, DeniedPage},
    hidden_trailers,
    hop_by_hop_headers::{self, Hop},
    host,
    malformed_clients::MalformedClients,
    problem_response::{problem, too_many},
    proxy::Proxy,
    settings::Settings,
    upload::Upload,
    upstream_connector::TlsToUpstream,
};
use crate::{
    admin::Room,
    connections::{ConnectionSlots, Peer, PerClient, RequestBody},
    cors::CorsFields,
    decide_and_serve_errors::ServeError,
    events::Answers,
    http_routes::Draining,
};

/// The proxy behind its checks and rules.
pub(super) struct CheckedProxy {
    limit: HoldingRulesLimit<Proxy>,
    page: Option<DeniedPage>,
    rules: RulesHandle,
    /// Reads the requests whose reservation depends on their body.
    bodies: BodyWaits,
    in_flight: Arc<Semaphore>,
    /// A limit of its own: WebSockets last, and would leave no room for requests.
    web_sockets: Arc<Semaphore>,
    max_in_flight: u32,
    max_body: u64,
    draining: Draining,
    answers: Answers,
    malformed: MalformedClients,
}

impl CheckedProxy {
    /// # Errors
    ///
    /// When a setting about the upstream is wrong.
    pub(super) fn new(
        settings: &Settings,
        (layer, page): (&HoldingRulesLayer, Option<&DeniedPage>),
        tls: Option<&TlsToUpstream>,
        draining: Draining,
        stopped: watch::Receiver<bool>,
    ) -> Result<Self, ServeError> {
        let most = settings.max_in_flight.min(Semaphore::MAX_PERMITS);
        let max_in_flight = u32::try_from(most).unwrap_or(u32::MAX);
        let proxy = Proxy::new(settings, tls, max_in_flight, stopped)?;
        let rules = layer.handle();
        Ok(Self {
            limit: layer.layer(proxy),
            page: page.cloned(),
            bodies: BodyWaits::new(rules.clone(), max_in_flight),
            rules,
            in_flight: Arc::new(Semaphore::new(max_in_flight as usize)),
            web_sockets: Arc::new(Semaphore::new(max_in_flight as usize)),
            max_in_flight,
            max_body: settings.max_body.unwrap_or(u64::MAX),
            draining,
            answers: Answers::new(),
            malformed: MalformedClients::default(),
        })
    }

    pub(super) async fn answer(&self, request: Request<RequestBody>, peer: Peer) -> Response {
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
        if self.draining.has_begun() && !keeps_connection && !is_tunnel(&response) {
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
            self.malformed.check(client_ip, &parts);
        }
        let page = self.page_for(&parts.headers);
        let Some(body) = self.bodies.read(&mut parts, body, peer).await else {
            return Ok(denied_page::replaced(too_many(), page));
        };
        // Only now: a request whose body does not come would keep the place from others.
        let permit = Arc::new(self.place_for(&parts)?);
        parts.extensions.insert(Hop { peer, permit });
        let request = Request::from_parts(parts, Upload::new(body, self.max_body));
        match self.limit.clone().call(request).await {
            Ok(response) => {
                let response = hidden_trailers::hide(response.map(followed));
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

    /// The page for a denial of this request.
    fn page_for(&self, headers: &HeaderMap) -> Option<&DeniedPage> {
        let page = self.page.as_ref();
        page.filter(|_| denied_page::prefers_html(headers))
    }

    /// The slots of the clients' connections.
    pub(super) fn connections(&self, settings: &Settings) -> Arc<ConnectionSlots> {
        ConnectionSlots::new(settings.max_connections, self.per_client(settings))
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
    pub(super) fn rooms(&self) -> Vec<Room> {
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
    pub(super) async fn all_answered(&self) {
        // In the order in which a request passes them.
        for semaphore in [self.bodies.room(), &self.in_flight, &self.web_sockets] {
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

fn is_tunnel(response: &Response) -> bool {
    response.status() == StatusCode::SWITCHING_PROTOCOLS
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
    if !host::is_valid(parts) {
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
