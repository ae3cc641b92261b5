//! The connection of a server: opened with the first call by its credentials, and again after it failed; and the scripts
//! that are loaded on it.

use std::{
    collections::HashMap,
    fs, io,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, Weak, atomic::AtomicBool},
    time::Duration,
};

use futures_util::future::{BoxFuture, FutureExt, Shared};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, RedisError, RedisResult,
    TlsMode, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use tokio::{
    sync::oneshot,
    task::spawn_blocking,
    time::{self, timeout, timeout_at},
};

use super::{
    address::{Sentinels, bad},
    script::Script,
};
use crate::{
    error::StoreError,
    health::StoreWatch,
    runtime_thread::Home,
    single_background_task::{Run, Solo},
};
#[cfg(feature = "redis-tls")]
use redis::{ClientTlsConfig, ErrorKind, TlsCertificates};
use tower_ratelimit_core::{error::ConfigError, lock::unpoisoned};

/// The single connection of a server, opened with the first call and again after it failed.
pub(super) struct Connection {
    opener: Connector,
    common: Arc<StoreCommon>,
    state: Mutex<State>,
    attempts: Solo,
}

#[derive(Default)]
struct State {
    live: Option<Arc<Live>>,
    /// The latest attempt to connect; it has ended unless its task still runs.
    attempt: Option<Attempt>,
}

/// An open connection that has shown no failure, and its number.
pub(super) struct Live {
    pub(super) number: u64,
    pub(super) wire: Arc<Transport>,
    pub(super) common: Arc<StoreCommon>,
    /// The last load of each script, by its digest.
    loads: Mutex<HashMap<Arc<str>, Load>>,
}

/// The load of a script. One call begins it, and all others wait for it.
type Load = Shared<BoxFuture<'static, RedisResult<()>>>;

impl Live {
    /// The last load of a script over this connection, if it has ended.
    pub(super) fn ended_load(&self, script: &Script) -> Option<Load> {
        let loads = unpoisoned(self.loads.lock());
        let last = loads.get(&script.digest);
        last.filter(|last| last.peek().is_some()).cloned()
    }

    /// Loads the script, unless a load of it is under way, or another than the `known` one has succeeded. A proxy would
    /// load it into one of its servers only.
    pub(super) async fn load(&self, script: &Script, known: Option<Load>) -> RedisResult<()> {
        if self.common.has_sharding_proxy {
            return Ok(());
        }
        let load = {
            let mut loads = unpoisoned(self.loads.lock());
            let last = loads.get(&script.digest).filter(|last| match last.peek() {
                Some(Ok(())) => !known.is_some_and(|known| known.ptr_eq(last)),
                ended => ended.is_none(),
            });
            last.cloned().unwrap_or_else(|| {
                let counters = &self.common.watch.counters;
                counters.change(|stats| stats.script_loads += 1);
                let (wire, mut command) = (Arc::clone(&self.wire), redis::cmd("SCRIPT"));
                command.arg("LOAD").arg(&*script.code);
                // A shared future that panicked makes a panic of each look at it.
                let load = AssertUnwindSafe(async move { wire.send(&command).await.map(drop) });
                let panicked = |_| Err(io::Error::other("the connection panicked").into());
                let load = load
                    .catch_unwind()
                    .map(move |sent| sent.unwrap_or_else(panicked));
                let load = load.boxed().shared();
                loads.insert(Arc::clone(&script.digest), load.clone());
                load
            })
        };
        load.await
    }
}

/// An attempt to connect; any number of calls wait for it.
type LiveFuture = Shared<oneshot::Receiver<Result<Arc<Live>, StoreError>>>;

#[derive(Clone)]
struct Attempt {
    number: u64,
    started_at: time::Instant,
    /// The attempt has ended by then, unless nobody drives its runtime.
    expires_at: time::Instant,
    outcome: LiveFuture,
}

impl Connection {
    pub(super) fn new(opener: Connector, common: Arc<StoreCommon>) -> Self {
        Self {
            attempts: Solo::new(opener.attempt_limit(&common)),
            opener,
            common,
            state: Mutex::default(),
        }
    }

