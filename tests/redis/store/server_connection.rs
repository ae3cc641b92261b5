//! The connection to one server: begun, lost, replaced, encrypted.

use std::{env, process::Command, sync::mpsc, time::Duration};

use testkit::{
    child_processes::{eventually, free_port},
    needs,
};
use tower_ratelimit::{
    Key, Quota, RedisLimiter, RedisStore,
    store::{StoreErrorKind, StoreHealth},
};

use super::{fault, patient};
use crate::servers::{Flow, Proxy, Server, Setup};

#[tokio::test]
async fn it_starts_without_a_server() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let store = patient().connect(&url).unwrap();
    assert_eq!(store.health(), StoreHealth::Untried);
    assert_eq!(fault(&store).await, StoreErrorKind::Disconnected);
    assert_eq!(store.stats().connections(), 0);
}

#[tokio::test]
async fn it_connects_once_for_all_concurrent_requests() {
    needs!(redis);
    let server = Server::start().await;
    let store = patient().connect(&server.url()).unwrap();
    let all = (0..100).map(|_| async { store.check().await });
    for outcome in futures_util::future::join_all(all).await {
        outcome.unwrap();
    }
    assert_eq!(store.stats().connections(), 1);
    assert_eq!(store.health(), StoreHealth::Up);
}

#[tokio::test]
async fn it_survives_a_restart_of_the_server() {
    needs!(redis);
    let mut server = Server::start().await;
    let (listener, reported) = mpsc::channel();
    let store = patient()
        .on_health_change(move |health| listener.send(health.is_down()).unwrap())
        .connect(&server.url())
        .unwrap();
    for round in 1..4 {
        store.check().await.unwrap();
        assert_eq!(store.stats().connections(), round);
        server.kill9();
        for _ in 0..3 {
            assert!(!store.health().is_down());
            assert_eq!(fault(&store).await, StoreErrorKind::Disconnected);
        }
        assert!(store.health().is_down());
        server.restart().await;
    }
    store.check().await.unwrap();
    let [down, up] = [true, false];
    let reported: Vec<bool> = reported.iter().take(6).collect();
    assert_eq!(reported, [down, up, down, up, down, up]);
}

