//! An IPv6 client counts by its /64, and where a client must not get several of these, by its /56.

use tower_ratelimit::{PeerIp, Quota, RateLimitLayer, key::IpPrefix};

fn by_subnet() -> RateLimitLayer {
    // /64 of IPv6, the whole address of IPv4.
    RateLimitLayer::new(Quota::per_hour(600), PeerIp)
}

fn by_connection() -> RateLimitLayer {
    let household = PeerIp.grouped_by(IpPrefix::new().v6(56));
    RateLimitLayer::new(Quota::per_day(3).named("sign-ups"), household)
}

// The test, which is not on the page.

use std::net::SocketAddr;

use axum::{Router, body::Body, extract::ConnectInfo, http::Request, routing::get};
use tower::ServiceExt;

use crate::test_requests::remaining;

async fn left(app: &Router, address: &str) -> u64 {
    let peer: SocketAddr = format!("[{address}]:4711").parse().unwrap();
    let request = Request::builder().extension(ConnectInfo(peer));
    let request = request.body(Body::empty()).unwrap();
    remaining(&app.clone().oneshot(request).await.unwrap())
}

#[tokio::test]
async fn networks_count_as_one_client() {
    let app = Router::new().route("/", get(|| async { "hello" }));
    let subnets = app.clone().layer(by_subnet());
    assert_eq!(left(&subnets, "2001:db8:0:100::1").await, 599);
    assert_eq!(left(&subnets, "2001:db8:0:100:2::2").await, 598);
    assert_eq!(left(&subnets, "2001:db8:0:101::1").await, 599);
    let connections = app.layer(by_connection());
    assert_eq!(left(&connections, "2001:db8:0:100::1").await, 2);
    assert_eq!(left(&connections, "2001:db8:0:1ff::1").await, 1);
    assert_eq!(left(&connections, "2001:db8:0:200::1").await, 2);
}