    /// Returns the connection, and opens it if necessary. Writes its number to `number` first, so
    /// that a caller knows which connection it waited for even if its own time limit ends the wait.
    /// The attempt continues without the caller.
    pub(super) async fn live(self: &Arc<Self>, number: &mut u64) -> Result<Arc<Live>, StoreError> {
        loop {
            if let Some(live) = &self.lock().live {
                *number = live.number;
                return Ok(Arc::clone(live));
            }
            let attempt = self.attempt();
            *number = attempt.number;
            // A later outcome is that of a stalled runtime: the next attempt replaces this one.
            if let Ok(outcome) = timeout_at(attempt.expires_at, attempt.outcome).await {
                return outcome.unwrap_or_else(|_| Err(StoreError::abandoned()));
            }
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.lock().live.is_some()
    }

    /// Opens a new connection in place of the open one, which stays if that fails. Without an open
    /// one there is nothing to do: the next call opens one.
    pub(super) async fn renew(self: &Arc<Self>) -> Result<(), StoreError> {
        if !self.is_live() {
            return Ok(());
        }
        let attempt = self.attempt();
        match timeout_at(attempt.expires_at, attempt.outcome).await {
            Ok(Ok(outcome)) => outcome.map(drop),
            _ => Err(StoreError::abandoned()),
        }
    }

    pub(super) fn attempting_for(&self) -> Option<Duration> {
        let now = time::Instant::now();
        let state = self.lock();
        let attempt = state.attempt.as_ref();
        let attempt = attempt.filter(|_| self.attempts.is_running(now.into_std()));
        attempt.map(|attempt| now - attempt.started_at)
    }

    pub(super) fn attempt_limit(&self) -> Duration {
        self.opener.attempt_limit(&self.common)
    }

    /// Closes the connection if it still has this number. A connection that was handed in stays,
    /// under another number, so that its next failure counts anew.
    pub(super) fn discard(&self, number: u64) {
        let mut state = self.lock();
        if state
            .live
            .as_ref()
            .is_some_and(|live| live.number == number)
        {
            state.live = None;
        }
    }

    /// Starts an attempt to connect, or joins the running one.
    fn attempt(self: &Arc<Self>) -> Attempt {
        let (sender, outcome) = oneshot::channel();
        let started_at = time::Instant::now();
        let (attempt, run) = {
            let mut state = self.lock();
            if let Some(attempt) = &state.attempt
                && self.attempts.is_running(started_at.into_std())
            {
                return attempt.clone();
            }
            let run = self.attempts.replace(started_at.into_std());
            let attempt = Attempt {
                number: run.number(),
                started_at,
                expires_at: started_at + self.attempt_limit(),
                outcome: outcome.shared(),
            };
            state.attempt = Some(attempt.clone());
            (attempt, run)
        };
        // Outside the lock: a runtime that is shutting down drops the task at once.
        let link = Arc::clone(self);
        self.common.home.spawn(link.connect(run, sender));
        attempt
    }

    async fn connect(
        self: Arc<Self>,
        run: Run,
        sender: oneshot::Sender<Result<Arc<Live>, StoreError>>,
    ) {
        let common = &self.common;
        let live = |wire| Live {
            number: run.number(),
            wire: Arc::new(wire),
            common: Arc::clone(common),
            loads: Mutex::default(),
        };
        let outcome = self.opener.open(common).await;
        let outcome = outcome.map(|wire| Arc::new(live(wire)));
        if outcome.is_ok() && !matches!(self.opener, Connector::Given(_)) {
            let counters = &common.watch.counters;
            counters.change(|stats| stats.connections += 1);
        }
        {
            let mut state = self.lock();
            // A replacement attempt's connection is preferred: its runtime is driven.
            if run.end()
                && let Ok(live) = &outcome
            {
                state.live = Some(Arc::clone(live));
            }
        }
        // Fails if nobody waits any more.
        let _ = sender.send(outcome);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

/// The settings of a store, and the counters and listeners for all of its servers.
pub(super) struct StoreCommon {
    /// Without user and password.
    pub(super) address: String,
    pub(super) prefix: String,
    pub(super) deadline: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) credentials: Arc<Credentials>,
    /// Whether the address is a proxy that sends each command to the server of its first key. `SCRIPT
    /// LOAD`, which has no key, would reach one server only.
    pub(super) has_sharding_proxy: bool,
    /// Whether keys are spread over servers behind the address, so that each call carries one
    /// subject.
    pub(super) is_split: AtomicBool,
    /// The runtime on which connections are opened and live.
    pub(super) home: Home,
    /// The scripts used by the store's limiters.
    pub(super) scripts: Mutex<Vec<Script>>,
    pub(super) watch: Arc<StoreWatch>,
}

/// The most calls that wait to be written to the socket.
const MAX_QUEUED_CALLS: usize = 8192;

/// The interval of TCP keepalives: firewalls and load balancers drop idle connections.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The connection fails when sent data is not acknowledged for so long.
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// The most connections that are opened one after another to reach a cluster or a master.
const CONNECTIONS_IN_A_ROW: u32 = 3;

/// A cluster that is known by some of its servers.
pub(super) trait ClusterEntry: Send + Sync {
    /// The first configured address.
    fn seed(&self) -> &ConnectionAddr;

    /// Opens a connection to the server that responds first.
    fn open(&self) -> BoxFuture<'_, RedisResult<Transport>>;
}

/// How connections are opened.
pub(super) enum Connector {
    Server(Box<ConnectionInfo>),
    /// Connects to the configured address of a cluster that responds first.
    Entry(Weak<dyn ClusterEntry>),
    Sentinel(Box<Sentinels>),
    /// A connection that was handed in. It reconnects by itself.
    Given(Transport),
}

impl Connector {
    pub(super) fn server(server: ConnectionInfo) -> RedisResult<Self> {
        let server = with_tcp_settings(server);
        Client::open(server.clone())?;
        Ok(Self::Server(Box::new(server)))
    }

    pub(super) fn sentinels(sentinels: Sentinels) -> RedisResult<Self> {
        sentinel_client(&sentinels, &Login::default())?;
        Ok(Self::Sentinel(Box::new(sentinels)))
    }

    /// The longest time for opening a connection.
    fn limit(&self, common: &StoreCommon) -> Duration {
        let timeout = common.connect_timeout;
        match self {
            Self::Server(_) => timeout,
            Self::Entry(_) | Self::Sentinel(_) => timeout.saturating_mul(CONNECTIONS_IN_A_ROW),
            // The connection is open already.
            Self::Given(_) => Duration::from_millis(100),
        }
    }

    /// Time from the start of an attempt until it is given a replacement.
    fn attempt_limit(&self, common: &StoreCommon) -> Duration {
        self.limit(common).saturating_mul(2)
    }

    async fn open(&self, common: &StoreCommon) -> Result<Transport, StoreError> {
        let (limit, credentials) = (self.limit(common), &common.credentials);
        match self {
            Self::Server(info) => limited(limit, server(info, credentials), info.addr()).await,
            Self::Entry(cluster) => match cluster.upgrade() {
                Some(cluster) => limited(limit, cluster.open(), cluster.seed()).await,
                None => Err(StoreError::abandoned()),
            },
            Self::Sentinel(sentinels) => {
                let first = sentinels.addresses[0].addr();
                limited(limit, master(sentinels, credentials), first).await
            }
            Self::Given(wire) => Ok(wire.clone()),
        }
    }
}

async fn limited(
    limit: Duration,
    opening: impl Future<Output = RedisResult<Transport>>,
    to: &ConnectionAddr,
) -> Result<Transport, StoreError> {
    match timeout(limit, opening).await {
        Ok(outcome) => outcome.map_err(|error| {
            let hint = encryption_hint(to, Some(&error));
            StoreError::unconnected(&error).with_hint(hint)
        }),
        Err(_) => Err(StoreError::unconnected_within(limit).with_hint(encryption_hint(to, None))),
    }
}

/// The possible reason of a failure to connect that only one side speaks TLS. Without an error there was no
/// response: a server without TLS waits for the end of a line.
fn encryption_hint(to: &ConnectionAddr, error: Option<&RedisError>) -> Option<&'static str> {
    let ends = |error: &RedisError| error.is_connection_dropped() && !error.is_connection_refusal();
    match (to, error) {
        (ConnectionAddr::TcpTls { .. }, None) => Some(
            "so it is also where the server speaks no TLS: its address then begins with redis, not \
             with rediss",
        ),
        (ConnectionAddr::Tcp(..), Some(error)) if ends(error) => {
            Some("so it is also where the server speaks TLS: its address then begins with rediss")
        }
        _ => None,
    }
}

pub(super) async fn server(
    server: &ConnectionInfo,
    credentials: &Arc<Credentials>,
) -> RedisResult<Transport> {
    let client = Client::open(credentials.read().await?.at(server.clone())?)?;
    let config = config();
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.map(Transport::Server)
}

/// Requests the master from the sentinels before each connection, since it may have changed.
async fn master(sentinels: &Sentinels, credentials: &Arc<Credentials>) -> RedisResult<Transport> {
    let mut client = sentinel_client(sentinels, &credentials.read().await?)?;
    let config = config();
    let connection = client.get_async_connection_with_config(&config);
    connection.await.map(Transport::Server)
}

/// Disables redis-rs's own timeouts: one timeout covers all steps.
fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(MAX_QUEUED_CALLS)
}

