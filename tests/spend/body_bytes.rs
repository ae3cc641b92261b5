//! Limits of the bytes of bodies.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Buf, Bytes as Data};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use testkit::{limiter, llm::StreamingBody, now};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::{
    Global, Key, LocalLimiter, Quota, RateLimitLayer, SpendLayer,
    rate_limit::{Exhausted, SpendBody, UploadBody, UploadLayer},
    reject::RejectionBody,
    spend::Bytes,
};

use crate::{
    streams::{quota, taken},
    test_responses::{next, read, respond},
};

/// A limit of 10,000 bytes a minute, and its layer.
fn layer(bytes: Bytes) -> (LocalLimiter, SpendLayer) {
    let (limiter, _) = limiter(quota());
    let layer = RateLimitLayer::new(limiter.clone(), Global).spending(bytes);
    (limiter, layer.reserve(500).step(500))
}

fn body(bytes: usize) -> StreamingBody {
    StreamingBody::split(vec![0; bytes], 100)
}

#[test]
fn length_of_a_response_is_reserved_when_its_head_comes_and_what_has_passed_is_charged() {
    let (limiter, layer) = layer(Bytes::response());
    let mut answer = respond(&layer, Request::get("/"), Response::builder(), body(3_000));
    assert_eq!(taken(&limiter), 3_000);
    assert!(next(answer.body_mut()).is_some());
    assert_eq!(taken(&limiter), 3_000);
    // The client breaks off.
    drop(answer);
    assert_eq!(taken(&limiter), 100);
    // The server does, whose head has declared more.
    let head = Response::builder().header("content-length", "2000");
    let broken = body(2_000).breaking_off_after(3);
    let mut answer = respond(&layer, Request::get("/"), head, broken).into_body();
    assert_eq!(taken(&limiter), 2_100);
    while next(&mut answer).is_some_and(|frame| frame.is_ok()) {}
    assert_eq!(taken(&limiter), 400);
    // One without a declared length reserves 500, and is charged in steps.
    let chunked = body(1_000).breaking_off_after(8);
    let mut answer = respond(&layer, Request::get("/"), Response::builder(), chunked).into_body();
    assert_eq!(taken(&limiter), 900);
    (0..5).for_each(|_| drop(next(&mut answer)));
    assert_eq!(taken(&limiter), 1_400);
    while next(&mut answer).is_some_and(|frame| frame.is_ok()) {}
    assert_eq!(taken(&limiter), 1_200);
}

#[test]
fn bodies_without_bytes_cost_none_and_errors_cost_theirs() {
    let (limiter, layer) = layer(Bytes::response());
    let declared = || Response::builder().header("content-length", "2000");
    drop(respond(&layer, Request::head("/"), declared(), body(0)));
    assert_eq!(taken(&limiter), 0);
    drop(respond(
        &layer,
        Request::get("/"),
        Response::builder(),
        body(0),
    ));
    assert_eq!(taken(&limiter), 0);
    let head = Response::builder()
        .status(404)
        .header("content-encoding", "br");
    read(respond(&layer, Request::get("/"), head, body(70)).into_body());
    assert_eq!(taken(&limiter), 70);
}

#[test]
fn data_whose_parts_are_hidden_is_counted() {
    /// Shows its first byte alone.
    struct Hidden(Data);

    impl Buf for Hidden {
        fn remaining(&self) -> usize {
            self.0.remaining()
        }

        fn chunk(&self) -> &[u8] {
            &self.0[..1.min(self.0.len())]
        }

        fn advance(&mut self, count: usize) {
            self.0.advance(count);
        }
    }

    #[derive(Default)]
    struct HiddenBody(Option<Data>);

    impl Body for HiddenBody {
        type Data = Hidden;
        type Error = std::io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<std::io::Result<Frame<Hidden>>>> {
            Poll::Ready(self.0.take().map(|data| Ok(Frame::data(Hidden(data)))))
        }
    }

    impl RejectionBody for HiddenBody {
        fn from_bytes(bytes: Data) -> Self {
            Self(Some(bytes))
        }

        fn empty() -> Self {
            Self(None)
        }
    }

    let (limiter, layer) = layer(Bytes::response());
    let mut service = layer.layer(service_fn(async |_: Request<()>| {
        let body = HiddenBody::from_bytes(Data::from_static(&[0; 700]));
        Ok::<_, std::io::Error>(Response::new(body))
    }));
    let mut answer = now(service.call(Request::new(()))).unwrap().into_body();
    while next(&mut answer).is_some() {}
    assert_eq!(taken(&limiter), 700);
}

