//! Cached denials, and the operations that end them.

use std::time::Duration;

use super::*;
use tower_ratelimit_core::{
    clock::Timestamp,
    decision::{Policy, QuotaStatus},
};

const WAIT: Duration = Duration::from_secs(3);

const MS: Duration = Duration::from_millis(1);

const ALICE: u64 = 7;

/// A subject of the same bucket.
const BOB: u64 = ALICE + BUCKETS as u64;

const fn call(subject: u64, at: Instant) -> SentCall {
    SentCall {
        subject: MeasuredSubject {
            tag: subject,
            chosen: Chosen::Tier(0),
            generation: 0,
        },
        at,
    }
}

fn denied(wait: Option<Duration>) -> Decision {
    let policy = Policy::new("test", 10);
    let status = QuotaStatus::new(&policy).with_remaining(2);
    Decision::denied(Timestamp::from_secs(1), status.with_denial(wait))
}

/// A call of alice left at this time, and its reply arrives right after.
fn learn(cache: &DenyCache, op: &Op, at: Instant, decision: &Decision) {
    learn_all(cache, at, &[(op, decision)], at);
}

fn learn_all(cache: &DenyCache, at: Instant, decisions: &[(&Op, &Decision)], now: Instant) {
    let decisions = decisions.iter();
    let decisions = decisions.map(|(op, decision)| (*op, *decision, Duration::MAX));
    cache.learn(&call(ALICE, at), decisions, now);
}

fn cached_wait(cache: &DenyCache, op: &Op, at: Instant) -> Option<Duration> {
    let denied = cache.answer(ALICE, Chosen::Tier(0), op, at)?;
    assert!(denied.is_denied());
    denied.retry_after()
}

/// Waits stand still while the machine sleeps, and the store's go on.
#[test]
fn a_denial_ends_when_the_machine_slept() {
    let mut cache = DenyCache::new();
    cache.ahead = || 0;
    let start = Instant::now();
    learn(&cache, &Op::Acquire(3), start, &denied(Some(WAIT)));
    assert_eq!(cached_wait(&cache, &Op::Acquire(3), start), Some(WAIT));
    cache.ahead = || 28_800_000_000;
    assert_eq!(cached_wait(&cache, &Op::Acquire(3), start), None);
    learn(&cache, &Op::Acquire(3), start + MS, &denied(Some(WAIT)));
    assert_eq!(cached_wait(&cache, &Op::Acquire(3), start + MS), Some(WAIT));
}

#[test]
fn a_denial_is_cached_until_its_wait_is_over() {
    let cache = DenyCache::new();
    let start = Instant::now();
    learn(&cache, &Op::Acquire(3), start, &denied(Some(WAIT)));

    assert_eq!(cached_wait(&cache, &Op::Acquire(3), start), Some(WAIT));
    let second = Duration::from_secs(1);
    assert_eq!(
        cached_wait(&cache, &Op::Acquire(3), start + second),
        Some(WAIT - second)
    );
    let last = WAIT - Duration::from_nanos(1);
    let shortest = Duration::from_micros(1);
    assert_eq!(
        cached_wait(&cache, &Op::Acquire(3), start + last),
        Some(shortest)
    );
    assert_eq!(cached_wait(&cache, &Op::Acquire(3), start + WAIT), None);
}

#[test]
fn a_denial_decides_only_operations_of_the_same_cost() {
    let cache = DenyCache::new();
    let now = Instant::now();
    learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));

    for op in [
        Op::Acquire(2),
        Op::Acquire(4),
        Op::Reserve(3),
        Op::Deny(3),
        Op::Block(WAIT),
        Op::AcquireUpTo(3),
        Op::Peek(3),
        Op::Hit(3),
        Op::Refund(3, None),
        Op::Reset,
    ] {
        assert_eq!(cached_wait(&cache, &op, now), None, "{op:?}");
    }
    let of = |subject, tier| cache.answer(subject, tier, &Op::Acquire(3), now);
    assert!(of(ALICE, Chosen::Tier(0)).is_some());
    assert!(of(BOB, Chosen::Tier(0)).is_none());
    assert!(of(ALICE, Chosen::Tier(1)).is_none());
}

#[test]
fn a_denied_reservation_decides_only_reservations() {
    let cache = DenyCache::new();
    let now = Instant::now();
    learn(&cache, &Op::Reserve(3), now, &denied(Some(WAIT)));

    assert_eq!(cached_wait(&cache, &Op::Reserve(3), now), Some(WAIT));
    for op in [Op::Acquire(3), Op::Deny(3), Op::Peek(3), Op::Reserve(2)] {
        assert_eq!(cached_wait(&cache, &op, now), None, "{op:?}");
    }
}

