use testkit::{child_processes::eventually, needs};
use tower_ratelimit::store::StoreErrorKind;

use super::patient;
use crate::servers::{Cluster, Server, Setup};

/// As many checks as it takes to reach all servers: each uses another key.
const ROUND: usize = 16;

#[tokio::test]
async fn a_cluster_is_found_from_one_server_and_followed_through_a_failover() {
    needs!(redis);
    let mut cluster = Cluster::start().await;
    let url = cluster.urls()[0].replace("redis://", "redis-cluster://");
    let store = patient().connect(&url).unwrap();
    let list = patient().cluster(cluster.urls()).unwrap();
    for _ in 0..ROUND {
        store.check().await.unwrap();
        list.check().await.unwrap();
    }

    // A slot that moves to another server.
    let slot = cluster.slot("rl:trial:0").await;
    let target = cluster.primary_of((slot + 8_192) % 16_384).await;
    cluster.begin_move(slot, target).await;
    for _ in 0..ROUND {
        store.check().await.unwrap();
    }
    cluster.move_keys(slot, target).await;
    cluster.finish_move(slot, target).await;
    for _ in 0..ROUND {
        store.check().await.unwrap();
    }

    // One that dies, and whose replica takes over.
    let other = cluster.slot("rl:trial:1").await;
    let killed = cluster.kill_primary_of(other).await;
    assert_ne!(cluster.primary_of(other).await, killed);
    eventually("all slots", async || {
        for _ in 0..ROUND {
            store.check().await.ok()?;
        }
        Some(())
    })
    .await;
}

#[tokio::test]
async fn a_clusters_server_that_is_addressed_as_a_single_one() {
    needs!(redis);
    let cluster = Cluster::start().await;
    let store = patient().connect(&cluster.urls()[0]).unwrap();
    let error = eventually("a key that another server has", async || {
        store.check().await.err()
    })
    .await;
    assert_eq!(error.kind(), StoreErrorKind::Cluster);
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
}

#[tokio::test]
async fn what_a_server_without_a_name_lacks_is_in_the_error() {
    needs!(redis);
    let setup = Setup::redis().config("cluster-preferred-endpoint-type", "hostname");
    let cluster = Cluster::start_with(setup).await;
    let store = patient().connect(&cluster.url()).unwrap();
    let error = store.check().await.unwrap_err().to_string();
    assert!(error.contains("cluster-announce-hostname"), "{error}");
}

#[tokio::test]
async fn a_single_server_that_is_addressed_as_a_cluster() {
    needs!(redis);
    let server = Server::start().await;
    let store = patient().cluster([server.url()]).unwrap();
    let error = store.check().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Disconnected);
    assert!(
        error.to_string().contains("cluster support disabled"),
        "{error}"
    );
}