#[test]
fn length_of_a_request_is_reserved_and_charged() {
    let head = |length: &str| Request::post("/").header("content-length", length);
    let (limiter, layer) = layer(Bytes::request());
    read(respond(&layer, head("4000"), Response::builder(), body(900)).into_body());
    assert_eq!(taken(&limiter), 4_000);
    let denied = respond(&layer, head("7000"), Response::builder(), body(900));
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    let chunked = Request::post("/").header("transfer-encoding", "chunked");
    read(respond(&layer, chunked, Response::builder(), body(900)).into_body());
    assert_eq!(taken(&limiter), 4_500);
    let (limiter, both) = self::layer(Bytes::both());
    read(respond(&both, head("4000"), Response::builder(), body(900)).into_body());
    assert_eq!(taken(&limiter), 4_900);
    read(respond(&both, Request::get("/"), Response::builder(), body(10)).into_body());
    assert_eq!(taken(&limiter), 4_910);
}

#[test]
fn response_that_finds_nothing_left_may_end() {
    let (limiter, layer) = layer(Bytes::response());
    let layer = layer.exhausted(Exhausted::End);
    let mut answer = respond(&layer, Request::get("/"), Response::builder(), body(12_000));
    let mut passed = 0;
    while let Some(Ok(_)) = next(answer.body_mut()) {
        passed += 100;
    }
    drop(answer);
    assert_eq!((passed, taken(&limiter)), (10_000, 10_000));
}

#[test]
fn use_of_100_downloads_at_once_is_below_the_bound_and_owed_to_the_byte() {
    const LIMIT: u64 = 100_000;
    const FILE: usize = 5_000;
    let (limiter, clock) = limiter(Quota::per_minute(LIMIT).debt(LIMIT * 5));
    let layer = RateLimitLayer::new(limiter.clone(), Global).spending(Bytes::response());
    let mut service = layer
        .reserve(500)
        .step(500)
        .layer(service_fn(async |_: Request<()>| {
            Ok::<_, std::io::Error>(Response::new(body(FILE)))
        }));
    let mut open: Vec<_> = (0..100)
        .map(|_| now(service.call(Request::new(()))).unwrap())
        .filter(|answer| answer.status() == StatusCode::OK)
        .map(Response::into_body)
        .collect();
    // Each length is charged before the next request comes.
    assert_eq!(open.len() as u64, LIMIT / FILE as u64);
    let used = open.len() as u64 * FILE as u64;
    let mut cx = Context::from_waker(Waker::noop());
    while !open.is_empty() {
        open.retain_mut(|body| {
            let _ = Pin::new(&mut *body).poll_frame(&mut cx);
            !body.is_end_stream()
        });
    }
    println!("100 downloads of {FILE} bytes at once: {used} bytes of a limit of {LIMIT}");
    assert_eq!(limiter.peek(&Key::global(), 1).remaining(), Some(0));

    // Requests that all arrive before a head comes reserve 500 each, and owe the rest.
    clock.advance(Duration::from_secs(120));
    let answers: Vec<_> = (0..100).map(|_| service.call(Request::new(()))).collect();
    let mut used = 0;
    for answer in answers {
        used += read(now(answer).unwrap().into_body()).len() as u64;
    }
    println!("100 downloads whose heads come later: {used} bytes of a limit of {LIMIT}");
    let wait = limiter.peek(&Key::global(), 1).retry_after().unwrap();
    clock.advance(wait);
    assert_eq!(limiter.peek(&Key::global(), 1).remaining(), Some(1));
    // Two buckets, what returns, the debt, and a reservation and a step of each.
    assert!(used <= 3 * LIMIT + LIMIT * 5 + 100 * 1_000);
    assert_eq!(wait.as_micros() as u64, (used - LIMIT + 1) * 600);
}

/// The units that are taken of the limit after each frame of a request's body.
type Reads = Arc<Mutex<Vec<u64>>>;

