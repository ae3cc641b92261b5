//! The store of all counts: this process, or Redis.

use std::{path::PathBuf, time::Duration};

use tower_ratelimit::{
    LocalStore, OnFailure, RedisStore,
    rules::{Rules, RulesBuilder},
    store::StoreHealth,
};

use tracing::error;

use crate::{
    decide_and_serve_errors::{ServeError, fault},
    limiters_by_period::Counters,
};

/// PEM files for an encrypted address of Redis, read for each connection.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RedisTlsFiles {
    /// Certificates of authorities. Defaults to those of the system.
    pub authority: Option<PathBuf>,
    /// The certificate of this service, and its key. Defaults to none.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// The store of all counts.
#[derive(Clone)]
pub(crate) enum Store {
    Local(LocalStore),
    Redis(RedisStore),
}

impl Store {
    pub(crate) fn counters(&self, on_failure: OnFailure) -> Counters {
        match self {
            Self::Local(store) => Counters::local(store),
            Self::Redis(store) => Counters::redis(store, on_failure),
        }
    }

    /// A reader of rules of requests that count in this store.
    pub(crate) fn request_rules(&self) -> RulesBuilder {
        match self.clone() {
            Self::Local(store) => Rules::builder().store(store),
            Self::Redis(store) => Rules::builder().store(store),
        }
    }

    /// Whether the store responds, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        let Self::Redis(store) = self else {
            return true;
        };
        let health = store.health();
        health != StoreHealth::Untried && !health.is_down()
    }

    /// Checks the store when the process starts. Otherwise a wrong password would be noticed at the first request.
    pub(crate) async fn check_at_start(&self, on_failure: &str) {
        if let Self::Redis(store) = self
            && let Err(error) = store.check().await
        {
            error!("Redis cannot be used: {error}; until it can, {on_failure} decides");
        }
    }

    /// Connects anew with the password and the certificates that are in the files now. The open connection stays if
    /// Redis refuses them.
    pub(crate) fn reconnect(&self) {
        let Self::Redis(store) = self.clone() else {
            return;
        };
        tokio::spawn(async move {
            if let Err(error) = store.reconnect().await {
                error!("Redis cannot be reached anew, and the open connection stays: {error}");
            }
        });
    }

    /// The name of the store in the labels of metrics.
    pub(crate) const fn backend(&self) -> &'static str {
        match self {
            Self::Local(_) => "local",
            Self::Redis(_) => "redis",
        }
    }
}

/// How to connect to Redis. The files are read again for each connection.
pub(crate) struct RedisOptions<'a> {
    pub(crate) deadline: Duration,
    /// The prefix of all keys.
    pub(crate) prefix: Option<&'a str>,
    pub(crate) password: Option<&'a PathBuf>,
    pub(crate) tls: &'a RedisTlsFiles,
    pub(crate) sharding_proxy: bool,
}

impl RedisOptions<'_> {
    /// Connects to the store at this address.
    pub(crate) fn connect(self, address: &str) -> Result<RedisStore, ServeError> {
        let mut store = RedisStore::builder().deadline(self.deadline);
        if let Some(prefix) = self.prefix {
            store = store.prefix(prefix);
        }
        if let Some(password) = self.password {
            store = store.password_file(password);
        }
        if let Some(authority) = &self.tls.authority {
            store = store.tls_authorities_file(authority);
        }
        if let Some((certificate, key)) = &self.tls.certificate {
            store = store.tls_client_certificate_files(certificate, key);
        }
        if self.sharding_proxy {
            store = store.sharding_proxy();
        }
        store
            .connect(address)
            .map_err(|error| fault("--redis", &error))
    }
}
