//! The store of all counts: this process, or Redis.

use std::path::PathBuf;

use tower_ratelimit::{
    LocalStore, OnFailure, RedisStore, RedisStoreBuilder, StoreHealth,
    rules::{Rules, RulesBuilder},
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

/// The files with the password and the certificates for Redis. They are read again for each connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RedisFiles<'a> {
    pub(crate) password: Option<&'a PathBuf>,
    pub(crate) tls: &'a RedisTlsFiles,
}

/// Connects to the store at this address, with this prefix for keys.
pub(crate) fn redis(
    mut store: RedisStoreBuilder,
    prefix: Option<&str>,
    files: RedisFiles<'_>,
    address: &str,
) -> Result<RedisStore, ServeError> {
    if let Some(prefix) = prefix {
        store = store.prefix(prefix);
    }
    if let Some(password) = files.password {
        store = store.password_file(password);
    }
    if let Some(authority) = &files.tls.authority {
        store = store.tls_authorities_file(authority);
    }
    if let Some((certificate, key)) = &files.tls.certificate {
        store = store.tls_client_certificate_files(certificate, key);
    }
    store
        .connect(address)
        .map_err(|error| fault("--redis", &error))
}
