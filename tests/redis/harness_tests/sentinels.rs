//! The sentinels of the test kit make a replica the primary.

use testkit::{
    needs,
    servers::{PRIMARY_NAME, Sentinels, connect},
};

#[tokio::test]
async fn sentinels_make_a_replica_the_primary_when_it_was_killed() {
    needs!(redis);
    let mut all = Sentinels::start(2).await;
    assert_eq!(all.primary().await, 0);
    all.server(0)
        .send::<()>(["SET", "key", "value"])
        .await
        .unwrap();
    all.server(0).replicated(2).await;

    assert_eq!(all.kill_primary().await, 0);
    let successor = all.primary().await;
    assert_ne!(successor, 0);
    let value: String = all.server(successor).send(["GET", "key"]).await.unwrap();
    assert_eq!(value, "value");

    let client = redis::Client::open(all.urls()[0].as_str()).unwrap();
    let mut sentinel = connect(client).await.unwrap();
    let question = redis::cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(PRIMARY_NAME)
        .to_owned();
    let (_, port): (String, u16) = question.query_async(&mut sentinel).await.unwrap();
    assert_eq!(port, all.server(successor).port());
}
