//! `--state`: counts that the next process continues.

use testkit::child_processes::eventually;
use tower_ratelimit_envoy::protobuf_messages::Code;

use crate::service_process::{Service, about};

async fn code(service: &Service) -> Code {
    let answer = service.call(about("foo", "bar")).await;
    answer.unwrap().overall_code()
}

#[tokio::test]
async fn counts_continue_after_a_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let options = ["--state", state.to_str().unwrap(), "--drain", "0s"];
    let mut first = Service::start(&options).await;
    assert_eq!(code(&first).await, Code::Ok);
    let log = first.process.logs("state does not exist yet").await;
    assert!(!log.contains("restored"), "{log}");
    first.process.terminate();
    first.process.logs("the counts are saved to ").await;
    let process = &mut first.process;
    eventually("the end", async || process.has_ended().then_some(())).await;
    let second = Service::start(&options).await;
    assert_eq!(code(&second).await, Code::Ok);
    assert_eq!(code(&second).await, Code::OverLimit);
    second.process.logs("1 count restored from ").await;
}

#[tokio::test]
async fn state_beside_redis_is_an_error() {
    let url = "redis://127.0.0.1:1";
    let mut service = Service::launch(&["--state", "state", "--redis", url]);
    let text = "leave one of the two out";
    service.process.logs(text).await;
    let process = &mut service.process;
    eventually("the end", async || process.has_ended().then_some(())).await;
}
