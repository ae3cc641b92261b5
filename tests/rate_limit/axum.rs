//! In axum: where layers go, what they key on, and what handlers can read.

use std::net::SocketAddr;

use axum::{
    Router,
    body::Body,
    extract::connect_info::{ConnectInfo, MockConnectInfo},
    http::{Method, Request, Response},
    routing::{get, post},
};
use testkit::{field, limiter, now};
use tower::{Layer, ServiceExt};
use tower_ratelimit::{
    Decision, KeyExtractor, PeerIp, Quota, RateLimitLayer,
    key::{IpPrefix, MatchedRoute, RequestMethod},
};

fn from(peer: &str, path: &str) -> Request<Body> {
    let peer: SocketAddr = format!("{peer}:1234").parse().expect("an address");
    let request = Request::get(path).extension(ConnectInfo(peer));
    request.body(Body::empty()).expect("a request")
}

fn send(app: &Router, request: Request<Body>) -> Response<Body> {
    now(app.clone().oneshot(request)).expect("axum does not fail")
}

fn status(app: &Router, request: Request<Body>) -> u16 {
    send(app, request).status().as_u16()
}

async fn ok() -> &'static str {
    "ok"
}

fn once_a_day() -> RateLimitLayer {
    RateLimitLayer::new(Quota::per_day(1), PeerIp)
}

#[test]
fn the_line_of_the_readme() {
    let (limiter, _) = limiter(Quota::per_second(10).burst(20));
    let app = Router::new()
        .route("/", get(ok))
        .layer(RateLimitLayer::new(limiter, PeerIp));
    for left in (0..20).rev() {
        let response = send(&app, from("192.0.2.1", "/"));
        assert_eq!(response.status(), 200);
        let remaining = field(&response, "x-ratelimit-remaining");
        assert_eq!(remaining, Some(&*left.to_string()));
    }
    let denied = send(&app, from("192.0.2.1", "/"));
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "retry-after"), Some("1"));
    assert_eq!(
        field(&denied, "content-type"),
        Some("application/problem+json")
    );
    assert_eq!(status(&app, from("192.0.2.2", "/")), 200);
}

#[test]
fn ten_thousand_addresses_of_one_64_are_one_client() {
    let app = Router::new().route("/", get(ok)).layer(once_a_day());
    assert_eq!(status(&app, from("[2001:db8:1:2::1]", "/")), 200);
    for host in 0..10_000_u32 {
        let peer = format!("[2001:db8:1:2:{:x}:{:x}::5]", host >> 8, host & 0xff);
        assert_eq!(status(&app, from(&peer, "/")), 429, "{peer}");
    }
    assert_eq!(status(&app, from("[2001:db8:1:3::1]", "/")), 200);
}

#[test]
fn ipv4_and_its_ipv6_mapping_are_one_client() {
    let app = Router::new().route("/", get(ok)).layer(once_a_day());
    assert_eq!(status(&app, from("203.0.113.7", "/")), 200);
    assert_eq!(status(&app, from("[::ffff:203.0.113.7]", "/")), 429);
    assert_eq!(status(&app, from("[::ffff:203.0.113.8]", "/")), 200);
}

#[test]
fn the_grouping_can_be_chosen() {
    let by_site = PeerIp.grouped_by(IpPrefix::new().v4(24).v6(48));
    let app = Router::new()
        .route("/", get(ok))
        .layer(RateLimitLayer::new(Quota::per_day(1), by_site));
    assert_eq!(status(&app, from("192.0.2.1", "/")), 200);
    assert_eq!(status(&app, from("192.0.2.200", "/")), 429);
    assert_eq!(status(&app, from("[2001:db8:1:2::1]", "/")), 200);
    assert_eq!(status(&app, from("[2001:db8:1:3::1]", "/")), 429);
}

