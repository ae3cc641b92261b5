//! The single server of the test kit, as it documents it.

use std::{
    fs,
    hash::{BuildHasher as _, RandomState},
};

use redis::{Client, RedisResult, TlsCertificates, Value};
use testkit::{
    needs,
    servers::{Server, Setup, connect},
};
use tokio::time::{Duration, timeout};

/// The reply to a command of a client of the URL.
async fn at(url: &str, words: &[&str]) -> RedisResult<String> {
    through(Client::open(url).unwrap(), words).await
}

async fn through(client: Client, words: &[&str]) -> RedisResult<String> {
    let mut connection = connect(client).await?;
    let (name, arguments) = words.split_first().unwrap();
    redis::cmd(name)
        .arg(arguments)
        .query_async(&mut connection)
        .await
}

#[tokio::test]
async fn a_killed_server_comes_back_on_its_port_and_has_lost_everything() {
    needs!(redis);
    let mut server = Server::start().await;
    let url = server.url();
    assert_eq!(at(&url, &["SET", "key", "value"]).await.unwrap(), "OK");

    server.kill9();
    assert!(!server.is_running());
    assert!(at(&url, &["PING"]).await.unwrap_err().is_io_error());

    server.restart().await;
    assert_eq!(at(&url, &["PING"]).await.unwrap(), "PONG");
    assert_eq!(
        server.send::<Option<String>>(["GET", "key"]).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn a_server_that_keeps_its_data_loads_it_before_it_serves() {
    needs!(redis);
    // A twentieth of a second for every key, and a check of the clients after each.
    let setup = Setup::redis()
        .config("key-load-delay", "50000")
        .config("loading-process-events-interval-bytes", "1024");
    let mut server = setup.start().await;
    for key in 0..40 {
        server
            .send::<()>(["SET", &key.to_string(), &unlike(2_000)])
            .await
            .unwrap();
    }
    server.send::<()>(["SAVE"]).await.unwrap();

    server.restart_loading().await;
    let error = server.send::<Value>(["GET", "0"]).await.unwrap_err();
    assert_eq!(error.code(), Some("LOADING"));
    server.answered().await;
    assert_eq!(server.send::<u64>(["DBSIZE"]).await.unwrap(), 40);
}

/// Text that does not get shorter when it is compressed.
fn unlike(length: u64) -> String {
    let hash = |at| RandomState::new().hash_one(at);
    (0..length)
        .map(|at| char::from(b' ' + (hash(at) % 95) as u8))
        .collect()
}

#[tokio::test]
async fn a_paused_server_is_silent_and_serves_later_what_came_meanwhile() {
    needs!(redis);
    let server = Server::start().await;
    server.pause();
    let url = server.url();
    let lost = timeout(Duration::from_millis(500), at(&url, &["INCR", "key"])).await;
    assert!(lost.is_err(), "{lost:?}");
    server.resume();
    assert_eq!(server.send::<String>(["PING"]).await.unwrap(), "PONG");
}

#[tokio::test]
async fn commands_are_counted() {
    needs!(redis);
    let server = Server::start().await;
    assert_eq!(server.command_count("incr").await, 0);
    for _ in 0..3 {
        at(&server.url(), &["INCR", "key"]).await.unwrap();
    }
    assert_eq!(server.command_count("incr").await, 3);
    assert_eq!(
        server.info("server").await["tcp_port"],
        server.port().to_string()
    );
}

#[tokio::test]
async fn passwords_users_and_other_directives_hold() {
    needs!(redis);
    let setup = Setup::redis()
        .password("secret")
        .user("limiter on >sesame resetkeys ~rl:* -@all +get +set")
        .config("maxmemory", "100mb");
    let server = setup.start().await;
    assert_eq!(at(&server.url(), &["PING"]).await.unwrap(), "PONG");
    assert_eq!(at(&server.unix_url(), &["PING"]).await.unwrap(), "PONG");
    assert_eq!(server.info("memory").await["maxmemory"], "104857600");

    let port = server.port();
    let stranger = at(&format!("redis://127.0.0.1:{port}"), &["GET", "rl:key"]).await;
    assert_eq!(stranger.unwrap_err().code(), Some("NOAUTH"));
    let limiter = format!("redis://limiter:sesame@127.0.0.1:{port}");
    assert_eq!(at(&limiter, &["SET", "rl:key", "1"]).await.unwrap(), "OK");
    let elsewhere = at(&limiter, &["SET", "key", "1"]).await;
    assert_eq!(elsewhere.unwrap_err().code(), Some("NOPERM"));
}

#[tokio::test]
async fn tls_is_spoken_with_a_certificate_of_the_authority() {
    needs!(redis, openssl);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Setup::redis().tls().password("secret").start().await;
    let client = |authority: Option<Vec<u8>>| {
        let certificates = TlsCertificates {
            client_tls: None,
            root_cert: authority,
        };
        Client::build_with_tls(server.url(), certificates).unwrap()
    };
    let authority = fs::read(server.authority()).unwrap();
    assert_eq!(
        through(client(Some(authority)), &["PING"]).await.unwrap(),
        "PONG"
    );

    let untrusting = through(client(None), &["PING"]).await.unwrap_err();
    assert!(
        untrusting.to_string().contains("certificate"),
        "{untrusting}"
    );
    let plain = server.url().replace("rediss:", "redis:");
    assert!(at(&plain, &["PING"]).await.is_err());
}

#[tokio::test]
async fn valkey_serves_too() {
    needs!(valkey);
    let server = Setup::valkey().start().await;
    assert_eq!(at(&server.url(), &["PING"]).await.unwrap(), "PONG");
    assert_eq!(server.info("server").await["server_name"], "valkey");
}

#[tokio::test]
async fn a_fake_clock_is_stepped_and_the_server_follows() {
    needs!(fake_clock);
    let server = Setup::valkey().fake_clock().start().await;
    let key = async |word: &str| -> i64 { server.send([word, "key"]).await.unwrap() };
    server
        .send::<()>(["SET", "key", "1", "EX", "60"])
        .await
        .unwrap();
    assert!(key("TTL").await <= 60);

    server.shift_clock(-3_600).await;
    assert!(
        key("TTL").await > 3_500,
        "it expires at an instant, which is far now"
    );
    server.shift_clock(3_600).await;
    assert_eq!(key("EXISTS").await, 0, "that instant is over");
    server.shift_clock(0).await;
    assert!(server.ahead().await.abs() < 30);
}
