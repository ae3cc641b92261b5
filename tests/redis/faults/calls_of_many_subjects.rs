//! Subjects that wait at one moment share a call.

use std::time::Duration;

use redis::{Value, aio::ConnectionLike, cluster::ClusterClient};
use testkit::needs;
use tokio::task::JoinSet;
use tower_ratelimit::{
    Decision, Key, LimiterError, OnFailure, Quota, RedisLimiter, RedisStore, decision::Op,
    limiter::Tier, store::StoreErrorKind,
};

use super::{load_through_fault::patient_store, timed_load::cause};
use crate::servers::{Cluster, Server};

const SUBJECTS: u64 = 300;

fn limiter(store: &RedisStore) -> RedisLimiter {
    let builder = RedisLimiter::builder(Quota::per_day(10));
    let builder = builder.on_failure(OnFailure::deny());
    builder.name("together").build(store).unwrap()
}

fn handed_in<C: ConnectionLike + Clone + Send + Sync + 'static>(connection: C) -> RedisStore {
    let patience = Duration::from_secs(20);
    let builder = RedisStore::builder().deadline(patience);
    builder.connection(connection).unwrap()
}

/// Takes one unit of each subject at one moment, and returns what is left of each.
async fn all_at_once(limiter: &RedisLimiter) -> Vec<Result<Decision, LimiterError>> {
    let mut running = JoinSet::new();
    for subject in 0..SUBJECTS {
        let limiter = limiter.clone();
        running.spawn(async move { (subject, limiter.acquire(&Key::from(subject), 1).await) });
    }
    let mut answers = running.join_all().await;
    answers.sort_by_key(|(subject, _)| *subject);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

fn remaining(answers: Vec<Result<Decision, LimiterError>>) -> Vec<u64> {
    let left = answers
        .into_iter()
        .map(|answer| answer.unwrap().remaining().unwrap());
    left.collect()
}

#[tokio::test]
async fn many_subjects_are_decided_by_few_calls_each_as_if_alone() {
    needs!(redis);
    let server = Server::start().await;
    let limiter = limiter(&patient_store(&server.url()));
    // The connection is open, and the script loaded.
    limiter.acquire(&Key::from("first"), 1).await.unwrap();
    for round in 1..=10 {
        let before = server.command_count("evalsha").await;
        assert!(
            remaining(all_at_once(&limiter).await)
                .iter()
                .all(|left| *left == 10 - round)
        );
        let calls = server.command_count("evalsha").await - before;
        assert!(calls <= SUBJECTS / 8, "{calls} calls");
    }
    let answers = all_at_once(&limiter).await;
    assert!(answers.iter().flatten().all(Decision::is_denied));
}

#[tokio::test]
async fn the_error_of_a_subject_reaches_no_other() {
    needs!(redis);
    let server = Server::start().await;
    let limiter = limiter(&patient_store(&server.url()));
    limiter.acquire(&Key::from(0), 1).await.unwrap();
    let keys: Vec<String> = server.send(["KEYS", "*u64:0"]).await.unwrap();
    let prefix = keys[0].strip_suffix("u64:0").unwrap();
    for (subject, words) in [
        (7, ["SET", "no number of ours"]),
        (8, ["SADD", "another type"]),
        (9, ["SET", ""]),
    ] {
        let [command, value] = words;
        let key = format!("{prefix}u64:{subject}");
        server.send::<Value>([command, &key, value]).await.unwrap();
    }
    for (subject, answer) in (0..).zip(all_at_once(&limiter).await) {
        match subject {
            0 => assert_eq!(answer.unwrap().remaining(), Some(8)),
            7..=9 => {
                let error = cause(&answer.unwrap_err());
                assert_eq!(error, StoreErrorKind::ForeignData, "{subject}");
            }
            _ => assert_eq!(answer.unwrap().remaining(), Some(9), "{subject}"),
        }
    }
    assert!(!limiter.health().is_down());
}

/// A failure of the server counts for the breaker, although each subject has an answer of its own.
#[tokio::test]
async fn a_server_out_of_memory_opens_the_circuit() {
    needs!(redis);
    let server = Server::start().await;
    let limiter = limiter(&patient_store(&server.url()));
    limiter.acquire(&Key::from(0), 1).await.unwrap();
    let full = ["CONFIG", "SET", "maxmemory", "1"];
    server.send::<Value>(full).await.unwrap();
    for _ in 0..4 {
        for answer in all_at_once(&limiter).await {
            let error = cause(&answer.unwrap_err());
            let known = [StoreErrorKind::OutOfMemory, StoreErrorKind::BreakerOpen];
            assert!(known.contains(&error), "{error}");
        }
    }
    assert!(limiter.health().is_down());
}

/// Operations of all kinds, tiers and costs leave at one moment.
#[tokio::test]
async fn different_operations_of_one_batch_get_their_own_answers() {
    needs!(redis);
    let server = Server::start().await;
    let builder = RedisLimiter::builder(Quota::per_day(100)).tier("paid", Quota::per_day(1_000));
    let builder = builder.on_failure(OnFailure::deny());
    let limiter = builder.build(&patient_store(&server.url())).unwrap();
    let paid = Tier::named("paid");
    for round in 1..=3 {
        let mut running = JoinSet::new();
        for subject in 0..SUBJECTS {
            let (limiter, paid) = (limiter.clone(), paid.clone());
            running.spawn(async move {
                let key = Key::from(subject);
                let cost = 1 + subject % 5;
                let decision = match subject % 3 {
                    0 => limiter.acquire(&key, cost).await,
                    1 => limiter.hit(&key, cost).await,
                    _ => testkit::apply_in(&limiter, &paid, &key, Op::Acquire(cost)).await,
                };
                (subject, cost, decision.unwrap().remaining().unwrap())
            });
        }
        for (subject, cost, left) in running.join_all().await {
            let limit = if subject % 3 == 2 { 1_000 } else { 100 };
            assert_eq!(left, limit - round * cost, "{subject}");
        }
    }
}

/// A connection that was handed in may lead to a cluster, which takes no call about many servers' keys.
#[tokio::test]
async fn behind_a_connection_to_a_cluster_each_subject_has_its_call() {
    needs!(redis);
    let cluster = Cluster::start().await;
    let client = ClusterClient::new(cluster.urls()).unwrap();
    let connection = client.get_async_connection().await.unwrap();
    let limiter = limiter(&handed_in(connection));
    limiter.acquire(&Key::from("first"), 1).await.unwrap();
    for round in 1..=3 {
        let left = remaining(all_at_once(&limiter).await);
        assert!(left.iter().all(|left| *left == 10 - round), "{left:?}");
    }
}

#[tokio::test]
async fn a_connection_that_was_handed_in_carries_many_subjects() {
    needs!(redis);
    let server = Server::start().await;
    let client = redis::Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let limiter = limiter(&handed_in(connection));
    limiter.acquire(&Key::from("first"), 1).await.unwrap();
    let before = server.command_count("evalsha").await;
    let left = remaining(all_at_once(&limiter).await);
    assert!(left.iter().all(|left| *left == 9), "{left:?}");
    let calls = server.command_count("evalsha").await - before;
    assert!(calls <= SUBJECTS / 8, "{calls} calls");
}

/// A proxy that goes by the first key of a command would count the others on the wrong server.
#[tokio::test]
async fn through_a_sharding_proxy_each_subject_has_its_call() {
    needs!(redis);
    let server = Server::start().await;
    let builder = RedisStore::builder().deadline(Duration::from_secs(20));
    let store = builder.sharding_proxy().connect(&server.url()).unwrap();
    let limiter = limiter(&store);
    limiter.acquire(&Key::from("first"), 1).await.unwrap();
    let before = server.command_count("evalsha").await;
    let left = remaining(all_at_once(&limiter).await);
    assert!(left.iter().all(|left| *left == 9), "{left:?}");
    let calls = server.command_count("evalsha").await - before;
    assert_eq!(calls, SUBJECTS);
}
