//! Forward authentication: a proxy sends a request about each of its requests, and acts on the status of the
//! response.
//!
//! The proxy describes its request in `X-Forwarded-Method`, `X-Forwarded-Uri` and `X-Forwarded-Host`, as Caddy and
//! Traefik do, or in `X-Original-Method` and `X-Original-URI` or `X-Original-URL`. The last address in
//! `X-Forwarded-For` is the peer of its connection. Only peers in trusted networks get a decision; all others get 403.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request, State},
    middleware::{Next, from_fn},
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
    header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
    uri::{Authority, PathAndQuery},
};
use ipnet::IpNet;
use tower::{Layer as _, Service as _, service_fn, util::ServiceFn};
use tower_ratelimit::{
    Decision,
    rules::{RulesHandle, RulesLayer, RulesLimit},
};

use crate::cors::CorsFields;

const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED_HOST: &str = "x-forwarded-host";

/// The fields with the method and the target. If several are present, they must agree: a proxy that writes one passes
/// the client's other ones on. ingress-nginx writes the target with its host into the last one.
const METHODS: [&str; 2] = ["x-forwarded-method", "x-original-method"];
const TARGETS: [&str; 3] = ["x-forwarded-uri", "x-original-uri", "x-original-url"];

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
        limit: rules.layer(service_fn(passed)),
        rules: rules.handle(),
        trusted: trusted.into_iter().collect(),
    };
    let route = get(authorize).layer(from_fn(forbid));
    Router::new().route("/v1/auth", route).with_state(auth)
}

#[derive(Clone)]
struct Auth {
    limit: RulesLimit<Passed>,
    rules: RulesHandle,
    trusted: Arc<[IpNet]>,
}

/// The field in which rules with the action `overflow` mark a request, for the upstream.
const OVERFLOW: HeaderName = HeaderName::from_static("x-ratelimit-overflow");

/// The inner service: responds 200 to each request that the rules allow, with the marks of the rules.
type Passed = ServiceFn<fn(Request) -> Ready<Result<Response, Infallible>>>;

fn passed(request: Request) -> Ready<Result<Response, Infallible>> {
    let mut response = Response::new(Body::empty());
    // The client's own marks stay in the request if no rule of the file marks any.
    let (request, _) = request.into_parts();
    let decision = request.extensions.get::<Decision>();
    if decision.is_some_and(|decision| decision.quotas().any(|quota| quota.is_denied())) {
        for mark in request.headers.get_all(OVERFLOW) {
            response.headers_mut().append(OVERFLOW, mark.clone());
        }
    }
    ready(Ok(response))
}

async fn authorize(
    State(mut auth): State<Auth>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let peer = peer.ip().to_canonical();
    if !auth.trusted.iter().any(|network| network.contains(&peer)) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let request = match original(request.headers(), peer) {
        Ok(request) => request,
        Err(fault) => return (StatusCode::BAD_REQUEST, Body::from(fault)).into_response(),
    };
    let cors = CorsFields::of(auth.rules.rules().cors_origins(), request.headers());
    let mut response = match auth.limit.call(request).await {
        Ok(response) => by_status(response),
        Err(never) => match never {},
    };
    if let Some(cors) = cors {
        cors.add(&mut response);
    }
    response
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

/// The request that the proxy describes; the fault if the description is invalid.
fn original(headers: &HeaderMap, peer: IpAddr) -> Result<Request, &'static str> {
    const METHOD: &str = "X-Forwarded-Method and X-Original-Method differ, or contain no method";
    let method = match agreed_value(headers, &METHODS).ok_or(METHOD)? {
        Some(method) => Method::from_bytes(method.as_bytes()).map_err(|_| METHOD)?,
        None => Method::GET,
    };
    let target = target(headers)?;
    let mut original = headers.clone();
    // These fields describe the proxy's own request.
    let own = METHODS.into_iter().chain(TARGETS);
    for name in own.chain([FORWARDED_HOST]) {
        original.remove(name);
    }
    for name in [CONTENT_LENGTH, TRANSFER_ENCODING] {
        original.remove(name);
    }
    if let Some(host) = target.host {
        original.insert(HOST, host);
    }
    let client = take_client(&mut original);
    let client = client.ok_or("the last value of X-Forwarded-For is no address")?;
    let client = client.unwrap_or(peer);
    let mut request = Request::new(Body::empty());
    *request.method_mut() = method;
    *request.uri_mut() = target.path.into();
    *request.headers_mut() = original;
    let client = SocketAddr::from((client, 0));
    request.extensions_mut().insert(ConnectInfo(client));
    Ok(request)
}

/// The target of a request: its path with the query, and its host if a field names it.
struct Target {
    path: PathAndQuery,
    host: Option<HeaderValue>,
}

/// The target on which all fields agree.
fn target(headers: &HeaderMap) -> Result<Target, &'static str> {
    const DIFFERENT: &str = "X-Forwarded-Uri, X-Original-URI, X-Original-URL and X-Forwarded-Host contradict each other: \
         the proxy has to set or to clear each of them";
    let (mut path, mut host) = (
        None,
        agreed_value(headers, &[FORWARDED_HOST])
            .ok_or(DIFFERENT)?
            .cloned(),
    );
    let fields = TARGETS.iter().flat_map(|name| headers.get_all(*name));
    for field in fields {
        let own = path_and_host(field).ok_or(
            "X-Forwarded-Uri, X-Original-URI or X-Original-URL contains neither a path nor a URL with a host",
        )?;
        if *path.get_or_insert_with(|| own.path.clone()) != own.path {
            return Err(DIFFERENT);
        }
        if let Some(own) = own.host
            && !is_same_host(host.get_or_insert_with(|| own.clone()), &own)
        {
            return Err(DIFFERENT);
        }
    }
    let path = path.ok_or(
        "no field names the target of the request: the proxy has to set X-Forwarded-Uri, X-Original-URI or \
         X-Original-URL",
    )?;
    Ok(Target { path, host })
}

/// The target in a field: a path with a query, or a URL.
fn path_and_host(field: &HeaderValue) -> Option<Target> {
    let uri = Uri::try_from(field.as_bytes()).ok()?.into_parts();
    let host = match (&uri.scheme, &uri.authority) {
        (Some(_), Some(authority)) => {
            let host = authority.as_str().rsplit('@').next()?;
            Some(HeaderValue::from_str(host).ok()?)
        }
        _ => None,
    };
    Some(Target {
        path: uri.path_and_query?,
        host,
    })
}

/// Whether these are one host, perhaps with different ports.
fn is_same_host(one: &HeaderValue, other: &HeaderValue) -> bool {
    let [one, other] = [one, other].map(|host| Authority::try_from(host.as_bytes()).ok());
    one.zip(other)
        .is_some_and(|(one, other)| one.host().eq_ignore_ascii_case(other.host()))
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
