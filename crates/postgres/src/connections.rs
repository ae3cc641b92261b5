//! Connections: the pool, TLS, statements that need no session, and errors, whose texts contain no key.
#![cfg_attr(
    not(feature = "tls"),
    allow(clippy::clone_on_copy, reason = "only NoTls is Copy")
)]

use std::{error::Error as _, fmt, sync::Arc, time::Duration};

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts,
};
use tokio::runtime::Handle;
use tokio_postgres::{
    CancelToken, Config, NoTls, Row,
    config::{SslMode, TargetSessionAttrs},
    error::DbError,
    types::{ToSql, Type},
};
use tower_ratelimit::store::{StoreError, StoreErrorKind};

use crate::sql::MIGRATION;

const DEFAULT_CONNECTIONS: usize = 4;

/// The longest duration of a connection attempt to one of several hosts, so that there is time for the next
/// one. A `connect_timeout` in the URL replaces it.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(100);

/// The longest duration of cancelling a statement that nobody waits for.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(feature = "tls")]
type Encryption = tokio_postgres_rustls::MakeRustlsConnect;
#[cfg(not(feature = "tls"))]
type Encryption = NoTls;

#[derive(Clone)]
pub(crate) struct Connections(Pool, Option<Encryption>);

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connections").field(&self.0).finish()
    }
}

impl Connections {
    pub(crate) fn new(url: &str) -> Result<Self, StoreError> {
        let mut config: Config = url.parse().map_err(|_| {
            unusable(
                "the URL is malformed, or has an option that tokio_postgres::Config does not have: \
                 `sslmode` is disable, prefer or require",
            )
        })?;
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
            if config.get_connect_timeout().is_none() {
                config.connect_timeout(CONNECT_TIMEOUT);
            }
        }
        if config.get_application_name().is_none() {
            config.application_name("tower-ratelimit");
        }
        let (manager, encryption) = manager(config)?;
        let pool = Pool::builder(manager)
            .max_size(DEFAULT_CONNECTIONS)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| unusable(error.to_string()))?;
        Ok(Self(pool, encryption))
    }

    pub(crate) fn resize(&self, connections: usize) {
        self.0.resize(connections);
    }

    /// Runs statements without parameters, as one transaction.
    pub(crate) async fn run(&self, statements: &str) -> Result<(), StoreError> {
        let lent = self.lend(None).await?;
        let ran = lent.client()?.batch_execute(statements).await;
        self.give_back(lent, ran)
    }

    /// Runs a statement that returns one row at most, in one round trip and without preparing it: a
    /// pooler may use another session for the next one.
    pub(crate) async fn row(
        &self,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
        longest_wait: Duration,
    ) -> Result<Option<Row>, StoreError> {
        let lent = self.lend(Some(longest_wait)).await?;
        let row = lent.client()?.query_typed_opt(statement, parameters).await;
        self.give_back(lent, row)
    }

    async fn lend(&self, longest_wait: Option<Duration>) -> Result<Lent, StoreError> {
        let timeouts = Timeouts {
            wait: longest_wait,
            ..Timeouts::default()
        };
        let connection = self.0.timeout_get(&timeouts).await.map_err(pool_failure)?;
        Ok(Lent(Some(connection), self.1.clone()))
    }

    /// Returns the connection to the pool, unless it may be at fault.
    fn give_back<T>(
        &self,
        mut lent: Lent,
        result: Result<T, tokio_postgres::Error>,
    ) -> Result<T, StoreError> {
        let result = result.map_err(failure);
        match result.as_ref().map_err(StoreError::kind) {
            Ok(_) | Err(StoreErrorKind::Contended) => drop(lent.0.take()),
            // The server has become a replica: the other connections lead there, too.
            Err(StoreErrorKind::ReadOnly) => drop(self.0.retain(|_, _| false)),
            Err(_) => {}
        }
        result
    }
}

/// A connection of the pool. It is closed on drop, and a statement that is still under way on it is cancelled:
/// a server that waits for a lock does not notice that its client has gone.
struct Lent(Option<Object>, Option<Encryption>);

