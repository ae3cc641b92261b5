//! What a limiter remembers of denials is what Redis would say.

use std::time::Duration;

use testkit::{needs, programs::eventually};
use tower_ratelimit::{
    Decision, Key, Limiter as _, OnFailure, Op, Quota, RedisLimiter, RedisStore,
};

use crate::servers::Server;

const BLOCK: Duration = Duration::from_millis(300);

/// A node's limiter, which remembers denials, as it does unless told otherwise.
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
async fn a_larger_cost_hears_its_own_wait() {
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
async fn the_same_cost_asks_redis_once() {
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
    let ask = async |op: Op| limiter.apply(&alice, op).await.unwrap();
    assert!(ask(Op::Reserve(1)).await.is_allowed());
    assert!(!ask(Op::Reserve(1)).await.is_blocked());
    let before = server.command_count("evalsha").await;
    assert!(ask(Op::Reserve(1)).await.is_denied());
    assert_eq!(server.command_count("evalsha").await, before, "remembered");

    assert!(ask(Op::Deny(1)).await.is_blocked());
    let reserved = ask(Op::Reserve(1)).await;
    assert!(reserved.is_blocked(), "what knew of no block is forgotten");
    assert!(ask(Op::Acquire(1)).await.is_blocked());
    ask(Op::Block(Duration::ZERO)).await;
    assert!(!ask(Op::Reserve(1)).await.is_blocked(), "the block is over");
}

#[tokio::test]
async fn settled_reservation_makes_room_at_once() {
    needs!(redis);
    let server = Server::start().await;
    let limiter = node(&server, Quota::per_hour(1), None);
    let alice = Key::from("alice");
    let ask = async |op: Op| limiter.apply(&alice, op).await.unwrap();
    let open = ask(Op::Reserve(1)).await.receipt();
    assert!(ask(Op::Reserve(1)).await.is_denied());
    ask(Op::Settle(0, open)).await;
    assert!(ask(Op::Reserve(1)).await.is_allowed());
}
