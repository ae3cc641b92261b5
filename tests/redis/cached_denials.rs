//! Cached denials of a limiter are those that Redis would return.

use std::time::Duration;

use testkit::{child_processes::eventually, needs};
use tower_ratelimit::{
    Decision, Key, Limiter as _, OnFailure, Quota, RedisLimiter, RedisStore,
    decision::Op,
    limiter::{Pending, RequestQuota, Tier},
};

use crate::servers::Server;

const BLOCK: Duration = Duration::from_millis(300);

/// A node's limiter, which remembers denials, as it does by default.
fn node(server: &Server, quota: Quota, block: Option<Duration>) -> RedisLimiter {
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    let store = store.connect(&server.url()).unwrap();
    let mut builder = RedisLimiter::builder(quota).on_failure(OnFailure::deny());
    if let Some(block) = block {
        builder = builder.block_for(block);
    }
    builder.build(&store).unwrap()
}

async fn acquire(limiter: &RedisLimiter, cost: u64) -> Decision {
    limiter.acquire(&Key::from("alice"), cost).await.unwrap()
}

#[tokio::test]
async fn a_block_ends_for_a_small_cost_however_long_a_large_one_has_to_wait() {
    needs!(redis);
    let server = Server::start().await;
    // A log, so that no window ends meanwhile.
    let limiter = node(&server, Quota::per_hour(100).sliding_log(), Some(BLOCK));
    assert!(acquire(&limiter, 60).await.is_allowed());
    let large = acquire(&limiter, 50).await;
    assert!(large.is_blocked());
    assert!(large.retry_after().unwrap() > Duration::from_secs(3_000));
    assert!(acquire(&limiter, 1).await.is_blocked());

    let small = async || Some(acquire(&limiter, 1).await).filter(Decision::is_allowed);
    eventually("the end of the block", small).await;
}

#[tokio::test]
async fn a_larger_cost_gets_its_own_wait() {
    needs!(redis);
    let server = Server::start().await;
    let limiter = node(&server, Quota::per_hour(60), None);
    assert!(acquire(&limiter, 60).await.is_allowed());

    let minute = Duration::from_secs(60);
    let one = acquire(&limiter, 1).await.retry_after().unwrap();
    assert!(one <= minute);
    let all = acquire(&limiter, 60).await.retry_after().unwrap();
    assert!(all > 58 * minute, "{all:?}");
    assert_eq!(acquire(&limiter, 61).await.retry_after(), None, "never");
}

#[tokio::test]
async fn a_denial_of_one_row_does_not_apply_to_another() {
    needs!(redis);
    let server = Server::start().await;
    let limiter = node(&server, Quota::per_hour(60).sliding_log(), None);
    let rows = [2, 3, 60].map(|limit| Tier::from(RequestQuota::limit(limit)));
    let key = Key::from("alice");
    let request = |row: usize, op: Op| testkit::apply_in(&limiter, &rows[row], &key, op);
    assert!(request(0, Op::Acquire(2)).await.unwrap().is_allowed());
    let denied = request(0, Op::Acquire(1)).await.unwrap();
    assert!(denied.is_denied());
    // That one is remembered, and no other row's.
    let again = request(0, Op::Acquire(1));
    assert!(matches!(again, Pending::Ready(Ok(denied)) if denied.is_denied()));
    let other = request(1, Op::Acquire(1));
    assert!(matches!(other, Pending::Later(_)));
    assert!(other.await.unwrap().is_allowed());
    assert!(request(1, Op::Acquire(1)).await.unwrap().is_denied());
    assert_eq!(
        request(2, Op::Acquire(1)).await.unwrap().remaining(),
        Some(56)
    );
    // A refund by the receipt of one ends what is remembered of all.
    let last = request(2, Op::Acquire(1)).await.unwrap();
    limiter.refund(&key, 1, Some(last.receipt())).await.unwrap();
    assert!(matches!(request(1, Op::Acquire(1)), Pending::Later(_)));
}

#[tokio::test]
async fn row_is_shared_by_nodes_while_redis_is_unreachable() {
    let store = RedisStore::connect("redis://127.0.0.1:1").unwrap();
    let builder = RedisLimiter::builder(Quota::per_hour(60)).on_failure(OnFailure::nodes(2));
    let limiter = builder.build(&store).unwrap();
    let row = Tier::from(RequestQuota::limit(9));
    let taken = testkit::apply_in(&limiter, &row, &Key::global(), Op::AcquireUpTo(60));
    let taken = taken.await.unwrap();
    assert!(taken.is_degraded());
    assert_eq!(taken.charged(), 5);
    // Units that the node charged return to the node, to the row that was charged.
    let back = limiter.refund(&Key::global(), 5, Some(taken.receipt()));
    assert_eq!(back.await.unwrap().remaining(), Some(5));
}

#[tokio::test]
async fn the_same_cost_calls_redis_once() {
    needs!(redis);
    let server = Server::start().await;
    let limiter = node(&server, Quota::per_hour(1), None);
    assert!(acquire(&limiter, 1).await.is_allowed());
    assert!(acquire(&limiter, 1).await.is_denied());
    let before = server.command_count("evalsha").await;
    for _ in 0..100 {
        assert!(acquire(&limiter, 1).await.is_denied());
    }
    assert_eq!(server.command_count("evalsha").await, before);

    let alice = Key::from("alice");
    limiter.reset(&alice).await.unwrap();
    assert!(acquire(&limiter, 1).await.is_allowed());
}

#[tokio::test]
async fn remembered_reservation_keeps_no_block_from_starting() {
    needs!(redis);
    let server = Server::start().await;
    let limiter = node(
        &server,
        Quota::per_hour(1),
        Some(Duration::from_secs(7_200)),
    );
    let alice = Key::from("alice");
    let request = async |op: Op| limiter.apply(&alice, op).await.unwrap();
    assert!(request(Op::Reserve(1)).await.is_allowed());
    assert!(!request(Op::Reserve(1)).await.is_blocked());
    let before = server.command_count("evalsha").await;
    assert!(request(Op::Reserve(1)).await.is_denied());
    assert_eq!(server.command_count("evalsha").await, before, "remembered");

    assert!(request(Op::Deny(1)).await.is_blocked());
    let reserved = request(Op::Reserve(1)).await;
    assert!(reserved.is_blocked(), "what knew of no block is forgotten");
    assert!(request(Op::Acquire(1)).await.is_blocked());
    request(Op::Block(Duration::ZERO)).await;
    assert!(
        !request(Op::Reserve(1)).await.is_blocked(),
        "the block is over"
    );
}

#[tokio::test]
async fn settled_reservation_makes_room_at_once() {
    needs!(redis);
    let server = Server::start().await;
    let limiter = node(&server, Quota::per_hour(1), None);
    let alice = Key::from("alice");
    let request = async |op: Op| limiter.apply(&alice, op).await.unwrap();
    let open = request(Op::Reserve(1)).await.receipt();
    assert!(request(Op::Reserve(1)).await.is_denied());
    request(Op::Settle(0, open)).await;
    assert!(request(Op::Reserve(1)).await.is_allowed());
}
