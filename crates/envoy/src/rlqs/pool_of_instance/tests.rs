//! Exchanges that fail.

use std::time::Duration;

use super::{Loss, PoolOfInstance, ShareMessage};
use crate::rlqs::{
    pool::{RowId, StoredPool},
    row::DivisibleRate,
};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(15);

/// Redis's clock minus that of the instance.
const AHEAD: Duration = Duration::from_secs(1_000);

const FIRST: RowId = RowId(1);
const NEXT: RowId = RowId(2);

fn rate() -> DivisibleRate {
    DivisibleRate::of_second(100).expect("a rate")
}

/// An exchange, whose answer arrives or not.
fn exchange(
    pool: &mut PoolOfInstance,
    value: &mut Option<Vec<u8>>,
    now: Duration,
    is_answered: bool,
) -> Vec<ShareMessage> {
    let applied = pool.apply(value.as_deref(), (now + AHEAD, now), (1, false));
    assert_eq!(applied.loss, None);
    if applied.is_changed {
        *value = Some(applied.stored.to_bytes());
    }
    if is_answered {
        return pool.written(&applied, now);
    }
    let messages = pool.unanswered(&applied, now);
    pool.failed(now);
    messages
}

/// A pool whose first row has a share of 5,400 a minute.
fn used_up() -> (PoolOfInstance, Option<Vec<u8>>) {
    let (mut pool, mut value) = (PoolOfInstance::new(rate(), TTL), None);
    pool.report(SECOND, (FIRST, None), rate(), 1_000);
    assert!(pool.is_due(SECOND), "a first report is written at once");
    let messages = exchange(&mut pool, &mut value, SECOND, true);
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].share.tokens, 5_400);
    assert!(!pool.is_due(SECOND * 100), "nothing happens");
    (pool, value)
}

#[test]
fn a_message_whose_write_had_no_answer_is_sent_after_the_next_load() {
    let (mut pool, mut value) = used_up();
    pool.report(3 * SECOND, (NEXT, None), rate(), 1_000);
    let messages = exchange(&mut pool, &mut value, 3 * SECOND, false);
    assert_eq!(messages.len(), 1);
    let ShareMessage { row, share, age } = messages[0];
    // A smaller one is sent at once, and ends with the one before.
    assert_eq!((row, share.tokens, age), (FIRST, 2_700, 3 * SECOND));
    let messages = exchange(&mut pool, &mut value, 4 * SECOND, true);
    assert_eq!(messages.len(), 1);
    let ShareMessage { row, share, age } = messages[0];
    assert_eq!((row, share.tokens, age), (FIRST, 2_700, SECOND));
    // The second one waits, and gets its share when the cut counts.
    assert!(!pool.is_due(4 * SECOND) && pool.is_due(5 * SECOND));
    assert_eq!(exchange(&mut pool, &mut value, 4 * SECOND, true), []);
    let messages = exchange(&mut pool, &mut value, 5 * SECOND, true);
    let of_next = messages.iter().find(|message| message.row == NEXT);
    // Half of the rate, without the part that is kept for the bucket of the pool.
    assert_eq!(of_next.map(|message| message.share.tokens), Some(2_658));
}

#[test]
fn a_share_is_renewed_without_redis_from_half_of_its_time_until_its_bucket_may_be_gone() {
    let (mut pool, _) = used_up();
    assert_eq!(pool.renew_without_redis(10 * SECOND), [], "no report");
    pool.report(6 * SECOND, (FIRST, None), rate(), 1_000);
    assert_eq!(pool.renew_without_redis(8 * SECOND), []);
    let messages = pool.renew_without_redis(9 * SECOND);
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].share.tokens, 5_400);
    assert_eq!(pool.renew_without_redis(20 * SECOND), [], "no report");
    pool.report(20 * SECOND, (FIRST, None), rate(), 1_000);
    assert_eq!(pool.renew_without_redis(23 * SECOND), []);
}

/// It counts from the write, if that has happened.
#[test]
fn a_cut_whose_write_had_no_answer_is_what_is_renewed_without_redis() {
    let (mut pool, mut value) = used_up();
    let before = value.clone();
    pool.report(3 * SECOND, (NEXT, None), rate(), 1_000);
    pool.report(3 * SECOND, (FIRST, None), rate(), 1_000);
    let cut = exchange(&mut pool, &mut value, 3 * SECOND, false);
    assert_eq!(cut[0].share.tokens, 2_700);
    let renewed = pool.renew_without_redis(9 * SECOND);
    assert_eq!(renewed.len(), 1);
    assert_eq!((renewed[0].row, renewed[0].share), (FIRST, cut[0].share));
    // If it has not happened, the client gets what Redis has.
    let (mut pool, mut value) = used_up();
    pool.report(3 * SECOND, (NEXT, None), rate(), 1_000);
    exchange(&mut pool, &mut value, 3 * SECOND, false);
    pool.leave(4 * SECOND, NEXT);
    let messages = exchange(&mut pool, &mut before.clone(), 4 * SECOND, true);
    assert_eq!(messages[0].share.tokens, 5_400);
}

