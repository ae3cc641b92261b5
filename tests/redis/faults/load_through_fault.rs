//! A load that goes through a fault and back.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use testkit::child_processes::eventually;
use tower_ratelimit::{
    Key, OnFailure, Quota, RedisLimiter, RedisStore,
    store::{StoreErrorKind, StoreHealth},
};

use super::timed_load::{Answer, Load, Sample, cause, times, undecided};

/// Short enough for a test. A busy machine may need longer for an answer: no test asserts that a request meets it.
pub(super) const DEADLINE: Duration = Duration::from_millis(750);

/// Longer than the busiest machine needs for an answer.
const PATIENCE: Duration = Duration::from_secs(240);

/// How long a fault lasts at least after it was noticed.
const HOLD: Duration = Duration::from_millis(400);

/// Every change of a store's health.
pub(super) type Changes = Arc<Mutex<Vec<StoreHealth>>>;

/// The store at the address, and a list of its reports of health.
pub(super) fn store(url: &str) -> (RedisStore, Changes) {
    store_within(DEADLINE, url)
}

pub(super) fn store_within(deadline: Duration, url: &str) -> (RedisStore, Changes) {
    let changes = Changes::default();
    let list = Arc::clone(&changes);
    let store = RedisStore::builder()
        .deadline(deadline)
        .on_health_change(move |health| list.lock().unwrap().push(health))
        .connect(url)
        .unwrap();
    (store, changes)
}

/// The store at the address, for tests without a fault: a busy machine must not look like one.
pub(super) fn patient_store(url: &str) -> RedisStore {
    let builder = RedisStore::builder().deadline(PATIENCE);
    builder.connect_timeout(PATIENCE).connect(url).unwrap()
}

/// Action of one of the limiters when Redis does not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Local,
    Allow,
    Deny,
}

impl Action {
    const ALL: [Self; 3] = [Self::Local, Self::Allow, Self::Deny];

    fn limiter(self, store: &RedisStore) -> RedisLimiter {
        let (name, on_failure) = match self {
            Self::Local => ("local", OnFailure::local()),
            Self::Allow => ("allow", OnFailure::allow()),
            Self::Deny => ("deny", OnFailure::deny()),
        };
        // A limit so large that only a fault could deny.
        let builder = RedisLimiter::builder(Quota::per_day(10_000_000));
        let builder = builder.name(name).on_failure(on_failure);
        builder.build(store).unwrap()
    }

    /// Whether the answer is one that the limiter gives when Redis is not there.
    fn expects(self, answer: Answer) -> bool {
        match self {
            Self::Local | Self::Allow => answer == Answer::DegradedAllowed,
            Self::Deny => matches!(answer, Answer::Failed(_)),
        }
    }
}

/// Three limiters of one store, each under load.
pub(super) struct Trial {
    what: &'static str,
    store: RedisStore,
    changes: Changes,
    limiters: Vec<(Action, RedisLimiter)>,
    loads: Vec<Load>,
    /// A span of the fault during which the breaker was open.
    outage: Option<Range<Instant>>,
}

impl Trial {
    /// Starts the load, whether or not Redis is up.
    pub(super) fn start(what: &'static str, url: &str) -> Self {
        Self::start_within(DEADLINE, what, url)
    }

    fn start_within(deadline: Duration, what: &'static str, url: &str) -> Self {
        let (store, changes) = store_within(deadline, url);
        let limiters = Action::ALL.map(|action| (action, action.limiter(&store)));
        let keys: Vec<_> = (0..24_u64).map(Key::from).collect();
        let loads = limiters
            .iter()
            .map(|(_, limiter)| Load::start(limiter, 4, &keys));
        Self {
            what,
            loads: loads.collect(),
            limiters: limiters.into(),
            store,
            changes,
            outage: None,
        }
    }

    /// Starts the load, and waits until Redis decides.
    pub(super) async fn start_well(what: &'static str, url: &str) -> Self {
        let trial = Self::start(what, url);
        trial.works().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        trial
    }

    /// Starts a load that a busy machine cannot make fail, for a fault that no request may notice.
    pub(super) async fn start_patient(what: &'static str, url: &str) -> Self {
        let trial = Self::start_within(PATIENCE, what, url);
        trial.works().await;
        trial
    }

    /// Waits until Redis decides for all limiters.
    pub(super) async fn works(&self) {
        eventually("decisions by Redis", async || {
            for (_, limiter) in &self.limiters {
                let decision = limiter.peek(&Key::from("probe"), 1).await.ok()?;
                (!decision.is_degraded()).then_some(())?;
            }
            Some(())
        })
        .await;
    }

