use std::time::{Duration, Instant};

use redis::{AsyncConnectionConfig, Client, RedisResult, aio::MultiplexedConnection};

use crate::servers::{Flow, Proxy, Server, no_redis};

/// Longer than a request ever takes that is not lost, and short enough to lose a few.
const DEADLINE: Duration = Duration::from_millis(500);

async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(DEADLINE))
        .set_response_timeout(Some(DEADLINE));
    let client = Client::open(url).unwrap();
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

async fn increment(connection: &mut MultiplexedConnection) -> RedisResult<u64> {
    redis::cmd("INCR").arg("key").query_async(connection).await
}

#[tokio::test]
async fn a_proxy_forwards_delays_and_swallows() {
    if no_redis() {
        return;
    }
    let server = Server::start().await;
    let proxy = Proxy::before(server.address()).await;
    let url = server.url_through(proxy.port());
    let mut connection = connect(&url).await.unwrap();
    assert_eq!(increment(&mut connection).await.unwrap(), 1);

    let delay = Duration::from_millis(50);
    proxy.set(Flow::Delay(delay));
    let start = Instant::now();
    assert_eq!(increment(&mut connection).await.unwrap(), 2);
    assert!(start.elapsed() >= 2 * delay, "a delay is a lower bound");

    proxy.set(Flow::BlackHole);
    assert!(increment(&mut connection).await.unwrap_err().is_timeout());
    assert!(connect(&url).await.unwrap_err().is_timeout());
    let count = server.ask::<u64>(["GET", "key"]).await.unwrap();
    assert_eq!(count, 2, "the server heard nothing");

    proxy.set(Flow::Forward);
    assert_eq!(
        increment(&mut connection).await.unwrap(),
        4,
        "what was held came first"
    );

    proxy.set(Flow::BlackHoleResponses);
    assert!(increment(&mut connection).await.unwrap_err().is_timeout());
    assert_eq!(
        server.ask::<u64>(["GET", "key"]).await.unwrap(),
        5,
        "the server did hear"
    );
}

#[tokio::test]
async fn a_proxy_cuts_and_refuses() {
    if no_redis() {
        return;
    }
    let server = Server::start().await;
    let mut proxy = Proxy::before(server.address()).await;
    let url = server.url_through(proxy.port());
    let mut connection = connect(&url).await.unwrap();
    assert_eq!(proxy.connections(), 1);

    proxy.cut().await;
    assert!(increment(&mut connection).await.unwrap_err().is_io_error());
    let mut connection = connect(&url).await.unwrap();
    assert_eq!(increment(&mut connection).await.unwrap(), 1);
    assert_eq!(proxy.connections(), 2);

    proxy.refuse().await;
    assert!(increment(&mut connection).await.unwrap_err().is_io_error());
    assert!(connect(&url).await.unwrap_err().is_connection_refusal());
    proxy.accept().await;
    let mut connection = connect(&url).await.unwrap();
    assert_eq!(increment(&mut connection).await.unwrap(), 2);
}