/// Servers and what lies between close connections on which nothing happens.
#[tokio::test]
async fn a_connection_that_ended_while_idle_is_replaced_unnoticed() {
    needs!(redis);
    let server = Server::start().await;
    let store = patient().connect(&server.url()).unwrap();
    store.check().await.unwrap();
    for connections in 1..4 {
        assert_eq!(store.stats().connections(), connections);
        let kill = ["CLIENT", "KILL", "TYPE", "normal"];
        assert_eq!(server.send::<u64>(kill).await.unwrap(), 1);
        // Until its end is known.
        tokio::time::sleep(Duration::from_millis(100)).await;
        store.check().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_hangs_is_left_for_a_new_connection() {
    needs!(redis);
    let server = Server::start().await;
    let store = RedisStore::connect(&server.url()).unwrap();
    eventually("a connection", async || store.check().await.ok()).await;
    let connections = store.stats().connections();

    server.pause();
    for _ in 0..3 {
        assert_eq!(fault(&store).await, StoreErrorKind::Timeout);
    }
    assert_eq!(fault(&store).await, StoreErrorKind::Disconnected);
    server.resume();
    eventually("an answer", async || store.check().await.ok()).await;
    assert!(store.stats().connections() > connections);
}

#[tokio::test]
async fn a_black_hole_is_left_for_a_new_connection() {
    needs!(redis);
    let server = Server::start().await;
    let proxy = Proxy::before(server.address()).await;
    let url = server.url_through(proxy.port());
    let store = RedisStore::connect(&url).unwrap();
    eventually("a connection", async || store.check().await.ok()).await;
    let connections = proxy.connections();

    proxy.set(Flow::BlackHole);
    for _ in 0..3 {
        assert_eq!(fault(&store).await, StoreErrorKind::Timeout);
    }
    assert_eq!(fault(&store).await, StoreErrorKind::Disconnected);
    assert!(proxy.connections() > connections);
    proxy.set(Flow::Forward);
    eventually("an answer", async || store.check().await.ok()).await;
}

#[tokio::test]
async fn a_server_that_became_a_replica_is_left_and_comes_back() {
    needs!(redis);
    let server = Server::start().await;
    let store = patient().connect(&server.url()).unwrap();
    store.check().await.unwrap();

    let port = free_port().to_string();
    server
        .send::<()>(["REPLICAOF", "127.0.0.1", &port])
        .await
        .unwrap();
    for connections in 1..4 {
        assert_eq!(fault(&store).await, StoreErrorKind::ReadOnly);
        assert_eq!(store.stats().connections(), connections);
    }
    server.send::<()>(["REPLICAOF", "NO", "ONE"]).await.unwrap();
    store.check().await.unwrap();
}

#[tokio::test]
async fn it_reports_why_a_server_does_not_serve() {
    needs!(redis);
    let server = Setup::redis().config("lua-time-limit", "10").start().await;
    let store = patient().connect(&server.url()).unwrap();
    let set = async |name: &str, value: &str| {
        server
            .send::<()>(["CONFIG", "SET", name, value])
            .await
            .unwrap();
    };
    set("maxmemory", "1").await;
    assert_eq!(fault(&store).await, StoreErrorKind::OutOfMemory);
    set("maxmemory", "0").await;
    store.check().await.unwrap();

    server.send::<()>(["SCRIPT", "FLUSH"]).await.unwrap();
    store.check().await.unwrap();

    let endless = server.send::<()>(["EVAL", "while true do end", "0"]);
    let watch = async {
        eventually("a busy server", async || {
            let kind = store.check().await.err()?.kind();
            (kind == StoreErrorKind::Busy).then_some(())
        })
        .await;
        server.send::<()>(["SCRIPT", "KILL"]).await.unwrap();
    };
    let (killed, ()) = tokio::join!(endless, watch);
    assert!(killed.is_err());
    store.check().await.unwrap();
}

#[tokio::test]
async fn logins_and_permissions() {
    needs!(redis);
    let enough = "~rl:* -@all +evalsha +script|load +get +set +time";
    let server = Setup::redis()
        .password("hunter2")
        .user(&format!("limiter on >pa5s {enough}"))
        .user("reader on >pa5s ~rl:* -@all +get")
        .user(&format!("stranger on >pa5s {enough} -set"))
        .start()
        .await;
    let at = |login: &str| format!("redis://{login}127.0.0.1:{}", server.port());
    for login in [":hunter2@", "limiter:pa5s@"] {
        for protocol in ["", "?protocol=resp3"] {
            let url = format!("{}/{protocol}", at(login));
            patient().connect(&url).unwrap().check().await.unwrap();
        }
    }
    for login in [
        "",
        ":wrong@",
        "nobody:hunter2@",
        "reader:pa5s@",
        "stranger:pa5s@",
    ] {
        let store = patient().connect(&at(login)).unwrap();
        let error = store.check().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{login}: {error}");
        let text = format!("{error} {error:?} {store:?}");
        assert!(
            !text.contains("hunter2") && !text.contains("pa5s"),
            "{text}"
        );
    }
    let store = patient().prefix("other").connect(&at("limiter:pa5s@"));
    assert_eq!(fault(&store.unwrap()).await, StoreErrorKind::Refused);
}

#[tokio::test]
async fn a_unix_socket() {
    needs!(redis);
    let server = Setup::redis().password("hunter2").start().await;
    let store = patient().connect(&server.unix_url()).unwrap();
    store.check().await.unwrap();
    let text = format!("{store:?}");
    assert!(text.contains("sock") && !text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn a_connection_that_was_handed_in_is_its_owners_to_renew() {
    needs!(redis);
    let mut server = Server::start().await;
    let client = redis::Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let store = patient().connection(connection).unwrap();
    store.check().await.unwrap();
    server.restart().await;
    for _ in 0..2 {
        assert_eq!(fault(&store).await, StoreErrorKind::Disconnected);
    }
    assert_eq!(store.stats().connections(), 0);
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused() {
    needs!(redis, openssl);
    let server = Setup::redis().tls().start().await;
    let store = patient().connect(&server.url()).unwrap();
    let error = store.check().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Disconnected);
    assert!(error.to_string().contains("certificate"), "{error}");
}

/// Authorities are read from the environment, which a test can set only for another process.
#[tokio::test]
async fn an_encrypted_connection() {
    const URL: &str = "TOWER_RATELIMIT_TLS_URL";
    const NAME: &str = "store::server_connection::an_encrypted_connection";
    if let Ok(url) = env::var(URL) {
        patient().connect(&url).unwrap().check().await.unwrap();
        return;
    }
    needs!(redis, openssl);
    let server = Setup::redis().tls().password("hunter2").start().await;
    let output = Command::new(env::current_exe().unwrap())
        .args([NAME, "--exact", "--nocapture"])
        .env(URL, server.url())
        .env("SSL_CERT_FILE", server.authority())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

/// Its connection does, too.
#[test]
fn a_store_outlives_a_runtime() {
    needs!(redis);
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let outer = runtime();
    let server = outer.block_on(Server::start());
    let store = patient().connect(&server.url()).unwrap();
    for _ in 0..2 {
        runtime().block_on(store.check()).unwrap();
    }
    assert_eq!(store.stats().connections(), 1);

    // One that is dropped while it connects leaves the next free to do so.
    let proxy = outer.block_on(Proxy::before(server.address()));
    proxy.set(Flow::BlackHole);
    let store = patient()
        .connect(&server.url_through(proxy.port()))
        .unwrap();
    runtime().block_on(async {
        let _ = tokio::time::timeout(Duration::from_millis(20), store.check()).await;
    });
    proxy.set(Flow::Forward);
    runtime().block_on(store.check()).unwrap();
    drop(proxy);
}

/// A server that refuses connections is known before the longest deadline is over.
#[tokio::test]
async fn the_longest_deadline_does_not_hold_up_what_is_refused() {
    let hour = Duration::from_secs(3_600);
    let store = RedisStore::builder().deadline(hour).connect_timeout(hour);
    let store = store.connect("redis://127.0.0.1:1").unwrap();
    let limiter = RedisLimiter::builder(Quota::per_second(1));
    let limiter = limiter.build(&store).unwrap();
    for _ in 0..5 {
        let decision = limiter.acquire(&Key::from("alice"), 1).await.unwrap();
        assert!(decision.is_degraded());
    }
}