/// The pool has freed the share meanwhile.
#[test]
fn a_share_that_was_renewed_without_redis_counts_again() {
    let (mut pool, mut value) = used_up();
    for now in [9, 17, 25].map(|seconds| SECOND * seconds) {
        pool.report(now - SECOND, (FIRST, None), rate(), 1_000);
        assert_eq!(pool.renew_without_redis(now).len(), 1);
    }
    let mut other = PoolOfInstance::new(rate(), TTL);
    other.report(26 * SECOND, (NEXT, None), rate(), 1_000);
    let before = &mut value.clone();
    let messages = exchange(&mut other, before, 26 * SECOND, true);
    assert_eq!(messages[0].share.tokens, 5_400, "it cannot be known");
    exchange(&mut pool, &mut value, 26 * SECOND, true);
    other.report(26 * SECOND, (NEXT, None), rate(), 1_000);
    let messages = exchange(&mut other, &mut value, 26 * SECOND, true);
    assert_eq!(messages, [], "nothing is free");
}

/// The finding of an instance in a value.
fn found(pool: &mut PoolOfInstance, value: &mut Option<Vec<u8>>, now: Duration) -> Option<Loss> {
    let applied = pool.apply(value.as_deref(), (now + AHEAD, now), (2, false));
    *value = Some(applied.stored.to_bytes());
    pool.written(&applied, now);
    applied.loss
}

/// The lost writes have cut the first row and raised the next one.
#[test]
fn shares_of_a_lost_write_count_again_after_redis_has_an_earlier_pool() {
    let (mut pool, mut value) = used_up();
    let mut other = PoolOfInstance::new(rate(), TTL);
    other.report(3 * SECOND, (NEXT, None), rate(), 1_000);
    exchange(&mut other, &mut value, 3 * SECOND, true);
    let before = value.clone();
    pool.report(4 * SECOND, (FIRST, None), rate(), 1_000);
    let cut = exchange(&mut pool, &mut value, 4 * SECOND, true);
    assert_eq!(cut[0].share.tokens, 2_700);
    let raised = exchange(&mut other, &mut value, 7 * SECOND, true);
    let raised = raised[0].share.tokens;
    assert!(raised > 2_600);
    let mut value = before;
    pool.report(8 * SECOND, (FIRST, None), rate(), 1_000);
    let loss = found(&mut pool, &mut value, 8 * SECOND);
    assert_eq!(loss, Some(Loss::Lost));
    let sent = |pool: &PoolOfInstance| pool.rows[0].1.sent.map(|sent| sent.share.tokens);
    assert!(sent(&pool) <= Some(2_700), "not that of before");
    other.report(9 * SECOND, (NEXT, None), rate(), 1_000);
    assert_eq!(
        found(&mut other, &mut value, 9 * SECOND),
        Some(Loss::Lost),
        "a pool that was made anew"
    );
    assert!(sent(&other) <= Some(raised));
    let value = value.expect("a pool");
    let stored = StoredPool::read(&value, TTL, 9 * SECOND + AHEAD).expect("a pool");
    assert_eq!(stored.pool.held().tokens, 2_700 + raised);
}

/// Others have written as often as this instance since.
#[test]
fn an_earlier_pool_is_known_by_the_messages_of_own_rows() {
    let (mut pool, mut value) = used_up();
    let mut other = PoolOfInstance::new(rate(), TTL);
    other.report(3 * SECOND, (NEXT, None), rate(), 1_000);
    exchange(&mut other, &mut value, 3 * SECOND, true);
    let mut before = value.clone();
    pool.report(4 * SECOND, (FIRST, None), rate(), 1_000);
    exchange(&mut pool, &mut value, 4 * SECOND, true);
    for now in 5..9 {
        other.report(now * SECOND, (NEXT, None), rate(), 1_000);
        exchange(&mut other, &mut before, now * SECOND, true);
    }
    pool.report(9 * SECOND, (FIRST, None), rate(), 1_000);
    let loss = found(&mut pool, &mut before, 9 * SECOND);
    assert_eq!(loss, Some(Loss::Lost));
}

/// The limit is raised from 900 to 1,100 a second, so that buckets of new pools have another interval.
#[test]
fn a_lost_pool_keeps_the_interval_of_its_shares() {
    let quota =
        |quota: &str| DivisibleRate::of_quota(&quota.parse().expect("a quota")).expect("a rate");
    let (slow, fast) = (quota("900/second"), quota("1100/second"));
    assert_eq!((slow.interval, fast.interval), (60, 1));
    let (mut pool, mut value) = (PoolOfInstance::new(slow, TTL), None);
    pool.report(SECOND, (FIRST, None), slow, 100);
    let messages = exchange(&mut pool, &mut value, SECOND, true);
    let (share, mut value) = (messages[0].share, None);
    pool.report(6 * SECOND, (FIRST, None), fast, 100);
    found(&mut pool, &mut value, 6 * SECOND);
    let value = value.expect("a pool");
    let stored = StoredPool::read(&value, TTL, 6 * SECOND + AHEAD).expect("a pool");
    assert_eq!(stored.pool.rate(), fast.with_interval(60));
    assert_eq!((pool.interval(), stored.pool.held()), (60, share));
    let sent = pool.rows[0].1.sent.expect("a share").share;

    // An instance without a share has made the pool meanwhile, with its own interval.
    let mut other = PoolOfInstance::new(fast, TTL);
    let mut value = None;
    other.report(7 * SECOND, (NEXT, None), fast, 1);
    exchange(&mut other, &mut value, 7 * SECOND, true);
    pool.report(8 * SECOND, (FIRST, None), fast, 100);
    found(&mut pool, &mut value, 8 * SECOND);
    let value = value.expect("a pool");
    let stored = StoredPool::read(&value, TTL, 8 * SECOND + AHEAD).expect("a pool");
    let tokens = stored.pool.row(FIRST).map(|row| row.held().tokens);
    assert_eq!(
        (pool.interval(), tokens),
        (1, Some(sent.tokens.div_ceil(60)))
    );
}
