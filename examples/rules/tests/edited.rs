//! The example, called while its file is edited. Its responses change without a restart. No test sleeps: each
//! repeats its request until the response has changed.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::Command,
};

use tempfile::TempDir;
use testkit::child_processes::{Process, eventually, free_port};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const RULES: &str = include_str!("../rules.yaml");

struct Running {
    address: SocketAddr,
    rules: PathBuf,
    process: Process,
    _folder: TempDir,
}

impl Running {
    async fn start() -> Self {
        let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
        let rules = folder.path().join("rules.yaml");
        fs::write(&rules, RULES).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_axum_rules"));
        command.arg(&rules).env("PORT", port.to_string());
        let running = Self {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            process: Process::start(&mut command, &folder.path().join("log")),
            rules,
            _folder: folder,
        };
        eventually("a process that takes connections", async || {
            TcpStream::connect(running.address).await.ok()
        })
        .await;
        running
    }

    /// A request as of `curl`: the status of the response, and its limit.
    async fn get(&self, path: &str) -> (u16, Option<String>) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let limit = answer
            .lines()
            .find_map(|line| line.strip_prefix("x-ratelimit-limit: "));
        (answer[9..12].parse().unwrap(), limit.map(str::to_owned))
    }

    async fn hello(&self) -> (u16, Option<String>) {
        self.get("/hello/ann").await
    }
}

fn reported(status: u16, limit: &str) -> (u16, Option<String>) {
    (status, Some(limit.to_owned()))
}

#[tokio::test]
async fn an_answer_changes_when_the_file_is_edited() {
    let running = Running::start().await;
    for status in [200, 200, 200, 429] {
        assert_eq!(running.hello().await, reported(status, "3"));
    }
    assert_eq!(running.get("/healthz").await, (200, None));

    // Written beside it and renamed over it, as editors do.
    let edited = RULES.replace("3/hour", "50/hour");
    let beside = running.rules.with_extension("new");
    fs::write(&beside, &edited).unwrap();
    fs::rename(&beside, &running.rules).unwrap();
    eventually("the edited limit", async || {
        (running.hello().await == reported(200, "50")).then_some(())
    })
    .await;

    // A fault changes nothing, and is reported.
    fs::write(&running.rules, edited.replace("quota", "qouta")).unwrap();
    running.process.logs("did you mean \"quota\"?").await;
    running.process.logs("rules-refused").await;
    assert_eq!(running.hello().await, reported(200, "50"));

    fs::write(&running.rules, edited.replace("/hello/", "/other/")).unwrap();
    eventually("a rule about another path", async || {
        (running.hello().await == (200, None)).then_some(())
    })
    .await;
}
