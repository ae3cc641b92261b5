//! The lines of the log.

use std::{fs, process::Command};

use serde_json::Value;
use testkit::programs::{Process, eventually, free_port};

use crate::service::{RULES, Service, about};

fn lines(log: &str) -> Vec<Value> {
    let lines = log.lines().map(|line| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    });
    lines.collect()
}

fn serving(lines: &[Value]) -> Option<&Value> {
    let told = |line: &&Value| {
        let message = line["message"].as_str();
        message.is_some_and(|message| message.starts_with("serving "))
    };
    lines.iter().find(told)
}

#[tokio::test]
async fn lines_are_json_if_asked() {
    let service = Service::start(&["--log-format", "json", "--log-level", "trace"]).await;
    for _ in 0..3 {
        let answer = service.ask(about("foo", "a-secret-value")).await;
        answer.unwrap();
    }
    service.process.hang_up();
    eventually("rules that are read again", async || {
        service.process.log().contains("again").then_some(())
    })
    .await;
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
    let log = service.process.log();
    let line = log.lines().find(|line| line.contains("serving "));
    assert!(line.is_some_and(|line| line.contains(" INFO ")), "{log}");
}

#[tokio::test]
async fn the_level_is_that_of_the_usual_variable() {
    let service = Service::launch_with(&[], &[("RUST_LOG", "error")]);
    service.ready().await;
    assert_eq!(service.process.log(), "");
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
    command.env("LOG_FORMAT", "json").env("LOG_LEVEL", "info");
    let process = Process::start(&mut command, &folder.path().join("log"));
    eventually("a line of the start", async || {
        let log = process.log();
        log.contains("serving ").then_some(())
    })
    .await;
    let lines = lines(&process.log());
    assert!(serving(&lines).is_some(), "{lines:?}");
    let all = process.log();
    assert!(!all.contains("without a meaning"), "{all}");
}