    /// Waits until the breaker opens for one of these reasons, and for a while longer.
    pub(super) async fn fails(&mut self, reasons: &[StoreErrorKind]) {
        let failed_at = self.stays_down().await;
        let health = self.store.health();
        let StoreHealth::Down { cause: reason, .. } = health else {
            panic!("{}: {health:?}", self.what);
        };
        assert!(reasons.contains(&reason), "{}: {reason}", self.what);
        let (_, deny) = &self.limiters[2];
        let error = deny.acquire(&Key::from("probe"), 1).await.unwrap_err();
        assert_eq!(cause(&error), StoreErrorKind::BreakerOpen, "{}", self.what);
        self.outage = Some(failed_at..Instant::now());
    }

    /// Waits until the breaker has been open for [`HOLD`], and returns when it was noticed.
    ///
    /// A reply from before the fault, read late, may close it once more.
    async fn stays_down(&self) -> Instant {
        let openings = || self.store.stats().breaker_openings();
        eventually("Redis to stay down", async || {
            let before = openings();
            self.store.health().is_down().then_some(())?;
            let failed_at = Instant::now();
            tokio::time::sleep(HOLD).await;
            let stayed = self.store.health().is_down() && openings() == before;
            stayed.then_some(failed_at)
        })
        .await
    }

    /// The breaker did not open: ends the load and checks that.
    pub(super) async fn continues(self) {
        let (what, changes) = (self.what, Arc::clone(&self.changes));
        for (action, samples) in self.end().await {
            println!("{what}, {action:?}: {} without Redis", undecided(&samples));
        }
        assert_eq!(*changes.lock().unwrap(), [], "{what}");
    }

    /// Redis answers again as of now: waits until it decides, ends the load, and checks all that
    /// was answered.
    pub(super) async fn recovers(self) {
        let outage = self.outage.clone().expect("it failed");
        let (what, changes, store) = (self.what, Arc::clone(&self.changes), self.store.clone());
        for (action, samples) in self.end().await {
            // A request that the fault's end overtook may have been decided by Redis.
            let during = samples.iter().filter(|sample| {
                let answered_at = sample.requested_at + sample.latency;
                outage.contains(&sample.requested_at) && outage.contains(&answered_at)
            });
            let answers: Vec<_> = during.map(|sample| sample.answer).collect();
            assert!(!answers.is_empty(), "{what}: nobody asked meanwhile");
            for answer in answers {
                assert!(action.expects(answer), "{what}, {action:?}: {answer:?}");
            }
        }
        // The store reports each change in a thread of its own.
        let count = || changes.lock().unwrap().len();
        eventually("both changes", async || (count() >= 2).then_some(())).await;
        let changes: Vec<_> = changes.lock().unwrap().clone();
        // A busy machine may make it time out again at once.
        assert!(changes[0].is_down(), "{what}: {changes:?}");
        assert!(!changes[1].is_down(), "{what}: {changes:?}");
        assert!(store.stats().breaker_openings() > 0, "{what}");
    }

    /// Waits until a request fails, where Redis may still serve others.
    pub(super) async fn fails_for_some(&self) {
        let failures = || self.store.stats().failures_by_kind().count();
        eventually("a failure", async || (failures() > 0).then_some(())).await;
    }

    /// Does the work of [`recovers`](Self::recovers) after [`fails_for_some`](Self::fails_for_some).
    pub(super) async fn recovers_for_all(self) {
        let (what, changes) = (self.what, Arc::clone(&self.changes));
        for (action, samples) in self.end().await {
            assert!(undecided(&samples) > 0, "{what}, {action:?}");
        }
        let changes: Vec<_> = changes.lock().unwrap().clone();
        println!("{what}: {changes:?}");
        // After the loss of a server of a cluster all others may refuse for a while, too.
        if let [first, .., last] = &changes[..] {
            assert_ne!(*first, StoreHealth::Up, "{what}: {changes:?}");
            assert_eq!(*last, StoreHealth::Up, "{what}: {changes:?}");
        }
    }

    /// Redis answers as of now: waits until it decides, ends the load, and checks what holds of all
    /// answers.
    async fn end(self) -> Vec<(Action, Vec<Sample>)> {
        let back = Instant::now();
        self.works().await;
        let what = self.what;
        println!("{what}: {:?} until Redis decided again", back.elapsed());

        let mut all = Vec::new();
        for ((action, _), load) in self.limiters.into_iter().zip(self.loads) {
            let samples = load.stop().await;
            println!("{what}, {action:?}: {}", times(&samples));
            check(what, action, &samples);
            all.push((action, samples));
        }
        all
    }
}

/// Whatever happens when: nobody is denied because of the fault, or is answered other than as configured.
fn check(what: &str, action: Action, samples: &[Sample]) {
    assert!(!samples.is_empty(), "{what}, {action:?}");
    for Sample { answer, .. } in samples {
        assert!(
            *answer == Answer::Allowed || action.expects(*answer),
            "{what}, {action:?}: {answer:?}"
        );
    }
}
