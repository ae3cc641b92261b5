//! `Reserve` and `Commit` of a process, and reservations that outlive one.

use std::fs;

use testkit::child_processes::eventually;
use tonic::{Code as GrpcCode, Status};
use tower_ratelimit_envoy::protobuf_messages::{
    Code, CommitRequest, CommitResponse, ReserveRequest, ReserveResponse,
};

use crate::{
    metrics::reported,
    service_process::{Service, about, call_method},
};

/// Reserves units of a limit of 5.
async fn reserve(service: &Service, amount: u64) -> ReserveResponse {
    let request = about("generic_key", "heavy");
    let question = ReserveRequest {
        domain: request.domain,
        descriptors: request.descriptors,
        amount,
        ttl: None,
    };
    let path = "/kuadrant.service.ratelimit.v1.RateLimitService/Reserve";
    let answer = call_method(service.channel(), path, question).await;
    answer.unwrap()
}

async fn commit(service: &Service, id: &str, actual: u64) -> Result<bool, Status> {
    let request = about("generic_key", "heavy");
    let question = CommitRequest {
        domain: request.domain,
        descriptors: request.descriptors,
        reservation_id: id.to_owned(),
        actual_amount: actual,
    };
    let path = "/kuadrant.service.ratelimit.v1.RateLimitService/Commit";
    let answer = call_method(service.channel(), path, question).await;
    answer.map(|answer: CommitResponse| answer.reservation_released)
}

async fn left(service: &Service) -> u32 {
    let mut look = about("generic_key", "heavy");
    look.descriptors[0].hits_addend = Some(0);
    let answer = service.call(look).await.unwrap();
    answer.statuses[0].limit_remaining
}

#[tokio::test]
async fn estimate_is_settled_and_calls_are_counted() {
    let service = Service::start(&[]).await;
    let first = reserve(&service, 4).await;
    assert_eq!((first.code(), left(&service).await), (Code::Ok, 1));
    let over = reserve(&service, 2).await;
    assert_eq!(
        (over.code(), over.reservation_id.as_str()),
        (Code::OverLimit, "")
    );
    assert!(commit(&service, &first.reservation_id, 2).await.unwrap());
    assert_eq!(left(&service).await, 3);
    let again = commit(&service, &first.reservation_id, 0)
        .await
        .unwrap_err();
    assert_eq!(again.code(), GrpcCode::AlreadyExists);
    assert!(!commit(&service, "", 1).await.unwrap());
    assert_eq!(left(&service).await, 2);
    let refused = commit(&service, "made-up", 0).await.unwrap_err();
    assert_eq!(refused.code(), GrpcCode::InvalidArgument);
    let series = [
        r#"ratelimit_rls_reservations_total{domain="rl",call="reserve",code="OK"}"#,
        r#"ratelimit_rls_reservations_total{domain="rl",call="reserve",code="OVER_LIMIT"}"#,
        r#"ratelimit_rls_reservations_total{domain="rl",call="commit",code="OK"}"#,
        r#"ratelimit_rls_reservations_total{domain="rl",call="commit",code="NOT_RELEASED"}"#,
        r#"ratelimit_rls_reservations_total{domain="rl",call="commit",code="ALREADY_EXISTS"}"#,
        r#"ratelimit_rls_reservations_total{domain="rl",call="commit",code="INVALID_ARGUMENT"}"#,
        r#"ratelimit_service_rate_limit_total_negative_hits{domain="rl",key1="generic_key_heavy"}"#,
    ];
    let expected = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0];
    assert_eq!(reported(&service, series).await, expected.map(Some));
}

#[tokio::test]
async fn next_process_with_the_key_and_the_counts_settles_a_reservation() {
    let folder = tempfile::tempdir().unwrap();
    let [state, key] = ["state", "key"].map(|name| folder.path().join(name));
    fs::write(&key, "0123456789abcdef0123456789abcdef").unwrap();
    let options = ["--state", state.to_str().unwrap(), "--drain", "0s"];
    let with_key = ["--reservation-key-file", key.to_str().unwrap()];
    let with_key = [&options[..], &with_key].concat();
    let mut first = Service::start(&with_key).await;
    let open = reserve(&first, 4).await.reservation_id;
    first.process.terminate();
    first.process.logs("the counts are saved to ").await;
    let process = &mut first.process;
    eventually("the end", async || process.has_ended().then_some(())).await;
    let mut without_key = Service::start(&options).await;
    let refused = commit(&without_key, &open, 1).await.unwrap_err();
    assert!(
        refused.message().contains("--reservation-key-file"),
        "{refused}"
    );
    without_key.process.terminate();
    let process = &mut without_key.process;
    eventually("the end", async || process.has_ended().then_some(())).await;
    let second = Service::start(&with_key).await;
    assert!(commit(&second, &open, 1).await.unwrap());
    assert_eq!(left(&second).await, 4);
}

#[tokio::test]
async fn key_without_shared_counts_is_an_error() {
    let mut service = Service::launch(&["--reservation-key-file", "key"]);
    let text = "--reservation-key-file is for counts that another process continues";
    service.process.logs(text).await;
    let process = &mut service.process;
    eventually("the end", async || process.has_ended().then_some(())).await;
}
