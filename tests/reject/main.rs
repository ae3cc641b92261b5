//! Responses to denied clients.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod handler_denials;

use std::{
    pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{
    BodyExt, Full,
    combinators::{BoxBody, UnsyncBoxBody},
};
use serde_json::{Value, json};
use testkit::vector_files;
use tower_ratelimit::{
    Decision,
    clock::Timestamp,
    decision::{Policy, QuotaStatus},
    reject::{
        Empty, PlainText, ProblemJson, Reject, RejectFn, Rejection, RejectionBody, RejectionKind,
    },
};

const KINDS: [RejectionKind; 4] = [
    RejectionKind::Denied,
    RejectionKind::KeyMissing,
    RejectionKind::KeyUnavailable,
    RejectionKind::LimiterFailed,
];

fn request(method: Method, content_type: Option<&str>) -> Parts {
    let mut request = Request::builder().method(method);
    if let Some(content_type) = content_type {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    request.body(()).unwrap().into_parts().0
}

fn get() -> Parts {
    request(Method::GET, None)
}

fn call() -> Parts {
    request(Method::POST, Some("application/grpc"))
}

/// A denial by the one quota there is.
fn denied(wait: Option<Duration>) -> Decision {
    let policy = Policy::new("default", 1);
    let status = QuotaStatus::new(&policy).with_denial(wait);
    Decision::denied(Timestamp::default(), status)
}

fn built_in() -> [Box<dyn Reject<String>>; 3] {
    [Box::new(ProblemJson), Box::new(PlainText), Box::new(Empty)]
}

fn field<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    let mut lines = response.headers().get_all(name).iter();
    let line = lines.next().map(|line| line.to_str().unwrap());
    assert_eq!(lines.next(), None);
    line
}

#[test]
fn problem_documents_follow_the_vectors() {
    for vector in vector_files::group("http.json", "problem_json") {
        let decision = denied(None);
        let parts = get();
        let response: Response<String> = ProblemJson.reject(&Rejection::denied(&parts, &decision));
        assert_eq!(response.status().as_u16(), vector["status"]);
        assert_eq!(
            field(&response, "content-type").unwrap(),
            vector["content_type"],
        );
        assert_eq!(field(&response, "cache-control"), Some("no-store"));
        let body: Value = serde_json::from_str(response.body()).unwrap();
        assert_eq!(body, vector["body"]);
    }
}

#[test]
fn a_problem_document_names_the_policies_that_denied() {
    let odd = "a\"b\\c\n\u{e9}";
    let policies = ["hour", "allowed", odd].map(|name| Policy::new(name, 1));
    let mut statuses: Vec<_> = policies.iter().map(QuotaStatus::new).collect();
    for denied in [0, 2] {
        statuses[denied] = statuses[denied].with_denial(None);
    }
    let decision = Decision::denied(Timestamp::default(), statuses);
    let parts = get();
    let response: Response<String> = ProblemJson.reject(&Rejection::denied(&parts, &decision));
    let body: Value = serde_json::from_str(response.body()).unwrap();
    assert_eq!(body["violated-policies"], json!(["hour", odd]));
}

#[test]
fn other_kinds_have_a_status_only() {
    let parts = get();
    for kind in KINDS {
        let response: Response<String> = ProblemJson.reject(&Rejection::new(kind, &parts));
        assert_eq!(response.status(), kind.status());
        let body: Value = serde_json::from_str(response.body()).unwrap();
        assert_eq!(body["status"], kind.status().as_u16());
        if kind != RejectionKind::Denied {
            let title = kind.status().canonical_reason().unwrap();
            assert_eq!(
                body,
                json!({"type": "about:blank", "title": title, "status": kind.status().as_u16()}),
            );
        }
        let text: Response<String> = PlainText.reject(&Rejection::new(kind, &parts));
        let title = kind.status().canonical_reason().unwrap();
        assert_eq!(text.body(), &format!("{title}\n"));
    }
}

#[test]
fn every_kind_has_its_status() {
    let statuses = KINDS.map(|kind| kind.status().as_u16());
    assert_eq!(statuses, [429, 400, 500, 503]);
    let parts = get();
    for (kind, rejection) in KINDS.into_iter().flat_map(|k| built_in().map(|r| (k, r))) {
        let response = rejection.reject(&Rejection::new(kind, &parts));
        assert_eq!(response.status(), kind.status());
        assert_eq!(field(&response, "cache-control"), Some("no-store"));
    }
}

#[test]
fn an_empty_rejection_has_no_content_type() {
    let parts = get();
    let response: Response<String> = Empty.reject(&Rejection::new(RejectionKind::Denied, &parts));
    assert_eq!(field(&response, "content-type"), None);
    assert_eq!(response.body(), "");
}

#[test]
fn head_gets_the_fields_of_get_and_no_body() {
    let (head, get) = (request(Method::HEAD, None), get());
    let lengths = built_in().map(|rejection| {
        let to_get = rejection.reject(&Rejection::new(RejectionKind::Denied, &get));
        let mut to_head = rejection.reject(&Rejection::new(RejectionKind::Denied, &head));
        assert_eq!(field(&to_get, "content-length"), None);
        let length = to_head.headers_mut().remove(header::CONTENT_LENGTH);
        assert_eq!(to_head.headers(), to_get.headers());
        assert_eq!(to_head.status(), to_get.status());
        assert_eq!(to_head.body(), "");
        let length = length.map(|length| length.to_str().unwrap().to_owned());
        (length, to_get.body().len().to_string())
    });
    let [problem, text, empty] = lengths;
    assert_eq!(problem.0, Some(problem.1));
    assert_eq!(text.0, Some(text.1));
    // The server itself sends a length of 0 for an empty body, to GET as to HEAD.
    assert_eq!(empty, (None, "0".to_owned()));
}

#[test]
fn grpc_is_recognized_by_its_content_type() {
    let more = [
        json!({"content_type": "application/grpc+proto", "is_grpc": true}),
        json!({"content_type": "application/grpc ; a=b", "is_grpc": true}),
        json!({"content_type": "application/grpc-web", "is_grpc": false}),
        json!({"content_type": "application/grpc-web+proto", "is_grpc": false}),
        json!({"content_type": "application/json", "is_grpc": false}),
        json!({"content_type": "", "is_grpc": false}),
    ];
    for vector in vector_files::group("http.json", "grpc_detect")
        .into_iter()
        .chain(more)
    {
        let parts = request(Method::POST, vector["content_type"].as_str());
        let rejection = Rejection::new(RejectionKind::Denied, &parts);
        assert_eq!(rejection.is_grpc(), vector["is_grpc"], "{vector}");
    }
}

#[test]
fn grpc_answers_follow_the_vectors() {
    for vector in vector_files::group("http.json", "grpc") {
        let input = &vector["input"];
        let wait = input["retry_after_ms"].as_u64().map(Duration::from_millis);
        let decision = denied(wait);
        let parts = call();
        let rejection = Rejection::denied(&parts, &decision);
        let message = input["message"].as_str().unwrap_or("too fast");
        let response: Response<Full<Bytes>> = rejection.grpc_response_with(message);

        assert_eq!(response.status(), StatusCode::OK);
        // `END_STREAM` on the headers: hyper sends it when the body reports its end.
        assert!(has_ended(response.body()));
        for expected in vector["headers"].as_array().unwrap() {
            let name = expected[0].as_str().unwrap();
            let value = expected[1].as_str();
            assert_eq!(field(&response, name), value, "{}", vector["id"]);
        }
    }
}

#[test]
fn every_rejection_answers_grpc_in_grpc() {
    let decision = denied(Some(Duration::from_secs(7)));
    let parts = call();
    for rejection in built_in() {
        let response = rejection.reject(&Rejection::denied(&parts, &decision));
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.body(), "");
        let fields: Vec<_> = response.headers().iter().collect();
        let fields = fields
            .iter()
            .map(|(n, v)| (n.as_str(), v.to_str().unwrap()));
        assert_eq!(
            fields.collect::<Vec<_>>(),
            [
                ("content-type", "application/grpc"),
                ("grpc-status", "8"),
                ("grpc-message", "rate%20limit%20exceeded"),
                (
                    "grpc-status-details-bin",
                    "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaMAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIECgIIBw",
                ),
                ("grpc-retry-pushback-ms", "7000"),
            ],
        );
    }
}

