//! Requests that declare what their responses may use.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use testkit::{limiter, llm::StreamingBody, now};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_ratelimit::{
    Global, Key, Quota, RateLimitLayer, SpendLayer,
    rate_limit::{DeclaredBody, DeclaredLayer},
    spend::{
        Declared, SpendReaders, Tokens,
        llm::{Llm, Pointer},
    },
};

use crate::{
    JSON,
    test_responses::{chat, next, passes_unchanged},
};

fn post(content_type: &str) -> http::request::Builder {
    Request::post("/").header("content-type", content_type)
}

/// The values that the inner service finds in the request, and the body that it gets.
async fn pass<B: Body + Unpin + 'static>(
    layer: &DeclaredLayer,
    request: Request<B>,
) -> (Declared, DeclaredBody<B>) {
    let inner = service_fn(async |request: Request<DeclaredBody<B>>| {
        let (head, body) = request.into_parts();
        let declared = head.extensions.get::<Declared>().cloned();
        Ok::<_, Infallible>((declared.unwrap(), body))
    });
    layer.layer(inner).oneshot(request).await.unwrap()
}

fn declared(body: &str) -> Declared {
    let body = StreamingBody::split(body.to_owned(), 7);
    now(pass(
        &DeclaredLayer::default(),
        post(JSON).body(body).unwrap(),
    ))
    .0
}

#[test]
fn every_format_declares_its_output() {
    for (body, model, max_tokens, choices) in [
        (
            r#"{"model":"gpt-4.1","max_tokens":100,"n":3}"#,
            Some("gpt-4.1"),
            Some(100),
            Some(3),
        ),
        (
            r#"{"max_completion_tokens":7,"max_tokens":5}"#,
            None,
            Some(7),
            None,
        ),
        (
            r#"{"model":"o3","input":"max_tokens: 9","max_output_tokens":50}"#,
            Some("o3"),
            Some(50),
            None,
        ),
        (
            r#"{"generationConfig":{"maxOutputTokens":8,"candidateCount":2},"contents":[{"n":9}]}"#,
            None,
            Some(8),
            Some(2),
        ),
        (
            r#"{"model":"llama3","options":{"num_predict":-1}}"#,
            Some("llama3"),
            None,
            None,
        ),
        (
            r#"{"messages":[{"max_tokens":1}],"stream":true}"#,
            None,
            None,
            None,
        ),
        ("[1, 2", None, None, None),
        ("no JSON", None, None, None),
        ("", None, None, None),
    ] {
        let declared = declared(body);
        assert_eq!(declared.model(), model, "{body}");
        assert_eq!(
            (declared.max_tokens, declared.choices),
            (max_tokens, choices),
            "{body}"
        );
        assert!(declared.bytes <= body.len() as u64, "{body}");
    }
}

/// The tokens that a request with this body reserves, with changed settings of a layer that reserves up to 10,000.
fn reserved(
    readers: impl SpendReaders,
    path: &str,
    body: &str,
    set: impl FnOnce(SpendLayer) -> SpendLayer,
) -> u64 {
    let (limiter, _) = limiter(Quota::per_minute(100_000).debt(100_000));
    let limit = RateLimitLayer::new(limiter.clone(), Global).spending(readers);
    let service = ServiceBuilder::new()
        .layer(DeclaredLayer::default())
        .layer(set(limit.reserve(10_000)))
        .service(service_fn(async |_: Request<DeclaredBody<String>>| {
            Ok::<_, Infallible>(Response::new(chat(1, None)))
        }));
    let length = body.len();
    let request = post(JSON)
        .uri(path)
        .header("content-length", length)
        .body(body.to_owned());
    let response = now(service.oneshot(request.unwrap())).unwrap();
    let left = limiter.peek(&Key::global(), 1).remaining().unwrap();
    drop(response);
    100_000 - left
}

