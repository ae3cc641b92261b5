//! Limits that nodes share through Postgres: [`PostgresStore`], on a table of bytes.

use std::{sync::Arc, time::Duration};

use tokio::sync::Mutex;
use tokio_postgres::{Client, Config, NoTls, Statement, error::SqlState};
use tower_ratelimit::{
    clock::Timestamp,
    shared::{CompareAndSwap, Versioned, Write},
    store::{StoreError, StoreErrorKind},
};

/// Counts are worth no log: the table is `UNLOGGED` and empty after a crash, the sequence is not, so
/// that no version comes twice. Nodes that start together wait for each other. There is no index on `expires`, and room in each page, so that an
/// update leaves the index alone.
const SCHEMA: &str = "
    SELECT pg_advisory_xact_lock(hashtext('rate_limits'));
    CREATE SEQUENCE IF NOT EXISTS rate_limit_versions;
    CREATE UNLOGGED TABLE IF NOT EXISTS rate_limits (
        key text PRIMARY KEY,
        value bytea NOT NULL,
        version bigint NOT NULL,
        expires timestamptz NOT NULL
    ) WITH (fillfactor = 50);";

const LOAD: &str = "
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, value, version
    FROM (VALUES (1)) AS one LEFT JOIN rate_limits ON key = $1 AND expires > clock_timestamp()";

const INSERT: &str = "
    INSERT INTO rate_limits AS old (key, value, version, expires)
    VALUES ($1, $2, nextval('rate_limit_versions'), clock_timestamp() + $3 * interval '1 ms')
    ON CONFLICT (key) DO UPDATE
    SET value = excluded.value, version = excluded.version, expires = excluded.expires
    WHERE old.expires <= clock_timestamp()
    RETURNING version";

const UPDATE: &str = "
    UPDATE rate_limits SET value = $2, version = nextval('rate_limit_versions'),
        expires = clock_timestamp() + $3 * interval '1 ms'
    WHERE key = $1 AND version = $4
    RETURNING version";

/// Values in a table of Postgres. A [`Cas`](tower_ratelimit::shared::Cas) of it is a store.
#[derive(Debug)]
pub struct PostgresStore {
    config: Config,
    deadline: Duration,
    session: Mutex<Option<Arc<Session>>>,
}

/// A connection, on which any number of statements may be under way.
#[derive(Debug)]
struct Session {
    client: Client,
    load: Statement,
    insert: Statement,
    update: Statement,
}

impl PostgresStore {
    /// The database of this configuration. It is connected to with the first request.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            deadline: Duration::from_millis(250),
            session: Mutex::default(),
        }
    }

    /// How long a decision waits at most. Defaults to 250 milliseconds.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Makes the table, for a start-up or a migration.
    ///
    /// # Errors
    ///
    /// When the database does not do it.
    pub async fn create_table(&self) -> Result<(), StoreError> {
        let client = self.connect().await?;
        client.batch_execute(SCHEMA).await.map_err(failure)
    }

    /// Removes the rows that are over: now and then, on any node.
    ///
    /// # Errors
    ///
    /// When the database does not do it.
    pub async fn remove_expired(&self) -> Result<u64, StoreError> {
        let remove = "DELETE FROM rate_limits WHERE expires <= clock_timestamp()";
        // On a connection of its own, so that no decision waits behind it.
        let client = self.connect().await?;
        client.execute(remove, &[]).await.map_err(failure)
    }

    async fn connect(&self) -> Result<Client, StoreError> {
        let (client, connection) = self.config.connect(NoTls).await.map_err(failure)?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// The connection that there is, or a new one if it has ended.
    async fn session(&self) -> Result<Arc<Session>, StoreError> {
        let mut place = self.session.lock().await;
        if let Some(session) = place.as_ref().filter(|session| !session.client.is_closed()) {
            return Ok(Arc::clone(session));
        }
        let client = self.connect().await?;
        let session = Arc::new(Session {
            load: client.prepare(LOAD).await.map_err(failure)?,
            insert: client.prepare(INSERT).await.map_err(failure)?,
            update: client.prepare(UPDATE).await.map_err(failure)?,
            client,
        });
        *place = Some(Arc::clone(&session));
        Ok(session)
    }
}

impl CompareAndSwap for PostgresStore {
    type Version = i64;

    async fn load(&self, key: &str) -> Result<(Versioned<i64>, Timestamp), StoreError> {
        let session = self.session().await?;
        let row = session.client.query_one(&session.load, &[&key]).await;
        let row = row.map_err(failure)?;
        let now = Timestamp::from_micros(row.get::<_, i64>(0).cast_unsigned());
        let value: Option<Vec<u8>> = row.get(1);
        Ok((value.zip(row.get(2)), now))
    }

    async fn swap(
        &self,
        key: &str,
        old: Option<i64>,
        new: &Write,
    ) -> Result<Option<i64>, StoreError> {
        let session = self.session().await?;
        let millis = new.expires_in.as_millis() as f64;
        let client = &session.client;
        let row = match old {
            None => {
                client
                    .query_opt(&session.insert, &[&key, &new.value, &millis])
                    .await
            }
            Some(version) => {
                let update = &session.update;
                client
                    .query_opt(update, &[&key, &new.value, &millis, &version])
                    .await
            }
        };
        Ok(row.map_err(failure)?.map(|row| row.get(0)))
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }
}

/// The database's error, without its text: that may hold a key.
#[allow(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn failure(error: tokio_postgres::Error) -> StoreError {
    use StoreErrorKind::{Disconnected, Other, OutOfMemory, ReadOnly, Refused};
    let Some(code) = error.code().map(SqlState::code) else {
        return StoreError::new(Disconnected, "no connection to Postgres, or it ended");
    };
    let kind = match (code, &code[..2]) {
        ("25006", _) => ReadOnly,
        ("42501", _) | (_, "28") => Refused,
        ("53200" | "53100", _) => OutOfMemory,
        (_, "08" | "57") => Disconnected,
        _ => Other,
    };
    StoreError::new(kind, format!("SQLSTATE {code}"))
}
