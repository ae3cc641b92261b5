//! Long responses beside a steady stream of short ones.

use std::time::Instant;

use testkit::{
    needs,
    servers::{Flow, Proxy},
};

use super::*;

async fn to(node: &Node, path: &str) -> Answer {
    let request = get(path).body(String::new()).unwrap();
    node.clone().oneshot(request).await.unwrap()
}

/// A short request every other millisecond, of a hundred keys, until the time is over: how many
/// passed.
async fn short_ones(node: &Node, until: Instant) -> usize {
    let mut running = JoinSet::new();
    let mut tick = tokio::time::interval(Duration::from_millis(2));
    for number in 0.. {
        tick.tick().await;
        if Instant::now() >= until {
            break;
        }
        let (node, path) = (node.clone(), format!("/short/{}", number % 100));
        running.spawn(async move { to(&node, &path).await.status() == 200 });
    }
    let passed = running.join_all().await;
    passed.into_iter().filter(|passed| *passed).count()
}

/// Point 1: renewals have their turn however many requests end meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_long_responses_are_renewed_under_steady_short_ones() {
    const LEASE: Duration = Duration::from_millis(900);
    needs!(redis);
    let server = Server::start().await;
    let proxy = Proxy::before(server.address()).await;
    proxy.set(Flow::Delay(Duration::from_millis(5)));
    let by_path = || key_fn(|parts| Key::from(parts.uri.path()));
    let shared = at_most(3, &server.url_through(proxy.port()), LEASE);
    let node = ConcurrencyLayer::new(shared, by_path()).layer(Probe::default());
    let _long = [
        to(&node, "/long").await,
        to(&node, "/long").await,
        to(&node, "/long").await,
    ];

    let passed = short_ones(&node, Instant::now() + 3 * LEASE).await;
    assert!(passed > 100, "{passed} passed");
    let stranger = at_most(3, &server.url(), LEASE);
    let stranger = ConcurrencyLayer::new(stranger, by_path()).layer(Probe::default());
    let response = to(&stranger, "/long").await;
    assert_eq!(response.status(), 429, "all three are taken");
}
