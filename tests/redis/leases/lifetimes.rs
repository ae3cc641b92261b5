//! When a permit comes back.

use std::{mem, thread};

use testkit::{
    needs,
    servers::{Flow, Proxy},
};
use tokio::runtime::{Builder, Runtime};

use super::*;

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// A node that takes so many permits and is gone, without any goodbye: no word of it gets through.
async fn crashed(permits: u64, limit: u64, server: &Server, lease: Duration) {
    let proxy = Proxy::before(server.address()).await;
    let shared = at_most(limit, &server.url_through(proxy.port()), lease);
    let node = layered(shared).layer(Probe::default());
    for _ in 0..permits {
        mem::forget(held(&node).await);
    }
    proxy.set(Flow::BlackHole);
    // Its port stays taken, so that the node never gets to another server.
    mem::forget(proxy);
}

#[tokio::test]
async fn a_permit_that_is_dropped_where_nothing_can_be_awaited_comes_back() {
    needs!(redis);
    let server = Server::start().await;
    let [one, other] = [node(1, &server, LONG), node(1, &server, LONG)];
    for _ in 0..10 {
        let response = passed(&one).await;
        assert_eq!(send(&other).await.status(), 429);
        thread::spawn(|| drop(response)).join().unwrap();
        drop(passed(&other).await);
    }
    is_empty(&server).await;
}

#[tokio::test]
async fn a_node_that_crashed_still_counts_until_its_leases_end() {
    needs!(redis);
    let server = Server::start().await;
    crashed(2, 2, &server, LONG).await;
    assert_eq!(send(&node(2, &server, LONG)).await.status(), 429);
    assert_eq!(leases(&server).await.len(), 2);
    let keys: Vec<String> = server.send(["KEYS", "*"]).await.unwrap();
    let left: u64 = server.send(["PTTL", &keys[0]]).await.unwrap();
    assert!(u128::from(left) <= LONG.as_millis());
}

#[tokio::test]
async fn the_permits_of_a_node_that_crashed_come_back_after_the_lease() {
    needs!(redis);
    let server = Server::start().await;
    crashed(2, 2, &server, SHORT).await;
    let node = node(2, &server, LONG);
    let _both = [passed(&node).await, passed(&node).await];
    assert_eq!(send(&node).await.status(), 429);
}

#[tokio::test]
async fn a_lease_ends_at_its_own_time_among_longer_ones() {
    needs!(redis);
    let server = Server::start().await;
    let patient = node(2, &server, LONG);
    let _held = held(&patient).await;
    crashed(1, 2, &server, SHORT).await;
    let _second = passed(&patient).await;
    assert_eq!(leases(&server).await.len(), 2);
    assert_eq!(send(&node(2, &server, SHORT)).await.status(), 429);
}

#[tokio::test]
async fn a_long_response_keeps_its_permit_beyond_its_lease() {
    needs!(redis);
    let server = Server::start().await;
    let [one, other] = [node(1, &server, MODERATE), node(1, &server, LONG)];
    let response = held(&one).await;
    all_renewed(&server, 1, MODERATE).await;
    assert_eq!(send(&other).await.status(), 429);
    drop(response);
    drop(passed(&other).await);
    is_empty(&server).await;
}

#[tokio::test]
async fn lost_leases_are_restored_even_above_the_limit() {
    needs!(redis);
    let server = Server::start().await;
    let [one, other] = [node(2, &server, MODERATE), node(9, &server, LONG)];
    let mine = [held(&one).await, held(&one).await];
    let before = leases(&server).await;
    server.send::<()>(["FLUSHALL"]).await.unwrap();
    let theirs = [held(&other).await, held(&other).await];
    has_leases(&server, 4).await;
    let now = leases(&server).await;
    assert!(before.keys().all(|name| now.contains_key(name)));

    drop(theirs);
    has_leases(&server, 2).await;
    assert_eq!(send(&node(2, &server, LONG)).await.status(), 429);
    drop(mine);
    is_empty(&server).await;
}

#[tokio::test]
async fn a_request_that_is_dropped_during_the_call_leaves_no_lease() {
    needs!(redis);
    let server = Server::start().await;
    let proxy = Proxy::before(server.address()).await;
    let url = server.url_through(proxy.port());
    let layer = layered(at_most(5, &url, LONG));
    let node = layer.layer(Probe::default());
    // Connected, and the script is known.
    drop(held(&node).await);
    is_empty(&server).await;

    proxy.set(Flow::BlackHoleResponses);
    let mut requests = JoinSet::new();
    for _ in 0..5 {
        let node = node.clone();
        requests.spawn(async move { send(&node).await });
    }
    has_leases(&server, 5).await;
    requests.shutdown().await;
    assert_eq!(layer.tracked_keys(), 0);
    proxy.set(Flow::Forward);
    is_empty(&server).await;
}

#[test]
fn leases_outlive_the_runtime_in_which_they_were_taken() {
    needs!(redis);
    let tests = runtime();
    let server = tests.block_on(Server::start());
    let node = node(3, &server, MODERATE);
    let first = runtime();
    let one = first.block_on(held(&node));
    drop(first);

    let second = runtime();
    let two = second.block_on(held(&node));
    tests.block_on(has_leases(&server, 2));
    tests.block_on(all_renewed(&server, 2, MODERATE));
    drop((one, two));
    tests.block_on(is_empty(&server));
}

/// The server's time in microseconds.
async fn time(server: &Server) -> u64 {
    let (seconds, micros): (u64, u64) = server.send(["TIME"]).await.unwrap();
    seconds * 1_000_000 + micros
}

#[tokio::test]
async fn a_clock_that_steps_back_makes_no_lease_last_longer() {
    needs!(fake_clock);
    let server = Setup::valkey().fake_clock().start().await;
    crashed(1, 3, &server, LONG).await;
    server.shift_clock(-7_200).await;
    let longest = u64::try_from(LONG.as_micros()).unwrap();
    let far =
        |ends: &BTreeMap<_, u64>, now| ends.values().filter(|end| **end > now + longest).count();
    assert_eq!(far(&leases(&server).await, time(&server).await), 1);

    // A shorter lease does not cut a longer one.
    let _held = [
        held(&node(3, &server, MODERATE)).await,
        held(&node(3, &server, LONG)).await,
    ];
    let ends = leases(&server).await;
    let now = time(&server).await;
    assert_eq!(far(&ends, now), 0);
    let long = ends.values().filter(|end| **end > now + longest / 2);
    assert_eq!((ends.len(), long.count()), (3, 2));
}

#[tokio::test]
async fn leases_that_a_step_of_the_clock_has_ended_come_back() {
    needs!(fake_clock);
    let server = Setup::valkey().fake_clock().start().await;
    let _held = held(&node(1, &server, MODERATE)).await;
    let before = leases(&server).await;
    server.shift_clock(3_600).await;
    eventually("the same lease", async || {
        let now = time(&server).await;
        let ends = leases(&server).await;
        let is_back = ends.keys().eq(before.keys()) && ends.values().all(|end| *end > now);
        is_back.then_some(())
    })
    .await;
}
