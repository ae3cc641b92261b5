//! One server.

use std::{
    collections::HashMap,
    fmt, fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::Command,
    time::{Duration, SystemTime},
};

use redis::{
    AsyncConnectionConfig, Client, FromRedisValue, RedisResult, ToRedisArgs, Value,
    aio::MultiplexedConnection,
};
use tempfile::TempDir;

use super::{
    certificates::AUTHORITY,
    server_settings::{ADMIN_SOCKET, CLOCK, Setup},
};
use crate::child_processes::{Process, eventually, free_port};

/// Connects with more time than the library gives, half a second: a machine under load is no fault.
pub async fn connect(client: Client) -> RedisResult<MultiplexedConnection> {
    let time = Some(Duration::from_secs(30));
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(time)
        .set_response_timeout(time);
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// One server on a free port of 127.0.0.1 and on a Unix socket, gone with all its files on drop.
///
/// The harness talks to it through the socket, so that neither a proxy nor TLS stands between.
pub struct Server {
    // Before the folder: it is killed before its files go.
    process: Option<Process>,
    setup: Setup,
    folder: TempDir,
    port: u16,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Starts Redis with its default configuration.
    pub async fn start() -> Self {
        Setup::redis().start().await
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// `redis://` or `rediss://`, with the default user's password if there is one.
    pub fn url(&self) -> String {
        self.url_through(self.port)
    }

    /// The URL through the port of a proxy before this server.
    pub fn url_through(&self, port: u16) -> String {
        let scheme = if self.setup.has_tls() {
            "rediss"
        } else {
            "redis"
        };
        let login = self
            .setup
            .secret()
            .map_or(String::new(), |password| format!(":{password}@"));
        format!("{scheme}://{login}127.0.0.1:{port}")
    }

    /// The URL of its Unix socket.
    pub fn unix_url(&self) -> String {
        let login = self
            .setup
            .secret()
            .map_or(String::new(), |password| format!("?pass={password}"));
        format!("unix://{}{login}", self.file(ADMIN_SOCKET).display())
    }

    /// The certificate of the authority that signed the server's, in PEM.
    pub fn authority(&self) -> PathBuf {
        self.file(AUTHORITY)
    }

    /// Whether its process was started and not killed.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// The text that it printed.
    pub fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    /// Kills it as a power failure would: no goodbye to anybody.
    pub fn kill9(&mut self) {
        self.process = None;
    }

    /// Kills it if it runs, starts it on the same port, and waits until it answers. It has lost all
    /// data, and the scripts, unless it was set up to keep them.
    pub async fn restart(&mut self) {
        self.restart_loading().await;
        self.answered().await;
    }

    /// Restarts it without waiting until it has loaded its data: until then it replies `LOADING`.
    pub async fn restart_loading(&mut self) {
        self.kill9();
        let command = self.setup.command(self.folder.path(), self.port);
        assert!(
            self.has_come_up(command).await,
            "it did not start again: {}",
            self.log()
        );
    }

    /// Stops it, as [`Process::pause`] does.
    pub fn pause(&self) {
        self.process.as_ref().expect("a running server").pause();
    }

    /// Resumes it. What came meanwhile is served.
    pub fn resume(&self) {
        self.process.as_ref().expect("a running server").resume();
    }

    /// Steps its wall clock to so many seconds before or after ours, by a minute at least, and waits
    /// until it has noticed.
    ///
    /// # Panics
    ///
    /// If it was not set up with a fake clock.
    pub async fn shift_clock(&self, seconds: i64) {
        assert!(self.file(CLOCK).exists(), "set up without a fake clock");
        // A file that is being written would be read as it is.
        fs::write(self.file("clock.new"), format!("{seconds:+}s\n")).expect("a file of the clock");
        fs::rename(self.file("clock.new"), self.file(CLOCK)).expect("the clock's file");
        // The server caches the time for a command or two.
        eventually("the new time", async || {
            ((self.ahead().await - seconds).abs() < 30).then_some(())
        })
        .await;
    }

    /// By how many seconds its clock is ahead of ours.
    pub async fn ahead(&self) -> i64 {
        let (theirs, _): (i64, u32) = self.send(["TIME"]).await.expect("a time");
        let ours = SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970");
        theirs - i64::try_from(ours.as_secs()).expect("a time before the end")
    }

    /// Sends a command: `server.ask(["GET", "key"])`.
    pub async fn send<T: FromRedisValue>(
        &self,
        words: impl IntoIterator<Item = impl ToRedisArgs>,
    ) -> RedisResult<T> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        let client = Client::open(self.unix_url())?;
        let mut connection = connect(client).await?;
        command.query_async(&mut connection).await
    }

    /// A section of `INFO`.
    pub async fn info(&self, section: &str) -> HashMap<String, String> {
        let text: String = self.send(["INFO", section]).await.expect("INFO");
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// How often a command such as `evalsha` was called since the start, whatever its result was.
    pub async fn command_count(&self, command: &str) -> u64 {
        let stats = self.info("commandstats").await;
        let Some(line) = stats.get(&format!("cmdstat_{command}")) else {
            return 0;
        };
        let calls = line
            .strip_prefix("calls=")
            .and_then(|rest| rest.split(',').next());
        calls
            .and_then(|calls| calls.parse().ok())
            .expect("a number of calls")
    }

    /// Waits until so many replicas have what it has now. `WAIT` would know only of writes on its own
    /// connection.
    pub async fn replicated(&self, replicas: usize) {
        let offset = |text: &str| text.parse::<u64>().ok();
        let now = self.info("replication").await;
        let goal = offset(&now["master_repl_offset"]).expect("an offset");
        eventually("replicas that have everything", async || {
            let info = self.info("replication").await;
            let reached = |index| {
                let replica = info.get(&format!("slave{index}"))?;
                let (_, rest) = replica.split_once("offset=")?;
                offset(rest.split(',').next()?)
            };
            let reached: Vec<_> = (0..replicas).map(reached).collect();
            reached
                .iter()
                .all(|offset| *offset >= Some(goal))
                .then_some(())
        })
        .await;
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the command until it answers anything at all; `false` if it ends before.
    async fn has_come_up(&mut self, mut command: Command) -> bool {
        // A socket that a killed server left would refuse, which is no answer of this one's.
        let _ = fs::remove_file(self.file(ADMIN_SOCKET));
        let mut process = Process::start(&mut command, &self.file("log"));
        let up = eventually("a server that answers", async || {
            if process.has_ended() {
                return Some(false);
            }
            match self.send::<Value>(["PING"]).await {
                Err(error) if error.is_io_error() => None,
                _ => Some(true),
            }
        })
        .await;
        self.process = up.then_some(process);
        up
    }

    /// Waits until it has loaded its data.
    pub async fn answered(&self) {
        eventually("PONG", async || self.send::<String>(["PING"]).await.ok()).await;
    }
}

impl Setup {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    ///
    /// With what it printed, if it does not start.
    pub async fn start(self) -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        let mut server = Server {
            process: None,
            setup: self,
            folder,
            port: 0,
        };
        // Between finding a port and listening on it another process may take it.
        for _ in 0..5 {
            server.port = free_port();
            let command = server.setup.command(server.folder.path(), server.port);
            if server.has_come_up(command).await {
                server.answered().await;
                return server;
            }
            assert!(
                server.log().contains("Address already in use"),
                "{}",
                server.log()
            );
        }
        panic!("no port was free: {}", server.log());
    }
}

/// The hosts and ports of servers, as an address of several has them.
pub(super) fn hosts(servers: &[Server]) -> String {
    let hosts = servers
        .iter()
        .map(|server| format!("127.0.0.1:{}", server.port()));
    hosts.collect::<Vec<_>>().join(",")
}