#[test]
fn a_router_s_layer_covers_the_fallback_and_a_route_layer_does_not() {
    let layered = Router::new().route("/", get(ok)).layer(once_a_day());
    assert_eq!(status(&layered, from("192.0.2.1", "/nowhere")), 404);
    assert_eq!(status(&layered, from("192.0.2.1", "/")), 429);

    let routed = Router::new().route("/", get(ok)).route_layer(once_a_day());
    assert_eq!(status(&routed, from("192.0.2.1", "/nowhere")), 404);
    assert_eq!(status(&routed, from("192.0.2.1", "/nowhere")), 404);
    assert_eq!(status(&routed, from("192.0.2.1", "/")), 200);
    assert_eq!(status(&routed, from("192.0.2.1", "/")), 429);
}

#[test]
fn routes_of_one_router_share_its_layer_s_budget() {
    // tokio-rs/axum#2634: state made in `layer()` gives every route its own.
    let app = Router::new()
        .route("/a", get(ok))
        .route("/b", post(ok).get(ok))
        .layer(once_a_day());
    assert_eq!(status(&app, from("192.0.2.1", "/a")), 200);
    assert_eq!(status(&app, from("192.0.2.1", "/b")), 429);
}

#[test]
fn routes_can_have_limits_of_their_own() {
    let shared = once_a_day();
    let app = Router::new()
        .route("/a", get(ok).layer(once_a_day()))
        .route("/b", get(ok).layer(shared.clone()))
        .route("/c", get(ok).layer(shared))
        .route("/free", get(ok));
    assert_eq!(status(&app, from("192.0.2.1", "/a")), 200);
    assert_eq!(status(&app, from("192.0.2.1", "/b")), 200);
    assert_eq!(status(&app, from("192.0.2.1", "/c")), 429);
    assert_eq!(status(&app, from("192.0.2.1", "/a")), 429);
    assert_eq!(status(&app, from("192.0.2.1", "/free")), 200);
}

#[test]
fn nested_routers_and_layers_around_the_router() {
    let api = Router::new().route("/users", get(ok)).layer(once_a_day());
    let app = Router::new().nest("/api", api).route("/", get(ok));
    assert_eq!(status(&app, from("192.0.2.1", "/api/users")), 200);
    assert_eq!(status(&app, from("192.0.2.1", "/api/users")), 429);
    assert_eq!(status(&app, from("192.0.2.1", "/")), 200);

    let around = once_a_day().layer(Router::new().route("/", get(ok)));
    let sent = |peer| {
        now(around.clone().oneshot(from(peer, "/")))
            .unwrap()
            .status()
    };
    assert_eq!(sent("192.0.2.1"), 200);
    assert_eq!(sent("192.0.2.1"), 429);
}

#[test]
fn matched_routes_cannot_be_varied_by_the_client() {
    let key = (PeerIp, MatchedRoute, RequestMethod);
    let app = Router::new()
        .route("/users/{id}", get(ok).post(ok))
        .route("/posts/{id}", get(ok))
        .layer(RateLimitLayer::new(Quota::per_day(1), key));
    assert_eq!(status(&app, from("192.0.2.1", "/users/1")), 200);
    assert_eq!(status(&app, from("192.0.2.1", "/users/2")), 429);
    assert_eq!(status(&app, from("192.0.2.1", "/users/2?x=1")), 429);
    assert_eq!(status(&app, from("192.0.2.1", "/posts/1")), 200);
    let mut posted = from("192.0.2.1", "/users/3");
    *posted.method_mut() = Method::POST;
    assert_eq!(status(&app, posted), 200);
    // Whatever matches no route is one more, however it is spelled.
    assert_eq!(status(&app, from("192.0.2.1", "//users/1")), 404);
    assert_eq!(status(&app, from("192.0.2.1", "/Users/1")), 429);
}

