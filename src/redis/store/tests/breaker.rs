//! The breaker, with the time handed in.

use std::time::{Duration, Instant};

use crate::redis::store::{
    StoreError, StoreErrorKind,
    breaker::{Admission, Breaker, Change, Verdict},
};

const MS: Duration = Duration::from_millis(1);

fn error(kind: StoreErrorKind) -> StoreError {
    StoreError::new(kind, "a reason")
}

fn timeout() -> StoreError {
    error(StoreErrorKind::Timeout)
}

fn epoch(breaker: &mut Breaker, now: Instant) -> u64 {
    match breaker.admit(now) {
        Admission::Pass { epoch } => epoch,
        Admission::Stop { error, .. } => panic!("not admitted: {error}"),
    }
}

fn fail(breaker: &mut Breaker, now: Instant) -> Option<Change> {
    let epoch = epoch(breaker, now);
    breaker.failed(epoch, 1, &timeout(), now)
}

/// One that opened at this time.
fn open(now: Instant) -> Breaker {
    let mut breaker = Breaker::default();
    assert!(fail(&mut breaker, now).is_none());
    assert!(fail(&mut breaker, now).is_none());
    assert!(matches!(
        fail(&mut breaker, now),
        Some(Change::Opened { .. })
    ));
    breaker
}

fn starts_trial(breaker: &mut Breaker, now: Instant) -> bool {
    match breaker.admit(now) {
        Admission::Pass { .. } => panic!("admitted"),
        Admission::Stop { trial, error } => {
            assert_eq!(error.kind(), StoreErrorKind::BreakerOpen);
            trial.is_some()
        }
    }
}

#[test]
fn opens_after_three_failures_in_a_row() {
    let now = Instant::now();
    let mut breaker = Breaker::default();
    assert!(matches!(breaker.verdict(), Verdict::Untried));
    for _ in 0..3 {
        assert!(fail(&mut breaker, now).is_none());
        assert!(fail(&mut breaker, now).is_none());
        let epoch = epoch(&mut breaker, now);
        breaker.succeeded(epoch);
    }
    assert!(matches!(breaker.verdict(), Verdict::Works));
    assert!(fail(&mut breaker, now).is_none());
    assert!(fail(&mut breaker, now).is_none());
    assert!(fail(&mut breaker, now + MS).is_some());
    let Verdict::Fails { since, cause } = breaker.verdict() else {
        panic!("still closed");
    };
    assert_eq!(since, now + MS);
    assert_eq!(cause.kind(), StoreErrorKind::Timeout);
}

#[test]
fn the_end_of_a_connection_counts_once() {
    let now = Instant::now();
    let mut breaker = Breaker::default();
    let gone = error(StoreErrorKind::Disconnected);
    for _ in 0..100 {
        assert!(breaker.failed(0, 1, &gone, now).is_none());
    }
    assert!(breaker.failed(0, 2, &gone, now).is_none());
    assert!(breaker.failed(0, 3, &gone, now).is_some());
}

#[test]
fn tries_first_after_100_ms_and_then_every_250_ms_one_at_a_time() {
    let start = Instant::now();
    let mut breaker = open(start);
    assert!(!starts_trial(&mut breaker, start + 99 * MS));
    assert!(starts_trial(&mut breaker, start + 100 * MS));
    assert!(!starts_trial(&mut breaker, start + 100 * MS));
    assert!(!starts_trial(&mut breaker, start + 2_000 * MS));

    let other = error(StoreErrorKind::Loading);
    assert!(
        breaker
            .trial_ended(1, Err(&other), start + 150 * MS)
            .is_none()
    );
    assert!(!starts_trial(&mut breaker, start + 349 * MS));
    assert!(starts_trial(&mut breaker, start + 350 * MS));
    let Verdict::Fails { since, cause } = breaker.verdict() else {
        panic!("closed");
    };
    assert_eq!((since, cause.kind()), (start, StoreErrorKind::Loading));
}

