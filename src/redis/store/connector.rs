//! The connector: makes connections to a server, a cluster or through sentinels.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisResult, TlsMode,
    cluster::{ClusterClient, ClusterClientBuilder},
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use tokio::time::timeout;

use super::{
    address::{Address, Sentinels, bad},
    error::StoreError,
    transport::Transport,
};
use crate::error::ConfigError;

/// Calls that can wait to be written.
const QUEUE: usize = 8192;

/// An idle connection is kept from being forgotten by what lies between.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Sent data that is not acknowledged for so long ends the connection.
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a command to a cluster may be redirected or find it unsettled.
const CLUSTER_RETRIES: u32 = 3;

/// Between two such attempts, in milliseconds.
const CLUSTER_RETRY_WAIT: (u64, u64) = (5, 20);

/// A connection to a cluster or through sentinels takes several, one after another.
const SEVERAL: u32 = 3;

/// Makes connections.
#[derive(Clone)]
pub(super) enum Connector {
    Node(Box<Client>, Limits),
    Cluster(Box<ClusterClient>, Limits),
    Sentinel(Box<Sentinels>, Limits),
    /// Whoever handed it in sees to it.
    Given(Transport),
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) connect: Duration,
    pub(super) response: Duration,
}

impl Connector {
    /// Checks the address as a whole.
    pub(super) fn new(address: Address, limits: Limits) -> Result<Self, ConfigError> {
        provide_crypto();
        match address {
            Address::Node(node) => {
                let client = Client::open(node.set_tcp_settings(tcp_settings()));
                client.map(|client| Self::Node(Box::new(client), limits))
            }
            Address::Cluster(nodes) => {
                cluster_client(nodes, limits).map(|client| Self::Cluster(Box::new(client), limits))
            }
            Address::Sentinel(sentinels) => {
                sentinel_client(&sentinels).map(|_| Self::Sentinel(Box::new(sentinels), limits))
            }
        }
        .map_err(|error| {
            let error = error.to_string();
            let reason = error.split(" - ").next().unwrap_or_default();
            bad(format!("the address of Redis is not usable: {reason}"))
        })
    }

    /// How long making a connection may take.
    pub(super) const fn limit(&self) -> Duration {
        match self {
            Self::Node(_, limits) => limits.connect,
            Self::Cluster(_, limits) | Self::Sentinel(_, limits) => {
                limits.connect.saturating_mul(SEVERAL)
            }
            // It is there already.
            Self::Given(_) => Duration::from_millis(100),
        }
    }

    pub(super) async fn open(&self) -> Result<Transport, StoreError> {
        match self {
            Self::Node(client, _) => limited(self.limit(), node(client)).await,
            Self::Cluster(client, _) => limited(self.limit(), cluster(client)).await,
            Self::Sentinel(sentinels, _) => limited(self.limit(), master(sentinels)).await,
            Self::Given(wire) => Ok(wire.clone()),
        }
    }
}

async fn limited(
    limit: Duration,
    opening: impl Future<Output = RedisResult<Transport>>,
) -> Result<Transport, StoreError> {
    match timeout(limit, opening).await {
        Ok(outcome) => outcome.map_err(|error| StoreError::unconnected(&error)),
        Err(_) => Err(StoreError::unconnected_within(limit)),
    }
}

async fn node(client: &Client) -> RedisResult<Transport> {
    let config = config();
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.map(Transport::Node)
}

async fn cluster(client: &ClusterClient) -> RedisResult<Transport> {
    client.get_async_connection().await.map(Transport::Cluster)
}

/// Asks the sentinels anew each time: the master may be another one now.
async fn master(sentinels: &Sentinels) -> RedisResult<Transport> {
    let mut client = sentinel_client(sentinels)?;
    let config = config();
    let connection = client.get_async_connection_with_config(&config);
    connection.await.map(Transport::Node)
}

/// Without redis-rs's own timeouts: there is one around everything.
fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE)
}

fn cluster_client(nodes: Vec<ConnectionInfo>, limits: Limits) -> RedisResult<ClusterClient> {
    let (min_wait, max_wait) = CLUSTER_RETRY_WAIT;
    ClusterClientBuilder::new(nodes)
        .tcp_settings(tcp_settings())
        .connection_timeout(limits.connect)
        // Longer than anybody waits for a call, which must not be sent twice. It ends what the
        // cluster's own questions about its nodes wait for.
        .response_timeout(limits.response.saturating_mul(2))
        .overall_response_timeout(None)
        .retries(CLUSTER_RETRIES)
        .min_retry_wait(min_wait)
        .max_retry_wait(max_wait)
        .build()
}

fn sentinel_client(sentinels: &Sentinels) -> RedisResult<SentinelClient> {
    let addresses = sentinels.nodes.iter().map(|node| node.addr().clone());
    let servers = sentinels.servers();
    let mut builder =
        SentinelClientBuilder::new(addresses, &sentinels.master, SentinelServerType::Master)?
            .set_client_to_redis_tcp_settings(tcp_settings())
            .set_client_to_redis_db(servers.db())
            .set_client_to_redis_protocol(servers.protocol());
    if matches!(sentinels.nodes[0].addr(), ConnectionAddr::TcpTls { .. }) {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
    }
    if let Some(user) = servers.username() {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = servers.password() {
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

fn tcp_settings() -> TcpSettings {
    let settings = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE));
    with_user_timeout(settings)
}

#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
fn with_user_timeout(settings: TcpSettings) -> TcpSettings {
    settings.set_user_timeout(USER_TIMEOUT)
}

#[cfg(not(any(target_os = "android", target_os = "fuchsia", target_os = "linux")))]
fn with_user_timeout(settings: TcpSettings) -> TcpSettings {
    settings
}

/// rustls panics on the first connection when the process has not chosen a provider.
#[cfg(feature = "redis-tls")]
fn provide_crypto() {
    use rustls::crypto::{CryptoProvider, ring};

    if CryptoProvider::get_default().is_none() {
        // Fails when another thread has just installed one, which is as good.
        let _ = ring::default_provider().install_default();
    }
}

#[cfg(not(feature = "redis-tls"))]
const fn provide_crypto() {}
