//! Statements. Each is one transaction of its own, and leaves nothing in the session.

macro_rules! table {
    () => {
        r#"CREATE UNLOGGED TABLE tower_ratelimit (
    key text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL,
    expires timestamptz NOT NULL
) WITH (fillfactor = 50);"#
    };
}

/// Makes the table. Half of each page is free, so that an update leaves the index alone.
pub(crate) const MIGRATION: &str = table!();

/// Makes the table unless it exists; then no right to make one is needed. Nodes that start together
/// wait for each other.
pub(crate) const CREATE: &str = concat!(
    "DO $$ BEGIN
        PERFORM pg_advisory_xact_lock(hashtext('tower_ratelimit'));
        IF to_regclass('tower_ratelimit') IS NULL THEN ",
    table!(),
    " END IF; END $$"
);

/// Changes nothing, and fails if a column or a right is missing.
pub(crate) const CHECK: &str = "
    INSERT INTO tower_ratelimit AS old (key, value, expires)
    SELECT '', ''::bytea, clock_timestamp() WHERE false
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires = excluded.expires
    WHERE old.expires <= clock_timestamp();
    DELETE FROM tower_ratelimit WHERE false AND key = ''";

/// `xmin`, the transaction that wrote the row, is its version.
pub(crate) const LOAD: &str = "
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, value, row.xmin::text::bigint
    FROM (VALUES (1)) AS one LEFT JOIN tower_ratelimit AS row ON key = $1 AND expires > clock_timestamp()";

pub(crate) const INSERT: &str = "
    INSERT INTO tower_ratelimit AS old (key, value, expires)
    VALUES ($1, $2, clock_timestamp() + $3 * interval '1 ms')
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires = excluded.expires
    WHERE old.expires <= clock_timestamp()
    RETURNING xmin::text::bigint";

pub(crate) const UPDATE: &str = "
    UPDATE tower_ratelimit SET value = $2, expires = clock_timestamp() + $3 * interval '1 ms'
    WHERE key = $1 AND xmin::text::bigint = $4
    RETURNING xmin::text::bigint";

/// Reads the next thousand keys and deletes those that have expired. It waits for no lock: a row that
/// another statement is writing is not over.
pub(crate) const CLEAN: &str = "
    WITH batch AS MATERIALIZED (
        SELECT key FROM tower_ratelimit WHERE key > $1 ORDER BY key LIMIT 1000
    ), over AS MATERIALIZED (
        SELECT key FROM tower_ratelimit
        WHERE key IN (SELECT key FROM batch) AND expires <= clock_timestamp()
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM tower_ratelimit WHERE key IN (SELECT key FROM over) RETURNING 1
    )
    SELECT (SELECT max(key) FROM batch), (SELECT count(*) FROM gone)";
