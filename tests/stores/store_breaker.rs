//! The guard of a store: nobody waits for one that fails, and it is used again when it works.

use std::{
    collections::BTreeSet,
    future::pending,
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    task::yield_now,
    time::{Instant, advance, sleep},
};
use tower_ratelimit::{
    Decision, Key, Limiter as _, OnFailure, Quota,
    decision::{Degradation, Op},
    limiter::Pending,
    shared::{MemoryStore, Reply, SharedLimiter, Store, StoreCall},
    store::{StoreError, StoreErrorKind, StoreHealth},
};

const DEADLINE: Duration = Duration::from_millis(40);

#[derive(Debug, Clone, Copy)]
enum Mood {
    Works,
    Hangs,
    Panics,
    Fails(StoreErrorKind),
}

/// A store that does what the test sets, and notes the keys of its calls.
struct Moody {
    values: MemoryStore,
    mood: Mutex<Mood>,
    requested: Mutex<BTreeSet<String>>,
    deadline: Duration,
}

impl Moody {
    fn new(mood: Mood) -> Arc<Self> {
        Self::with_deadline(mood, DEADLINE)
    }

    fn with_deadline(mood: Mood, deadline: Duration) -> Arc<Self> {
        Arc::new(Self {
            values: MemoryStore::new(),
            mood: Mutex::new(mood),
            requested: Mutex::default(),
            deadline,
        })
    }

