use testkit::{child_processes::eventually, needs};
use tower_ratelimit::store::StoreErrorKind;

use super::{fault, patient};
use crate::servers::{PRIMARY_NAME, Sentinels, Server};

#[tokio::test]
async fn sentinels_are_queried_again_after_a_failover() {
    needs!(redis);
    let mut all = Sentinels::start(1).await;
    let hosts: Vec<_> = all
        .urls()
        .iter()
        .map(|url| url.replace("redis://", ""))
        .collect();
    let url = format!("redis-sentinel://{}/{PRIMARY_NAME}", hosts.join(","));
    let store = patient().connect(&url).unwrap();
    let list = patient().sentinel(all.urls(), PRIMARY_NAME).unwrap();
    store.check().await.unwrap();
    list.check().await.unwrap();

    // One sentinel less, too.
    all.sentinel_mut(0).kill9();
    let killed = all.kill_primary().await;
    assert_ne!(all.primary().await, killed);
    for store in [store, list] {
        eventually("the new primary", async || store.check().await.ok()).await;
        assert!(store.stats().connections() > 1);
    }
}

#[tokio::test]
async fn a_name_that_sentinels_do_not_know() {
    needs!(redis);
    let all = Sentinels::start(0).await;
    let store = patient().sentinel(all.urls(), "another").unwrap();
    assert_eq!(fault(&store).await, StoreErrorKind::Cluster);
}

#[tokio::test]
async fn a_server_that_is_no_sentinel() {
    needs!(redis);
    let server = Server::start().await;
    let store = patient().sentinel([server.url()], PRIMARY_NAME).unwrap();
    let error = store.check().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Disconnected);
    assert!(
        error.to_string().contains("not point to a sentinel"),
        "{error}"
    );
}
