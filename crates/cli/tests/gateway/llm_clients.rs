//! The official clients of two providers of language models, through the gateway to a server by their formats.

use std::{path::Path, process::Command};

use serde_json::Value;
use testkit::{child_processes::eventually, needs};

use crate::{
    gateway_process::{Gateway, bounded},
    metrics::reported,
    recording_upstream::Upstream,
};

const RULES: &str = "
rules:
  - name: llm
    match: {method: POST, path: '/v1/**'}
    key: {first_of: [bearer_token, {header: x-api-key}]}
    in_flight: 8
    spend: {read: auto}
    quota:
      - {name: requests, rate: 60/day}
      - {name: tokens, rate: 100000/day, counts: tokens}
  - name: small
    match: {path: '/small/**'}
    key: {first_of: [bearer_token, {header: x-api-key}]}
    quota: 1/day
";

/// The lines that the clients print: the tokens of each call.
fn call(port: u16) -> Vec<(String, u64)> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/llm_clients.py");
    let mut command = Command::new("python3");
    let output = command
        .arg(program)
        .arg(format!("http://127.0.0.1:{port}"))
        .env("PYTHONPATH", std::env::var_os("LLM_CLIENTS").unwrap())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        let name = line["call"].as_str().unwrap().to_owned();
        (name, line["tokens"].as_u64().unwrap())
    });
    lines.collect()
}

#[tokio::test]
async fn official_clients_are_charged_what_the_server_reports_to_them() {
    needs!(llm_clients);
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(RULES, upstream.port, &[]).await;
        let port = gateway.port;
        let calls = tokio::task::spawn_blocking(move || call(port))
            .await
            .unwrap();
        let expected = [
            ("chat", 51),
            ("chat stream", 311),
            ("responses", 70),
            ("responses stream", 80),
            ("embeddings", 30),
            ("messages", 25 + 40 + 60 + 70),
            ("messages stream", 25 + 12 + 80),
        ];
        assert_eq!(
            calls,
            expected.map(|(name, tokens)| (name.to_owned(), tokens))
        );
        let sum: u64 = calls.iter().map(|(_, tokens)| tokens).sum();
        let series = r#"ratelimit_spent_units_total{policy="llm.tokens",source="reported"}"#;
        eventually("the last charge", async || {
            let [charged] = reported(&gateway, [series]).await;
            (charged? as u64 == sum).then_some(())
        })
        .await;
    })
    .await;
}
