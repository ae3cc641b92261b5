//! nginx's own limits beside the quotas that docs/migrate.md gives for them. The rate is so low that nothing comes back
//! while a test runs.

use std::{future::Future, net::SocketAddr, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo, routing::get};
use http::Request;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};
use tower::ServiceExt as _;
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

use crate::proxy::{Kind, Proxy, nginx_http};

/// More than rate and burst allow or delay.
const REQUESTS: usize = 30;

/// nginx with these lines about a zone of one request a minute.
async fn nginx(lines: &str) -> Proxy {
    let config = |port| {
        nginx_http(&format!(
            "limit_req_zone $binary_remote_addr zone=api:1m rate=1r/m;
             server {{
                 listen 127.0.0.1:{port};
                 root .;
                 location / {{
                     {lines}
                     try_files /config =404;
                 }}
             }}"
        ))
    };
    Proxy::with(Kind::Nginx, config).await
}

/// The status of nginx's answer.
async fn get_status(port: u16) -> u16 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

fn ours(layer: RateLimitLayer) -> Router {
    Router::new().route("/", get(async || "")).layer(layer)
}

async fn our_status(app: Router) -> u16 {
    let peer = SocketAddr::from(([127, 0, 0, 1], 4_000));
    let request = Request::get("/").extension(ConnectInfo(peer));
    let answer = app.oneshot(request.body(Body::empty()).unwrap()).await;
    answer.unwrap().status().as_u16()
}

/// The statuses of requests one after another.
async fn in_turn(get_status: impl AsyncFn() -> u16) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..REQUESTS {
        statuses.push(get_status().await);
    }
    statuses
}

/// The statuses of the requests that are answered at once, out of many that come together. The other
/// `waiting` are queued.
async fn together<F>(get_status: impl Fn() -> F, waiting: usize) -> Vec<u16>
where
    F: Future<Output = u16> + Send + 'static,
{
    let mut requests = JoinSet::new();
    for _ in 0..REQUESTS {
        requests.spawn(get_status());
    }
    let mut statuses = Vec::new();
    while requests.len() > waiting {
        let next = timeout(Duration::from_secs(50), requests.join_next()).await;
        statuses.push(next.expect("more wait than should").unwrap().unwrap());
    }
    statuses.sort_unstable();
    statuses
}

fn many(status: u16, count: usize) -> Vec<u16> {
    vec![status; count]
}

#[tokio::test]
async fn a_burst_without_delay_is_one_less_than_ours() {
    if Kind::Nginx.is_missing() {
        return;
    }
    let lines = "limit_req zone=api burst=20 nodelay; limit_req_status 429;";
    let nginx = nginx(lines).await;
    let app = ours(RateLimitLayer::new(Quota::per_minute(1).burst(21), PeerIp));
    let expected = [many(200, 21), many(429, 9)].concat();
    assert_eq!(
        in_turn(async || get_status(nginx.port()).await).await,
        expected
    );
    let ours = in_turn(async || our_status(app.clone()).await).await;
    assert_eq!(ours, expected);
}

#[tokio::test]
async fn a_burst_with_delay_is_the_queue_of_a_leaky_bucket() {
    if Kind::Nginx.is_missing() {
        return;
    }
    let nginx = nginx("limit_req zone=api burst=20; limit_req_status 429;").await;
    let quota = Quota::per_minute(1).leaky_bucket(20);
    let app = ours(RateLimitLayer::new(quota, PeerIp));
    let expected = [many(200, 1), many(429, 9)].concat();
    assert_eq!(together(|| get_status(nginx.port()), 20).await, expected);
    assert_eq!(together(|| our_status(app.clone()), 20).await, expected);
}

#[tokio::test]
async fn without_a_status_nginx_answers_503() {
    if Kind::Nginx.is_missing() {
        return;
    }
    let nginx = nginx("limit_req zone=api;").await;
    let app = ours(RateLimitLayer::new(Quota::per_minute(1).burst(1), PeerIp));
    let answers = in_turn(async || get_status(nginx.port()).await).await;
    assert_eq!(answers, [many(200, 1), many(503, 29)].concat());
    let ours = in_turn(async || our_status(app.clone()).await).await;
    assert_eq!(ours, [many(200, 1), many(429, 29)].concat());
}

#[tokio::test]
async fn a_dry_run_is_a_shadow() {
    if Kind::Nginx.is_missing() {
        return;
    }
    let nginx = nginx("limit_req zone=api; limit_req_dry_run on;").await;
    let app = ours(RateLimitLayer::new(Quota::per_minute(1), PeerIp).shadow(true));
    assert_eq!(
        in_turn(async || get_status(nginx.port()).await).await,
        many(200, REQUESTS)
    );
    let ours = in_turn(async || our_status(app.clone()).await).await;
    assert_eq!(ours, many(200, REQUESTS));
}
