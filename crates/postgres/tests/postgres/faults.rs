//! The database stops, crashes, hangs, moves, is full, or rolls transactions back.

use std::{net::SocketAddr, time::Duration};

use testkit::{
    child_processes::eventually,
    needs,
    servers::{Flow, Postgres, Proxy},
};
use tower_ratelimit::{
    Key, Quota,
    shared::SharedLimiter,
    store::{StoreErrorKind, StoreHealth},
};
use tower_ratelimit_postgres::PostgresStore;

use crate::{
    Bench, Limiter, acquire, comes_up, connect, counts::passed, goes_down, is_allowed, kind,
    limiter, store, url,
};

const LASTING: Quota = Quota::per_day(1_000_000).fixed_window();

/// Not so long that a test of a database that hangs takes minutes.
fn hasty(url: &str) -> PostgresStore {
    let store = PostgresStore::connect(url).unwrap();
    store.deadline(Duration::from_millis(500))
}

#[tokio::test]
async fn stopped_and_started_again_with_its_counts() {
    needs!(postgres);
    let mut bench = Bench::start().await;
    let limiter = bench.limiter(Quota::per_day(3).fixed_window());
    assert_eq!(comes_up(&limiter).await.remaining(), Some(2));
    bench.server.stop().await;
    let cause = goes_down(&limiter).await;
    assert_eq!(cause, StoreErrorKind::Disconnected);
    bench.server.start_again().await;
    assert_eq!(comes_up(&limiter).await.remaining(), Some(1));
}

#[tokio::test]
async fn crashed_and_empty() {
    needs!(postgres);
    let mut bench = Bench::start().await;
    let limiter = bench.limiter(Quota::per_day(1).fixed_window());
    assert!(is_allowed(&limiter, &Key::from("alice")).await);
    bench.server.crash().await;
    goes_down(&limiter).await;
    bench.server.start_again().await;
    eventually("an empty table", async || {
        let decision = acquire(&limiter, "bob").await.ok()?;
        decision.is_allowed().then_some(())
    })
    .await;
    let fresh = crate::limiter(
        store(&url(bench.server.port())),
        Quota::per_day(1).fixed_window(),
    );
    assert!(is_allowed(&fresh, &Key::from("alice")).await);
}

#[tokio::test]
async fn without_the_database_each_node_decides() {
    needs!(postgres);
    let mut bench = Bench::start().await;
    let builder = SharedLimiter::builder(Quota::per_day(3).fixed_window());
    let limiter = builder.build_on(bench.store()).unwrap();
    bench.server.stop().await;
    let mut allowed = 0;
    for _ in 0..10 {
        let decision = acquire(&limiter, "alice").await.unwrap();
        assert!(decision.is_degraded());
        allowed += u32::from(decision.is_allowed());
    }
    assert_eq!(allowed, 3);
}

#[tokio::test]
async fn hung_and_back() {
    needs!(postgres);
    let bench = Bench::start().await;
    for flow in [Flow::BlackHole, Flow::BlackHoleResponses] {
        let address = SocketAddr::from(([127, 0, 0, 1], bench.server.port()));
        let proxy = Proxy::before(address).await;
        let limiter = limiter(hasty(&url(proxy.port())), LASTING);
        comes_up(&limiter).await;
        proxy.set(flow);
        assert_eq!(
            goes_down(&limiter).await,
            StoreErrorKind::Timeout,
            "{flow:?}"
        );
        proxy.set(Flow::Forward);
        comes_up(&limiter).await;
    }
}

#[tokio::test]
async fn connections_are_ended_again_and_again() {
    needs!(postgres);
    let bench = Bench::start().await;
    let limiter = bench.limiter(LASTING);
    for _ in 0..5 {
        comes_up(&limiter).await;
        bench
            .run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
            )
            .await;
    }
    comes_up(&limiter).await;
}

/// A second server, and a limiter that knows both.
async fn two_servers(bench: &Bench) -> (Postgres, Limiter) {
    let other = Postgres::start().await;
    store(&url(other.port())).create_table().await.unwrap();
    let both = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres",
        bench.server.port(),
        other.port()
    );
    let limiter = limiter(store(&both), LASTING);
    (other, limiter)
}