/// Checks that the configured addresses of a cluster or of sentinels have one user, one encryption
/// and one protocol: they apply to all servers.
pub(super) fn check_seeds(seeds: &[ConnectionInfo]) -> Result<(), ConfigError> {
    let [first, others @ ..] = seeds else {
        return Ok(());
    };
    let is_encrypted =
        |server: &ConnectionInfo| matches!(server.addr(), ConnectionAddr::TcpTls { .. });
    for server in others {
        let (own, all) = (server.redis_settings(), first.redis_settings());
        let settings = [
            ("password", own.password() != all.password()),
            ("user", own.username() != all.username()),
            ("protocol", own.protocol() != all.protocol()),
            ("database", own.db() != all.db()),
            ("encryption", is_encrypted(server) != is_encrypted(first)),
        ];
        if let Some((difference, _)) = settings.iter().find(|(_, differs)| *differs) {
            return Err(bad(format!(
                "the address of Redis is not usable: its servers have a different {difference}; those \
                 of a cluster or of sentinels have the same user, password, database, protocol and \
                 encryption"
            )));
        }
    }
    Ok(())
}

fn sentinel_client(sentinels: &Sentinels, login: &Login) -> RedisResult<SentinelClient> {
    let addresses = sentinels
        .addresses
        .iter()
        .map(|server| server.addr().clone());
    let servers = sentinels.servers();
    let mut builder =
        SentinelClientBuilder::new(addresses, &sentinels.master, SentinelServerType::Master)?
            .set_client_to_redis_tcp_settings(tcp_settings())
            .set_client_to_redis_db(servers.db())
            .set_client_to_redis_protocol(servers.protocol());
    if matches!(sentinels.addresses[0].addr(), ConnectionAddr::TcpTls { .. }) {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
    }
    #[cfg(feature = "redis-tls")]
    if let Some(certificates) = &login.certificates {
        builder = builder
            .set_client_to_redis_certificates(certificates.clone())
            .set_client_to_sentinel_certificates(certificates.clone());
    }
    if let Some(user) = servers.username() {
        builder = builder.set_client_to_redis_username(user);
    }
    let password = login.password.as_deref().or(servers.password());
    if let Some(password) = password {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some(user) = &sentinels.user {
        builder = builder.set_client_to_sentinel_username(user);
    }
    if let Some(password) = &sentinels.password {
        builder = builder.set_client_to_sentinel_password(password);
    }
    builder.build()
}

pub(super) fn without_name(server: ConnectionInfo) -> ConnectionInfo {
    let settings = server.redis_settings().clone().set_skip_set_lib_name();
    server.set_redis_settings(settings)
}

pub(super) fn with_tcp_settings(server: ConnectionInfo) -> ConnectionInfo {
    server.set_tcp_settings(tcp_settings())
}

fn tcp_settings() -> TcpSettings {
    let settings = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE));
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(USER_TIMEOUT);
    settings
}

