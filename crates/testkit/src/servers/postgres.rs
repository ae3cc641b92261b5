//! A Postgres server, and a pooler before one.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use rustix::process::geteuid;
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::certificates::{AUTHORITY, CERTIFICATE, KEY, make_certificates};
use crate::child_processes::{Process, eventually, find, free_port};

/// The user `nobody`, whom the server runs as where the test is root's: it refuses to be root's.
const NOBODY: u32 = 65_534;

/// One server on a free port of 127.0.0.1, gone with all its data on drop. The user `postgres` may do
/// everything and needs no password. One of the name `limiter` needs one.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    port: u16,
    settings: Vec<String>,
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
        Self::start_with(folder(), Vec::new()).await
    }

    /// Starts one that takes encrypted connections, too, with a certificate of an authority of its own.
    ///
    /// # Panics
    ///
    /// If there is no `openssl`.
    pub async fn start_encrypted() -> Self {
        let folder = folder();
        make_certificates(folder.path());
        let key = folder.path().join(KEY);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("a private key");
        give_away(&key);
        let path = |name| folder.path().join(name).display().to_string();
        let settings = vec![
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", path(CERTIFICATE)),
            format!("ssl_key_file={}", path(KEY)),
        ];
        Self::start_with(folder, settings).await
    }

    async fn start_with(folder: TempDir, settings: Vec<String>) -> Self {
        let mut initdb = command("initdb", folder.path());
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8"]);
        initdb.args(["--locale", "C", "--no-sync"]);
        let made = initdb.output().expect("initdb");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let access = folder.path().join("data/pg_hba.conf");
        let trust = fs::read_to_string(&access).expect("a list of who may connect");
        let password = "host all limiter 127.0.0.1/32 scram-sha-256\n";
        fs::write(access, format!("{password}{trust}")).expect("a list of who may connect");
        let port = free_port();
        let mut server = Self {
            process: start(folder.path(), port, &settings),
            port,
            settings,
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
            server.process = start(server.folder.path(), server.port, &server.settings);
        }
        panic!("no port was free");
    }

    /// The file with the certificate of its authority, if it takes encrypted connections.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join(AUTHORITY)
    }

    /// Stops it as an operator does: connections end, and the content of tables stays.
    pub async fn stop(&mut self) {
        self.process.interrupt();
        self.has_gone().await;
    }

    /// Makes it crash: tables that are not logged are empty afterwards.
    pub async fn crash(&mut self) {
        self.process.abort();
        self.has_gone().await;
    }

    async fn has_gone(&mut self) {
        eventually("the server has ended", async || {
            self.process.has_ended().then_some(())
        })
        .await;
    }

    /// Starts one that has ended again, with its data.
    pub async fn start_again(&mut self) {
        fs::remove_file(self.folder.path().join("log")).expect("the old log");
        self.process = start(self.folder.path(), self.port, &self.settings);
        assert!(self.has_come_up().await, "{}", self.process.log());
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

/// A pooler before a server: each transaction of a client may be in another of two sessions, or of one.
#[derive(Debug)]
pub struct PgBouncer {
    // Before the folder: it ends before its files go.
    _process: Process,
    _folder: TempDir,
    port: u16,
}

impl PgBouncer {
    /// Starts it in transaction mode, and waits until it takes connections.
    pub async fn before(server: &Postgres, sessions: usize) -> Self {
        let (folder, port) = (folder(), free_port());
        let config = folder.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = {sessions}\n",
            server.port
        );
        fs::write(&config, text).expect("a configuration");
        let mut command = Command::new(find("pgbouncer", None).expect("PgBouncer"));
        as_nobody(command.arg(&config));
        let process = Process::start(&mut command, &folder.path().join("log"));
        eventually("a pooler that takes connections", async || {
            TcpStream::connect(("127.0.0.1", port)).await.ok()
        })
        .await;
        Self {
            _process: process,
            _folder: folder,
            port,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    give_away(folder.path());
    folder
}

fn give_away(path: &Path) {
    if geteuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("a file of nobody's");
    }
}

fn as_nobody(command: &mut Command) {
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
}

fn start(folder: &Path, port: u16, settings: &[String]) -> Process {
    let mut server = command("postgres", folder);
    server.args(["-p", &port.to_string(), "-k", "", "-h", "127.0.0.1"]);
    for setting in ["fsync=off", "full_page_writes=off", "max_connections=40"] {
        server.args(["-c", setting]);
    }
    for setting in settings {
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
    as_nobody(&mut command);
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
