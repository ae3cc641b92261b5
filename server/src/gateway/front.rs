//! The way of a request before the proxy: its limits of size and number, its client, the rules.

use std::sync::Arc;

use axum::{
    extract::{ConnectInfo, Request},
    response::Response,
};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode, Version,
    header::{CONNECTION, TRANSFER_ENCODING},
    request::Parts,
};
use http_body::Body as _;
use tokio::sync::{Semaphore, watch};
use tower_layer::Layer as _;
use tower_ratelimit::rules::{RulesHandle, RulesLayer, RulesLimit};
use tower_service::Service as _;

use super::{
    answer::problem,
    fields::{self, Hop},
    host,
    proxy::Proxy,
    settings::Settings,
    unread::UnreadClients,
    upgrade,
    upload::Upload,
};
use crate::{
    connections::{Peer, PerClient, RequestBody},
    events::Answers,
    http::Draining,
};

/// All that stands before the proxy.
pub(super) struct Front {
    limit: RulesLimit<Proxy>,
    rules: RulesHandle,
    in_flight: Arc<Semaphore>,
    /// WebSockets stay as long as they like, and would leave no room for requests.
    web_sockets: Arc<Semaphore>,
    max_in_flight: u32,
    max_body: u64,
    draining: Draining,
    answers: Answers,
    unread: UnreadClients,
}

impl Front {
    pub(super) fn new(
        settings: &Settings,
        layer: &RulesLayer,
        draining: Draining,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let most = settings.max_in_flight.min(Semaphore::MAX_PERMITS);
        let max_in_flight = u32::try_from(most).unwrap_or(u32::MAX);
        Self {
            limit: layer.layer(Proxy::new(settings, max_in_flight, stopped)),
            rules: layer.handle(),
            in_flight: Arc::new(Semaphore::new(max_in_flight as usize)),
            web_sockets: Arc::new(Semaphore::new(max_in_flight as usize)),
            max_in_flight,
            max_body: settings.max_body.unwrap_or(u64::MAX),
            draining,
            answers: Answers::new(),
            unread: UnreadClients::default(),
        }
    }

    pub(super) async fn answer(&self, request: Request<RequestBody>, peer: Peer) -> Response {
        let keeps_connection = request.version() == Version::HTTP_2;
        let asked = self.answers.asked();
        let answer = self.limited(request, peer).await;
        let mut response = answer.unwrap_or_else(problem);
        asked.answered(response.status());
        // A request that is sent into a connection just when it ends would be lost.
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
    ) -> Result<Response, StatusCode> {
        let (mut parts, body) = request.into_parts();
        check(&parts, &body, self.max_body)?;
        let room = match upgrade::is_asked(&parts) {
            true => &self.web_sockets,
            false => &self.in_flight,
        };
        let permit = Arc::clone(room).try_acquire_owned();
        let permit = permit.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        let rules = self.rules.rules();
        let client_ip = rules.client_ip();
        let hop = Hop {
            peer,
            is_trusted: client_ip.trusts(peer.address.ip()),
            client_field: client_ip.header_name().clone(),
            ticket: Arc::new(permit),
        };
        fields::join_cookies(&mut parts.headers);
        parts.extensions.insert(ConnectInfo(peer.address));
        if hop.is_trusted {
            self.unread.look(client_ip, &parts);
        }
        parts.extensions.insert(hop);
        let request = Request::from_parts(parts, Upload::new(body, self.max_body));
        match self.limit.clone().call(request).await {
            Ok(response) => Ok(response),
            Err(never) => match never {},
        }
    }

    /// The limit of each client's connections, by the rules in force.
    pub(super) fn per_client(&self, settings: &Settings) -> Option<PerClient> {
        let most = settings.connections_per_client()?;
        let rules = self.rules.clone();
        let key = move |address| {
            let rules = rules.rules();
            let client_ip = rules.client_ip();
            // The connections of a proxy are those of many clients.
            (!client_ip.trusts(address)).then(|| client_ip.prefix().key(address))
        };
        let key = Arc::new(key);
        Some(PerClient { most, key })
    }

    /// Waits for requests and upgraded connections that are under way.
    pub(super) async fn all_answered(&self) {
        for room in [&self.in_flight, &self.web_sockets] {
            drop(room.acquire_many(self.max_in_flight).await);
        }
    }
}

fn is_tunnel(response: &Response) -> bool {
    response.status() == StatusCode::SWITCHING_PROTOCOLS
}

/// Whether the body has no coding but chunks: the upstream would not learn of another (RFC 9112, 6.1).
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

/// Refuses requests that cannot be handed on.
fn check(parts: &Parts, body: &RequestBody, max_body: u64) -> Result<(), StatusCode> {
    if parts.method == Method::CONNECT {
        return Err(StatusCode::NOT_IMPLEMENTED);
    }
    // The rules of paths would not see any other target, and the upstream might take it for one.
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
