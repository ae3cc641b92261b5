//! A Postgres server.

use std::{
    fs,
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use rustix::process::geteuid;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::programs::{Process, eventually, find, free_port};

/// The user `nobody`, whom the server runs as where the test is root's: it refuses to be root's.
const NOBODY: u32 = 65_534;

/// One server on a free port of 127.0.0.1, gone with all its data on drop. The user `postgres` may do
/// everything and needs no password.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    port: u16,
    // After the process: it ends before its files go.
    folder: TempDir,
}

impl Postgres {
    /// Starts it, and waits until it takes connections.
    ///
    /// # Panics
    ///
    /// With what it printed, if it does not start.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        if geteuid().is_root() {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("a folder of nobody's");
        }
        let mut initdb = command("initdb", folder.path());
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8"]);
        initdb.args(["--locale", "C", "--no-sync"]);
        let made = initdb.output().expect("initdb");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let port = free_port();
        let mut server = Self {
            process: start(folder.path(), port),
            port,
            folder,
        };
        // Between finding a port and listening on it another process may take it.
        for _ in 0..5 {
            if server.has_come_up().await {
                return server;
            }
            let log = server.process.log();
            assert!(log.contains("Address already in use"), "{log}");
            server.port = free_port();
            server.process = start(server.folder.path(), server.port);
        }
        panic!("no port was free");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    async fn has_come_up(&mut self) -> bool {
        let address = ("127.0.0.1", self.port);
        eventually("a server that takes connections", async || {
            if self.process.has_ended() {
                return Some(false);
            }
            let log = self.process.log();
            let is_ready = log.contains("ready to accept connections");
            (is_ready && TcpStream::connect(address).await.is_ok()).then_some(true)
        })
        .await
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // One that is killed leaves a segment of shared memory.
        if !self.process.has_ended() {
            self.process.interrupt();
        }
        for _ in 0..500 {
            if self.process.has_ended() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn start(folder: &Path, port: u16) -> Process {
    let mut server = command("postgres", folder);
    server.args(["-p", &port.to_string(), "-k", "", "-h", "127.0.0.1"]);
    for setting in ["fsync=off", "full_page_writes=off", "max_connections=40"] {
        server.args(["-c", setting]);
    }
    Process::start(&mut server, &folder.join("log"))
}

/// A program of the server's, on the data in the folder.
fn command(program: &str, folder: &Path) -> Command {
    let path = postgres_program(program).expect("Postgres");
    let mut command = Command::new(path);
    command
        .arg("-D")
        .arg(folder.join("data"))
        .current_dir(folder);
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// A program on the search path, or where Debian has them.
pub(super) fn postgres_program(program: &str) -> Option<PathBuf> {
    find(program, None).or_else(|| {
        let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
        let paths = versions.flatten().map(|version| version.path());
        let mut paths: Vec<_> = paths.map(|path| path.join("bin").join(program)).collect();
        paths.sort();
        paths.into_iter().rfind(|path| path.is_file())
    })
}
