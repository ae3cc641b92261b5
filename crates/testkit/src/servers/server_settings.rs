//! How a server is to be started.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::certificates::{AUTHORITY, CERTIFICATE, KEY, make_certificates};
use crate::child_processes::{find, free_port};

/// The primary's name among sentinels.
pub const PRIMARY_NAME: &str = "main";

/// The file in which libfaketime reads by how much time is shifted.
pub(super) const CLOCK: &str = "clock";

/// The Unix socket's file.
pub(super) const ADMIN_SOCKET: &str = "admin.sock";

/// A server's program and configuration. It keeps nothing on disk unless `appendonly` is set or a
/// test sends `SAVE`.
#[derive(Debug, Clone)]
#[must_use]
pub struct Setup {
    program: PathBuf,
    role: Role,
    config: Vec<(String, String)>,
    users: Vec<String>,
    password: Option<String>,
    tls: bool,
    /// Whether clients present a certificate.
    tls_clients: bool,
    fake_clock: bool,
}

#[derive(Debug, Clone, Copy)]
enum Role {
    Single,
    ClusterNode,
    /// Watches the primary with this port.
    Sentinel(u16),
}

impl Setup {
    /// Redis as the distribution ships it, or the program in `REDIS_SERVER`.
    pub fn redis() -> Self {
        Self::new(redis_program().unwrap_or_else(|| "redis-server".into()))
    }

    /// The Valkey in `VALKEY_SERVER`, or `valkey-server` of the search path. That from
    /// `scripts/get-valkey.sh` has no TLS.
    pub fn valkey() -> Self {
        Self::new(valkey_program().unwrap_or_else(|| "valkey-server".into()))
    }

    fn new(program: PathBuf) -> Self {
        Self {
            program,
            role: Role::Single,
            config: Vec::new(),
            users: Vec::new(),
            password: None,
            tls: false,
            tls_clients: false,
            fake_clock: false,
        }
    }

    /// A directive of `redis.conf`, such as `maxmemory` `4mb`.
    pub fn config(mut self, directive: &str, value: &str) -> Self {
        self.config.push((directive.to_owned(), value.to_owned()));
        self
    }

    /// The default user's password: letters and digits. It stands in the URLs.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// A user besides the default one, as an ACL rule without the word `user`:
    /// `"limiter on >secret ~rl:* -@all +get"`.
    pub fn user(mut self, rule: &str) -> Self {
        self.users.push(format!("user {rule}"));
        self
    }

    /// TLS on the port, and nothing else. The certificate is for 127.0.0.1 and localhost.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// [`tls`](Self::tls), and each client presents a certificate of the authority.
    pub fn tls_clients(mut self) -> Self {
        self.tls_clients = true;
        self.tls()
    }

    /// A clock that [`Server::shift_clock`](super::Server::shift_clock) steps. For a Valkey from
    /// `scripts/get-valkey.sh`: jemalloc, which distributions use, dies under a faked clock.
    pub fn fake_clock(mut self) -> Self {
        self.fake_clock = true;
        self
    }

    pub fn cluster_node(mut self) -> Self {
        self.role = Role::ClusterNode;
        // As low as a machine under load bears without electing new primaries all the time.
        self.config("cluster-node-timeout", "2000")
            .config("cluster-replica-validity-factor", "0")
            .config("cluster-allow-replica-migration", "no")
            .config("repl-diskless-sync-delay", "0")
    }

    pub fn sentinel(mut self, primary: u16) -> Self {
        self.role = Role::Sentinel(primary);
        self
    }

    pub fn has_tls(&self) -> bool {
        self.tls
    }

    pub fn secret(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The command that serves `port` with `folder` as its own.
    pub fn command(&self, folder: &Path, port: u16) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(folder);
        if let Role::Sentinel(primary) = self.role {
            // Sentinels rewrite their configuration, so it has to be a file.
            let file = folder.join("sentinel.conf");
            if !file.exists() {
                fs::write(&file, sentinel_config(primary)).expect("a configuration file");
            }
            command.arg(file).arg("--sentinel");
        }
        for (directive, value) in self.directives(folder, port) {
            command.arg(format!("--{directive}")).args(value.split(' '));
        }
        if self.fake_clock {
            let file = folder.join(CLOCK);
            if !file.exists() {
                fs::write(&file, "+0s\n").expect("a file of the clock");
            }
            command
                .env("LD_PRELOAD", faketime_library().expect("libfaketime"))
                .env("FAKETIME_TIMESTAMP_FILE", file)
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command
    }

    fn directives(&self, folder: &Path, port: u16) -> Vec<(String, String)> {
        let mut list: Vec<(String, String)> = Vec::new();
        let mut set = |directive: &str, value: &str| list.push((directive.into(), value.into()));
        // Files by their names alone: a path with a space would be parsed as two values.
        set("bind", "127.0.0.1");
        set("unixsocket", ADMIN_SOCKET);
        set("port", &if self.tls { 0 } else { port }.to_string());
        if self.tls {
            make_certificates(folder);
            set("tls-port", &port.to_string());
            set("tls-cert-file", CERTIFICATE);
            set("tls-key-file", KEY);
            set("tls-ca-cert-file", AUTHORITY);
            set(
                "tls-auth-clients",
                if self.tls_clients { "yes" } else { "no" },
            );
        }
        if !matches!(self.role, Role::Sentinel(_)) {
            set("save", "");
            set("protected-mode", "no");
        }
        if matches!(self.role, Role::ClusterNode) {
            set("cluster-enabled", "yes");
            set("cluster-port", &free_port().to_string());
        }
        if let Some(users) = self.users_file() {
            fs::write(folder.join("users.acl"), users).expect("a file of users");
            set("aclfile", "users.acl");
        }
        list.extend(self.config.iter().cloned());
        list
    }

    /// Passwords stand in the same file as users: the server takes either a file or `requirepass`.
    fn users_file(&self) -> Option<String> {
        if self.users.is_empty() && self.password.is_none() {
            return None;
        }
        let password = self
            .password
            .as_ref()
            .map_or("nopass".into(), |it| format!(">{it}"));
        let default = format!("user default on {password} ~* &* +@all");
        let rules = [&[default], self.users.as_slice()].concat().join("\n");
        Some(rules + "\n")
    }
}

fn sentinel_config(primary: u16) -> String {
    format!(
        "sentinel monitor {PRIMARY_NAME} 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds {PRIMARY_NAME} 1000\n\
         sentinel failover-timeout {PRIMARY_NAME} 5000\n"
    )
}

pub(super) fn redis_program() -> Option<PathBuf> {
    find("redis-server", Some("REDIS_SERVER"))
}

pub(super) fn valkey_program() -> Option<PathBuf> {
    find("valkey-server", Some("VALKEY_SERVER"))
}

/// Fakes the clock of a program that preloads it.
pub fn faketime_library() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?;
    let named = |folder: PathBuf| folder.join("faketime/libfaketimeMT.so.1");
    let paths = folders.flatten().map(|folder| named(folder.path()));
    [named("/usr/lib".into())]
        .into_iter()
        .chain(paths)
        .find(|path| path.is_file())
}
