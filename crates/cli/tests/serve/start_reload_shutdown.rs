//! Start, reload and shutdown.

use std::{fs, process::Command};

use testkit::child_processes::eventually;
use tower_ratelimit_envoy::protobuf_messages::Code;

use crate::{
    raw_http::{get, try_send},
    service_process::{RULES, Service, about, call},
};

/// The error of the process, which exits with this code.
fn fails(arguments: &[&str], code: i32) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
    let output = command.arg("serve").args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn faults_are_reported_before_anything_listens() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    let path = file.to_str().unwrap();
    assert!(fails(&[path], 2).contains("cannot be read"));
    let empty = folder.path().to_str().unwrap();
    assert!(fails(&[empty], 2).contains(empty));
    fs::write(&file, "domain: rl\ndescriptors:\n  - kye: a\n").unwrap();
    let reported = fails(&[path], 2);
    assert!(
        reported.contains("rules.yaml:3:5: R02 unknown key \"kye\""),
        "{reported}"
    );
    assert!(reported.contains("    ^^^"), "{reported}");
    fs::write(&file, RULES).unwrap();
    assert!(fails(&[path, "--rls-headers", "none"], 2).contains("retry-after, draft11"));
    assert!(fails(&[path, "--redis", "ftp://x"], 2).contains("--redis"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert!(fails(&[path, "--grpc", &address], 2).contains(&address));
}

#[tokio::test]
async fn options_are_read_from_the_environment() {
    let reported = fails(&[], 2);
    assert!(reported.contains("RULES"), "{reported}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
    command.arg("serve").env(
        "TOWER_RATELIMIT_RULES",
        "/nowhere/one.yaml,/nowhere/two.yaml",
    );
    let output = command.output().unwrap();
    let reported = String::from_utf8(output.stderr).unwrap();
    assert!(reported.contains("/nowhere/one.yaml"), "{reported}");
}

#[tokio::test]
async fn hang_up_reads_the_rules_again_and_keeps_the_counts() {
    let service = Service::start(&[]).await;
    let request = || about("foo", "bar");
    for _ in 0..2 {
        assert_eq!(
            service.call(request()).await.unwrap().overall_code(),
            Code::Ok
        );
    }
    let rules = service.folder.path().join("rules.yaml");
    let hang_up = || service.process.hang_up();
    fs::write(&rules, "domain: [").unwrap();
    hang_up();
    service.process.logs("stay as they were").await;
    assert_eq!(
        service.call(request()).await.unwrap().overall_code(),
        Code::OverLimit
    );
    fs::write(&rules, RULES.replace(": 2", ": 5")).unwrap();
    hang_up();
    service.process.logs("read the rules again").await;
    let answer = service.call(request()).await.unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 1, "four of five");
}

#[tokio::test]
async fn end_answers_those_that_are_there() {
    let mut service = Service::start(&["--drain", "300s"]).await;
    let channel = service.channel();
    call(channel.clone(), about("unmatched", "")).await.unwrap();
    service.process.terminate();
    eventually("a service that is not ready", async || {
        (get(service.http, "/readyz").await.status == 503).then_some(())
    })
    .await;
    assert_eq!(get(service.http, "/healthcheck").await.status, 500);
    assert_eq!(get(service.http, "/healthz").await.status, 200);
    // A caller that has not noticed yet gets its response.
    call(channel.clone(), about("unmatched", "")).await.unwrap();
    service.call(about("unmatched", "")).await.unwrap();
    service.process.terminate();
    eventually("the end", async || {
        service.process.has_ended().then_some(())
    })
    .await;
    assert!(
        service.process.log().contains("a second signal"),
        "{}",
        service.process.log()
    );
}

#[tokio::test]
async fn service_ends_by_itself_after_the_drain() {
    let mut service = Service::start(&["--drain", "0s"]).await;
    let channel = service.channel();
    call(channel, about("unmatched", "")).await.unwrap();
    service.process.terminate();
    eventually("the end", async || {
        service.process.has_ended().then_some(())
    })
    .await;
    assert!(service.process.log().contains("all requests are answered"));
    assert!(
        try_send(service.http, "GET /healthz HTTP/1.1", "")
            .await
            .is_none()
    );
}