#[test]
fn only_denials_report_a_wait_to_a_grpc_client() {
    let codes = ["8", "3", "13", "14"];
    let parts = call();
    for (kind, code) in KINDS.into_iter().zip(codes) {
        let response: Response<String> = ProblemJson.reject(&Rejection::new(kind, &parts));
        assert_eq!(field(&response, "grpc-status"), Some(code));
        assert!(field(&response, "grpc-message").is_some());
        assert_eq!(field(&response, "grpc-status-details-bin"), None);
        let pushback = (kind == RejectionKind::Denied).then_some("-1");
        assert_eq!(field(&response, "grpc-retry-pushback-ms"), pushback);
    }
}

#[test]
fn grpc_waits_are_exact_and_pushback_is_rounded_up() {
    let pushback = |wait| {
        let decision = denied(Some(wait));
        let parts = call();
        let response: Response<String> = Rejection::denied(&parts, &decision).grpc_response();
        let details = field(&response, "grpc-status-details-bin").map(str::to_owned);
        let millis = field(&response, "grpc-retry-pushback-ms").map(str::to_owned);
        (millis.unwrap(), details.unwrap())
    };
    // A pushback of 0 would be an invitation to come at once.
    assert_eq!(pushback(Duration::ZERO).0, "1");
    assert_eq!(pushback(Duration::from_micros(1)).0, "1");
    assert_eq!(pushback(Duration::from_micros(7_000_001)).0, "7001");
    assert_eq!(pushback(Duration::MAX).0, i32::MAX.to_string());
    // The end of retry_delay { seconds: 1, nanos: 500_000_000 }.
    let (_, details) = pushback(Duration::from_millis(1_500));
    assert!(details.ends_with("CggIARCAyrXuAQ"), "{details}");
}