#[test]
fn a_new_block_drops_denials_without_one() {
    let cache = DenyCache::new();
    let now = Instant::now();
    let blocked = denied(Some(WAIT)).into_blocked(5 * WAIT);
    for starts in [Op::Deny(3), Op::Acquire(3), Op::Peek(1)] {
        learn(&cache, &Op::Reserve(3), now, &denied(Some(WAIT)));
        learn(&cache, &starts, now, &blocked);
        assert_eq!(cached_wait(&cache, &Op::Reserve(3), now), None);
    }
    assert_eq!(cached_wait(&cache, &Op::Acquire(3), now), Some(5 * WAIT));
    learn(&cache, &Op::Reserve(3), now, &blocked);
    assert_eq!(cached_wait(&cache, &Op::Acquire(3), now), Some(5 * WAIT));
    assert_eq!(cached_wait(&cache, &Op::Reserve(3), now), Some(5 * WAIT));
}

#[test]
fn only_denials_with_a_known_wait_are_cached() {
    let cache = DenyCache::new();
    let now = Instant::now();
    learn(&cache, &Op::Acquire(3), now, &denied(None));
    learn(&cache, &Op::Peek(3), now, &denied(Some(WAIT)));
    let policy = Policy::new("test", 10);
    let status = QuotaStatus::new(&policy);
    let allowed = Decision::allowed(1, Timestamp::from_secs(1), status);
    learn(&cache, &Op::Acquire(1), now, &allowed);
    assert_eq!(cached_wait(&cache, &Op::Acquire(99), now), None);
}

#[test]
fn a_newer_denial_replaces_the_older_and_forget_removes_it() {
    let cache = DenyCache::new();
    let now = Instant::now();
    learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));
    learn(&cache, &Op::Acquire(3), now, &denied(Some(2 * WAIT)));
    assert_eq!(cached_wait(&cache, &Op::Acquire(3), now), Some(2 * WAIT));
    cache.forget(ALICE, now);
    assert_eq!(cached_wait(&cache, &Op::Acquire(3), now), None);
}

#[test]
fn returned_units_and_new_quotas_drop_a_denial() {
    let cache = DenyCache::new();
    let mut now = Instant::now();
    for op in [
        Op::Refund(1, None),
        Op::Settle(0, denied(None).receipt()),
        Op::Block(Duration::ZERO),
        Op::Reset,
    ] {
        now += MS;
        learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));
        assert!(cached_wait(&cache, &Op::Acquire(3), now).is_some());
        learn(&cache, &op, now, &denied(None));
        assert_eq!(cached_wait(&cache, &Op::Acquire(3), now), None, "{op:?}");
    }
    now += MS;
    learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));
    cache.begin(1);
    assert_eq!(cached_wait(&cache, &Op::Acquire(3), now), None);
    // The reply to a call from before.
    learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));
    assert_eq!(cached_wait(&cache, &Op::Acquire(3), now), None);
}

/// Replies arrive in any order, and calls of one subject may be done in any.
#[test]
fn a_denial_from_before_a_return_is_not_cached() {
    let (start, denied) = (Instant::now(), denied(Some(WAIT)));
    let refund = Op::Refund(1, None);
    for (left, replied) in [(0, 1), (1, 2), (2, 3), (3, 4)] {
        let cache = DenyCache::new();
        // The refund leaves after 1 ms, and its reply arrives after 3.
        learn_all(&cache, start + MS, &[(&refund, &denied)], start + 3 * MS);
        let at = start + left * MS;
        learn_all(
            &cache,
            at,
            &[(&Op::Acquire(3), &denied)],
            start + replied * MS,
        );
        assert_eq!(
            cached_wait(&cache, &Op::Acquire(3), start + 4 * MS),
            None,
            "{left}"
        );
    }
    let cache = DenyCache::new();
    cache.forget(ALICE, start + 3 * MS);
    cache.forget(ALICE, start);
    learn(&cache, &Op::Acquire(3), start + 2 * MS, &denied);
    assert_eq!(cached_wait(&cache, &Op::Acquire(3), start + 3 * MS), None);
    learn(&cache, &Op::Acquire(3), start + 4 * MS, &denied);
    assert!(cached_wait(&cache, &Op::Acquire(3), start + 4 * MS).is_some());
}