/// A service that reads so many frames of the request's body.
fn uploads(
    limiter: &LocalLimiter,
    bytes: Bytes,
    frames: usize,
) -> (
    impl Service<
        Request<StreamingBody>,
        Response = Response<SpendBody<StreamingBody>>,
        Error = Infallible,
    > + Clone,
    Reads,
) {
    let layer = RateLimitLayer::new(limiter.clone(), Global).spending(bytes);
    let (seen, limiter) = (Reads::default(), limiter.clone());
    let reads = Arc::clone(&seen);
    let inner = service_fn(move |request: Request<UploadBody<StreamingBody>>| {
        let (reads, limiter) = (Arc::clone(&reads), limiter.clone());
        async move {
            let mut body = request.into_body();
            for _ in 0..frames {
                if !matches!(next(&mut body), Some(Ok(_))) {
                    break;
                }
                reads.lock().unwrap().push(taken(&limiter));
            }
            Ok(Response::new(self::body(200)))
        }
    });
    let layer = layer.reserve(500).step(500);
    (layer.layer(UploadLayer.layer(inner)), seen)
}

fn upload(length: Option<&str>, body: StreamingBody) -> Request<StreamingBody> {
    let request = Request::post("/");
    let request = match length {
        Some(length) => request.header("content-length", length),
        None => request.header("transfer-encoding", "chunked"),
    };
    request.body(body).unwrap()
}

#[test]
fn upload_of_unknown_length_is_charged_in_steps_while_it_passes() {
    let (limiter, _) = limiter(quota());
    let (mut service, seen) = uploads(&limiter, Bytes::both(), 100);
    let answer = now(service.call(upload(None, body(1_700)))).unwrap();
    // Both sides reserve 500.
    let seen: Vec<_> = seen.lock().unwrap().clone();
    assert_eq!(
        (seen[0], seen[13], seen[14], seen[16]),
        (1_000, 1_000, 1_500, 1_500)
    );
    read(answer.into_body());
    assert_eq!(taken(&limiter), 1_900);
}

#[test]
fn upload_that_declares_more_than_it_sends_is_charged_what_has_passed() {
    let (limiter, _) = limiter(quota());
    let (mut service, _) = uploads(&limiter, Bytes::request(), 100);
    let broken = body(3_000).breaking_off_after(4);
    read(
        now(service.call(upload(Some("3000"), broken)))
            .unwrap()
            .into_body(),
    );
    assert_eq!(taken(&limiter), 400);
}

#[test]
fn upload_of_more_than_a_limit_holds_owes_the_rest() {
    let (limiter, _) = limiter(quota());
    let (mut service, _) = uploads(&limiter, Bytes::request(), 120);
    let call = now(service.call(upload(Some("12000"), body(12_000))));
    read(call.unwrap().into_body());
    let wait = limiter.peek(&Key::global(), 1).retry_after();
    assert_eq!(wait, Some(Duration::from_millis(2_001 * 6)));
}

#[test]
fn upload_whose_client_leaves_before_a_response_is_charged_what_has_passed() {
    let (limiter, _) = limiter(quota());
    let layer = RateLimitLayer::new(limiter.clone(), Global).spending(Bytes::request());
    let kept = Arc::new(Mutex::new(None));
    let place = Arc::clone(&kept);
    let inner = service_fn(move |request: Request<UploadBody<StreamingBody>>| {
        let mut body = request.into_body();
        drop(next(&mut body));
        *place.lock().unwrap() = Some(body);
        std::future::pending::<Result<Response<StreamingBody>, Infallible>>()
    });
    let mut service = layer.layer(UploadLayer.layer(inner));
    let call = service.call(upload(Some("3000"), body(3_000)));
    assert_eq!(taken(&limiter), 3_000);
    drop(call);
    assert_eq!(taken(&limiter), 100);
    // Whoever reads on is charged.
    let mut body = kept.lock().unwrap().take().unwrap();
    drop(next(&mut body));
    assert_eq!(taken(&limiter), 200);
}

#[tokio::test]
async fn handlers_of_axum_get_the_bodies_of_uploads() {
    let (limiter, _) = limiter(quota());
    let layer = RateLimitLayer::new(limiter.clone(), Global).spending(Bytes::both());
    let app = axum::Router::<()>::new()
        .route("/", axum::routing::post(async |text: String| text))
        .layer(UploadLayer)
        .layer(layer);
    let request = Request::post("/")
        .body(axum::body::Body::from("hello"))
        .unwrap();
    let answer = app.oneshot(request).await.unwrap();
    let text = axum::body::to_bytes(answer.into_body(), 100).await.unwrap();
    assert_eq!((&text[..], taken(&limiter)), (&b"hello"[..], 10));
}
