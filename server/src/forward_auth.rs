//! Forward authentication: a proxy sends a request about each of its requests, and acts on the status of the
//! response.
//!
//! The proxy describes its request in `X-Forwarded-Method`, `X-Forwarded-Uri` and `X-Forwarded-Host`, as Caddy and
//! Traefik do, or in `X-Original-Method` and `X-Original-URI`. The last address in `X-Forwarded-For` is the peer of
//! its connection. Only peers in trusted networks get a decision; all others get 403.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request, State},
    middleware::{Next, from_fn},
    response::Response,
    routing::get,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
    header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
};
use ipnet::IpNet;
use tower_layer::Layer as _;
use tower_ratelimit::{
    Decision,
    rules::{RulesLayer, RulesLimit},
};
use tower_service::Service;

const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED_HOST: &str = "x-forwarded-host";

/// The fields with the method and the URI. If both are present, they must be equal: a proxy that writes one passes
/// the client's other one on.
const METHODS: [&str; 2] = ["x-forwarded-method", "x-original-method"];
const URIS: [&str; 2] = ["x-forwarded-uri", "x-original-uri"];

/// The fields of a gRPC denial.
const GRPC_FIELDS: [&str; 5] = [
    "content-type",
    "grpc-status",
    "grpc-message",
    "grpc-status-details-bin",
    "grpc-retry-pushback-ms",
];

/// The route `GET /v1/auth`: responds 200 or 429 by these rules, with their header fields. `trusted` are the networks
/// of the proxies that may send requests.
///
/// With `?deny=403` every 4xx becomes a 403, since nginx treats all others except 401 as errors. The route needs the
/// peer's address: serve it by `into_make_service_with_connect_info::<SocketAddr>`.
pub fn router(rules: &RulesLayer, trusted: impl IntoIterator<Item = IpNet>) -> Router {
    let auth = Auth {
        limit: rules.layer(Passed),
        trusted: trusted.into_iter().collect(),
    };
    let route = get(authorize).layer(from_fn(forbid));
    Router::new().route("/v1/auth", route).with_state(auth)
}

#[derive(Clone)]
struct Auth {
    limit: RulesLimit<Passed>,
    trusted: Arc<[IpNet]>,
}

/// The field in which rules with the action `overflow` mark a request, for the upstream.
const OVERFLOW: HeaderName = HeaderName::from_static("x-ratelimit-overflow");

/// The inner service: responds 200 to each request that the rules allow, with the marks of the rules.
#[derive(Debug, Clone)]
struct Passed;

impl Service<Request> for Passed {
    type Response = Response;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let mut response = Response::new(Body::empty());
        // The client's own marks stay in the request if no rule of the file marks any.
        let decision = request.extensions().get::<Decision>();
        if decision.is_some_and(|decision| decision.quotas().any(|quota| quota.is_denied())) {
            for mark in request.headers().get_all(OVERFLOW) {
                response.headers_mut().append(OVERFLOW, mark.clone());
            }
        }
        std::future::ready(Ok(response))
    }
}

async fn authorize(
    State(mut auth): State<Auth>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let peer = peer.ip().to_canonical();
    if !auth.trusted.iter().any(|network| network.contains(&peer)) {
        return status(StatusCode::FORBIDDEN);
    }
    let Some(request) = original(request.headers(), peer) else {
        return status(StatusCode::BAD_REQUEST);
    };
    match auth.limit.call(request).await {
        Ok(response) => by_status(response),
        Err(never) => match never {},
    }
}

/// Turns each 4xx into 403 if the proxy requests it. Clients can cause most of them, and a proxy that treats them as
/// errors of the service may let the request pass.
async fn forbid(request: Request, next: Next) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let forbids = query.split('&').any(|field| field == "deny=403");
    let mut response = next.run(request).await;
    if forbids && response.status().is_client_error() {
        *response.status_mut() = StatusCode::FORBIDDEN;
    }
    response
}

/// The response in HTTP. A client that claims to speak gRPC is denied with the status 200, and a proxy would let it
/// pass, unless the layer's [`grpc`](RulesLayer::grpc) is switched off.
fn by_status(mut response: Response) -> Response {
    let Some(code) = response.headers().get("grpc-status") else {
        return response;
    };
    *response.status_mut() = match code.as_bytes() {
        b"3" => StatusCode::BAD_REQUEST,
        b"7" => StatusCode::FORBIDDEN,
        b"8" => StatusCode::TOO_MANY_REQUESTS,
        b"14" => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    for name in GRPC_FIELDS {
        response.headers_mut().remove(name);
    }
    response
}

fn status(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// The request that the proxy describes; `None` if the description is invalid.
fn original(headers: &HeaderMap, peer: IpAddr) -> Option<Request> {
    let method = match agreed_value(headers, &METHODS)? {
        Some(method) => Method::from_bytes(method.as_bytes()).ok()?,
        None => Method::GET,
    };
    let uri = match agreed_value(headers, &URIS)? {
        Some(uri) => Uri::try_from(uri.as_bytes()).ok()?,
        None => Uri::from_static("/"),
    };
    let mut original = headers.clone();
    // These fields describe the proxy's own request.
    let own = METHODS.into_iter().chain(URIS).map(HeaderName::from_static);
    for name in own.chain([CONTENT_LENGTH, TRANSFER_ENCODING]) {
        original.remove(name);
    }
    if let Some(host) = agreed_value(headers, &[FORWARDED_HOST])? {
        original.insert(HOST, host.clone());
        original.remove(FORWARDED_HOST);
    }
    let client = take_client(&mut original)?.unwrap_or(peer);
    let mut request = Request::new(Body::empty());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = original;
    let client = SocketAddr::from((client, 0));
    request.extensions_mut().insert(ConnectInfo(client));
    Some(request)
}

/// The common value of these fields, if any is present; `None` if they differ.
fn agreed_value<'h>(headers: &'h HeaderMap, names: &[&str]) -> Option<Option<&'h HeaderValue>> {
    let mut values = names.iter().flat_map(|name| headers.get_all(*name));
    let first = values.next();
    values.all(|value| Some(value) == first).then_some(first)
}

/// Removes the last address from `X-Forwarded-For`. The proxy wrote that one; the proxy received the others. `None`
/// if it is no address.
fn take_client(headers: &mut HeaderMap) -> Option<Option<IpAddr>> {
    let lines: Option<Vec<&str>> = headers
        .get_all(FORWARDED_FOR)
        .into_iter()
        .map(|line| line.to_str().ok())
        .collect();
    let list = lines?.join(",");
    if list.trim().is_empty() {
        headers.remove(FORWARDED_FOR);
        return Some(None);
    }
    let (before, last) = list.rsplit_once(',').unwrap_or(("", &list));
    let client = last.trim().parse().ok()?;
    match before.trim() {
        "" => drop(headers.remove(FORWARDED_FOR)),
        before => {
            let before = HeaderValue::from_str(before).ok()?;
            headers.insert(FORWARDED_FOR, before);
        }
    }
    Some(Some(client))
}
