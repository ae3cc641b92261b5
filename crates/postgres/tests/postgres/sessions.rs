//! Nothing stays in a session: poolers, prepared statements, the number of connections.

use testkit::{needs, servers::PgBouncer};
use tokio::task::JoinSet;
use tokio_postgres::SimpleQueryMessage;
use tower_ratelimit::{Key, Quota};

use crate::{Bench, connect, counts::passed, is_allowed, limiter, store, url};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_in_transaction_mode_exactly_the_limit_passes() {
    needs!(postgres, pgbouncer);
    let bench = Bench::without_table().await;
    let pooler = PgBouncer::before(&bench.server, 2).await;
    let store = || store(&url(pooler.port()));
    store().create_table().await.unwrap();
    let nodes = [(); 4].map(|()| limiter(store(), Quota::per_day(500).fixed_window()));
    assert_eq!(passed(&nodes).await, 500);
    assert_eq!(store().remove_expired().await.unwrap(), 0);
}

#[tokio::test]
async fn no_statement_lock_or_setting_stays_in_a_session() {
    needs!(postgres, pgbouncer);
    let bench = Bench::without_table().await;
    // The only session, which is ours and the store's in turn.
    let pooler = PgBouncer::before(&bench.server, 1).await;
    let admin = connect(pooler.port()).await;
    let settings = "SELECT name, setting FROM pg_settings
        WHERE source = 'session' AND name NOT IN ('application_name', 'client_encoding')";
    let rows = async |query: &str| {
        let answer = admin.simple_query(query).await.unwrap();
        let is_row = |message: &&_| matches!(message, SimpleQueryMessage::Row(_));
        answer.iter().filter(is_row).count()
    };
    let before = rows(settings).await;
    let store = store(&url(pooler.port()));
    store.create_table().await.unwrap();
    store.remove_expired().await.unwrap();
    let limiter = limiter(store, Quota::per_day(10));
    for _ in 0..5 {
        assert!(is_allowed(&limiter, &Key::from("alice")).await);
    }
    assert_eq!(rows("SELECT FROM pg_prepared_statements").await, 0);
    assert_eq!(
        rows("SELECT FROM pg_locks WHERE locktype = 'advisory'").await,
        0
    );
    assert_eq!(rows("SELECT FROM pg_cursors WHERE name <> ''").await, 0);
    assert_eq!(rows(settings).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_has_no_more_connections_than_it_may() {
    needs!(postgres);
    let bench = Bench::start().await;
    let limiter = limiter(bench.store().max_connections(3), Quota::per_day(1));
    let mut tasks = JoinSet::new();
    for key in 0_u64..300 {
        let limiter = limiter.clone();
        tasks.spawn(async move { is_allowed(&limiter, &Key::from(key)).await });
    }
    assert!(tasks.join_all().await.into_iter().all(|passes| passes));
    let connections =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tower-ratelimit'";
    // Connections of the bench's own store end a moment after it.
    testkit::child_processes::eventually("three connections", async || {
        (bench.number(connections).await == 3).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_locked_table_does_not_collect_sessions() {
    needs!(postgres);
    let bench = Bench::start().await;
    let store = || {
        let store = tower_ratelimit_postgres::PostgresStore::connect(&url(bench.server.port()));
        store
            .unwrap()
            .deadline(std::time::Duration::from_millis(100))
    };
    bench
        .run("BEGIN; LOCK TABLE tower_ratelimit IN ACCESS EXCLUSIVE MODE")
        .await;
    for _ in 0..10 {
        let limiter = limiter(store().max_connections(1), Quota::per_day(1));
        drop(crate::acquire(&limiter, "alice").await);
    }
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'tower-ratelimit' AND wait_event_type = 'Lock'";
    testkit::child_processes::eventually("no session that waits", async || {
        // Statistics are those of the start of a transaction.
        bench.run("SELECT pg_stat_clear_snapshot()").await;
        (bench.number(waiting).await == 0).then_some(())
    })
    .await;
    bench.run("ROLLBACK").await;
}