impl Lent {
    fn client(&self) -> Result<&Object, StoreError> {
        self.0.as_ref().ok_or_else(|| unusable("no connection"))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            if let (false, Ok(runtime)) = (connection.is_closed(), Handle::try_current()) {
                let cancelling = cancel(connection.cancel_token(), self.1.take());
                runtime.spawn(tokio::time::timeout(CANCEL_TIMEOUT, cancelling));
            }
            drop(Object::take(connection));
        }
    }
}

async fn cancel(token: CancelToken, encryption: Option<Encryption>) {
    let cancelled = match encryption {
        Some(tls) => token.cancel_query(tls).await,
        None => token.cancel_query(NoTls).await,
    };
    if let Err(error) = cancelled {
        tracing::debug!(%error, "a statement that nobody waits for was not cancelled");
    }
}

fn unusable(detail: impl Into<Arc<str>>) -> StoreError {
    StoreError::new(StoreErrorKind::Other, detail)
}

fn manager(mut config: Config) -> Result<(Manager, Option<Encryption>), StoreError> {
    let recycling = ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    };
    if config.get_ssl_mode() == SslMode::Require {
        let tls = encryption()?;
        let manager = Manager::from_config(config, tls.clone(), recycling);
        return Ok((manager, Some(tls)));
    }
    config.ssl_mode(SslMode::Disable);
    Ok((Manager::from_config(config, NoTls, recycling), None))
}

#[cfg(not(feature = "tls"))]
fn encryption() -> Result<Encryption, StoreError> {
    Err(unusable(
        "the URL has sslmode=require: add the feature `tls` of tower-ratelimit-postgres",
    ))
}

/// Certificates are always verified, with the server's name, by the operating system's authorities.
#[cfg(feature = "tls")]
fn encryption() -> Result<Encryption, StoreError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(unusable(
            "sslmode=require: this machine has no certificates of authorities; SSL_CERT_FILE names a file of them",
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Encryption::new(tls))
}

fn pool_failure(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => failure(error),
        PoolError::Timeout(_) => StoreError::new(
            StoreErrorKind::Crowded,
            "all connections of the pool are in use: raise `max_connections`",
        ),
        error => StoreError::new(StoreErrorKind::Disconnected, error.to_string()),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn failure(error: tokio_postgres::Error) -> StoreError {
    let Some(error) = error.as_db_error() else {
        let cause = error
            .source()
            .map_or_else(String::new, |cause| format!(": {cause}"));
        return StoreError::new(StoreErrorKind::Disconnected, format!("{error}{cause}"));
    };
    let code = error.code().code();
    StoreError::new(kind(code), detail(code, error))
}

/// The kind of an SQLSTATE.
fn kind(code: &str) -> StoreErrorKind {
    use StoreErrorKind::{
        Contended, Disconnected, Loading, Other, OutOfMemory, ReadOnly, Refused, Timeout,
    };
    match code {
        // The latter on a standby, which has no table that is unlogged.
        "25006" | "0A000" => ReadOnly,
        "40001" | "40P01" => Contended,
        "42501" => Refused,
        "53100" | "53200" => OutOfMemory,
        "53300" => Disconnected,
        // Cancelled by a timeout of the server's.
        "55P03" | "57014" => Timeout,
        "57P03" => Loading,
        _ => match &code[..2] {
            "28" => Refused,
            "08" | "57" => Disconnected,
            _ => Other,
        },
    }
}

/// The code, and the text where it cannot contain a value.
fn detail(code: &str, error: &DbError) -> String {
    const SAFE: [&str; 8] = ["08", "25", "28", "3D", "42", "53", "57", "58"];
    let mut detail = format!("SQLSTATE {code}");
    if SAFE.contains(&&code[..2]) {
        detail = format!("{detail}, {}", error.message());
    }
    if code == "42P01" {
        detail = format!(
            "{detail}; create the table with `create_table` or by this migration:\n{}",
            MIGRATION
        );
    }
    detail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_takes_no_writes_is_left_for_another() {
        for code in ["25006", "0A000"] {
            assert_eq!(kind(code), StoreErrorKind::ReadOnly, "{code}");
        }
        assert_eq!(kind("0A001"), StoreErrorKind::Other);
    }
}
