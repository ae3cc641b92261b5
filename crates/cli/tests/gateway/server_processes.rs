//! Other servers and proxies, before the gateway and behind it, as processes.

use std::{fs, process::Command};

use tempfile::TempDir;
use testkit::child_processes::{Process, eventually, find, free_port, missing};

use crate::raw_http1::Wire;

/// Whether a test has to be left out because the program is not installed.
pub(crate) fn is_missing(program: &str, package: &str) -> bool {
    let is_found = find(program, None).is_some();
    missing(is_found, program, &format!("apt-get install {package}"))
}

/// A program that listens.
pub(crate) struct Program {
    _process: Process,
    _folder: TempDir,
    pub(crate) port: u16,
}

impl Program {
    /// Starts it in a folder of its own with a file `config`, which gets its port.
    pub(crate) async fn start(
        program: &str,
        arguments: &[&str],
        config: impl Fn(u16) -> String,
    ) -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        fs::write(folder.path().join("config"), config(port)).unwrap();
        let mut command = Command::new(find(program, None).unwrap());
        command
            .current_dir(folder.path())
            // Caddy's files are below these.
            .envs(["XDG_DATA_HOME", "XDG_CONFIG_HOME"].map(|name| (name, folder.path())))
            .args(arguments);
        let mut process = Process::start(&mut command, &folder.path().join("output"));
        eventually("a program that listens", async || {
            assert!(!process.has_ended(), "{}", process.log());
            Wire::try_connect(port).await.map(drop)
        })
        .await;
        Self {
            _process: process,
            _folder: folder,
            port,
        }
    }
}
