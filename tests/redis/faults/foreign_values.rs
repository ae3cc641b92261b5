//! Somebody else wrote into a subject's key.

use std::time::Duration;

use redis::Value;
use testkit::{AGE, needs, servers::Server};
use tower_ratelimit::{
    Key, Limiter as _, OnFailure, Quota, RedisLimiter,
    decision::Op,
    store::{StoreErrorKind, StoreHealth},
};

use super::{
    load_through_fault::store,
    timed_load::{Answer, sample},
};

/// The one key in Redis.
async fn only_key(server: &Server) -> String {
    let keys: Vec<String> = server.send(["KEYS", "*"]).await.unwrap();
    let [key] = keys.as_slice() else {
        panic!("{keys:?}");
    };
    key.clone()
}

/// Spoils alice's value by `words`, in which `KEY` stands for its key, and sees what becomes of her
/// and of bob.
async fn spoiled(quota: Quota, words: &[&[u8]]) {
    let server = Server::start().await;
    let (store, changes) = store(&server.url());
    let limiter = |name, on_failure| {
        let builder = RedisLimiter::builder(quota).name(name);
        builder.on_failure(on_failure).build(&store).unwrap()
    };
    let (local, deny) = (
        limiter("one", OnFailure::local()),
        limiter("one", OnFailure::deny()),
    );
    let (alice, bob) = (Key::from("alice"), Key::from("bob"));
    assert_eq!(sample(&local, &alice).await.answer, Answer::Allowed);

    let key = only_key(&server).await;
    server.send::<Value>(["DEL", &key]).await.unwrap();
    let name = |word: &&[u8]| {
        if *word == b"KEY" {
            key.as_bytes().to_vec()
        } else {
            word.to_vec()
        }
    };
    let words: Vec<_> = words.iter().map(name).collect();
    server.send::<Value>(words).await.unwrap();

    for _ in 0..10 {
        let failed = Answer::Failed(StoreErrorKind::ForeignData);
        assert_eq!(sample(&deny, &alice).await.answer, failed);
        assert_eq!(sample(&local, &alice).await.answer, Answer::DegradedAllowed);
        assert_eq!(sample(&local, &bob).await.answer, Answer::Allowed);
    }
    assert_eq!(store.health(), StoreHealth::Up, "it concerns alice alone");
    assert_eq!(*changes.lock().unwrap(), []);
    assert_eq!(store.stats().failures(StoreErrorKind::ForeignData), 20);

    server.send::<Value>(["DEL", &key]).await.unwrap();
    let decision = deny.acquire(&alice, 1).await.unwrap();
    assert_eq!(decision.remaining(), Some(99), "she starts afresh");
}

const QUOTA: Quota = Quota::per(100, AGE).fixed_window();

#[tokio::test]
async fn of_another_type() {
    needs!(redis);
    spoiled(QUOTA, &[b"HSET", b"KEY", b"field", b"1"]).await;
    spoiled(QUOTA, &[b"RPUSH", b"KEY", b"1"]).await;
}

#[tokio::test]
async fn in_a_layout_of_the_future() {
    needs!(redis);
    spoiled(QUOTA, &[b"SET", b"KEY", b"v2|{\"count\":7}"]).await;
}

#[tokio::test]
async fn that_makes_no_sense() {
    needs!(redis);
    for value in [
        b"".as_slice(),
        b"hello",
        b"-1",
        b"1e400",
        b"nan",
        b"99999999999999999999999999",
        b"\xff\0\r\n",
        b"1;2;3",
        // A value of ours but for the line that rows and logs begin with.
        b"3:10\n",
    ] {
        spoiled(QUOTA, &[b"SET", b"KEY", value]).await;
    }
}

/// Point 9: a log whose sum is not that of its times would deny for good.
#[tokio::test]
async fn a_log_whose_head_and_bytes_disagree() {
    needs!(redis);
    let quota = Quota::per_day(100).sliding_log();
    for value in [
        b"100:0\n".as_slice(),
        b"100:0",
        b"0:10\n\0\0\0\0\0\0\0\0\0\x07",
        // A time that has left, with 7 units of 3.
        b"3:10\n\0\0\0\0\0\0\0\0\0\x07",
        // A time that has not left yet, with 7 units of 100.
        b"100:10\n\x07\0\0\0\0\0\0\0\0\x07",
    ] {
        spoiled(quota, &[b"SET", b"KEY", value]).await;
    }
}