    fn becomes(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn calls(&self) -> Vec<String> {
        mem::take(&mut *self.requested.lock().unwrap())
            .into_iter()
            .collect()
    }
}

impl Store for Moody {
    async fn transact(&self, key: &str, call: &StoreCall<'_>) -> Result<Reply, StoreError> {
        self.requested.lock().unwrap().insert(key.to_owned());
        let mood = *self.mood.lock().unwrap();
        match mood {
            Mood::Works => self.values.transact(key, call).await,
            Mood::Hangs => pending().await,
            Mood::Panics => panic!("as configured"),
            Mood::Fails(kind) => Err(StoreError::new(kind, "as configured")),
        }
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }
}

fn limiter(store: &Arc<Moody>) -> SharedLimiter<Arc<Moody>> {
    let builder = SharedLimiter::builder(Quota::per_minute(1_000)).name("api");
    let builder = builder.on_failure(OnFailure::allow());
    builder.build_on(Arc::clone(store)).unwrap()
}

/// The decision about a key, and how long it took.
async fn request(limiter: &SharedLimiter<Arc<Moody>>, key: u64) -> (Decision, Duration) {
    let began = Instant::now();
    let decision = limiter.acquire(&Key::from(key), 1).await.unwrap();
    (decision, began.elapsed())
}

/// Has trials end that have begun.
async fn settle() {
    for _ in 0..10 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_store_that_hangs() {
    let store = Moody::new(Mood::Works);
    let limiter = limiter(&store);
    assert_eq!(limiter.health(), StoreHealth::Untried);
    assert!(!request(&limiter, 0).await.0.is_degraded());
    assert_eq!(limiter.health(), StoreHealth::Up);

    store.becomes(Mood::Hangs);
    for key in 1..=3 {
        let (decision, took) = request(&limiter, key).await;
        assert_eq!(decision.degraded_by(), Some(Degradation::TimedOut));
        assert_eq!(took, DEADLINE);
    }
    settle().await;
    let StoreHealth::Down { cause, .. } = limiter.health() else {
        panic!("{:?}", limiter.health());
    };
    assert_eq!(cause, StoreErrorKind::Timeout);
    store.calls();

    // Trials are made meanwhile, and nobody waits for them, either.
    for key in 0..100 {
        let (decision, took) = request(&limiter, key).await;
        assert_eq!(decision.degraded_by(), Some(Degradation::GivenUp));
        assert_eq!(took, Duration::ZERO);
        sleep(Duration::from_millis(50)).await;
    }
    let answer = limiter.apply(&Key::from(0_u64), Op::Acquire(1));
    assert!(
        matches!(answer, Pending::Ready(_)),
        "nothing is to be waited for"
    );
    assert_eq!(store.calls(), ["rl:trial"]);

    let stats = limiter.stats();
    assert_eq!(stats.answered(), 1);
    assert_eq!(stats.failures(StoreErrorKind::Timeout), 3);
    assert_eq!(stats.failures(StoreErrorKind::BreakerOpen), 101);
    assert_eq!(stats.degraded(Degradation::TimedOut), 3);
    assert_eq!(stats.degraded(Degradation::GivenUp), 101);
    assert_eq!(stats.breaker_openings(), 1);
}

#[tokio::test(start_paused = true)]
async fn store_that_works_again_is_used() {
    for mood in [Mood::Hangs, Mood::Fails(StoreErrorKind::Disconnected)] {
        let store = Moody::new(mood);
        let limiter = limiter(&store);
        for key in 0..3 {
            request(&limiter, key).await;
            settle().await;
        }
        assert!(limiter.health().is_down(), "{mood:?}");
        // The first trial fails.
        sleep(Duration::from_millis(100)).await;
        request(&limiter, 0).await;
        sleep(DEADLINE).await;
        store.becomes(Mood::Works);
        request(&limiter, 0).await;
        settle().await;
        assert!(
            limiter.health().is_down(),
            "the next one is not due: {mood:?}"
        );
        sleep(Duration::from_millis(250)).await;
        let (decision, took) = request(&limiter, 0).await;
        assert!(decision.is_degraded(), "a trial is made for it: {mood:?}");
        assert_eq!(took, Duration::ZERO);
        settle().await;
        assert_eq!(limiter.health(), StoreHealth::Up, "{mood:?}");
        assert!(!request(&limiter, 0).await.0.is_degraded(), "{mood:?}");
    }
}

/// The request whose call panics does so, too, and the fallback decides those that wait for the same calls.
#[tokio::test(start_paused = true)]
async fn store_that_panics_is_used_again_at_once() {
    for (mood, waiting) in [
        (Mood::Works, None),
        (Mood::Hangs, Some(Degradation::Failed)),
    ] {
        let store = Moody::new(mood);
        let limiter = limiter(&store);
        let begin = |key| {
            let limiter = limiter.clone();
            tokio::spawn(async move { request(&limiter, key).await.0.degraded_by() })
        };
        let before = begin(1);
        settle().await;
        store.becomes(Mood::Panics);
        for key in 2..9 {
            let answer = begin(key).await;
            assert!(answer.is_err() || answer.unwrap() == Some(Degradation::Failed));
        }
        store.becomes(Mood::Works);
        assert!(!request(&limiter, 9).await.0.is_degraded());
        assert_eq!(before.await.unwrap(), waiting);
    }
}

#[tokio::test(start_paused = true)]
async fn errors_of_unknown_meaning_end_with_a_trial() {
    let store = Moody::new(Mood::Fails(StoreErrorKind::Other));
    let limiter = limiter(&store);
    request(&limiter, 1).await;
    settle().await;
    assert!(limiter.health().is_down(), "the trial failed, too");
    assert!(store.calls().contains(&"rl:trial".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn errors_of_one_key_are_no_failures_of_the_store() {
    for kind in [StoreErrorKind::ForeignData, StoreErrorKind::Contended] {
        let store = Moody::new(Mood::Fails(kind));
        let limiter = limiter(&store);
        for key in 0..20 {
            let (decision, _) = request(&limiter, key).await;
            assert_eq!(decision.degraded_by(), Some(Degradation::Failed));
        }
        assert!(!limiter.health().is_down(), "{kind}");
        assert_eq!(limiter.stats().failures(kind), 20);
    }
}

/// The deadline of a call needs a timer, also of a store that answers at once. A layer responds 503, and logs the error.
#[test]
fn without_a_timer_a_decision_is_an_error() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    let store = Moody::new(Mood::Works);
    let limiter = limiter(&store);
    for key in 0..3 {
        let decision = runtime.block_on(async { limiter.acquire(&Key::from(key), 1).await });
        let text = format!("{:?}", decision.unwrap_err());
        assert!(
            text.contains("NoRuntime") && text.contains("enable_time"),
            "{text}"
        );
    }
    assert!(store.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn deadline_without_end_is_an_hour() {
    let store = Moody::with_deadline(Mood::Hangs, Duration::MAX);
    let (_, took) = request(&limiter(&store), 0).await;
    assert_eq!(took, Duration::from_secs(3_600));
}

#[test]
fn outages_are_logged_once_and_so_is_their_end() {
    let lines = testkit::logged(|| {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = Moody::new(Mood::Fails(StoreErrorKind::Disconnected));
            let limiter = limiter(&store);
            for key in 0..50 {
                request(&limiter, key).await;
                settle().await;
            }
            store.becomes(Mood::Works);
            sleep(Duration::from_millis(300)).await;
            request(&limiter, 0).await;
            settle().await;
        });
    });
    let codes: Vec<_> = lines
        .iter()
        .filter_map(|line| line.split_once("tower-ratelimit[")?.1.split_once(']'))
        .collect();
    let [(down, text), (back, _)] = codes[..] else {
        panic!("{lines:?}");
    };
    assert_eq!((down, back), ("store-down", "store-back"));
    assert!(!text.contains("Redis"), "{text}");
}

/// As a static limiter has them in tests. The first runtime ends in the middle of a call, the second is not driven while
/// the third is, and is blocked for ten deadlines.
#[test]
fn a_limiter_outlives_the_runtimes_of_its_callers() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    let store = Moody::new(Mood::Hangs);
    let limiter = limiter(&store);
    let (ends, blocked) = (runtime(), runtime());
    ends.block_on(async {
        for _ in 0..2 {
            let lost = limiter.acquire(&Key::from("shared"), 1).into_future();
            drop(tokio::spawn(lost));
        }
        settle().await;
    });
    drop(ends);
    blocked.block_on(async {
        drop(limiter.acquire(&Key::from("shared"), 1).into_future());
        settle().await;
    });
    store.becomes(Mood::Works);
    for key in 0..3 {
        runtime().block_on(async {
            for key in [Key::from("shared"), Key::from(key as u64)] {
                let decision = limiter.acquire(&key, 1).await.unwrap();
                assert!(decision.is_allowed() && !decision.is_degraded());
            }
            advance(10 * DEADLINE).await;
        });
    }
    blocked.block_on(async {
        advance(10 * DEADLINE).await;
        settle().await;
        let (decision, took) = request(&limiter, 0).await;
        assert_eq!((decision.degraded_by(), took), (None, Duration::ZERO));
    });
}
