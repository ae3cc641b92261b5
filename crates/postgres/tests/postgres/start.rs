//! The start of a program: URL, table, rights, password, encryption.

use testkit::needs;
use tokio::task::JoinSet;
use tower_ratelimit::{Key, Quota, store::StoreErrorKind};
use tower_ratelimit_postgres::PostgresStore;

use crate::{Bench, acquire, is_allowed, kind, limiter, store, text};

#[tokio::test]
async fn a_missing_table_is_an_error_that_prints_the_migration() {
    needs!(postgres);
    let bench = Bench::without_table().await;
    let error = bench.store().check().await.unwrap_err().to_string();
    assert!(error.contains(PostgresStore::MIGRATION), "{error}");
    let limiter = bench.limiter(Quota::per_day(1));
    let first = text(&acquire(&limiter, "alice").await.unwrap_err());
    assert!(first.contains(PostgresStore::MIGRATION), "{first}");

    bench.run(PostgresStore::MIGRATION).await;
    bench.store().check().await.unwrap();
    let decision = crate::comes_up(&limiter).await;
    assert!(decision.is_allowed());
}

#[tokio::test]
async fn a_table_of_somebody_else_is_an_error() {
    needs!(postgres);
    let bench = Bench::without_table().await;
    bench
        .run("CREATE TABLE tower_ratelimit (key text PRIMARY KEY)")
        .await;
    for checked in [
        bench.store().create_table().await,
        bench.store().check().await,
    ] {
        let error = checked.unwrap_err().to_string();
        assert!(error.contains("42703"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_together_make_one_table() {
    needs!(postgres);
    let bench = Bench::start().await;
    for _ in 0..20 {
        bench.run("DROP TABLE tower_ratelimit").await;
        let mut nodes = JoinSet::new();
        for _ in 0..8 {
            let store = bench.store();
            nodes.spawn(async move { store.create_table().await.unwrap() });
        }
        nodes.join_all().await;
    }
}

const RIGHTS: [&str; 4] = ["SELECT", "INSERT", "UPDATE", "DELETE"];

impl Bench {
    /// The URL of a user with a password, and with no right but to connect.
    async fn user(&self) -> String {
        self.run("CREATE ROLE limiter LOGIN PASSWORD 'secret'; REVOKE CREATE ON SCHEMA public FROM public")
            .await;
        format!(
            "postgres://limiter:secret@127.0.0.1:{}/postgres",
            self.server.port()
        )
    }
}

#[tokio::test]
async fn four_rights_on_one_table_are_enough() {
    needs!(postgres);
    let bench = Bench::start().await;
    let url = bench.user().await;
    let grant = format!("GRANT {} ON tower_ratelimit TO limiter", RIGHTS.join(", "));
    bench.run(&grant).await;
    store(&url).create_table().await.unwrap();
    let limiter = limiter(store(&url), Quota::per_day(1));
    assert!(is_allowed(&limiter, &Key::from("alice")).await);
    assert!(!is_allowed(&limiter, &Key::from("alice")).await);
    store(&url).remove_expired().await.unwrap();
    for right in RIGHTS {
        bench
            .run(&format!("REVOKE {right} ON tower_ratelimit FROM limiter"))
            .await;
        let error = store(&url).check().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{right}: {error}");
        bench.run(&grant).await;
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_printed() {
    needs!(postgres);
    let bench = Bench::start().await;
    let url = bench.user().await.replace("secret", "geheim");
    let error = store(&url).check().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(
        error.to_string().contains("28P01") && !error.to_string().contains("geheim"),
        "{error}"
    );
    let limiter = limiter(store(&url), Quota::per_day(1));
    assert_eq!(
        kind(&acquire(&limiter, "alice").await.unwrap_err()),
        StoreErrorKind::Refused
    );
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_named() {
    needs!(postgres);
    let bench = Bench::without_table().await;
    let url = crate::url(bench.server.port()).replace("/postgres", "/nowhere");
    let error = store(&url).check().await.unwrap_err().to_string();
    assert!(error.contains("nowhere"), "{error}");
}

#[test]
fn a_malformed_url_is_an_error_without_its_text() {
    for url in [
        "postgres://limiter:geheim@host?sslmode=verify-full",
        "postgres://limiter:geheim@host?sslrootcert=file",
        "postgres://limiter:geheim@host:port",
        "host=localhost password=ge heim=x",
    ] {
        let error = PostgresStore::connect(url).unwrap_err().to_string();
        assert!(!error.contains("heim"), "{error}");
    }
}

#[cfg(not(feature = "tls"))]
#[test]
fn a_url_that_requires_encryption_needs_the_feature() {
    let error = PostgresStore::connect("postgres://host/db?sslmode=require").unwrap_err();
    assert!(error.to_string().contains("feature `tls`"), "{error}");
}

/// `SSL_CERT_FILE` belongs to a process: the test starts itself again, with the authorities that it trusts.
#[cfg(feature = "tls")]
#[tokio::test]
async fn required_encryption_verifies_the_certificate() {
    use std::{env, process::Command};

    use testkit::servers::Postgres;

    needs!(postgres, openssl);
    const URL: &str = "POSTGRES_URL_WITH_TLS";
    if let Ok(url) = env::var(URL) {
        let checked = store(&url).create_table().await;
        return checked.unwrap_or_else(|error| panic!("{error}"));
    }
    let server = Postgres::start_encrypted().await;
    let other = tempfile::tempdir().unwrap();
    testkit::servers::certificates::make_certificates(other.path());
    let strange = other.path().join(testkit::servers::certificates::AUTHORITY);
    let url = format!("{}?sslmode=require", crate::url(server.port()));
    for (authority, is_trusted) in [(server.authority(), true), (strange, false)] {
        let mut again = Command::new(env::current_exe().unwrap());
        again.args([
            "--exact",
            "start::required_encryption_verifies_the_certificate",
            "--nocapture",
        ]);
        let output = again
            .env(URL, &url)
            .env("SSL_CERT_FILE", authority)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_trusted, "{text}");
        assert!(is_trusted || text.contains("certificate"), "{text}");
    }
}

#[test]
fn the_page_has_the_migration() {
    let page = include_str!("../../README.md");
    assert!(page.contains(PostgresStore::MIGRATION));
}
