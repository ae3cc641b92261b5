//! The store of all counts: this process, or Redis.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tower_ratelimit::{
    LocalStore, OnFailure, RedisStore, RedisStoreBuilder, StoreHealth,
    rules::{Rules, RulesBuilder},
};

use tracing::error;

use crate::{
    decide_and_serve_errors::{ServeError, fault},
    limiters_by_period::Counters,
};

/// PEM files for an encrypted address of Redis, read at the start.
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

    /// The name of the store in the labels of metrics.
    pub(crate) const fn backend(&self) -> &'static str {
        match self {
            Self::Local(_) => "local",
            Self::Redis(_) => "redis",
        }
    }
}

/// The builder with the certificates of these files.
///
/// # Errors
///
/// When a file cannot be read.
pub(crate) fn with_certificates(
    mut store: RedisStoreBuilder,
    files: &RedisTlsFiles,
) -> Result<RedisStoreBuilder, ServeError> {
    let read = |file: &Path| {
        let place = format!("the certificates for Redis: {}", file.display());
        fs::read(file).map_err(|error| fault(&place, &error))
    };
    if let Some(authority) = &files.authority {
        store = store.tls_authorities(read(authority)?);
    }
    if let Some((certificate, key)) = &files.certificate {
        store = store.tls_client_certificate(read(certificate)?, read(key)?);
    }
    Ok(store)
}

/// Connects to the store at this address, with this prefix for keys. The password is read from the file, if there is
/// one.
pub(crate) fn redis(
    store: RedisStoreBuilder,
    prefix: Option<&str>,
    password: Option<&PathBuf>,
    address: &str,
) -> Result<RedisStore, ServeError> {
    let store = prefix.into_iter().fold(store, RedisStoreBuilder::prefix);
    let address = match password {
        Some(file) => &with_password(address, file)?,
        None => address,
    };
    store
        .connect(address)
        .map_err(|error| fault("--redis", &error))
}

/// The address with the password from a file.
///
/// # Errors
///
/// When the file cannot be read, or the address has a password already.
fn with_password(address: &str, file: &Path) -> Result<String, ServeError> {
    let place = || format!("--redis-password-file {}", file.display());
    let text = fs::read_to_string(file).map_err(|error| fault(&place(), &error))?;
    let password = percent_encoded(text.trim_end_matches(['\r', '\n']));
    let refused = |why: &str| ServeError(format!("{}: {why}", place()));
    let (scheme, rest) = address
        .split_once("://")
        .ok_or_else(|| refused("--redis is no address such as redis://10.0.0.7"))?;
    if scheme == "unix" || scheme == "redis+unix" {
        return if rest.contains("pass=") {
            Err(refused("--redis has a password, too"))
        } else {
            let mark = if rest.contains('?') { '&' } else { '?' };
            Ok(format!("{address}{mark}pass={password}"))
        };
    }
    let (user, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
    if user.contains(':') {
        Err(refused("--redis has a password, too"))
    } else {
        Ok(format!("{scheme}://{user}:{password}@{rest}"))
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_of_a_file_comes_into_the_address() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("password");
        assert!(with_password("redis://a", &file).is_err(), "no file");
        fs::write(&file, "p@ss:w/rd\n").expect("a file");
        for (address, expected) in [
            ("redis://a:1/2", "redis://:p%40ss%3Aw%2Frd@a:1/2"),
            ("rediss://eve@a", "rediss://eve:p%40ss%3Aw%2Frd@a"),
            (
                "redis-sentinel://a:1,b:2/main",
                "redis-sentinel://:p%40ss%3Aw%2Frd@a:1,b:2/main",
            ),
            ("unix:///run/r", "unix:///run/r?pass=p%40ss%3Aw%2Frd"),
            (
                "unix:///run/r?db=1",
                "unix:///run/r?db=1&pass=p%40ss%3Aw%2Frd",
            ),
        ] {
            assert_eq!(with_password(address, &file).expect("an address"), expected);
        }
        for address in ["redis://:x@a", "redis://eve:x@a", "unix:///r?pass=x", "a"] {
            let error = with_password(address, &file)
                .expect_err(address)
                .to_string();
            assert!(
                error.contains("--redis") && !error.contains("p@ss"),
                "{error}"
            );
        }
    }
}