async fn rows(server: &Postgres) -> i64 {
    let admin = connect(server.port()).await;
    let count = "SELECT count(*) FROM tower_ratelimit WHERE key <> 'rl:trial'";
    admin.query_one(count, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn failed_over_since_the_primary_has_gone() {
    needs!(postgres);
    let mut bench = Bench::start().await;
    let (other, limiter) = two_servers(&bench).await;
    comes_up(&limiter).await;
    assert_eq!((rows(&bench.server).await, rows(&other).await), (1, 0));
    bench.server.stop().await;
    comes_up(&limiter).await;
    assert_eq!(rows(&other).await, 1);
}

#[tokio::test]
async fn failed_over_since_the_primary_takes_no_writes() {
    needs!(postgres);
    let bench = Bench::start().await;
    let (other, limiter) = two_servers(&bench).await;
    comes_up(&limiter).await;
    bench
        .run("ALTER SYSTEM SET default_transaction_read_only = on")
        .await;
    bench.run("SELECT pg_reload_conf()").await;
    eventually("a row of the other server", async || {
        drop(acquire(&limiter, "alice").await);
        (rows(&other).await == 1).then_some(())
    })
    .await;
    comes_up(&limiter).await;
}

#[tokio::test]
async fn a_single_server_that_takes_no_writes() {
    needs!(postgres);
    let bench = Bench::start().await;
    let limiter = bench.limiter(LASTING);
    comes_up(&limiter).await;
    bench
        .run("ALTER SYSTEM SET default_transaction_read_only = on")
        .await;
    bench.run("SELECT pg_reload_conf()").await;
    assert_eq!(goes_down(&limiter).await, StoreErrorKind::ReadOnly);
    let checked = bench.store().check().await;
    assert_eq!(checked.unwrap_err().kind(), StoreErrorKind::ReadOnly);
    bench
        .run("ALTER SYSTEM RESET default_transaction_read_only")
        .await;
    bench.run("SELECT pg_reload_conf()").await;
    comes_up(&limiter).await;
}

impl Bench {
    /// Each write of a count fails with this SQLSTATE.
    async fn fail_with(&self, code: &str) {
        self.run(&format!(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN RAISE EXCEPTION ''alice'' USING ERRCODE = ''{code}''; END';
             CREATE TRIGGER fail BEFORE INSERT OR UPDATE ON tower_ratelimit
                 FOR EACH ROW EXECUTE FUNCTION fail()"
        ))
        .await;
    }

    async fn succeed(&self) {
        self.run("DROP FUNCTION fail CASCADE").await;
    }
}

#[tokio::test]
async fn errors_of_the_server_as_those_of_a_store() {
    needs!(postgres);
    let bench = Bench::start().await;
    use StoreErrorKind::{Contended, Disconnected, Loading, Other, OutOfMemory, Refused, Timeout};
    for (code, expected) in [
        // A disk and a memory that are full.
        ("53100", OutOfMemory),
        ("53200", OutOfMemory),
        ("57P03", Loading),
        ("57014", Timeout),
        ("42501", Refused),
        ("08006", Disconnected),
        // Rolled back each time that it is tried.
        ("40001", Contended),
        ("40P01", Contended),
        ("23514", Other),
    ] {
        let limiter = bench.limiter(LASTING);
        comes_up(&limiter).await;
        bench.fail_with(code).await;
        let error = acquire(&limiter, "alice").await.unwrap_err();
        assert_eq!(kind(&error), expected, "{code}");
        if expected == Contended {
            // It is about one key.
            let health = limiter.health();
            assert!(!matches!(health, StoreHealth::Down { .. }), "{code}");
        } else {
            assert_eq!(goes_down(&limiter).await, expected, "{code}");
        }
        bench.succeed().await;
        comes_up(&limiter).await;
    }
}

#[tokio::test]
async fn the_text_of_an_error_contains_no_value() {
    needs!(postgres);
    let bench = Bench::start().await;
    let limiter = bench.limiter(LASTING);
    comes_up(&limiter).await;
    bench.fail_with("23514").await;
    let error = acquire(&limiter, "alice").await.unwrap_err();
    let text = crate::text(&error);
    assert!(text.contains("23514") && !text.contains("alice"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serialization_failures_cost_nobody_a_unit() {
    needs!(postgres);
    let bench = Bench::start().await;
    bench
        .run("ALTER DATABASE postgres SET default_transaction_isolation = serializable")
        .await;
    let nodes = [(); 4].map(|()| bench.limiter(Quota::per_day(500).fixed_window()));
    assert_eq!(passed(&nodes).await, 500);
}

#[tokio::test]
async fn a_row_that_is_locked_and_a_pool_in_use_fail_and_the_rest_works() {
    needs!(postgres);
    let bench = Bench::start().await;
    let store = hasty(&url(bench.server.port())).max_connections(1);
    let limiter = limiter(store, LASTING);
    comes_up(&limiter).await;
    bench
        .run("BEGIN; SELECT FROM tower_ratelimit FOR UPDATE")
        .await;
    eventually("a request that finds no connection", async || {
        let waiting = {
            let limiter = limiter.clone();
            tokio::spawn(async move { acquire(&limiter, "alice").await })
        };
        tokio::time::sleep(Duration::from_millis(20)).await;
        let other = acquire(&limiter, "bob").await;
        let first = waiting.await.unwrap().unwrap_err();
        assert!(
            matches!(
                kind(&first),
                StoreErrorKind::Timeout | StoreErrorKind::BreakerOpen | StoreErrorKind::Crowded
            ),
            "{first}"
        );
        let error = other.err()?;
        (kind(&error) == StoreErrorKind::Crowded).then_some(())
    })
    .await;
    bench.run("ROLLBACK").await;
    comes_up(&limiter).await;
}
