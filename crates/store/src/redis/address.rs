//! Addresses: one server, the servers of a cluster, or sentinels.

use std::borrow::Cow;

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisError,
    parse_redis_url,
};

use tower_ratelimit_core::error::{ConfigError, ConfigErrorKind};

/// The parameters of an address, by what it leads to.
const OF_SERVERS: &[&str] = &["protocol"];
const OF_SOCKETS: &[&str] = &["db", "pass", "protocol", "user"];
const OF_SENTINELS: &[&str] = &["protocol", "sentinel_password", "sentinel_user"];

#[derive(Clone)]
pub(super) enum Address {
    Server(ConnectionInfo),
    Cluster(Vec<ConnectionInfo>),
    Sentinel(Sentinels),
}

/// Addresses of sentinels, and the name of the master that they watch. User, password, database and
/// protocol of these addresses are for the servers.
#[derive(Clone)]
pub(super) struct Sentinels {
    pub(super) addresses: Vec<ConnectionInfo>,
    pub(super) master: String,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

impl Address {
    /// Parses one text. Its scheme selects the kind of deployment.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(unreadable)?;
        match scheme {
            "redis" | "rediss" | "valkey" | "valkeys" => server(text, OF_SERVERS).map(Self::Server),
            "unix" | "redis+unix" | "valkey+unix" => server(text, OF_SOCKETS).map(Self::Server),
            "redis-cluster" | "valkey-cluster" => Self::cluster(Hosts::new("redis", rest).each()),
            "rediss-cluster" | "valkeys-cluster" => {
                Self::cluster(Hosts::new("rediss", rest).each())
            }
            "redis-sentinel" | "valkey-sentinel" => Self::named_sentinels("redis", rest),
            "rediss-sentinel" | "valkeys-sentinel" => Self::named_sentinels("rediss", rest),
            _ => Err(bad(
                "the address of Redis has an unknown scheme; accepted are redis, rediss, unix, \
                 redis-cluster, rediss-cluster, redis-sentinel and rediss-sentinel",
            )),
        }
    }

    pub(super) fn cluster<T: AsRef<str>>(
        texts: impl IntoIterator<Item = T>,
    ) -> Result<Self, ConfigError> {
        servers(texts, OF_SERVERS).map(Self::Cluster)
    }

    pub(super) fn sentinel<T: AsRef<str>>(
        texts: impl IntoIterator<Item = T>,
        master: &str,
    ) -> Result<Self, ConfigError> {
        if master.is_empty() {
            return Err(bad(
                "the address of the sentinels lacks the master's name, as in \
                 redis-sentinel://host:26379/mymaster",
            ));
        }
        let texts: Vec<T> = texts.into_iter().collect();
        let first = texts.first().map_or("", AsRef::as_ref);
        Ok(Self::Sentinel(Sentinels {
            user: parameter(first, "sentinel_user"),
            password: parameter(first, "sentinel_password"),
            addresses: servers(texts, OF_SENTINELS)?,
            master: master.to_owned(),
        }))
    }

    /// Parses `hosts/master` or `hosts/master/database`.
    fn named_sentinels(scheme: &'static str, rest: &str) -> Result<Self, ConfigError> {
        let mut hosts = Hosts::new(scheme, rest);
        let path = hosts.path.trim_matches('/');
        let (master, database) = path.split_once('/').unwrap_or((path, ""));
        hosts.path = database;
        Self::sentinel(hosts.each(), master)
    }

    pub(super) fn servers(&self) -> &[ConnectionInfo] {
        match self {
            Self::Server(server) => std::slice::from_ref(server),
            Self::Cluster(servers) => servers,
            Self::Sentinel(sentinels) => &sentinels.addresses,
        }
    }

    /// The address without user and password, for texts.
    pub(super) fn shown(&self) -> String {
        let join = |servers: &[ConnectionInfo]| {
            let servers: Vec<_> = servers
                .iter()
                .map(|server| server.addr().to_string())
                .collect();
            servers.join(",")
        };
        match self {
            Self::Server(server) => server.addr().to_string(),
            Self::Cluster(servers) => format!("cluster {}", join(servers)),
            Self::Sentinel(sentinels) => {
                format!(
                    "sentinels {}/{}",
                    join(&sentinels.addresses),
                    sentinels.master
                )
            }
        }
    }
}

