//! Exchanges that fail.

use std::time::Duration;

use super::{PoolOfInstance, ShareMessage};
use crate::rlqs::{pool::RowId, rate::DivisibleRate};

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
    pool.failed(now);
    Vec::new()
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
    assert_eq!(messages, []);
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