/// Selects a provider: rustls panics on the first connection if the process has none.
#[cfg(feature = "redis-tls")]
pub(super) fn provide_crypto() {
    use rustls::crypto::{CryptoProvider, ring};

    if CryptoProvider::get_default().is_none() {
        // Fails if another thread has just installed one, which serves as well.
        let _ = ring::default_provider().install_default();
    }
}

#[cfg(not(feature = "redis-tls"))]
pub(super) const fn provide_crypto() {}

/// An open connection, shared by all calls.
#[derive(Clone)]
pub(super) enum Transport {
    Server(MultiplexedConnection),
    Given(Arc<dyn Given>),
}

/// A connection that was handed in.
pub(super) trait Given: Send + Sync {
    fn send<'a>(&'a self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>>;
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Given for C {
    fn send<'a>(&'a self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>> {
        let mut connection = self.clone();
        Box::pin(async move { command.query_async(&mut connection).await })
    }
}

impl Transport {
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Server(connection) => command.query_async(&mut connection.clone()).await,
            Self::Given(connection) => connection.send(command).await,
        }
    }

    /// Sends a command for a key whose slot is moving to this server.
    pub(super) async fn send_asking(&self, command: &Cmd) -> RedisResult<Value> {
        let Self::Server(connection) = self else {
            return self.send(command).await;
        };
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(command.clone());
        let mut connection = connection.clone();
        let answers = connection.send_packed_commands(&both, 0, 2).await?;
        let mut answer = Ok(Value::Nil);
        for each in answers {
            answer = each.extract_error();
        }
        answer
    }
}

