//! Tests of the breaker with explicit time.

use std::time::{Duration, Instant};

use super::State;
use crate::{
    error::{StoreError, StoreErrorKind},
    health::{Change, StoreHealth},
    single_background_task::Run,
};

const MS: Duration = Duration::from_millis(1);

fn error(kind: StoreErrorKind) -> StoreError {
    StoreError::new(kind, "a reason")
}

fn timeout() -> StoreError {
    error(StoreErrorKind::Timeout)
}

/// A closed breaker whose trials last two seconds at most.
fn breaker() -> State {
    State::new(2_000 * MS)
}

fn epoch(breaker: &mut State, now: Instant) -> u64 {
    match breaker.admit(|| now) {
        Ok(epoch) => epoch,
        Err((error, _)) => panic!("not admitted: {error}"),
    }
}

fn fail(breaker: &mut State, now: Instant) -> Option<Change> {
    let epoch = epoch(breaker, now);
    breaker.failed(epoch, 1, &timeout(), now)
}

/// Returns a breaker that opened at this time.
fn open(now: Instant) -> State {
    let mut breaker = breaker();
    assert!(fail(&mut breaker, now).is_none());
    assert!(fail(&mut breaker, now).is_none());
    assert!(matches!(
        fail(&mut breaker, now),
        Some(Change::Opened { .. })
    ));
    breaker
}

fn trial(breaker: &mut State, now: Instant) -> Option<Run> {
    match breaker.admit(|| now) {
        Ok(_) => panic!("admitted"),
        Err((error, trial)) => {
            assert_eq!(error.kind(), StoreErrorKind::BreakerOpen);
            trial
        }
    }
}

#[test]
fn opens_after_three_failures_in_a_row() {
    let now = Instant::now();
    let mut breaker = breaker();
    assert!(matches!(breaker.health(), StoreHealth::Untried));
    for _ in 0..3 {
        assert!(fail(&mut breaker, now).is_none());
        assert!(fail(&mut breaker, now).is_none());
        let epoch = epoch(&mut breaker, now);
        breaker.succeeded(epoch);
    }
    assert!(matches!(breaker.health(), StoreHealth::Up));
    assert!(fail(&mut breaker, now).is_none());
    assert!(fail(&mut breaker, now).is_none());
    assert!(fail(&mut breaker, now + MS).is_some());
    let StoreHealth::Down { since, cause } = breaker.health() else {
        panic!("still closed");
    };
    assert_eq!(since, now + MS);
    assert_eq!(cause, StoreErrorKind::Timeout);
}

#[test]
fn the_end_of_a_connection_counts_once() {
    let now = Instant::now();
    let mut breaker = breaker();
    let gone = error(StoreErrorKind::Disconnected);
    for _ in 0..100 {
        assert!(breaker.failed(0, 1, &gone, now).is_none());
    }
    assert!(breaker.failed(0, 2, &gone, now).is_none());
    assert!(breaker.failed(0, 3, &gone, now).is_some());
}

#[test]
fn the_first_trial_runs_after_100_ms_and_then_one_every_250_ms() {
    let start = Instant::now();
    let mut breaker = open(start);
    assert!(trial(&mut breaker, start + 99 * MS).is_none());
    let first = trial(&mut breaker, start + 100 * MS).expect("it is due");
    assert!(trial(&mut breaker, start + 100 * MS).is_none());
    assert!(trial(&mut breaker, start + 2_000 * MS).is_none());

    let other = error(StoreErrorKind::Loading);
    assert!(
        breaker
            .trial_ended(first, &Err(other), start + 150 * MS)
            .is_none()
    );
    assert!(trial(&mut breaker, start + 349 * MS).is_none());
    assert!(trial(&mut breaker, start + 350 * MS).is_some());
    let StoreHealth::Down { since, cause } = breaker.health() else {
        panic!("closed");
    };
    assert_eq!((since, cause), (start, StoreErrorKind::Loading));
}