#[test]
fn a_request_reserves_what_it_declares() {
    let reserved = |body: &str| reserved(Llm::any(), "/", body, |layer| layer);
    for (body, output) in [
        (r#"{"max_tokens":500}"#, 500),
        (r#"{"max_tokens":100,"n":3}"#, 300),
        (r#"{"n":2}"#, 2_048),
        (r#"{"n":0}"#, 1_024),
        (r#"{"stream":true}"#, 1_024),
    ] {
        let input = body.len().div_ceil(4) as u64;
        assert_eq!(reserved(body), input + output, "{body}");
    }
    // A number that cannot be read reserves the most, since the server behind may read it.
    let zeros = "0".repeat(200);
    for body in [
        r#"{"max_tokens":18446744073709551615,"n":9}"#,
        r#"{"n":99999999}"#,
        &format!(r#"{{"max_tokens":1,"max_tokens":100000.{zeros}}}"#),
        &format!(r#"{{"n":128.{zeros}1}}"#),
        r#"{"max_tokens":12.5}"#,
    ] {
        assert_eq!(reserved(body), 10_000, "{body}");
    }
}

#[test]
fn a_maximum_of_0_declares_nothing() {
    for body in [
        r#"{"max_tokens":0}"#,
        r#"{"max_tokens":0.0}"#,
        r#"{"options":{"num_predict":0}}"#,
    ] {
        let input = body.len().div_ceil(4) as u64;
        for path in ["/v1/chat/completions", "/api/chat", "/"] {
            let reserved = reserved(Llm::any(), path, body, |layer| layer);
            assert_eq!(reserved, input + 1_024, "{path} {body}");
        }
    }
    let mut own = Declared::default();
    own.max_tokens = Some(0);
    assert_eq!(own.output(1_024), 1_024);
}

#[test]
fn a_small_maximum_reserves_the_least_that_is_set() {
    let body = r#"{"max_tokens":1}"#;
    let with = |set: fn(SpendLayer) -> SpendLayer| reserved(Llm::any(), "/", body, set);
    assert_eq!(with(|layer| layer), 256);
    assert_eq!(with(|layer| layer.reserve_least(700)), 700);
    assert_eq!(with(|layer| layer.reserve_least(0)), 4 + 1);
    // The most that is reserved is the stronger of both.
    assert_eq!(with(|layer| layer.reserve(100)), 100);
}

#[test]
fn a_maximum_under_a_name_that_the_server_ignores_lowers_nothing() {
    let chat = r#"{"messages":[],"max_completion_tokens":500}"#;
    let names = [
        r#"{"messages":[],"max_completion_tokens":500}"#,
        r#"{"messages":[],"max_tokens":500}"#,
        r#"{"input":"a","max_output_tokens":500}"#,
        r#"{"generationConfig":{"maxOutputTokens":500}}"#,
        r#"{"options":{"num_predict":500}}"#,
        r#"{"n_predict":500}"#,
        r#"{"inferenceConfig":{"maxTokens":500}}"#,
    ];
    let any = |path: &'static str, read: &'static [usize]| (Llm::any(), path, read);
    for (readers, path, read) in [
        any("/v1/chat/completions", &[0, 1]),
        any(
            "/openai/deployments/d/chat/completions?api-version=1",
            &[0, 1],
        ),
        any("/v1/completions/", &[0, 1]),
        any("/v1/messages", &[1]),
        any("/v1/responses", &[2]),
        any("/v1beta/models/g:streamGenerateContent?alt=sse", &[3]),
        any("/api/chat", &[4]),
        any("/completion", &[5]),
        any("/model/m/converse-stream", &[6]),
        any("/", &[1]),
        any("/v1/chat/completions;/api/chat", &[1]),
        any("/v1/chat/completions/%2e%2e/%2e%2e/api/chat", &[1]),
        (Llm::openai(), "/api/chat", &[0, 1]),
        (Llm::responses(), "/", &[2]),
        (Llm::anthropic(), "/", &[1]),
        (Llm::gemini(), "/", &[3]),
    ] {
        for (at, body) in names.iter().enumerate() {
            let output = if read.contains(&at) { 500 } else { 1_024 };
            let input = body.len().div_ceil(4) as u64;
            let reserved = reserved(readers, path, body, |layer| layer);
            assert_eq!(reserved, input + output, "{readers:?} {path} {body}");
        }
    }
    // A reader that knows no names takes each.
    let pointer = Pointer::output("/units").unwrap();
    let input = chat.len().div_ceil(4) as u64;
    assert_eq!(reserved(pointer, "/", chat, |layer| layer), input + 500);
}

#[test]
fn requests_that_declare_0_do_not_pass_a_limit_at_once() {
    let (limiter, _) = limiter(Quota::per_day(10_000).fixed_window().debt(10_000));
    let limit = RateLimitLayer::new(limiter, Global).spending(Llm::any());
    let service = ServiceBuilder::new()
        .layer(DeclaredLayer::default())
        .layer(limit)
        .service(service_fn(async |_: Request<DeclaredBody<String>>| {
            Ok::<_, Infallible>(Response::new(chat(1, None)))
        }));
    let open: Vec<_> = (0..200)
        .map(|_| {
            let request = post(JSON).body(r#"{"max_tokens":0}"#.to_owned());
            now(service.clone().oneshot(request.unwrap())).unwrap()
        })
        .collect();
    let passed = open.iter().filter(|response| response.status() == 200);
    assert_eq!(passed.count(), 9);
}

#[test]
fn prices_know_the_model_that_is_requested() {
    let (limiter, _) = limiter(Quota::per_minute(100_000));
    let limit = RateLimitLayer::new(limiter.clone(), Global).spending(Llm::any());
    let limit = limit.spends(|tokens: &Tokens| match tokens.model() {
        Some("mini") => tokens.output,
        _ => 10 * tokens.output,
    });
    let service = ServiceBuilder::new()
        .layer(DeclaredLayer::default())
        .layer(limit);
    let service = service.service(service_fn(async |_: Request<DeclaredBody<String>>| {
        Ok::<_, Infallible>(Response::new(chat(1, None)))
    }));
    let request = post(JSON).body(r#"{"model":"mini","max_tokens":2000}"#.to_owned());
    let _response = now(service.oneshot(request.unwrap())).unwrap();
    assert_eq!(
        limiter.peek(&Key::global(), 1).remaining(),
        Some(100_000 - 2_000)
    );
}

#[test]
fn frames_hints_and_trailers_pass_unchanged() {
    let text = format!("{{\"model\":\"m\",\"input\":\"{}\"}}", "x".repeat(500));
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", "1".parse().unwrap());
    for most in [0, 1, 100, 64 << 10] {
        for size in [1, 90, 10_000] {
            let made = || StreamingBody::split(text.clone(), size).with_trailers(trailers.clone());
            let (bare, request) = (made(), post(JSON).body(made()).unwrap());
            let (declared, body) = now(pass(&DeclaredLayer::up_to(most), request));
            assert!(declared.bytes <= (most + size as u64).min(text.len() as u64));
            let is_found = most >= 100 || most > 0 && size >= 90;
            assert_eq!(declared.model().is_some(), is_found, "{most} {size}");
            passes_unchanged(body, bare);
        }
    }
}

#[test]
fn frames_that_are_smaller_than_their_memory_are_not_collected() {
    let text = format!("{{\"input\":\"{}\",\"model\":\"m\"}}", "x".repeat(2_000));
    let request = post(JSON).body(StreamingBody::split(text.clone(), 1));
    let (declared, body) = now(pass(&DeclaredLayer::default(), request.unwrap()));
    assert_eq!((declared.bytes, declared.model()), (1_024, None));
    passes_unchanged(body, StreamingBody::split(text, 1));
}

/// Fails when it is polled.
struct Unread;

impl Body for Unread {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("it is read")
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(5)
    }
}

#[test]
fn a_body_that_declares_nothing_is_not_read() {
    for (request, bytes) in [
        (post("text/plain").header("content-length", "5"), 5),
        (
            post("application/json-seq").header("content-length", "5"),
            5,
        ),
        (
            post(JSON)
                .header("content-encoding", "gzip")
                .header("content-length", "9"),
            9,
        ),
        (post(JSON).header("content-length", "65537"), 65_537),
        (Request::post("/"), 0),
    ] {
        let request = request.body(Unread).unwrap();
        let (declared, _) = now(pass(&DeclaredLayer::default(), request));
        let mut expected = Declared::default();
        expected.bytes = bytes;
        assert_eq!(declared, expected);
    }
}

#[test]
fn an_error_of_the_body_passes_after_what_was_read() {
    let body = StreamingBody::split(r#"{"model":"m","n":2}"#, 13).breaking_off_after(1);
    let (declared, mut body) = now(pass(
        &DeclaredLayer::default(),
        post(JSON).body(body).unwrap(),
    ));
    assert_eq!(declared.model(), Some("m"));
    assert!(next(&mut body).unwrap().is_ok());
    assert!(!body.is_end_stream());
    let error = next(&mut body).unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(body.is_end_stream());
}

/// Sends a part, and nothing more.
struct Stalling(Arc<Mutex<Option<Bytes>>>);

impl Body for Stalling {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.lock().unwrap().take() {
            Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None => Poll::Pending,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_is_passed_on_after_five_seconds() {
    let part = Bytes::from_static(b"{\"model\":\"m\"");
    let body = Stalling(Arc::new(Mutex::new(Some(part.clone()))));
    let before = tokio::time::Instant::now();
    let request = post(JSON).body(body).unwrap();
    let (declared, mut body) = pass(&DeclaredLayer::default(), request).await;
    assert_eq!(before.elapsed(), Duration::from_secs(5));
    assert_eq!(
        (declared.model(), declared.bytes),
        (Some("m"), part.len() as u64)
    );
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        part
    );
}

/// As for a client that stalls.
#[test]
fn without_a_timer_a_body_that_stalls_is_passed_on_at_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let part = Bytes::from_static(b"{\"model\":\"m\"");
    let body = Stalling(Arc::new(Mutex::new(Some(part.clone()))));
    let request = post(JSON).body(body).unwrap();
    let passed = runtime
        .unwrap()
        .block_on(pass(&DeclaredLayer::default(), request));
    let declared = passed.0;
    assert_eq!(
        (declared.model(), declared.bytes),
        (Some("m"), part.len() as u64)
    );
}

#[tokio::test(start_paused = true)]
async fn reading_ends_when_its_body_is_not_worth_a_wait() {
    let layer = DeclaredLayer::default();
    let part = Bytes::from_static(b"{\"model\":\"m\"");
    let read = async |request: http::request::Builder, first: Option<Bytes>, wait: u64| {
        let body = Stalling(Arc::new(Mutex::new(first)));
        let (mut head, body) = request.body(body).unwrap().into_parts();
        let left = Arc::clone(&body.0);
        let waits = |_: &http::request::Parts| {
            let is_asked = left.lock().unwrap().is_none();
            async move {
                tokio::time::sleep(Duration::from_secs(wait)).await;
                is_asked
            }
        };
        let (_, stopped) = layer.read_until(&mut head, body, waits).await;
        (stopped, head.extensions.get::<Declared>().unwrap().bytes)
    };
    let before = tokio::time::Instant::now();
    assert_eq!(
        read(post(JSON), Some(part.clone()), 0).await,
        (Some(true), 12)
    );
    // With `Expect` a body that is not worth a wait is not invited.
    let expects = || post(JSON).header("expect", "100-continue");
    assert_eq!(
        read(expects(), Some(part.clone()), 0).await,
        (Some(false), 0)
    );
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert_eq!(read(expects(), Some(part), 2).await, (Some(false), 12));
    assert_eq!(before.elapsed(), Duration::from_secs(2));
    // The time for a body stays the same, and a complete one waits for nothing.
    assert_eq!(read(post(JSON), None, 9).await, (None, 0));
    assert_eq!(before.elapsed(), Duration::from_secs(7));
    let whole = Bytes::from_static(b"{\"model\":\"m\"}");
    assert_eq!(read(post(JSON), Some(whole), 0).await, (None, 13));
}
