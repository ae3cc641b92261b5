//! Denials, and what ends them.

use std::{sync::LazyLock, time::Duration};

use super::{super::subject::SubjectNames, *};
use crate::{
    clock::Timestamp,
    decision::{Policy, QuotaStatus},
};

const WAIT: Duration = Duration::from_secs(3);

/// The same at any time.
fn subject(name: &str) -> SubjectName {
    static SUBJECTS: LazyLock<SubjectNames> = LazyLock::new(|| SubjectNames::new(None));
    SUBJECTS.named(name)
}

fn denied(wait: Option<Duration>) -> Decision {
    let policy = Policy::new("test", 10);
    let status = QuotaStatus::new(&policy).with_remaining(2);
    Decision::denied(Timestamp::from_secs(1), status.with_denial(wait))
}

/// Has `cache` learn that alice asked this and heard that.
fn learn(cache: &DenyCache, op: &Op, at: Instant, decision: &Decision) {
    let asked = AnsweredCall {
        subject: &subject("alice"),
        tier: Chosen::Tier(0),
        at,
        generation: 0,
        hold: None,
    };
    cache.learn(&asked, op, decision);
}

fn ask(cache: &DenyCache, op: &Op, at: Instant) -> Option<Duration> {
    let answer = cache.answer(&subject("alice"), Chosen::Tier(0), op, at)?;
    assert!(answer.is_denied());
    answer.retry_after()
}

#[test]
fn a_denial_holds_until_its_time_and_no_longer() {
    let cache = DenyCache::new(Duration::MAX);
    let start = Instant::now();
    learn(&cache, &Op::Acquire(3), start, &denied(Some(WAIT)));

    assert_eq!(ask(&cache, &Op::Acquire(3), start), Some(WAIT));
    let second = Duration::from_secs(1);
    assert_eq!(
        ask(&cache, &Op::Acquire(3), start + second),
        Some(WAIT - second)
    );
    let last = WAIT - Duration::from_nanos(1);
    let shortest = Duration::from_micros(1);
    assert_eq!(ask(&cache, &Op::Acquire(3), start + last), Some(shortest));
    assert_eq!(ask(&cache, &Op::Acquire(3), start + WAIT), None);
}

#[test]
fn it_answers_nothing_but_the_same_cost() {
    let cache = DenyCache::new(Duration::MAX);
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
        assert_eq!(ask(&cache, &op, now), None, "{op:?}");
    }
    let of = |name, tier| cache.answer(&subject(name), tier, &Op::Acquire(3), now);
    assert!(of("bob", Chosen::Tier(0)).is_none());
    assert!(of("alice", Chosen::Tier(1)).is_none());
}

#[test]
fn refused_reservation_answers_reservations_alone() {
    let cache = DenyCache::new(Duration::MAX);
    let now = Instant::now();
    learn(&cache, &Op::Reserve(3), now, &denied(Some(WAIT)));

    assert_eq!(ask(&cache, &Op::Reserve(3), now), Some(WAIT));
    for op in [Op::Acquire(3), Op::Deny(3), Op::Peek(3), Op::Reserve(2)] {
        assert_eq!(ask(&cache, &op, now), None, "{op:?}");
    }
}

#[test]
fn block_that_starts_ends_what_knows_of_none() {
    let cache = DenyCache::new(Duration::MAX);
    let now = Instant::now();
    let blocked = denied(Some(WAIT)).into_blocked(5 * WAIT);
    for starts in [Op::Deny(3), Op::Acquire(3), Op::Peek(1)] {
        learn(&cache, &Op::Reserve(3), now, &denied(Some(WAIT)));
        learn(&cache, &starts, now, &blocked);
        assert_eq!(ask(&cache, &Op::Reserve(3), now), None);
    }
    assert_eq!(ask(&cache, &Op::Acquire(3), now), Some(5 * WAIT));
    learn(&cache, &Op::Reserve(3), now, &blocked);
    assert_eq!(ask(&cache, &Op::Acquire(3), now), Some(5 * WAIT));
    assert_eq!(ask(&cache, &Op::Reserve(3), now), Some(5 * WAIT));
}

#[test]
fn only_denials_with_a_known_end_are_kept() {
    let cache = DenyCache::new(Duration::MAX);
    let now = Instant::now();
    learn(&cache, &Op::Acquire(3), now, &denied(None));
    learn(&cache, &Op::Peek(3), now, &denied(Some(WAIT)));
    let policy = Policy::new("test", 10);
    let status = QuotaStatus::new(&policy);
    let allowed = Decision::allowed(1, Timestamp::from_secs(1), status);
    learn(&cache, &Op::Acquire(1), now, &allowed);
    assert_eq!(ask(&cache, &Op::Acquire(99), now), None);
}