#[test]
fn grpc_messages_are_percent_encoded() {
    let parts = call();
    let rejection = Rejection::new(RejectionKind::Denied, &parts);
    let response: Response<String> = rejection.grpc_response_with("50% \u{e9}\r\n~!");
    assert_eq!(
        field(&response, "grpc-message"),
        Some("50%25%20%C3%A9%0D%0A~!"),
    );
}

#[test]
fn closures_see_the_request_and_the_decision() {
    let rejection = RejectFn::new(|rejection| {
        let denial = rejection.decision().map(|decision| decision.retry_after());
        Response::new(format!("{} {denial:?}", rejection.parts().method))
    });
    let parts = get();
    let decision = denied(None);
    let response = rejection.reject(&Rejection::denied(&parts, &decision));
    assert_eq!(response.body(), "GET Some(None)");
    let response = rejection.reject(&Rejection::new(RejectionKind::LimiterFailed, &parts));
    assert_eq!(response.body(), "GET None");
}

fn has_ended(body: &impl BodyExt) -> bool {
    body.is_end_stream()
}

/// The content of a body, read synchronously: none of the built-in ones waits.
fn content(body: impl BodyExt<Data = Bytes>) -> Bytes {
    let mut body = pin::pin!(body);
    let mut context = Context::from_waker(Waker::noop());
    match body.as_mut().poll_frame(&mut context) {
        Poll::Ready(None) => Bytes::new(),
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        _ => panic!("the body waits or fails"),
    }
}

fn check_body<B: RejectionBody>(read: impl Fn(B) -> Bytes) {
    assert_eq!(read(B::from_bytes(Bytes::from_static(b"slow"))), "slow");
    assert_eq!(read(B::empty()), "");
}

#[test]
fn known_bodies() {
    check_body::<Bytes>(|body| body);
    check_body::<Vec<u8>>(Bytes::from);
    check_body::<String>(Bytes::from);
    check_body::<Full<Bytes>>(content);
    check_body::<BoxBody<Bytes, std::io::Error>>(content);
    check_body::<UnsyncBoxBody<Bytes, std::io::Error>>(content);
}

#[cfg(feature = "axum")]
#[test]
fn axum_bodies() {
    check_body::<axum::body::Body>(content);
}

#[cfg(feature = "tonic")]
#[test]
fn tonic_bodies() {
    check_body::<tonic::body::Body>(content);
}

#[test]
fn rejections_can_be_shared() {
    fn shared<T: Send + Sync + Clone + std::fmt::Debug>() {}
    shared::<ProblemJson>();
    shared::<PlainText>();
    shared::<Empty>();
    shared::<RejectFn<fn(&Rejection<'_>) -> Response<String>>>();
}

/// A 200 to a GET would be kept by caches, whatever content type the client claims.
#[test]
fn only_a_post_is_a_grpc_call() {
    let decision = denied(Some(Duration::from_secs(7)));
    for method in [Method::GET, Method::HEAD, Method::PUT] {
        let parts = request(method, Some("application/grpc"));
        for reject in built_in() {
            let response = reject.reject(&Rejection::denied(&parts, &decision));
            assert_eq!(response.status(), 429);
            assert_eq!(response.headers()["cache-control"], "no-store");
        }
    }
    for reject in built_in() {
        let response = reject.reject(&Rejection::denied(&call(), &decision));
        assert_eq!(response.headers()["grpc-status"], "8");
    }
}
