//! Charges of requests that end before their response does, and of responses that cannot be read.

use std::{
    future::{pending, poll_fn},
    panic::AssertUnwindSafe,
    pin::pin,
    task::{Context, Poll, Waker},
};

use http::{Request, Response};
use testkit::{limiter, llm::StreamingBody};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{Global, RateLimitLayer, rate_limit::Missing, spend::llm::Llm};

use crate::{
    EVENTS,
    streams::{quota, settle, slow, taken},
    test_responses::{chat, read, respond, stream},
};

type Answer = Result<Response<StreamingBody>, std::io::Error>;

/// Polls a future once. Returns whether it is ready.
async fn poll_once<F: Future>(future: F) -> bool {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

#[tokio::test]
async fn a_request_that_is_dropped_before_its_reservation_is_charged_nothing() {
    let (limiter, gate, layer) = slow();
    let never = layer.layer(service_fn(|_: Request<()>| pending::<Answer>()));
    assert!(!poll_once(never.oneshot(Request::new(()))).await);
    gate.add_permits(1);
    settle().await;
    assert_eq!(taken(&limiter), 0);
}

#[tokio::test]
async fn a_request_that_is_dropped_before_its_response_keeps_its_reservation() {
    let (limiter, gate, layer) = slow();
    gate.add_permits(1);
    let never = layer.layer(service_fn(|_: Request<()>| pending::<Answer>()));
    assert!(!poll_once(never.oneshot(Request::new(()))).await);
    settle().await;
    assert_eq!(taken(&limiter), 100);
}

#[tokio::test]
async fn a_response_that_is_dropped_unread_is_refunded() {
    let (limiter, gate, layer) = slow();
    gate.add_permits(2);
    drop(stream(&layer, chat(10, Some((5, 5)))));
    settle().await;
    assert_eq!((taken(&limiter), gate.available_permits()), (0, 0));
}

#[test]
fn a_service_that_panics_or_fails_keeps_the_reservation() {
    let (limiter, _) = limiter(quota());
    let layer = RateLimitLayer::new(limiter.clone(), Global).spending(Llm::any());
    let fails = layer.layer(service_fn(async |_: Request<()>| -> Answer {
        Err(std::io::ErrorKind::ConnectionReset.into())
    }));
    assert!(testkit::now(fails.oneshot(Request::new(()))).is_err());
    assert_eq!(taken(&limiter), 1_024);
    let panics = layer.layer(service_fn(async |_: Request<()>| -> Answer {
        panic!("a handler that panics")
    }));
    let mut panics = Box::pin(panics.oneshot(Request::new(())));
    let poll = AssertUnwindSafe(|| {
        let mut cx = Context::from_waker(Waker::noop());
        panics.as_mut().poll(&mut cx).is_ready()
    });
    assert!(std::panic::catch_unwind(poll).is_err());
    assert_eq!(taken(&limiter), 2_048);
}

#[test]
fn a_compressed_response_is_charged_as_the_layer_says() {
    for (missing, expected) in [
        (Missing::Estimate, 1_024),
        (Missing::Keep, 1_024),
        (Missing::GiveBack, 0),
    ] {
        let (limiter, _) = limiter(quota());
        let layer = RateLimitLayer::new(limiter.clone(), Global).spending(Llm::any());
        let head = Response::builder().header("content-type", EVENTS);
        let head = head.header("content-encoding", "gzip");
        let body = chat(10, Some((1, 2)));
        let response = respond(&layer.missing(missing), Request::post("/"), head, body);
        read(response.into_body());
        assert_eq!(taken(&limiter), expected, "{missing:?}");
    }
}
