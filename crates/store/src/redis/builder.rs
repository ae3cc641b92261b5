//! The builder of a store.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};

use redis::{ConnectionInfo, aio::ConnectionLike};

#[cfg(feature = "redis-tls")]
use super::connection::Pem;
use super::{
    RedisStore, Servers,
    address::{Address, bad, unusable},
    cluster::Cluster,
    connection::{self, Connector, Credentials, StoreCommon, Transport},
    pipeline::Pipeline,
};
use crate::{
    health::{Listener, Owner, StoreHealth, StoreWatch},
    runtime_thread::Home,
};
use tower_ratelimit_core::error::{ConfigError, ConfigErrorKind};

const DEFAULT_PREFIX: &str = "rl";
const MAX_PREFIX_LEN: usize = 64;
const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// The longest deadline and connect timeout. Sums of several of them do not overflow an instant.
const MAX_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Configures a [`RedisStore`]. Created by [`RedisStore::builder`].
#[must_use]
pub struct RedisStoreBuilder {
    prefix: String,
    deadline: Duration,
    connect_timeout: Duration,
    sharding_proxy: bool,
    on_health_change: Option<Listener>,
    credentials: Credentials,
}

impl RedisStore {
    /// Creates a builder, for settings other than the defaults.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder {
            prefix: DEFAULT_PREFIX.to_owned(),
            deadline: DEFAULT_DEADLINE,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            sharding_proxy: false,
            on_health_change: None,
            credentials: Credentials::default(),
        }
    }
}

impl RedisStoreBuilder {
    /// Sets the beginning of all key names in Redis. Defaults to `rl`, which is short because it is
    /// part of every key.
    ///
    /// Limiters with different prefixes share nothing. Accepted are 1 to 64 printable ASCII
    /// characters other than the space and `{ } * ? [ ] \`, which have a meaning to Redis.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long a request waits for Redis at most, more than 0 and up to an hour. Defaults to
    /// 50 ms.
    ///
    /// The deadline covers connecting, waiting behind other requests, and the response. Redis may
    /// have counted a request without a response in time, so it is never sent again.
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets how long opening one connection may take, with encryption and login: more than 0 and up
    /// to an hour. Defaults to 500 ms.
    ///
    /// A request does not wait that long, only for its [`deadline`](Self::deadline). Later requests
    /// use the connection once it is open.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Declares that the address is a proxy that spreads keys over several servers and sends each
    /// command to the server of its first key, as Envoy and twemproxy do. Without this call no such
    /// proxy is assumed.
    ///
    /// Each call then carries one subject. Otherwise one call carries many subjects that wait at
    /// the same moment, except to a cluster. Such a proxy would count some of them on the wrong
    /// server. A server that refuses such calls by itself (`CROSSSLOT`) needs no setting.
    ///
    /// A server that does not know a script gets its text with the call (`EVAL`), since `SCRIPT
    /// LOAD` would reach one of the servers only. The connection does not give its name (`CLIENT
    /// SETINFO`), at which twemproxy ends it.
    pub const fn sharding_proxy(mut self) -> Self {
        self.sharding_proxy = true;
        self
    }

    /// Sets a listener that is called when Redis goes down and when it works again, once for each
    /// change and one after the other. Defaults to none. With the feature `tracing` both are logged
    /// in any case.
    ///
    /// The very first response is no change. In a cluster each server goes down by itself, and the
    /// listener is called each time with the health of the cluster as a whole:
    /// [`Strained`](StoreHealth::Strained) while others work.
    ///
    /// The listener runs in a thread of its own that belongs to no runtime. It may block, and
    /// delays only the next change; up to 64 changes wait. A panic is logged the first time, and
    /// the listener is called again at the next change.
    pub fn on_health_change(
        mut self,
        listener: impl Fn(StoreHealth) + Send + Sync + 'static,
    ) -> Self {
        self.on_health_change = Some(Box::new(listener));
        self
    }

