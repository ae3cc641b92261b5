//! The clusters of the test kit, as it documents them.

use redis::Value;
use testkit::{needs, servers::Cluster};

#[tokio::test]
async fn a_replica_takes_over_from_a_killed_primary() {
    needs!(redis);
    let mut cluster = Cluster::start().await;
    assert_eq!(cluster.urls().len(), 6);
    let slot = cluster.slot("key").await;
    let primary = cluster.primary_of(slot).await;
    cluster
        .node(primary)
        .send::<()>(["SET", "key", "value"])
        .await
        .unwrap();
    cluster.node(primary).replicated(1).await;

    assert_eq!(cluster.kill_primary_of(slot).await, primary);
    let successor = cluster.primary_of(slot).await;
    assert_ne!(successor, primary);
    let value: String = cluster.node(successor).send(["GET", "key"]).await.unwrap();
    assert_eq!(value, "value");
}

#[tokio::test]
async fn a_slot_on_the_move_answers_ask_and_then_moved() {
    needs!(redis);
    let cluster = Cluster::start().await;
    let slot = cluster.slot("key").await;
    let from = cluster.primary_of(slot).await;
    let to = cluster.primary_of((slot + 8_000) % 16_384).await;
    assert_ne!(from, to);
    cluster
        .node(from)
        .send::<()>(["SET", "key", "value"])
        .await
        .unwrap();

    cluster.begin_move(slot, to).await;
    let value: String = cluster.node(from).send(["GET", "key"]).await.unwrap();
    assert_eq!(value, "value");
    cluster.move_keys(slot, to).await;
    let requested = cluster.node(from).send::<Value>(["GET", "key"]).await;
    assert_eq!(requested.unwrap_err().code(), Some("ASK"));

    cluster.finish_move(slot, to).await;
    let moved = cluster.node(from).send::<Value>(["GET", "key"]).await;
    assert_eq!(moved.unwrap_err().code(), Some("MOVED"));
    let value: String = cluster.node(to).send(["GET", "key"]).await.unwrap();
    assert_eq!(value, "value");
}