#[test]
fn a_newer_denial_replaces_the_older_and_forgetting_removes_it() {
    let cache = DenyCache::new(Duration::MAX);
    let now = Instant::now();
    learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));
    learn(&cache, &Op::Acquire(3), now, &denied(Some(2 * WAIT)));
    assert_eq!(ask(&cache, &Op::Acquire(3), now), Some(2 * WAIT));
    cache.forget(&subject("alice"), now);
    assert_eq!(ask(&cache, &Op::Acquire(3), now), None);
}

#[test]
fn what_is_given_back_and_new_quotas_end_it() {
    let cache = DenyCache::new(Duration::MAX);
    let now = Instant::now();
    for op in [
        Op::Refund(1, None),
        Op::Settle(0, denied(None).receipt()),
        Op::Block(Duration::ZERO),
        Op::Reset,
    ] {
        learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));
        learn(&cache, &op, now, &denied(None));
        assert_eq!(ask(&cache, &Op::Acquire(3), now), None, "{op:?}");
    }
    learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));
    cache.begin(1);
    assert_eq!(ask(&cache, &Op::Acquire(3), now), None);
    // The answer to a question from before.
    learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));
    assert_eq!(ask(&cache, &Op::Acquire(3), now), None);
}

/// The answers of a driver that was replaced come when they come.
#[test]
fn denial_from_before_what_was_given_back_is_not_remembered() {
    let cache = DenyCache::new(Duration::MAX);
    let before = Instant::now();
    let then = before + Duration::from_millis(1);
    let denied = denied(Some(WAIT));
    learn(&cache, &Op::Refund(1, None), then, &denied);
    learn(&cache, &Op::Acquire(3), before, &denied);
    assert_eq!(ask(&cache, &Op::Acquire(3), then), None);
    // One call carries both, in this order.
    learn(&cache, &Op::Acquire(3), then, &denied);
    assert_eq!(ask(&cache, &Op::Acquire(3), then), Some(WAIT));

    let later = then + Duration::from_millis(1);
    cache.forget(&subject("alice"), later);
    learn(&cache, &Op::Acquire(3), then, &denied);
    assert_eq!(ask(&cache, &Op::Acquire(3), later), None);
    cache.forget(&subject("alice"), before);
    learn(&cache, &Op::Acquire(3), then, &denied);
    assert_eq!(ask(&cache, &Op::Acquire(3), later), None);
}

#[test]
fn an_older_denial_does_not_replace_a_newer() {
    let cache = DenyCache::new(Duration::MAX);
    let before = Instant::now();
    let then = before + Duration::from_millis(1);
    let blocked = denied(Some(WAIT)).into_blocked(5 * WAIT);
    learn(&cache, &Op::Acquire(3), then, &blocked);
    learn(&cache, &Op::Acquire(3), before, &denied(Some(WAIT)));
    assert_eq!(ask(&cache, &Op::Acquire(3), then), Some(5 * WAIT));
}

/// While nodes hold units, some may come back before a denial tells. A block lasts all the same.
#[test]
fn denial_beside_leases_holds_for_as_long_as_the_server_says() {
    let start = Instant::now();
    let hold = Duration::from_millis(20);
    for (decision, held) in [
        (denied(Some(WAIT)), hold),
        (denied(Some(hold / 2)), hold / 2),
        (denied(Some(hold)).into_blocked(WAIT), WAIT),
    ] {
        let cache = DenyCache::new(Duration::MAX);
        let asked = AnsweredCall {
            subject: &subject("alice"),
            tier: Chosen::Tier(0),
            at: start,
            generation: 0,
            hold: Some(hold),
        };
        cache.learn(&asked, &Op::Acquire(1), &decision);
        let told = decision.retry_after();
        assert_eq!(ask(&cache, &Op::Acquire(1), start), told);
        assert_eq!(ask(&cache, &Op::Acquire(1), start + held), None);
    }
}

#[test]
fn it_is_bounded() {
    let cache = DenyCache::new(Duration::MAX);
    let now = Instant::now();
    for n in 0..200_000 {
        let subject = subject(&n.to_string());
        let asked = AnsweredCall {
            subject: &subject,
            tier: Chosen::Tier(0),
            at: now,
            generation: 0,
            hold: None,
        };
        cache.learn(&asked, &Op::Acquire(1), &denied(Some(WAIT)));
    }
    let buckets = cache.buckets.iter();
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
fn denial_is_held_no_longer_than_the_cache_may() {
    let cache = DenyCache::new(Duration::from_secs(1));
    let start = Instant::now();
    learn(&cache, &Op::Acquire(1), start, &denied(Some(WAIT)));
    let soon = start + Duration::from_millis(999);
    let left = ask(&cache, &Op::Acquire(1), soon);
    assert_eq!(
        left,
        Some(WAIT - Duration::from_millis(999)),
        "the whole wait is told"
    );
    let then = start + Duration::from_secs(1);
    assert_eq!(ask(&cache, &Op::Acquire(1), then), None);
}
