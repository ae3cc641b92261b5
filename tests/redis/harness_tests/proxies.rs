//! The proxies of the test kit forward, delay, swallow and cut, by their state.

use std::time::Instant;

use redis::{Client, RedisResult, aio::MultiplexedConnection};
use testkit::{
    needs,
    servers::{Flow, Proxy, Server, connect},
};
use tokio::time::{Duration, timeout};

async fn through(url: &str) -> RedisResult<MultiplexedConnection> {
    connect(Client::open(url).unwrap()).await
}

async fn increment(connection: &mut MultiplexedConnection) -> RedisResult<u64> {
    redis::cmd("INCR").arg("key").query_async(connection).await
}

/// Waits in vain for half a second.
async fn in_vain<T: std::fmt::Debug>(answer: impl Future<Output = T>) {
    let answer = timeout(Duration::from_millis(500), answer).await;
    assert!(answer.is_err(), "{answer:?}");
}

#[tokio::test]
async fn a_proxy_forwards_delays_and_swallows() {
    needs!(redis);
    let server = Server::start().await;
    let proxy = Proxy::before(server.address()).await;
    let url = server.url_through(proxy.port());
    let mut connection = through(&url).await.unwrap();
    assert_eq!(increment(&mut connection).await.unwrap(), 1);

    let delay = Duration::from_millis(50);
    proxy.set(Flow::Delay(delay));
    let start = Instant::now();
    assert_eq!(increment(&mut connection).await.unwrap(), 2);
    assert!(start.elapsed() >= 2 * delay, "a delay is a lower bound");

    proxy.set(Flow::BlackHole);
    in_vain(increment(&mut connection)).await;
    in_vain(through(&url)).await;
    let count = server.send::<u64>(["GET", "key"]).await.unwrap();
    assert_eq!(count, 2, "the server heard nothing");

    proxy.set(Flow::Forward);
    assert_eq!(
        increment(&mut connection).await.unwrap(),
        4,
        "what was held came first"
    );

    proxy.set(Flow::BlackHoleResponses);
    in_vain(increment(&mut connection)).await;
    assert_eq!(
        server.send::<u64>(["GET", "key"]).await.unwrap(),
        5,
        "the server did hear"
    );
}

#[tokio::test]
async fn a_proxy_cuts_and_refuses() {
    needs!(redis);
    let server = Server::start().await;
    let mut proxy = Proxy::before(server.address()).await;
    let url = server.url_through(proxy.port());
    let mut connection = through(&url).await.unwrap();
    assert_eq!(proxy.connections(), 1);

    proxy.cut().await;
    assert!(increment(&mut connection).await.unwrap_err().is_io_error());
    let mut connection = through(&url).await.unwrap();
    assert_eq!(increment(&mut connection).await.unwrap(), 1);
    assert_eq!(proxy.connections(), 2);

    proxy.refuse().await;
    assert!(increment(&mut connection).await.unwrap_err().is_io_error());
    assert!(through(&url).await.unwrap_err().is_connection_refusal());
    proxy.accept().await;
    let mut connection = through(&url).await.unwrap();
    assert_eq!(increment(&mut connection).await.unwrap(), 2);
}
