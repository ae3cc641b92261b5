//! The program, started and called over HTTP.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::process::Command;

use testkit::child_processes::{Process, eventually, free_port};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The response to one request, as text.
async fn get(port: u16, path: &str, fields: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

#[tokio::test]
async fn it_starts_answers_and_stops() {
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_example-app"));
    command.env("PORT", port.to_string());
    let mut program = Process::start(&mut command, &folder.path().join("log"));
    let health = eventually("an answer", async || get(port, "/health", "").await).await;
    assert!(health.ends_with("\r\n\r\nok\n"), "{health}");

    let ann = "authorization: Bearer token-of-ann\r\n";
    let account = get(port, "/account", ann).await.unwrap();
    assert!(account.ends_with("ann, 59 requests left\n"), "{account}");
    // Both limits add their fields.
    for policy in [r#""address";q=40"#, r#""user";q=60"#] {
        assert!(account.contains(policy), "{account}");
    }
    let stranger = get(port, "/account", "").await.unwrap();
    assert!(stranger.starts_with("HTTP/1.1 401 "), "{stranger}");
    let metrics = get(port, "/metrics", "").await.unwrap();
    let counted = r#"ratelimit_requests_total{policy="address",result="allowed"} 2"#;
    assert!(metrics.contains(counted), "{metrics}");

    program.terminate();
    eventually("the end", async || program.has_ended().then_some(())).await;
    assert!(program.log().contains("stopped"), "{}", program.log());
}
