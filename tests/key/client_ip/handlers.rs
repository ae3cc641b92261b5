//! Handlers read the address that the limit is keyed on.

use axum::{
    Router,
    body::Body,
    extract::connect_info::MockConnectInfo,
    http::{Request, Response},
    routing::get,
};
use http_body_util::BodyExt;
use std::net::SocketAddr;
use testkit::now;
use tower::ServiceExt;
use tower_ratelimit::{ClientAddress, ClientAddressLayer, ClientIp, Quota, RateLimitLayer};

use super::{FORWARDED_FOR, PROXIES};

async fn whoami(client: ClientAddress) -> String {
    client.ip().to_string()
}

async fn maybe(client: Option<ClientAddress>) -> String {
    format!("{:?}", client.map(|client| client.ip()))
}

fn send(app: &Router, path: &str, client: &str) -> Response<Body> {
    let request = Request::get(path).header(FORWARDED_FOR, client);
    now(app.clone().oneshot(request.body(Body::empty()).unwrap())).unwrap()
}

fn text(response: Response<Body>) -> String {
    let body = now(response.into_body().collect()).unwrap().to_bytes();
    String::from_utf8(body.into()).unwrap()
}

fn routes() -> Router {
    Router::new()
        .route("/whoami", get(whoami))
        .route("/maybe", get(maybe))
}

/// Either order, since the layers do not need each other.
#[test]
fn the_limit_and_the_handler_see_the_same_address() {
    let client_ip = ClientIp::behind(PROXIES);
    let address = ClientAddressLayer::new(client_ip.clone());
    let limit = || RateLimitLayer::new(Quota::per_day(1), client_ip.clone());
    let peer = MockConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4000)));
    for app in [
        routes().layer(limit()).layer(address.clone()).layer(peer),
        routes().layer(address.clone()).layer(limit()).layer(peer),
    ] {
        let first = send(&app, "/whoami", "6.6.6.6, 203.0.113.7");
        assert_eq!(text(first), "203.0.113.7");
        assert_eq!(send(&app, "/whoami", "6.6.6.7, 203.0.113.7").status(), 429);
        let other = send(&app, "/maybe", "203.0.113.8");
        assert_eq!(text(other), "Some(203.0.113.8)");
    }
}

#[test]
fn without_the_layer_or_the_peer_there_is_no_address() {
    let layer = ClientAddressLayer::new(ClientIp::behind(PROXIES));
    for app in [routes(), routes().layer(layer)] {
        let response = send(&app, "/whoami", "203.0.113.7");
        assert_eq!(response.status(), 500);
        assert!(text(response).contains("ClientAddressLayer"));
        assert_eq!(text(send(&app, "/maybe", "203.0.113.7")), "None");
    }
}
