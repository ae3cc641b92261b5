//! The connector: opens connections to a server, a cluster or through sentinels.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::future::BoxFuture;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, RedisError, RedisResult,
    TlsMode, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use tokio::time::timeout;

use super::{
    address::{Sentinels, bad},
    credentials::{Credentials, Login},
};
use crate::error::StoreError;
use tower_ratelimit_core::error::ConfigError;

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

/// How connections are opened, each with the longest time for one.
#[derive(Clone)]
pub(super) enum Connector {
    Server(Box<ConnectionInfo>, Arc<Credentials>, Duration),
    /// Connects to the configured address of a cluster that responds first.
    Entry(Weak<dyn ClusterEntry>, Duration),
    Sentinel(Box<Sentinels>, Arc<Credentials>, Duration),
    /// A connection that was handed in. It reconnects by itself.
    Given(Transport),
}

impl Connector {
    pub(super) fn server(
        server: ConnectionInfo,
        credentials: Arc<Credentials>,
        timeout: Duration,
    ) -> RedisResult<Self> {
        let server = with_tcp_settings(server);
        Client::open(server.clone())?;
        Ok(Self::Server(Box::new(server), credentials, timeout))
    }

    pub(super) fn sentinels(
        sentinels: Sentinels,
        credentials: Arc<Credentials>,
        timeout: Duration,
    ) -> RedisResult<Self> {
        sentinel_client(&sentinels, &Login::default())?;
        Ok(Self::Sentinel(Box::new(sentinels), credentials, timeout))
    }

    /// The longest time for opening a connection.
    pub(super) const fn limit(&self) -> Duration {
        match self {
            Self::Server(_, _, timeout) => *timeout,
            Self::Entry(_, timeout) | Self::Sentinel(_, _, timeout) => {
                timeout.saturating_mul(CONNECTIONS_IN_A_ROW)
            }
            // The connection is open already.
            Self::Given(_) => Duration::from_millis(100),
        }
    }

    /// Time from the start of an attempt until it is given a replacement.
    pub(super) const fn attempt_limit(&self) -> Duration {
        self.limit().saturating_mul(2)
    }

    pub(super) async fn open(&self) -> Result<Transport, StoreError> {
        let limit = self.limit();
        match self {
            Self::Server(info, credentials, _) => {
                limited(limit, server(info, credentials), info.addr()).await
            }
            Self::Entry(cluster, _) => match cluster.upgrade() {
                Some(cluster) => limited(limit, cluster.open(), cluster.seed()).await,
                None => Err(StoreError::abandoned()),
            },
            Self::Sentinel(sentinels, credentials, _) => {
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
    let login = |server: &ConnectionInfo| server.redis_settings().clone();
    let is_encrypted =
        |server: &ConnectionInfo| matches!(server.addr(), ConnectionAddr::TcpTls { .. });
    for server in others {
        let (own, all) = (login(server), login(first));
        let difference = if own.password() != all.password() {
            "password"
        } else if own.username() != all.username() {
            "user"
        } else if own.protocol() != all.protocol() {
            "protocol"
        } else if own.db() != all.db() {
            "database"
        } else if is_encrypted(server) != is_encrypted(first) {
            "encryption"
        } else {
            continue;
        };
        return Err(bad(format!(
            "the address of Redis is not usable: its servers have a different {difference}; those \
             of a cluster or of sentinels have the same user, password, database, protocol and encryption"
        )));
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
