//! HTTP/2 without TLS, and gRPC.

use std::{convert::Infallible, net::Ipv4Addr};

use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    client::conn::http2::{SendRequest, handshake},
    ext::Protocol,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::{StreamExt as _, wrappers::TcpListenerStream};
use tonic::{
    Code,
    transport::{Channel, Endpoint, Server},
};
use tonic_health::{
    ServingStatus,
    pb::{HealthCheckRequest, health_client::HealthClient},
    server::HealthReporter,
};

use crate::{
    gateway_process::{Gateway, bounded},
    recording_upstream::Upstream,
};

pub(crate) type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

pub(crate) async fn connect(gateway: &Gateway) -> SendRequest<Body> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, gateway.port)).await;
    let io = TokioIo::new(stream.unwrap());
    let (sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) fn request(gateway: &Gateway, method: &str, path: &str) -> http::request::Builder {
    let uri = format!("http://shop.example:{}{path}", gateway.port);
    Request::builder().method(method).uri(uri)
}

pub(crate) fn empty() -> Body {
    Full::default().boxed_unsync()
}

pub(crate) async fn text(response: Response<Incoming>) -> (String, Option<HeaderMap>) {
    let body = response.into_body().collect().await.unwrap();
    let trailers = body.trailers().cloned();
    let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
    (text, trailers)
}

#[tokio::test]
async fn requests_of_one_connection_are_handed_on_and_limited() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let mut sender = connect(&gateway).await;
        let get = request(&gateway, "GET", "/a").body(empty()).unwrap();
        let response = sender.send_request(get).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(text(response).await.0, "ok");
        let (head, _) = upstream.only();
        assert_eq!(head.first_line(), "GET /a HTTP/1.1");
        let host = format!("shop.example:{}", gateway.port);
        assert_eq!(head.field("host"), Some(&*host));
        assert_eq!(head.field("via"), Some("2 tower-ratelimit"));
        let mut reported = Vec::new();
        for _ in 0..3 {
            let get = request(&gateway, "GET", "/limited").body(empty()).unwrap();
            reported.push(sender.send_request(get).await.unwrap().status().as_u16());
        }
        assert_eq!(reported, [200, 200, 429]);
    })
    .await;
}

#[tokio::test]
async fn bodies_of_unknown_length_and_trailers_go_both_ways() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let mut sender = connect(&gateway).await;
        let frames = ["ab", "c"].map(|data| Ok(Frame::data(Bytes::from_static(data.as_bytes()))));
        let body = StreamBody::new(tokio_stream::iter(frames)).boxed_unsync();
        let post = request(&gateway, "POST", "/").body(body).unwrap();
        let response = sender.send_request(post).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let (head, body) = upstream.only();
        assert!(head.is_chunked());
        assert_eq!(body, "abc");

        let get = request(&gateway, "GET", "/trailers").header("te", "trailers");
        let response = sender
            .send_request(get.body(empty()).unwrap())
            .await
            .unwrap();
        let (body, trailers) = text(response).await;
        assert_eq!(body, "body");
        assert_eq!(trailers.unwrap()["x-sum"], "7");
    })
    .await;
}

#[tokio::test]
async fn cookies_in_parts_are_one_line_for_rules_and_the_upstream() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let rules = "rules: [{name: a, key: [{cookie: b}, {cookie: c}], quota: 1/day}]";
        std::fs::write(gateway.folder.path().join("rules.yaml"), rules).unwrap();
        gateway.process.hang_up();
        gateway.logs("read the rules again").await;
        let mut sender = connect(&gateway).await;
        let mut reported = Vec::new();
        for cookies in [
            &["b=1", "c=2"][..],
            &["b=1; c=2"],
            &["c=2", "b=1"],
            &["b=1", "c=3"],
        ] {
            let get = cookies
                .iter()
                .fold(request(&gateway, "GET", "/"), |get, cookie| {
                    get.header("cookie", *cookie)
                });
            let answer = sender.send_request(get.body(empty()).unwrap()).await;
            reported.push(answer.unwrap().status().as_u16());
        }
        assert_eq!(reported, [200, 429, 429, 200]);
        let requests = upstream.requests();
        let lines = requests.iter().map(|(head, _)| head.all("cookie"));
        assert_eq!(lines.collect::<Vec<_>>(), [["b=1; c=2"], ["b=1; c=3"]]);
    })
    .await;
}