#[test]
fn a_long_trial_is_followed_by_the_next_at_once() {
    let start = Instant::now();
    let mut breaker = open(start);
    let slow = trial(&mut breaker, start + 100 * MS).expect("it is due");
    breaker.trial_ended(slow, &Err(timeout()), start + 600 * MS);
    assert!(trial(&mut breaker, start + 600 * MS).is_some());
}

#[test]
fn closes_with_the_first_trial_that_succeeds() {
    let start = Instant::now();
    let mut breaker = open(start);
    let first = trial(&mut breaker, start + 100 * MS).expect("it is due");
    let change = breaker.trial_ended(first, &Ok(()), start + 130 * MS);
    let Some(Change::Closed { after }) = change else {
        panic!("{change:?}");
    };
    assert_eq!(after, 130 * MS);
    assert!(matches!(breaker.health(), StoreHealth::Up));
    assert!(fail(&mut breaker, start + 130 * MS).is_none());
}

#[test]
fn outcomes_of_calls_from_before_the_closing_are_ignored() {
    let start = Instant::now();
    let mut breaker = breaker();
    let before = epoch(&mut breaker, start);
    for _ in 0..3 {
        fail(&mut breaker, start);
    }
    let first = trial(&mut breaker, start + 100 * MS).expect("it is due");
    breaker.trial_ended(first, &Ok(()), start + 101 * MS);

    for connection in 1..10 {
        let change = breaker.failed(before, connection, &timeout(), start + 102 * MS);
        assert!(change.is_none());
        assert!(breaker.inconclusive(before, start + 10_000 * MS).is_none());
    }
    // Nor does a success from before forgive failures since.
    fail(&mut breaker, start);
    fail(&mut breaker, start);
    breaker.succeeded(before);
    assert!(fail(&mut breaker, start).is_some());
}

#[test]
fn failures_while_the_breaker_is_open_have_no_effect() {
    let start = Instant::now();
    let mut breaker = breaker();
    let before = epoch(&mut breaker, start);
    for _ in 0..3 {
        fail(&mut breaker, start);
    }
    for _ in 0..3 {
        assert!(breaker.failed(before, 7, &timeout(), start).is_none());
    }
}

#[test]
fn a_trial_whose_runtime_ended_is_replaced() {
    let start = Instant::now();
    let mut breaker = open(start);
    drop(trial(&mut breaker, start + 100 * MS).expect("it is due"));
    let next = trial(&mut breaker, start + 350 * MS).expect("it is due");
    assert!(!next.replaces_lost());
}

#[test]
fn an_inconclusive_outcome_is_settled_by_a_trial() {
    let start = Instant::now();
    let mut breaker = breaker();
    let first = breaker.inconclusive(0, start).expect("it is due");
    assert!(breaker.inconclusive(0, start + 300 * MS).is_none());
    assert!(
        breaker
            .trial_ended(first, &Ok(()), start + 300 * MS)
            .is_none()
    );
    let second = breaker
        .inconclusive(0, start + 300 * MS)
        .expect("it is due");
    let full = error(StoreErrorKind::OutOfMemory);
    let change = breaker.trial_ended(second, &Err(full), start + 310 * MS);
    let Some(Change::Opened { cause }) = change else {
        panic!("{change:?}");
    };
    assert_eq!(cause.kind(), StoreErrorKind::OutOfMemory);
}

/// The lost trial's runtime may not be driven any more.
#[test]
fn a_trial_that_never_ends_expires_and_its_outcome_is_ignored() {
    let start = Instant::now();
    let mut breaker = open(start);
    let lost = trial(&mut breaker, start + 100 * MS).expect("it is due");
    assert!(!breaker.has_lost_trial(|| start + 2_099 * MS));
    assert!(breaker.has_lost_trial(|| start + 2_100 * MS));
    let next = trial(&mut breaker, start + 2_100 * MS).expect("it replaces the lost one");
    assert!(next.replaces_lost());
    let late = breaker.trial_ended(lost, &Ok(()), start + 2_101 * MS);
    assert!(late.is_none());
    let change = breaker.trial_ended(next, &Ok(()), start + 2_102 * MS);
    assert!(matches!(change, Some(Change::Closed { .. })));
}