impl Sentinels {
    /// User, password, database and protocol for the servers.
    pub(super) fn servers(&self) -> &RedisConnectionInfo {
        self.addresses[0].redis_settings()
    }
}

struct Hosts<'a> {
    scheme: &'static str,
    login: &'a str,
    hosts: &'a str,
    path: &'a str,
    query: &'a str,
}

impl<'a> Hosts<'a> {
    fn new(scheme: &'static str, rest: &'a str) -> Self {
        let (rest, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        Self {
            scheme,
            login,
            hosts,
            path: path.trim_start_matches('/'),
            query,
        }
    }

    fn each(&self) -> impl Iterator<Item = String> {
        let (scheme, login, path, query) = (self.scheme, self.login, self.path, self.query);
        let hosts = self.hosts.split(',');
        hosts.map(move |host| format!("{scheme}://{login}{host}/{path}{query}"))
    }
}

fn servers<T: AsRef<str>>(
    texts: impl IntoIterator<Item = T>,
    parameters: &[&str],
) -> Result<Vec<ConnectionInfo>, ConfigError> {
    let servers: Vec<_> = texts
        .into_iter()
        .map(|text| server(text.as_ref(), parameters))
        .collect::<Result<_, _>>()?;
    if servers.is_empty() {
        return Err(bad("no address of Redis was given"));
    }
    if servers
        .iter()
        .any(|server| matches!(server.addr(), ConnectionAddr::Unix(_)))
    {
        return Err(bad("clusters and sentinels have no unix sockets"));
    }
    Ok(servers)
}

fn server(text: &str, parameters: &[&str]) -> Result<ConnectionInfo, ConfigError> {
    let url = parse_redis_url(text).ok_or_else(unreadable)?;
    if matches!(url.scheme(), "rediss" | "valkeys") && !cfg!(feature = "redis-tls") {
        return Err(bad(
            "an encrypted connection to Redis needs this crate's feature `redis-tls`",
        ));
    }
    if url.fragment().is_some() {
        return Err(bad(
            "the address of Redis has a fragment (`#`), which has no meaning; in a password it is \
             written %23",
        ));
    }
    let query = url.query().unwrap_or_default();
    check_parameters(query, url.query_pairs(), parameters)?;
    let read = text.into_connection_info();
    read.map_err(|error| unusable(&error))
}

/// Rejects parameters that would be ignored.
fn check_parameters<'a>(
    query: &str,
    pairs: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>,
    accepted: &[&str],
) -> Result<(), ConfigError> {
    let mut seen = Vec::new();
    for (name, _) in pairs {
        if seen.contains(&name) {
            return Err(bad(format!(
                "the address of Redis has the parameter `{name}` twice"
            )));
        }
        if accepted.contains(&&*name) {
            seen.push(name);
            continue;
        }
        let hint = if name == "db" {
            "; the number of the database is its path, as in redis://host:6379/1"
        } else {
            ""
        };
        return Err(bad(format!(
            "the address of Redis has {}; accepted are {}{hint}",
            shown_parameter(query, &name),
            accepted.join(", "),
        )));
    }
    Ok(())
}

/// The name of an unknown parameter, unless it may be part of a password with a `?`.
fn shown_parameter(query: &str, name: &str) -> String {
    let is_name = |byte: u8| byte.is_ascii_alphabetic() || b"_-".contains(&byte);
    if query.contains('=') && !query.contains('@') && name.bytes().all(is_name) {
        format!("an unknown parameter `{name}`")
    } else {
        "an unknown parameter (in a password `?` is written %3F)".to_owned()
    }
}

fn parameter(text: &str, name: &str) -> Option<String> {
    let url = parse_redis_url(text)?;
    url.query_pairs()
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
}

/// Creates an error without the text, which may contain a password anywhere.
fn unreadable() -> ConfigError {
    bad(
        "the address of Redis is not a URL like redis://user:password@host:6379/0; special \
         characters in user and password are percent-encoded",
    )
}

/// Creates the error of an unusable address. Its text does not repeat the address.
pub(super) fn unusable(error: &RedisError) -> ConfigError {
    // The first part is a fixed text, the rest may contain part of the address.
    let error = error.to_string();
    let reason = error.split(" - ").next().unwrap_or_default();
    bad(format!("the address of Redis is not usable: {reason}"))
}

pub(super) fn bad(message: impl Into<Cow<'static, str>>) -> ConfigError {
    ConfigError::new(ConfigErrorKind::Address, message)
}
