//! The lines of the log.

use std::{fs, process::Command};

use serde_json::{Value, json};
use testkit::{
    child_processes::{Process, eventually, free_port},
    needs,
    servers::Server,
};

use crate::{
    admin::operate,
    service_process::{RULES, Service, about},
};

fn lines(log: &str) -> Vec<Value> {
    let lines = log.lines().map(|line| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    });
    lines.collect()
}

fn serving(lines: &[Value]) -> Option<&Value> {
    let reported = |line: &&Value| {
        let message = line["message"].as_str();
        message.is_some_and(|message| message.starts_with("serving "))
    };
    lines.iter().find(reported)
}

#[tokio::test]
async fn lines_are_json_by_option() {
    let service = Service::start(&["--log-format", "json", "--log-level", "trace"]).await;
    for _ in 0..3 {
        let answer = service.call(about("foo", "a-secret-value")).await;
        answer.unwrap();
    }
    service.process.hang_up();
    service.process.logs("again").await;
    let log = service.process.log();
    let lines = lines(&log);
    let line = serving(&lines).expect("a line of the start");
    assert_eq!(line["level"], "INFO");
    assert!(line["timestamp"].is_string() && line["target"].is_string());
    assert!(!log.contains("a-secret-value"), "{log}");
}

#[tokio::test]
async fn lines_are_text_by_default() {
    let service = Service::start(&[]).await;
    let log = service.process.logs("serving ").await;
    let line = log.lines().find(|line| line.contains("serving "));
    assert!(line.is_some_and(|line| line.contains(" INFO ")), "{log}");
}

#[tokio::test]
async fn the_level_is_that_of_the_usual_variable() {
    let service = Service::launch_with(&[], &[("RUST_LOG", "error")]);
    service.ready().await;
    assert_eq!(service.process.log(), "");
}

/// Waits for a line with this text after the first ones: its level, and the number of lines up to
/// it.
async fn level(service: &Service, after: usize, text: &str) -> (String, usize) {
    eventually(text, async || {
        let lines = lines(&service.process.log());
        let is_logged = |line: &Value| line["message"].as_str().unwrap().contains(text);
        let at = after + lines.iter().skip(after).position(is_logged)?;
        Some((lines[at]["level"].as_str().unwrap().to_owned(), at + 1))
    })
    .await
}

#[tokio::test]
async fn refused_files_are_errors() {
    let service = Service::start(&["--log-format", "json"]).await;
    let rules = service.folder.path().join("rules.yaml");
    fs::write(&rules, "domain: rl\ndescriptors:\n  - kye: a\n").unwrap();
    service.process.hang_up();
    let (refused, at) = level(&service, 0, "the rules stay as they were").await;
    assert_eq!(refused, "ERROR");
    fs::write(
        &rules,
        "domain: rl\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
    )
    .unwrap();
    service.process.hang_up();
    let (accepted, at) = level(&service, at, "read the rules again: 1 limit").await;
    assert_eq!(accepted, "INFO");
    // Files with warnings are used.
    fs::write(&rules, "domain: rl\ndescriptors: [{key: a, unit: day}]\n").unwrap();
    service.process.hang_up();
    level(&service, at, "read the rules again: 0 limits").await;
    assert_eq!(level(&service, at, "W32").await.0, "WARN");
}

#[tokio::test]
async fn limits_that_are_switched_off_are_warned_of() {
    let service = Service::start(&["--log-format", "json"]).await;
    let mut at = 0;
    for (enabled, reported, expected) in [
        (false, "switches all limits off", "WARN"),
        (true, "switches all limits on", "INFO"),
    ] {
        let (status, _) = operate(&service, "PUT /v1/enabled", &json!({"enabled": enabled})).await;
        assert_eq!(status, 200);
        let (found, next) = level(&service, at, reported).await;
        assert_eq!(found, expected);
        at = next;
    }
}

#[tokio::test]
async fn redis_that_is_down_is_a_warning() {
    needs!(redis);
    let mut server = Server::start().await;
    let service = Service::start(&["--log-format", "json", "--redis", &server.url()]).await;
    let call = async || drop(service.call(about("foo", "eve")).await);
    call().await;
    server.kill9();
    let gone = async || {
        call().await;
        let lines = lines(&service.process.log());
        let line = lines
            .iter()
            .find(|line| line.to_string().contains("redis-down"))?;
        Some(line["level"].clone())
    };
    assert_eq!(eventually("Redis that is gone", gone).await, "WARN");
    server.restart().await;
    let back = async || {
        call().await;
        let lines = lines(&service.process.log());
        let line = lines
            .iter()
            .find(|line| line.to_string().contains("redis-back"))?;
        Some(line["level"].clone())
    };
    assert_eq!(eventually("Redis that is back", back).await, "INFO");
}

#[tokio::test]
async fn variables_of_the_reference_mean_the_same() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("config")).unwrap();
    fs::write(folder.path().join("config/rules.yaml"), RULES).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
    command.arg("envoy").env("RUNTIME_ROOT", folder.path());
    command
        .env("HOST", "127.0.0.1")
        .env("GRPC_HOST", "127.0.0.1");
    command.env("PORT", free_port().to_string());
    command.env("GRPC_PORT", free_port().to_string());
    command.env("DEBUG_PORT", "off");
    command.env("LOG_FORMAT", "json").env("LOG_LEVEL", "info");
    let process = Process::start(&mut command, &folder.path().join("log"));
    process.logs("serving ").await;
    let lines = lines(&process.log());
    assert!(serving(&lines).is_some(), "{lines:?}");
    let all = process.log();
    assert!(!all.contains("without a meaning"), "{all}");
}
