//! A password in a file, which is replaced while the store is in use.

use std::fs;

use testkit::{child_processes::eventually, needs};
use tower_ratelimit::{RedisStore, store::StoreErrorKind};

use super::{fault, patient};
use crate::servers::{Server, Setup};

const USER: &str = "limiter on >first ~rl:* -@all +evalsha +script|load +get +set +time";

struct Rotation {
    server: Server,
    folder: tempfile::TempDir,
    store: RedisStore,
}

impl Rotation {
    async fn start() -> Self {
        let server = Setup::redis().user(USER).start().await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        fs::write(&file, "first\n").unwrap();
        let url = format!("redis://limiter@127.0.0.1:{}", server.port());
        let store = patient().password_file(file).connect(&url).unwrap();
        store.check().await.unwrap();
        Self {
            server,
            folder,
            store,
        }
    }

    fn write(&self, password: &str) {
        fs::write(self.folder.path().join("password"), password).unwrap();
    }

    async fn send(&self, words: &[&str]) {
        self.server.send::<redis::Value>(words).await.unwrap();
    }
}

#[tokio::test]
async fn a_replaced_password_is_read_when_redis_refuses_the_old_one() {
    needs!(redis);
    let rotation = Rotation::start().await;
    let replace = ["ACL", "SETUSER", "limiter", "resetpass", ">second"];
    rotation.send(&replace).await;
    rotation.send(&["CLIENT", "KILL", "USER", "limiter"]).await;
    // Until the end of the connection is noticed, that is the fault.
    eventually("a refusal", async || {
        (fault(&rotation.store).await == StoreErrorKind::Refused).then_some(())
    })
    .await;
    rotation.write("second\n");
    rotation.store.check().await.unwrap();
}

#[tokio::test]
async fn a_connection_is_replaced_only_by_one_that_redis_accepts() {
    needs!(redis);
    let rotation = Rotation::start().await;
    let store = &rotation.store;
    rotation.write("second\n");
    let error = store.reconnect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    store.check().await.unwrap();
    assert_eq!(store.stats().connections(), 1, "the open one stays");

    let add = ["ACL", "SETUSER", "limiter", ">second"];
    rotation.send(&add).await;
    store.reconnect().await.unwrap();
    store.check().await.unwrap();
    assert_eq!(store.stats().connections(), 2);
}

#[test]
fn a_password_file_is_checked_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let connect = |url: &str| patient().password_file(&file).connect(url).map(drop);
    let error = connect("redis://a").unwrap_err().to_string();
    assert!(error.contains(file.to_str().unwrap()), "{error}");
    fs::write(&file, "p@ss:w/rd\n").unwrap();
    for url in ["redis://:x@a", "redis://eve:x@a", "unix:///r?pass=x"] {
        let error = connect(url).unwrap_err().to_string();
        assert!(error.contains("has a password"), "{error}");
        assert!(!error.contains("p@ss"), "{error}");
    }
    for url in ["redis://eve@a", "unix:///r?db=1", "redis-sentinel://a/main"] {
        connect(url).unwrap();
    }
}