#[test]
fn a_denial_after_a_return_of_its_own_call_is_cached() {
    let cache = DenyCache::new();
    let now = Instant::now();
    let denied = denied(Some(WAIT));
    let (refund, acquire) = (Op::Refund(1, None), Op::Acquire(3));
    let rows = [(&acquire, &denied), (&refund, &denied)];
    learn_all(&cache, now, &rows, now + MS);
    assert_eq!(
        cached_wait(&cache, &acquire, now + MS),
        None,
        "returned afterwards"
    );
    let rows = [(&refund, &denied), (&acquire, &denied)];
    learn_all(&cache, now + 2 * MS, &rows, now + 3 * MS);
    assert_eq!(cached_wait(&cache, &acquire, now + 3 * MS), Some(WAIT - MS));
}

#[test]
fn an_older_denial_does_not_replace_a_newer() {
    let cache = DenyCache::new();
    let before = Instant::now();
    let then = before + Duration::from_millis(1);
    let blocked = denied(Some(WAIT)).into_blocked(5 * WAIT);
    learn(&cache, &Op::Acquire(3), then, &blocked);
    learn(&cache, &Op::Acquire(3), before, &denied(Some(WAIT)));
    assert_eq!(cached_wait(&cache, &Op::Acquire(3), then), Some(5 * WAIT));
}

#[test]
fn a_block_is_cached_while_other_nodes_hold_units() {
    let hold = Some(20 * MS);
    let plain = denied(Some(WAIT));
    assert_eq!(hold_without_lease(&plain, hold), 20 * MS);
    assert_eq!(hold_without_lease(&plain, None), Duration::MAX);
    let blocked = plain.into_blocked(WAIT);
    assert_eq!(hold_without_lease(&blocked, hold), Duration::MAX);
}

/// The whole wait is reported even if the denial is cached for a shorter time.
#[test]
fn a_denial_is_cached_no_longer_than_its_hold() {
    let start = Instant::now();
    let hold = 20 * MS;
    for (decision, cached) in [
        (denied(Some(WAIT)), hold),
        (denied(Some(hold / 2)), hold / 2),
    ] {
        let cache = DenyCache::new();
        let rows = [(&Op::Acquire(1), &decision, hold)];
        cache.learn(&call(ALICE, start), rows.into_iter(), start);
        assert_eq!(
            cached_wait(&cache, &Op::Acquire(1), start),
            decision.retry_after()
        );
        assert_eq!(cached_wait(&cache, &Op::Acquire(1), start + cached), None);
    }
}

#[test]
fn denials_of_one_tier_are_dropped() {
    let cache = DenyCache::new();
    let now = Instant::now();
    learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));
    cache.drop_denials(ALICE, Chosen::Tier(1));
    cache.drop_denials(BOB, Chosen::Tier(0));
    assert!(cached_wait(&cache, &Op::Acquire(3), now).is_some());
    cache.drop_denials(ALICE, Chosen::Tier(0));
    assert_eq!(cached_wait(&cache, &Op::Acquire(3), now), None);
    learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));
    assert!(
        cached_wait(&cache, &Op::Acquire(3), now).is_some(),
        "nothing was returned"
    );
}

#[test]
fn the_cache_is_bounded() {
    let cache = DenyCache::new();
    let now = Instant::now();
    let denied = denied(Some(WAIT));
    for subject in 0..200_000 {
        let rows = [(&Op::Acquire(1), &denied, Duration::MAX)];
        cache.learn(&call(subject, now), rows.into_iter(), now);
    }
    let buckets = cache.buckets.get().into_iter().flatten();
    let kept: usize = buckets
        .map(|bucket| {
            bucket
                .lock()
                .expect("no panic")
                .denials
                .iter()
                .flatten()
                .count()
        })
        .sum();
    assert_eq!(kept, BUCKETS * WAYS);
}

#[test]
fn limiter_that_denies_nobody_keeps_no_buckets() {
    let cache = DenyCache::new();
    let now = Instant::now();
    let policy = Policy::new("test", 10);
    let allowed = Decision::allowed(1, Timestamp::from_secs(1), QuotaStatus::new(&policy));
    learn(&cache, &Op::Acquire(1), now, &allowed);
    assert!(
        cache
            .answer(ALICE, Chosen::Tier(0), &Op::Acquire(1), now)
            .is_none()
    );
    cache.drop_denials(ALICE, Chosen::Tier(0));
    assert!(!cache.has_returned_since(ALICE, now));
    cache.begin(1);
    assert!(cache.buckets.get().is_none());
    cache.forget(ALICE, now);
    assert!(cache.has_returned_since(ALICE, now));
}
