//! The trailer that repeats `RateLimit` after the final charge.

use std::{convert::Infallible, task::Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use testkit::{
    limiter,
    llm::{StreamingBody, bodies},
    now,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::{Layer, service_fn};
use tower_ratelimit::{Global, Headers, RateLimitLayer, spend::llm::Llm};

use crate::{
    EVENTS, JSON,
    responses::{Answer, chat, next, poll, respond},
    streams::{quota, slow, taken},
};

/// A response to a request with this `TE`.
fn respond_to(te: &str, kind: &str, body: StreamingBody) -> Answer {
    let (limiter, _) = limiter(quota());
    let layer = RateLimitLayer::new(limiter, Global).spending(Llm::any());
    let request = Request::post("/").header("te", te);
    let head = Response::builder().header("content-type", kind);
    respond(&layer.trailers(true), request, head, body)
}

fn left(headers: &HeaderMap) -> Option<u64> {
    let field = headers.get("ratelimit")?.to_str().ok()?;
    field.split_once(";r=")?.1.split_once(';')?.0.parse().ok()
}

#[test]
fn trailer_repeats_the_field_after_the_final_charge() {
    for te in ["trailers", "gzip;q=0.5 , Trailers"] {
        let answer = respond_to(te, EVENTS, chat(9, Some((100, 200))));
        assert_eq!(answer.headers()["trailer"], "ratelimit");
        // 1,024 are reserved.
        assert_eq!(left(answer.headers()), Some(10_000 - 1_024));
        let collected = now(answer.into_body().collect()).unwrap();
        assert_eq!(left(collected.trailers().unwrap()), Some(10_000 - 300));
    }
}

#[test]
fn trailers_of_the_response_are_kept() {
    let mut own = HeaderMap::new();
    own.insert("x-sum", HeaderValue::from_static("7"));
    let body = StreamingBody::split(bodies::chat(100, 200), 90).with_trailers(own);
    let collected = now(respond_to("trailers", JSON, body).into_body().collect()).unwrap();
    let trailers = collected.trailers().unwrap();
    assert_eq!(trailers["x-sum"], "7");
    assert_eq!(left(trailers), Some(10_000 - 300));
    assert_eq!(collected.to_bytes(), bodies::chat(100, 200));
}

#[test]
fn requests_that_accept_no_trailers_get_none_and_empty_bodies_have_none() {
    let answer = respond_to("gzip", EVENTS, chat(9, Some((100, 200))));
    assert!(!answer.headers().contains_key("trailer"));
    let collected = now(answer.into_body().collect()).unwrap();
    assert!(collected.trailers().is_none());
    let mut empty = respond_to("trailers", JSON, StreamingBody::default()).into_body();
    assert!(empty.is_end_stream());
    assert!(next(&mut empty).is_none());
}

#[test]
fn layer_that_adds_no_fields_announces_no_trailer() {
    for is_shadow in [false, true] {
        let (limiter, _) = limiter(quota());
        let layer = RateLimitLayer::new(limiter, Global).shadow(is_shadow);
        let layer = if is_shadow {
            layer
        } else {
            layer.headers(Headers::none())
        };
        let layer = layer.spending(Llm::any()).trailers(true);
        let request = Request::post("/").header("te", "trailers");
        let head = Response::builder().header("content-type", EVENTS);
        let answer = respond(&layer, request, head, chat(9, Some((100, 200))));
        assert!(!answer.headers().contains_key("trailer"), "{is_shadow}");
        let collected = now(answer.into_body().collect()).unwrap();
        assert!(collected.trailers().is_none());
    }
}

#[tokio::test]
async fn end_of_the_body_waits_for_the_limiter_and_a_dropped_one_is_charged() {
    for is_dropped in [false, true] {
        let (limiter, gate, layer) = slow();
        gate.add_permits(1);
        let request = Request::post("/").header("te", "trailers");
        let head = Response::builder().header("content-type", EVENTS);
        let body = chat(3, Some((10, 20)));
        let mut body = respond(&layer.trailers(true), request, head, body).into_body();
        while let Poll::Ready(frame) = poll(&mut body) {
            assert!(frame.unwrap().unwrap().is_data());
        }
        assert!(!body.is_end_stream());
        assert_eq!(taken(&limiter), 100);
        gate.add_permits(1);
        if is_dropped {
            drop(body);
            tower_ratelimit::rate_limit::settled().await;
        } else {
            let trailers = body
                .frame()
                .await
                .unwrap()
                .unwrap()
                .into_trailers()
                .unwrap();
            assert_eq!(left(&trailers), Some(10_000 - 30));
            assert!(body.is_end_stream() && body.frame().await.is_none());
        }
        assert_eq!(taken(&limiter), 30);
    }
}

#[tokio::test]
async fn a_server_of_http_1_sends_the_trailer() {
    let (limiter, _) = limiter(quota());
    let layer = RateLimitLayer::new(limiter, Global).spending(Llm::any());
    let service = layer
        .trailers(true)
        .layer(service_fn(async |_: Request<Incoming>| {
            let response = Response::builder().header("content-type", EVENTS);
            // Its length is unknown, since HTTP/1.1 has no trailers after a `Content-Length`.
            let stream = bodies::chat_stream(&bodies::words(9), Some((100, 200)));
            let frame = Ok::<_, Infallible>(Frame::data(Bytes::from(stream)));
            let body = StreamBody::new(tokio_stream::once(frame)).boxed_unsync();
            Ok::<_, Infallible>(response.body(body).unwrap())
        }));
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let request = "POST / HTTP/1.1\r\nhost: a\r\nte: trailers\r\nconnection: te, close\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let connection = http1::Builder::new()
        .serve_connection(TokioIo::new(server), TowerToHyperService::new(service));
    connection.await.unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).await.unwrap();
    let (_, trailers) = response.split_once("\r\n0\r\n").unwrap();
    assert!(
        trailers.starts_with("ratelimit: \"default\";r=9700;"),
        "{trailers}"
    );
}
