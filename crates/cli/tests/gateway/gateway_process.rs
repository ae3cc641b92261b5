//! The process under test.

use std::{fs, process::Command, time::Duration};

use tempfile::TempDir;
use testkit::child_processes::{Process, eventually, free_port};

use crate::raw_http1::Wire;

/// Limits with periods longer than any test, and none for the other paths.
pub(crate) const RULES: &str = "client_ip: {trust: [127.0.0.7]}
rules:
  - {name: limited, match: {path: /limited}, key: client_ip, quota: 2/day}
";

pub(crate) struct Gateway {
    pub(crate) folder: TempDir,
    pub(crate) port: u16,
    /// The port of metrics and probes.
    pub(crate) http: u16,
    pub(crate) admin: u16,
    pub(crate) process: Process,
}

impl Gateway {
    pub(crate) async fn start(upstream: u16, options: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), upstream, options).await
    }

    /// Starts it with these rules.
    pub(crate) async fn start_with(rules: &str, upstream: u16, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("rules.yaml"), rules).unwrap();
        Self::start_in(folder, upstream, options).await
    }

    /// Starts it in a folder with the test's files.
    pub(crate) async fn start_in(folder: TempDir, upstream: u16, options: &[&str]) -> Self {
        Self::start_to(folder, &format!("http://127.0.0.1:{upstream}"), options).await
    }

    /// Starts it in a folder, in front of this address.
    pub(crate) async fn start_to(folder: TempDir, upstream: &str, options: &[&str]) -> Self {
        let rules = folder.path().join("rules.yaml");
        if !rules.exists() {
            fs::write(rules, RULES).unwrap();
        }
        let ports = [free_port(), free_port(), free_port()];
        Self::launch(folder, ports, upstream, options).await
    }

    /// Ends it, and starts another one with the same rules and ports.
    pub(crate) async fn replaced(mut self, upstream: u16, options: &[&str]) -> Self {
        self.process.terminate();
        eventually("the end of the process", async || {
            self.process.has_ended().then_some(())
        })
        .await;
        let ports = [self.port, self.http, self.admin];
        let upstream = format!("http://127.0.0.1:{upstream}");
        Self::launch(self.folder, ports, &upstream, options).await
    }

    async fn launch(folder: TempDir, ports: [u16; 3], upstream: &str, options: &[&str]) -> Self {
        let [port, http, admin] = ports;
        let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
        command
            .current_dir(folder.path())
            .args(["gateway", "rules.yaml"])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--http", &format!("127.0.0.1:{http}")])
            .args(["--admin", &format!("127.0.0.1:{admin}")])
            .args(["--upstream", upstream]);
        let process = Process::start(command.args(options), &folder.path().join("log"));
        let gateway = Self {
            folder,
            port,
            http,
            admin,
            process,
        };
        gateway.logs("limiting http").await;
        gateway
    }

    pub(crate) async fn logs(&self, text: &str) {
        self.process.logs(text).await;
    }

    pub(crate) async fn connect(&self) -> Wire {
        Wire::connect(self.port).await
    }

    /// The peak memory of the process, in kibibytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.unwrap().parse().unwrap()
    }
}

/// Fails a test that runs much too long.
pub(crate) async fn bounded<T>(test: impl Future<Output = T>) -> T {
    let patience = Duration::from_secs(150);
    tokio::time::timeout(patience, test)
        .await
        .expect("the test ends")
}