/// Contents, or the file that has them.
#[derive(Clone)]
#[cfg(feature = "redis-tls")]
pub(super) enum Pem {
    Text(Vec<u8>),
    File(PathBuf),
}

/// Where password and certificates are.
#[derive(Clone, Default)]
pub(super) struct Credentials {
    pub(super) password: Option<PathBuf>,
    #[cfg(feature = "redis-tls")]
    pub(super) authorities: Option<Pem>,
    #[cfg(feature = "redis-tls")]
    pub(super) client: Option<(Pem, Pem)>,
}

/// The password and the certificates as they were read.
#[derive(Clone, Default)]
pub(super) struct Login {
    pub(super) password: Option<String>,
    #[cfg(feature = "redis-tls")]
    certificates: Option<TlsCertificates>,
}

impl Credentials {
    /// Reads the files on a thread that may block.
    pub(super) async fn read(self: &Arc<Self>) -> RedisResult<Login> {
        if !self.are_in_files() {
            return Ok(self.read_now()?);
        }
        let own = Arc::clone(self);
        let read = spawn_blocking(move || own.read_now()).await;
        Ok(read.map_err(io::Error::other)??)
    }

    pub(super) fn read_now(&self) -> io::Result<Login> {
        let password = self.password.as_deref().map(password).transpose()?;
        Ok(Login {
            password,
            #[cfg(feature = "redis-tls")]
            certificates: self.certificates()?,
        })
    }

    #[cfg(feature = "redis-tls")]
    fn certificates(&self) -> io::Result<Option<TlsCertificates>> {
        let authorities = self.authorities.as_ref();
        let root_cert = authorities.map(Pem::read).transpose()?;
        let client_tls = match &self.client {
            Some((certificate, key)) => Some(ClientTlsConfig {
                client_cert: certificate.read()?,
                client_key: key.read()?,
            }),
            None => None,
        };
        let is_set = root_cert.is_some() || client_tls.is_some();
        Ok(is_set.then_some(TlsCertificates {
            client_tls,
            root_cert,
        }))
    }

    #[cfg(feature = "redis-tls")]
    fn are_in_files(&self) -> bool {
        let is_file = |pem: &Pem| matches!(pem, Pem::File(_));
        self.password.is_some()
            || self.authorities.as_ref().is_some_and(is_file)
            || self
                .client
                .as_ref()
                .is_some_and(|(certificate, key)| is_file(certificate) || is_file(key))
    }

    #[cfg(not(feature = "redis-tls"))]
    const fn are_in_files(&self) -> bool {
        self.password.is_some()
    }
}

impl Login {
    /// The address of a server with this password and these certificates.
    pub(super) fn at(&self, server: ConnectionInfo) -> RedisResult<ConnectionInfo> {
        let server = match &self.password {
            Some(password) => {
                let settings = server.redis_settings().clone().set_password(password);
                server.set_redis_settings(settings)
            }
            None => server,
        };
        #[cfg(feature = "redis-tls")]
        if let Some(certificates) = &self.certificates {
            if !matches!(server.addr(), ConnectionAddr::TcpTls { .. }) {
                let text =
                    "certificates for Redis need an encrypted address, which begins with rediss";
                return Err((ErrorKind::InvalidClientConfig, text).into());
            }
            let client = Client::build_with_tls(server, certificates.clone())?;
            return Ok(client.get_connection_info().clone());
        }
        Ok(server)
    }
}

#[cfg(feature = "redis-tls")]
impl Pem {
    fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(file) => fs::read(file).map_err(|error| unreadable(file, &error)),
        }
    }
}

fn password(file: &Path) -> io::Result<String> {
    let text = fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn unreadable(file: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}