#[tokio::test]
async fn long_headers_and_bodies_have_their_limits() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &["--max-body", "10"]).await;
        let long = request(&gateway, "GET", "/").header("x-long", "a".repeat(70_000));
        let mut sender = connect(&gateway).await;
        let answer = sender.send_request(long.body(empty()).unwrap()).await;
        assert_eq!(answer.unwrap().status(), 431);
        let post = request(&gateway, "POST", "/").body(Full::from("0123456789a").boxed_unsync());
        let mut sender = connect(&gateway).await;
        let answer = sender.send_request(post.unwrap()).await;
        assert_eq!(answer.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(upstream.requests().len(), 0);
    })
    .await;
}

/// An upstream that serves the health of `shop`, and the handle that changes it.
pub(crate) async fn health() -> (HealthReporter, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let upstream = listener.local_addr().unwrap().port();
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter
        .set_service_status("shop", ServingStatus::Serving)
        .await;
    let server = Server::builder().add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (reporter, upstream)
}

pub(crate) fn health_client(gateway: &Gateway) -> HealthClient<Channel> {
    let address = format!("http://127.0.0.1:{}", gateway.port);
    HealthClient::new(Endpoint::from_shared(address).unwrap().connect_lazy())
}

pub(crate) fn about(service: &str) -> HealthCheckRequest {
    let service = service.to_owned();
    HealthCheckRequest { service }
}

#[tokio::test]
async fn grpc_goes_through_and_is_limited_as_grpc() {
    bounded(async {
        let (reporter, upstream) = health().await;
        let gateway = Gateway::start(upstream, &[]).await;
        let rules = "rules: [{name: calls, match: {path: '/*/Check'}, quota: 2/day}]";
        std::fs::write(gateway.folder.path().join("rules.yaml"), rules).unwrap();
        gateway.process.hang_up();
        gateway.logs("read the rules again").await;

        let mut client = health_client(&gateway);
        let answer = client.check(about("shop")).await.unwrap().into_inner();
        assert_eq!(answer.status, 1);
        // A status in the trailers, from the upstream.
        let error = client.check(about("none")).await.unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        let error = client.check(about("shop")).await.unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted);
        // Messages of a stream arrive one by one.
        let mut watch = client.watch(about("shop")).await.unwrap().into_inner();
        assert_eq!(watch.next().await.unwrap().unwrap().status, 1);
        reporter
            .set_service_status("shop", ServingStatus::NotServing)
            .await;
        assert_eq!(watch.next().await.unwrap().unwrap().status, 2);
    })
    .await;
}

#[tokio::test]
async fn stream_of_grpc_that_is_silent_ends() {
    bounded(async {
        let (_reporter, upstream) = health().await;
        let gateway = Gateway::start(upstream, &["--idle-timeout", "50ms"]).await;
        let mut client = health_client(&gateway);
        let mut watch = client.watch(about("shop")).await.unwrap().into_inner();
        // A regular end would be `None`.
        let error = loop {
            match watch.next().await.unwrap() {
                Ok(reported) => assert_eq!(reported.status, 1),
                Err(error) => break error,
            }
        };
        assert_ne!(error.code(), Code::Ok);
    })
    .await;
}

/// RFC 8441: the gateway does not offer it, and rejects it.
#[tokio::test]
async fn web_sockets_by_http2_are_rejected_by_the_gateway() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let mut sender = connect(&gateway).await;
        assert_eq!(get(&gateway, &mut sender).await, 200);
        let tunnel = request(&gateway, "CONNECT", "/chat")
            .extension(Protocol::from_static("websocket"))
            .header("sec-websocket-version", "13");
        let refused = sender.send_request(tunnel.body(empty()).unwrap()).await;
        assert!(refused.is_err(), "{refused:?}");
        let tunnel = Request::connect("shop.example:80").body(empty()).unwrap();
        let refused = sender.send_request(tunnel).await.unwrap();
        assert_eq!(refused.status(), StatusCode::NOT_IMPLEMENTED);
        assert_eq!(get(&gateway, &mut sender).await, 200);
        assert_eq!(upstream.requests().len(), 2);
    })
    .await;
}

async fn get(gateway: &Gateway, sender: &mut SendRequest<Body>) -> StatusCode {
    let request = request(gateway, "GET", "/").body(empty()).unwrap();
    sender.send_request(request).await.unwrap().status()
}