#[test]
fn methods_that_clients_invent_are_one() {
    let key = RequestMethod;
    let parts = |method: &str| {
        let request = Request::builder().method(method).body(()).unwrap();
        request.into_parts().0
    };
    assert_ne!(key.extract(&parts("GET")), key.extract(&parts("POST")));
    assert_eq!(key.extract(&parts("AAA")), key.extract(&parts("BBB")));
}

#[test]
fn without_connect_info_every_answer_is_500() {
    let app = Router::new().route("/", get(ok)).layer(once_a_day());
    let request = || Request::get("/").body(Body::empty()).unwrap();
    assert_eq!(status(&app, request()), 500);
    assert_eq!(status(&app, request()), 500);
}

#[test]
fn a_mock_connect_info_stands_in_for_a_connection() {
    let mock: SocketAddr = "192.0.2.1:1".parse().unwrap();
    let app = Router::new()
        .route(
            "/",
            get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string()),
        )
        .layer(once_a_day())
        .layer(MockConnectInfo(mock));
    let request = || Request::get("/").body(Body::empty()).unwrap();
    assert_eq!(status(&app, request()), 200);
    assert_eq!(status(&app, request()), 429);
}

#[test]
fn a_bare_socket_address_will_do() {
    let app = Router::new().route("/", get(ok)).layer(once_a_day());
    let request = |peer: &str| {
        let peer: SocketAddr = peer.parse().unwrap();
        Request::get("/")
            .extension(peer)
            .body(Body::empty())
            .unwrap()
    };
    assert_eq!(status(&app, request("192.0.2.1:1")), 200);
    assert_eq!(status(&app, request("192.0.2.1:2")), 429);
    assert_eq!(status(&app, request("192.0.2.2:1")), 200);
}

#[test]
fn handlers_extract_the_decision() {
    async fn left(decision: Decision) -> String {
        format!("{:?}", decision.remaining())
    }
    async fn maybe(decision: Option<Decision>) -> String {
        format!("{}", decision.is_some())
    }
    let layer = RateLimitLayer::new(Quota::per_day(5), PeerIp);
    let routes = || {
        Router::new()
            .route("/left", get(left))
            .route("/maybe", get(maybe))
    };
    let exposed = routes().layer(layer.clone().expose_decision(true));
    let hidden = routes().layer(layer);
    let body = |app: &Router, path| {
        let response = send(app, from("192.0.2.1", path));
        let status = response.status().as_u16();
        let bytes = now(axum::body::to_bytes(response.into_body(), 1_000)).unwrap();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    };
    assert_eq!(body(&exposed, "/left"), (200, "Some(4)".into()));
    assert_eq!(body(&exposed, "/maybe"), (200, "true".into()));
    assert_eq!(body(&hidden, "/maybe"), (200, "false".into()));
    let (status, message) = body(&hidden, "/left");
    assert_eq!(status, 500);
    assert!(message.contains("expose_decision"), "{message}");
}

#[test]
fn a_denied_head_request_gets_the_length_of_the_body_of_get() {
    let router = || Router::new().route("/", get(ok));
    // Inside the router axum takes the body of HEAD away itself, around it nobody does.
    let inside = router().layer(once_a_day());
    let around = once_a_day().layer(router());
    for send in [
        &(|request| send(&inside, request)) as &dyn Fn(Request<Body>) -> Response<Body>,
        &|request| now(around.clone().oneshot(request)).unwrap(),
    ] {
        let denied = |method| {
            let mut request = from("192.0.2.1", "/");
            *request.method_mut() = method;
            let response = send(request);
            let length = field(&response, "content-length").map(str::to_owned);
            let status = response.status().as_u16();
            let body = now(axum::body::to_bytes(response.into_body(), 1_000)).unwrap();
            (status, length, body.len())
        };
        assert_eq!(denied(Method::GET).0, 200);
        let (status, _, length) = denied(Method::GET);
        assert_eq!(status, 429);
        assert!(length > 0);
        assert_eq!(denied(Method::HEAD), (429, Some(length.to_string()), 0));
    }
}