#[test]
fn a_trial_that_took_long_is_followed_at_once() {
    let start = Instant::now();
    let mut breaker = open(start);
    assert!(starts_trial(&mut breaker, start + 100 * MS));
    breaker.trial_ended(1, Err(&timeout()), start + 600 * MS);
    assert!(starts_trial(&mut breaker, start + 600 * MS));
}

#[test]
fn closes_with_the_first_trial_that_succeeds() {
    let start = Instant::now();
    let mut breaker = open(start);
    assert!(starts_trial(&mut breaker, start + 100 * MS));
    let change = breaker.trial_ended(1, Ok(()), start + 130 * MS);
    let Some(Change::Closed { after }) = change else {
        panic!("{change:?}");
    };
    assert_eq!(after, 130 * MS);
    assert!(matches!(breaker.verdict(), Verdict::Works));
    assert!(fail(&mut breaker, start + 130 * MS).is_none());
}

#[test]
fn what_calls_from_before_saw_is_not_heard_after_it_closed() {
    let start = Instant::now();
    let mut breaker = Breaker::default();
    let before = epoch(&mut breaker, start);
    for _ in 0..3 {
        fail(&mut breaker, start);
    }
    assert!(starts_trial(&mut breaker, start + 100 * MS));
    breaker.trial_ended(1, Ok(()), start + 101 * MS);

    for connection in 1..10 {
        let change = breaker.failed(before, connection, &timeout(), start + 102 * MS);
        assert!(change.is_none());
        assert!(breaker.doubted(before, start + 10_000 * MS).is_none());
    }
    // Nor does a success from before forgive failures since.
    fail(&mut breaker, start);
    fail(&mut breaker, start);
    breaker.succeeded(before);
    assert!(fail(&mut breaker, start).is_some());
}

#[test]
fn failures_while_it_is_open_open_nothing() {
    let start = Instant::now();
    let mut breaker = Breaker::default();
    let before = epoch(&mut breaker, start);
    for _ in 0..3 {
        fail(&mut breaker, start);
    }
    for _ in 0..3 {
        assert!(breaker.failed(before, 7, &timeout(), start).is_none());
    }
}

#[test]
fn a_lost_trial_is_followed_by_another() {
    let start = Instant::now();
    let mut breaker = open(start);
    assert!(starts_trial(&mut breaker, start + 100 * MS));
    assert!(breaker.trial_lost(1));
    assert!(starts_trial(&mut breaker, start + 350 * MS));
}

#[test]
fn a_doubt_is_settled_by_a_trial() {
    let start = Instant::now();
    let mut breaker = Breaker::default();
    assert!(breaker.doubted(0, start).is_some());
    assert!(breaker.doubted(0, start + 300 * MS).is_none());
    assert!(breaker.trial_ended(1, Ok(()), start + 300 * MS).is_none());
    assert!(breaker.doubted(0, start + 300 * MS).is_some());
    let full = error(StoreErrorKind::OutOfMemory);
    let change = breaker.trial_ended(2, Err(&full), start + 310 * MS);
    let Some(Change::Opened { cause }) = change else {
        panic!("{change:?}");
    };
    assert_eq!(cause.kind(), StoreErrorKind::OutOfMemory);
}

/// Point 7: its runtime may not be driven any more.
#[test]
fn a_trial_that_never_ends_expires_and_is_not_heard_any_more() {
    let start = Instant::now();
    let mut breaker = open(start);
    assert!(starts_trial(&mut breaker, start + 100 * MS));
    assert!(!breaker.has_lost_trial(start + 2_099 * MS));
    assert!(breaker.has_lost_trial(start + 2_100 * MS));
    let Admission::Stop { trial, .. } = breaker.admit(start + 2_100 * MS) else {
        panic!("admitted");
    };
    let trial = trial.expect("another one");
    assert!(trial.replaces);
    assert!(breaker.trial_ended(1, Ok(()), start + 2_101 * MS).is_none());
    assert!(!breaker.trial_lost(1));
    let change = breaker.trial_ended(trial.number, Ok(()), start + 2_102 * MS);
    assert!(matches!(change, Some(Change::Closed { .. })));
}