    /// Sets a file with the password of the servers, for an address that has none. Defaults to none.
    ///
    /// It is read again for each connection, so that it can be replaced while the old password is
    /// still accepted, or after Redis has refused it. [`RedisStore::reconnect`] replaces the open
    /// connections as well.
    pub fn password_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.credentials.password = Some(file.into());
        self
    }

    /// Sets the authorities that sign the certificates of servers and sentinels, in PEM. Defaults to
    /// those of the system.
    ///
    /// The address is then an encrypted one, such as `rediss://10.0.0.7`.
    #[cfg(feature = "redis-tls")]
    pub fn tls_authorities(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.credentials.authorities = Some(Pem::Text(pem.into()));
        self
    }

    /// As [`tls_authorities`](Self::tls_authorities), from a file that is read again for each
    /// connection, so that it can be replaced.
    #[cfg(feature = "redis-tls")]
    pub fn tls_authorities_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.credentials.authorities = Some(Pem::File(file.into()));
        self
    }

    /// Sets the certificate that this process presents to servers and sentinels, followed by the
    /// intermediate ones, and its key: both in PEM. Defaults to none.
    ///
    /// The address is then an encrypted one, such as `rediss://10.0.0.7`.
    #[cfg(feature = "redis-tls")]
    pub fn tls_client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        let pair = (Pem::Text(certificate.into()), Pem::Text(key.into()));
        self.credentials.client = Some(pair);
        self
    }

    /// As [`tls_client_certificate`](Self::tls_client_certificate), from files that are read again
    /// for each connection, so that they can be replaced.
    #[cfg(feature = "redis-tls")]
    pub fn tls_client_certificate_files(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let pair = (Pem::File(certificate.into()), Pem::File(key.into()));
        self.credentials.client = Some(pair);
        self
    }

    /// Creates the store at this address, see [`RedisStore::connect`].
    ///
    /// # Errors
    ///
    /// If the address or a setting is not valid.
    pub fn connect(self, address: &str) -> Result<RedisStore, ConfigError> {
        self.at(Address::parse(address)?)
    }

    /// Creates the store for the cluster with these servers, see [`RedisStore::cluster`].
    ///
    /// # Errors
    ///
    /// If an address or a setting is not valid.
    pub fn cluster<T: AsRef<str>>(
        self,
        addresses: impl IntoIterator<Item = T>,
    ) -> Result<RedisStore, ConfigError> {
        self.at(Address::cluster(addresses)?)
    }

    /// Creates the store for the master that these sentinels watch, see [`RedisStore::sentinel`].
    ///
    /// # Errors
    ///
    /// If an address or a setting is not valid.
    pub fn sentinel<T: AsRef<str>>(
        self,
        addresses: impl IntoIterator<Item = T>,
        master: &str,
    ) -> Result<RedisStore, ConfigError> {
        self.at(Address::sentinel(addresses, master)?)
    }

    /// Creates the store on a connection that you already have, see
    /// [`RedisStore::from_connection`].
    ///
    /// # Errors
    ///
    /// If a setting is not valid.
    pub fn connection<C>(self, connection: C) -> Result<RedisStore, ConfigError>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        self.check()?;
        let wire = Transport::Given(Arc::new(connection));
        let address = "a connection handed in".to_owned();
        Ok(self.build(address, Home::of_callers(), |common| {
            one(common, Connector::Given(wire))
        }))
    }

    fn at(self, address: Address) -> Result<RedisStore, ConfigError> {
        self.check()?;
        connection::provide_crypto();
        check_credentials(&address, &self.credentials)?;
        let shown = address.shown();
        let opener = match address {
            Address::Server(server) if self.sharding_proxy => {
                Connector::server(connection::without_name(server))
            }
            Address::Server(server) => Connector::server(server),
            Address::Sentinel(sentinels) => {
                connection::check_seeds(&sentinels.addresses)?;
                Connector::sentinels(sentinels)
            }
            Address::Cluster(servers) => {
                connection::check_seeds(&servers)?;
                let cluster = |common| Servers::Cluster(Cluster::new(servers, common));
                return Ok(self.build(shown, Home::own(), cluster));
            }
        };
        let opener = opener.map_err(|error| unusable(&error))?;
        Ok(self.build(shown, Home::own(), |common| one(common, opener)))
    }

    fn check(&self) -> Result<(), ConfigError> {
        check_prefix(&self.prefix)?;
        check_time("deadline", self.deadline)?;
        check_time("connect timeout", self.connect_timeout)
    }

    fn build(
        self,
        address: String,
        home: Home,
        servers: impl FnOnce(Arc<StoreCommon>) -> Servers,
    ) -> RedisStore {
        let common = Arc::new(StoreCommon {
            address,
            prefix: self.prefix,
            deadline: self.deadline,
            connect_timeout: self.connect_timeout,
            credentials: Arc::new(self.credentials),
            has_sharding_proxy: self.sharding_proxy,
            is_split: AtomicBool::new(self.sharding_proxy),
            home,
            scripts: Mutex::default(),
            watch: StoreWatch::new(Owner::Redis, self.on_health_change),
        });
        RedisStore {
            servers: servers(Arc::clone(&common)),
            common,
        }
    }
}

fn one(common: Arc<StoreCommon>, opener: Connector) -> Servers {
    Servers::One(Arc::new(Pipeline::new(common, opener, None)))
}

fn check_time(name: &str, time: Duration) -> Result<(), ConfigError> {
    if time.is_zero() || time > MAX_TIMEOUT {
        return Err(ConfigError::new(
            ConfigErrorKind::Deadline,
            format!("a {name} of {time:?} is not accepted; it is more than 0 and at most 1 hour"),
        ));
    }
    Ok(())
}

/// Checks that the files can be read and are usable at this address.
fn check_credentials(address: &Address, credentials: &Credentials) -> Result<(), ConfigError> {
    let has_password = |server: &ConnectionInfo| server.redis_settings().password().is_some();
    if credentials.password.is_some() && address.servers().iter().any(has_password) {
        return Err(bad(
            "the address of Redis has a password, and so has the file; only one of them is used",
        ));
    }
    let unusable = |error: &dyn fmt::Display| {
        bad(format!(
            "the password or the certificates for Redis are not usable: {error}"
        ))
    };
    let login = credentials.read_now().map_err(|error| unusable(&error))?;
    for server in address.servers() {
        login.at(server.clone()).map_err(|error| unusable(&error))?;
    }
    Ok(())
}

/// Rejects braces, which would select the slot in a cluster, and characters that form patterns in a
/// user's permissions.
fn check_prefix(prefix: &str) -> Result<(), ConfigError> {
    let is_accepted = |byte: u8| byte.is_ascii_graphic() && !b"{}*?[]\\".contains(&byte);
    if prefix.is_empty() || prefix.len() > MAX_PREFIX_LEN || !prefix.bytes().all(is_accepted) {
        return Err(ConfigError::new(
            ConfigErrorKind::Prefix,
            format!(
                "the prefix {prefix:?} is not accepted; it has 1 to {MAX_PREFIX_LEN} printable \
                 ASCII characters other than the space and {{ }} * ? [ ] \\"
            ),
        ));
    }
    Ok(())
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("deadline", &self.deadline)
            .field("sharding_proxy", &self.sharding_proxy)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}
