//! Stores that fail, hang, or are contended.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tower_ratelimit::{
    Key, OnFailure, Quota,
    clock::Timestamp,
    shared::{
        Cas, CompareAndSwap, MemoryStore, Reply, SharedLimiter, Store, StoreCall, Versioned, Write,
    },
    store::{StoreError, StoreErrorKind},
};

/// Writes nothing, because others always have.
#[derive(Default)]
struct Contended(AtomicU32);

impl CompareAndSwap for Contended {
    type Version = ();

    async fn load(&self, _: &str) -> Result<(Versioned<()>, Timestamp), StoreError> {
        Ok((None, Timestamp::from_secs(1)))
    }

    async fn swap(&self, _: &str, _: Option<()>, _: &Write) -> Result<Option<()>, StoreError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    }
}

/// Never answers, or not as it should.
enum Broken {
    Hangs,
    Fails,
    Lies,
}

impl Store for Broken {
    async fn transact(&self, _: &str, _: &StoreCall<'_>) -> Result<Reply, StoreError> {
        match self {
            Self::Hangs => pending().await,
            Self::Fails => Err(StoreError::new(StoreErrorKind::Other, "no table")),
            Self::Lies => Ok(Reply::from_bytes(b"nonsense".to_vec())),
        }
    }
}

/// The kind of the error that requests get, and its text.
async fn error_of<S: Store>(store: S) -> (StoreErrorKind, String) {
    let limiter = SharedLimiter::builder(Quota::per_second(1));
    let limiter = limiter
        .on_failure(OnFailure::deny())
        .build_on(store)
        .unwrap();
    let error = limiter.acquire(&Key::from("alice"), 1).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    let source = source.downcast_ref::<StoreError>().unwrap();
    (source.kind(), source.to_string())
}

#[tokio::test(start_paused = true)]
async fn contended_value_is_tried_eight_times() {
    let store = Arc::new(Cas::new(Contended::default()).seed(1));
    let (kind, text) = error_of(Arc::clone(&store)).await;
    assert_eq!(kind, StoreErrorKind::Contended, "{text}");
    assert!(text.starts_with("the store failed (contended): "), "{text}");
    assert_eq!(store.get_ref().0.load(Ordering::Relaxed), 8);
}

#[tokio::test(start_paused = true)]
async fn store_that_hangs_holds_nobody_up_for_longer_than_its_deadline() {
    let began = Instant::now();
    let (kind, text) = error_of(Broken::Hangs).await;
    assert_eq!(kind, StoreErrorKind::Timeout);
    assert_eq!(text, "the store failed (timeout): no answer within 250ms");
    assert_eq!(began.elapsed(), Duration::from_millis(250));
}

#[tokio::test(start_paused = true)]
async fn errors_and_invalid_replies_are_reported() {
    let (kind, text) = error_of(Broken::Fails).await;
    assert_eq!(kind, StoreErrorKind::Other);
    assert_eq!(text, "the store failed (other): no table");
    assert_eq!(error_of(Broken::Lies).await.0, StoreErrorKind::ForeignData);
}

#[tokio::test(start_paused = true)]
async fn each_node_continues_alone() {
    let limiter = SharedLimiter::builder(Quota::per_day(2))
        .build_on(Broken::Fails)
        .unwrap();
    let key = Key::from("alice");
    for allowed in [true, true, false] {
        let decision = limiter.acquire(&key, 1).await.unwrap();
        assert!(decision.is_degraded());
        assert_eq!(decision.is_allowed(), allowed);
    }
}

#[tokio::test(start_paused = true)]
async fn values_that_are_over_are_forgotten() {
    let clock = tower_ratelimit::clock::ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let limiter = SharedLimiter::builder(Quota::per_second(1));
    let limiter = limiter.build_on(store.clone()).unwrap();
    for key in 0_u64..10_000 {
        clock.advance(Duration::from_millis(100));
        assert!(
            limiter
                .acquire(&Key::from(key), 1)
                .await
                .unwrap()
                .is_allowed()
        );
    }
    assert!(store.len() <= 256, "{} values", store.len());
}