/// Twice the longest block that a limiter starts, in whole microseconds.
const LONGEST_BLOCK: Duration = Duration::from_micros((1 << 59) / 1_000 + 1);

/// Somebody wrote that alice is blocked until the year 2255, by hand and otherwise.
#[tokio::test]
async fn a_block_that_nobody_could_have_started_is_bounded() {
    needs!(redis);
    let server = Server::start().await;
    let (store, _) = store(&server.url());
    let quotas = [
        Quota::per(100, AGE),
        QUOTA,
        Quota::per(100, AGE).sliding_window(),
        Quota::per_day(100).sliding_log(),
        Quota::per(100, AGE).leaky_bucket(99),
    ];
    let alice = Key::from("alice");
    for (quota, by_hand) in quotas
        .into_iter()
        .flat_map(|quota| [(quota, ""), (quota, "h")])
    {
        let builder = RedisLimiter::builder(quota).on_failure(OnFailure::deny());
        let limiter = builder.remember_denials(false).build(&store).unwrap();
        limiter.acquire(&alice, 1).await.unwrap();
        let key = only_key(&server).await;
        let value: Vec<u8> = server.send(["GET", &key]).await.unwrap();
        let line = value.iter().position(|byte| *byte == b'\n');
        let (head, bytes) = value.split_at(line.unwrap_or(value.len()));
        let block = format!("!9007199254740000000{by_hand}");
        let planted = [head, block.as_bytes(), bytes].concat();
        let set = [b"SET", key.as_bytes(), &planted];
        server.send::<Value>(set).await.unwrap();

        let decision = limiter.acquire(&alice, 1).await.unwrap();
        assert!(decision.is_blocked(), "{quota:?}: {decision:?}");
        let wait = decision.retry_after().unwrap();
        assert!(wait <= LONGEST_BLOCK, "{quota:?}: {wait:?}");
        let left: u64 = server.send(["PTTL", &key]).await.unwrap();
        let left = Duration::from_millis(left);
        // A sliding window may last a slice longer than its period.
        let longest = LONGEST_BLOCK.max(2 * quota.period());
        assert!(left <= longest + Duration::from_secs(1), "{left:?}");
        server.send::<Value>(["DEL", &key]).await.unwrap();
    }
}

/// Nodes that are configured to block and nodes that are not, as while a change is rolled out: the latter meet
/// values that their specialized script does not know, and use the general one at once from then on.
#[tokio::test]
async fn values_with_more_in_them_cost_one_round_trip_each() {
    needs!(redis);
    let server = Server::start().await;
    let (store, _) = store(&server.url());
    let builder = || {
        let builder = RedisLimiter::builder(QUOTA).on_failure(OnFailure::deny());
        builder.remember_denials(false)
    };
    let blocking = builder().block_for(Duration::from_secs(60));
    let blocking = blocking.build(&store).unwrap();
    let plain = builder().build(&store).unwrap();
    let alice = Key::from("alice");
    let charged = blocking.acquire(&alice, 1).await.unwrap();
    let settled = blocking.apply(&alice, Op::Settle(2, charged.receipt()));
    settled.await.unwrap();
    let value: String = server
        .send(["GET", &only_key(&server).await])
        .await
        .unwrap();
    assert!(value.contains('|'), "{value}");

    let mut calls = Vec::new();
    for left in [97, 96, 95] {
        let before = server.command_count("evalsha").await;
        let decision = plain.acquire(&alice, 1).await.unwrap();
        assert_eq!(decision.remaining(), Some(left));
        calls.push(server.command_count("evalsha").await - before);
    }
    // The script that was not known is not counted as a call.
    assert_eq!(calls[1..], [1, 1], "{calls:?}");
    let bob = Key::from("bob");
    assert_eq!(plain.acquire(&bob, 1).await.unwrap().remaining(), Some(99));
}
