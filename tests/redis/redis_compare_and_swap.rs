//! Values of a user's own, changed by compare-and-swap.

use std::time::Duration;

use redis::Value;
use testkit::{
    child_processes::eventually,
    fake_redis::FakeServer,
    needs,
    servers::{Cluster, Server},
};
use tokio::task::JoinSet;
use tower_ratelimit::{
    ConfigErrorKind, Key, RedisStore,
    shared::{CompareAndSwap as _, RedisValues, Write},
    store::StoreErrorKind,
};

const LONG: Duration = Duration::from_secs(3_600);

fn values(url: &str) -> RedisValues {
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    RedisValues::new(&store.connect(url).unwrap(), "own").unwrap()
}

fn write(value: &[u8]) -> Write {
    Write::new(value.to_vec(), LONG)
}

#[tokio::test]
async fn a_value_is_written_only_if_nobody_else_has() {
    needs!(redis);
    let server = Server::start().await;
    let (mine, theirs) = (values(&server.url()), values(&server.url()));
    let name = mine.name_of(&Key::from("alice"));
    assert_eq!(mine.load(&name).await.unwrap().0, None);
    let first = mine.swap(&name, None, &write(b"1")).await.unwrap();
    let first = first.expect("the key is free");
    let refused = theirs.swap(&name, None, &write(b"2")).await.unwrap();
    assert_eq!(refused, None);
    let (found, loaded_at) = theirs.load(&name).await.unwrap();
    assert_eq!(found, Some((b"1".to_vec(), first.clone())));
    let second = theirs.swap(&name, Some(first.clone()), &write(b"")).await;
    let second = second.unwrap().expect("the version is in force");
    assert_ne!(second, first, "a version is never in force again");
    let refused = mine.swap(&name, Some(first), &write(b"3")).await.unwrap();
    assert_eq!(refused, None);
    let (found, now) = mine.load(&name).await.unwrap();
    assert_eq!(found, Some((Vec::new(), second)));
    assert!(now > loaded_at, "the server's time");
    let time: (u64, u64) = server.send(["TIME"]).await.unwrap();
    assert!(now.as_micros() <= time.0 * 1_000_000 + time.1);
}

#[tokio::test]
async fn a_value_has_the_prefix_and_ends() {
    needs!(redis);
    let server = Server::start().await;
    let values = values(&server.url());
    let name = values.name_of(&Key::from("alice"));
    let soon = Write::new(b"1".to_vec(), Duration::from_millis(1));
    values.swap(&name, None, &write(b"1")).await.unwrap();
    let keys: Vec<String> = server.send(["KEYS", "*"]).await.unwrap();
    assert_eq!(keys, ["rl:v1:own.values:str:alice"]);
    let (found, _) = values.load(&name).await.unwrap();
    let (_, version) = found.expect("a value");
    values.swap(&name, Some(version), &soon).await.unwrap();
    eventually("the end of the value", async || {
        let (found, _) = values.load(&name).await.unwrap();
        found.is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn changes_of_many_processes_are_all_kept() {
    needs!(redis);
    let server = Server::start().await;
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let values = values(&server.url());
        tasks.spawn(async move {
            let name = values.name_of(&Key::from("alice"));
            for _ in 0..25 {
                loop {
                    let (found, _) = values.load(&name).await.unwrap();
                    let (bytes, version) = found.unzip();
                    let next = [bytes.unwrap_or_default(), vec![b'x']].concat();
                    let swapped = values.swap(&name, version, &write(&next)).await;
                    if swapped.unwrap().is_some() {
                        break;
                    }
                }
            }
        });
    }
    tasks.join_all().await;
    let values = values(&server.url());
    let (found, _) = values
        .load(&values.name_of(&Key::from("alice")))
        .await
        .unwrap();
    assert_eq!(found.unwrap().0.len(), 200);
}

#[tokio::test]
async fn bytes_of_others_are_a_value_and_other_types_are_an_error() {
    needs!(redis);
    let server = Server::start().await;
    let values = values(&server.url());
    let name = values.name_of(&Key::from("alice"));
    server.send::<Value>(["SET", &name, "short"]).await.unwrap();
    let (found, _) = values.load(&name).await.unwrap();
    assert_eq!(found, Some((Vec::new(), b"short".to_vec())));
    let swapped = values
        .swap(&name, Some(b"short".to_vec()), &write(b"1"))
        .await;
    assert!(swapped.unwrap().is_some());
    server.send::<Value>(["DEL", &name]).await.unwrap();
    server.send::<Value>(["LPUSH", &name, "x"]).await.unwrap();
    let error = values.load(&name).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ForeignData);
    let error = values.swap(&name, None, &write(b"1")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ForeignData);
}

#[tokio::test]
async fn values_are_on_the_servers_of_a_cluster() {
    needs!(redis);
    let cluster = Cluster::start().await;
    let values = values(&cluster.urls()[0].replace("redis://", "redis-cluster://"));
    for key in ["alice", "bob", "eve", "mallory"] {
        let name = values.name_of(&Key::from(key));
        let swapped = values.swap(&name, None, &write(key.as_bytes())).await;
        let version = swapped.unwrap().expect("the key is free");
        let (found, _) = values.load(&name).await.unwrap();
        assert_eq!(found, Some((key.as_bytes().to_vec(), version)));
    }
}

#[tokio::test]
async fn a_reply_of_another_kind_is_an_error() {
    let fake = FakeServer::new(|_| Box::pin(async { Ok(Value::Okay) }));
    let values = RedisValues::new(&RedisStore::from_connection(fake), "own").unwrap();
    let error = values.load("key").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ForeignData);
    let error = values.swap("key", None, &write(b"1")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ForeignData);
}

#[test]
fn a_name_is_checked() {
    let store = RedisStore::connect("redis://127.0.0.1:1").unwrap();
    let error = RedisValues::new(&store, "a:b").unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::Name);
}
