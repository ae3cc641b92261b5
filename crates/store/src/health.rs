//! The health of a store: its counters, the lines of the log, and the listener for changes.
//!
//! In: changes of the breakers (`note`), and decisions that were made without the store (`record_degraded`). Out: lines in
//! the log, calls of the listener, and the health that a `StoreHealth` shows. All servers of a store have one `StoreWatch`.
//!
//! 1. `note` makes the change of a breaker under the lock, and puts its line and the health after it into queues. So both
//!    are in the order in which changes happen.
//! 2. `report` logs the lines, by one thread at a time and without the lock: a subscriber may be slow, or call the store.
//! 3. The listener runs in a thread of its own, which ends when no change is left. It may block and panic.
//! 4. Decisions without a store that is not down are a strain. Some in a row cause one line, until a calm time has passed
//!    without any.
//!
//! Example: calls time out now and then at a busy hour. No breaker opens, but at the sixteenth decision without the store
//! there is a line in the log, and for a second after each such decision the health is `Strained`.

use std::{
    collections::VecDeque,
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    error::{StoreError, StoreErrorKind},
    stats::Counters,
};
use tower_ratelimit_core::{
    decision::Degradation,
    lock::unpoisoned,
    log::{self, Code},
};

/// How long a store stays strained after the last decision without it.
const STRAIN: Duration = Duration::from_secs(1);

/// Decisions without the store, each within `CALM` of the one before, that cause a line in the log.
/// A few are no news; failures in a row open the breaker, which has a line of its own.
const ENOUGH: u32 = 16;

/// The strain is over after this time without such a decision.
const CALM: Duration = Duration::from_secs(60);

/// The most changes that wait for a listener; beyond it the oldest is dropped.
const MAX_WAITING: usize = 64;

/// Whether Redis works, as shown by the calls so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreHealth {
    /// No call to Redis has finished yet.
    Untried,
    /// Redis responds.
    Up,
    /// Redis responds, but within the last second a decision was made without it: its response was
    /// late, or too many calls were in flight for one. Also while some servers of a cluster fail and others
    /// respond.
    #[non_exhaustive]
    Strained {
        /// Reason of the last such decision.
        by: Degradation,
    },
    /// Redis has been failing and receives only trials. In a cluster: all servers that have
    /// received calls.
    #[non_exhaustive]
    Down {
        /// Time at which the breaker opened.
        since: std::time::Instant,
        /// Kind of the last failure.
        cause: StoreErrorKind,
    },
}

impl StoreHealth {
    /// Whether Redis has been failing.
    pub const fn is_down(&self) -> bool {
        matches!(self, Self::Down { .. })
    }
}

/// Called for each change, in a thread of its own.
pub(crate) type Listener = Box<dyn Fn(StoreHealth) + Send + Sync>;

/// The operator of a store. Selects the code and wording of its log lines.
#[derive(Clone, Copy)]
#[allow(
    clippy::exhaustive_enums,
    missing_debug_implementations,
    reason = "hidden"
)]
pub enum Owner {
    Redis,
    User,
}

impl Owner {
    /// The store's name in texts.
    const fn store(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::User => "the store",
        }
    }

    const fn code(self, redis: Code, store: Code) -> Code {
        match self {
            Self::Redis => redis,
            Self::User => store,
        }
    }
}

/// The breaker of a server opened or closed.
#[derive(Debug)]
pub(super) enum Change {
    Opened {
        cause: StoreError,
    },
    Closed {
        after: Duration,
    },
    /// Another server has taken over its keys.
    Replaced {
        after: Duration,
    },
}

/// The state of a store, shared by all of its servers.
#[allow(missing_debug_implementations, reason = "hidden")]
pub struct StoreWatch {
    owner: Owner,
    listener: Option<Listener>,
    pub counters: Counters,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Time and reason of the last decision that was made without a working store.
    strain: Option<(Instant, Degradation)>,
    /// Decisions without the store since the strain began.
    strained: u32,
    has_reported_foreign: bool,
    /// Lines about changes that wait to be logged, and whether a thread is logging them.
    lines: VecDeque<(Code, String)>,
    is_logging: bool,
    /// Changes that wait for the listener, and whether its thread runs.
    changes: VecDeque<StoreHealth>,
    is_listening: bool,
    has_panicked: bool,
}

impl StoreWatch {
    pub fn new(owner: Owner, listener: Option<Listener>) -> Arc<Self> {
        Arc::new(Self {
            owner,
            listener,
            counters: Counters::default(),
            state: Mutex::default(),
        })
    }

    /// Records that a decision was made without the store, or not at all, because of this error.
    /// `is_open` means that a breaker has reported the failure already.
    pub fn record_degraded(&self, error: &StoreError, is_open: bool) {
        let reason = error.degradation();
        (self.counters).change(|stats| stats.degraded[reason as usize] += 1);
        let (store, owner) = (self.owner.store(), self.owner);
        if error.kind() == StoreErrorKind::ForeignData {
            if mem::replace(&mut self.lock().has_reported_foreign, true) {
                return;
            }
            let advice = match owner {
                Owner::Redis => "give the limiters a prefix of their own",
                Owner::User => "let nothing else write them",
            };
            let text = format!(
                "a limiter's key in {store} contains a value that no limiter wrote: {error}; {advice}"
            );
            let code = owner.code(Code::REDIS_FOREIGN_VALUE, Code::STORE_FOREIGN_VALUE);
            log::report(code, &text);
        } else if !is_open && self.lock().strain_is_news(reason, Instant::now()) {
            let text =
                format!("requests are decided without {store}, though it is not down: {error}");
            log::report(owner.code(Code::REDIS_SLOW, Code::STORE_SLOW), &text);
        }
    }

    /// Returns `Strained` if the breakers report `Up` although a decision was made without the
    /// store within the last second. Otherwise returns `health` unchanged.
    pub fn with_strain(&self, health: StoreHealth) -> StoreHealth {
        match (health, self.lock().strain) {
            (StoreHealth::Up, Some((at, by))) if at.elapsed() < STRAIN => {
                StoreHealth::Strained { by }
            }
            _ => health,
        }
    }

    /// Makes a change, and notes it with the health after it for the listener and for
    /// [`report`](Self::report). All under the lock, so that changes are noted in the order in which
    /// they happen. `server` is its address, if the store has several.
    pub(super) fn note(
        self: &Arc<Self>,
        server: Option<&str>,
        change: impl FnOnce() -> Option<(Change, StoreHealth)>,
    ) -> Option<Change> {
        let mut state = self.lock();
        let (change, health) = change()?;
        state.strain = None;
        state.lines.push_back(self.line(&change, server));
        if matches!(change, Change::Opened { .. }) {
            self.counters.change(|stats| stats.breaker_openings += 1);
        }
        if self.listener.is_some() {
            if state.changes.len() == MAX_WAITING {
                state.changes.pop_front();
            }
            state.changes.push_back(health);
            if !state.is_listening {
                let own = Arc::clone(self);
                let thread = thread::Builder::new().name("ratelimit-health".into());
                // If the thread cannot start, the change waits for the next one.
                state.is_listening = thread.spawn(move || own.call_listener()).is_ok();
            }
        }
        Some(change)
    }

    fn line(&self, change: &Change, server: Option<&str>) -> (Code, String) {
        let owner = self.owner;
        let ms = |time: &Duration| {
            Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        };
        let (down, back) = (
            owner.code(Code::REDIS_DOWN, Code::STORE_DOWN),
            owner.code(Code::REDIS_BACK, Code::STORE_BACK),
        );
        match (change, server) {
            (Change::Opened { cause }, None) => (
                down,
                format!("{cause}; requests no longer wait for it until it answers again"),
            ),
            (Change::Opened { cause }, Some(server)) => (
                down,
                format!(
                    "{cause}; requests for the keys of {server} no longer wait for it until it \
                     answers again; those of the cluster's other servers do"
                ),
            ),
            (Change::Closed { after } | Change::Replaced { after }, None) => (
                back,
                format!("{} answers again after {:?}", owner.store(), ms(after)),
            ),
            (Change::Closed { after }, Some(server)) => (
                back,
                format!(
                    "the server {server} of the cluster answers again after {:?}",
                    ms(after)
                ),
            ),
            (Change::Replaced { after }, Some(server)) => (
                back,
                format!(
                    "another server of the cluster has the keys of {server}, which did not respond \
                     for {:?}",
                    ms(after)
                ),
            ),
        }
    }

    /// Logs the noted changes, unless another thread is doing so. Holds no lock meanwhile: a
    /// subscriber to the log may take long, and may call this store.
    pub(super) fn report(&self) {
        if mem::replace(&mut self.lock().is_logging, true) {
            return;
        }
        while let Some((code, text)) = self.next_line() {
            let logged = catch_unwind(AssertUnwindSafe(|| log::report(code, &text)));
            if let Err(panic) = logged {
                self.lock().is_logging = false;
                resume_unwind(panic);
            }
        }
    }

    fn next_line(&self) -> Option<(Code, String)> {
        let mut state = self.lock();
        let next = state.lines.pop_front();
        state.is_logging = next.is_some();
        next
    }

    /// Calls the listener for each change that waits. The thread belongs to no runtime, so the
    /// listener may block and panic wherever the change was noticed.
    fn call_listener(&self) {
        while let Some(health) = self.next_change() {
            let Some(listener) = &self.listener else {
                return;
            };
            let called = catch_unwind(AssertUnwindSafe(|| listener(health)));
            if called.is_err() && !mem::replace(&mut self.lock().has_panicked, true) {
                let text = "the listener of `on_health_change` panicked; it is called again at the \
                            next change";
                log::report(Code::LISTENER_PANICKED, text);
            }
        }
    }

    fn next_change(&self) -> Option<StoreHealth> {
        let mut state = self.lock();
        let next = state.changes.pop_front();
        state.is_listening = next.is_some();
        next
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

impl State {
    /// Records a decision without the store. Returns whether it is the one that causes a line in the
    /// log.
    fn strain_is_news(&mut self, reason: Degradation, now: Instant) -> bool {
        let before = self.strain.replace((now, reason));
        if before.is_none_or(|(at, _)| now.saturating_duration_since(at) >= CALM) {
            self.strained = 0;
        }
        self.strained = self.strained.saturating_add(1);
        self.strained == ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn note(watch: &Arc<StoreWatch>, health: StoreHealth) {
        let after = Duration::from_secs(1);
        watch.note(None, || Some((Change::Closed { after }, health)));
    }

    /// The driver calls `report`, and must not block.
    #[test]
    fn a_slow_listener_delays_no_caller() {
        let (go, gate) = mpsc::channel::<()>();
        let (sender, reported) = mpsc::channel();
        let gate = Mutex::new(gate);
        let watch = StoreWatch::new(
            Owner::Redis,
            Some(Box::new(move |health| {
                let _ = gate.lock().unwrap().recv();
                let _ = sender.send(health);
            })),
        );
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            for health in [StoreHealth::Up, StoreHealth::Untried, StoreHealth::Up] {
                note(&watch, health);
                watch.report();
            }
            let _ = done.send(());
        });
        let is_delayed = is_done.recv_timeout(Duration::from_secs(20)).is_err();
        drop(go);
        assert!(!is_delayed, "the listener delayed the driver");
        let reported: Vec<_> = reported.iter().take(3).collect();
        let in_order = [StoreHealth::Up, StoreHealth::Untried, StoreHealth::Up];
        assert_eq!(reported, in_order);
    }

    /// A subscriber to the log that calls the store and notices the next change.
    #[cfg(feature = "tracing")]
    #[test]
    fn a_subscriber_may_call_the_store() {
        use tracing_subscriber::{Layer, layer::Context, prelude::*, registry};

        struct Back(Arc<StoreWatch>, mpsc::Sender<()>);

        impl<S: tracing::Subscriber> Layer<S> for Back {
            fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
                self.0.report();
                let _ = self.1.send(());
            }
        }

        let watch = StoreWatch::new(Owner::Redis, None);
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            note(&watch, StoreHealth::Up);
            note(&watch, StoreHealth::Untried);
            let subscriber = registry().with(Back(Arc::clone(&watch), sender));
            testkit::logged_to(subscriber, || watch.report());
        });
        for _ in 0..2 {
            let line = lines.recv_timeout(Duration::from_secs(20));
            line.expect("a line");
        }
    }

    #[test]
    fn a_listener_that_panics_is_called_again() {
        let (sender, reported) = mpsc::channel();
        let watch = StoreWatch::new(
            Owner::Redis,
            Some(Box::new(move |health| {
                let _ = sender.send(health);
                panic!("the listener");
            })),
        );
        for health in [StoreHealth::Up, StoreHealth::Untried] {
            note(&watch, health);
            watch.report();
        }
        let reported: Vec<_> = reported.iter().take(2).collect();
        assert_eq!(reported, [StoreHealth::Up, StoreHealth::Untried]);
    }

    #[test]
    fn a_strain_is_reported_once_until_it_was_calm() {
        let mut state = State::default();
        let mut now = Instant::now();
        let mut is_news = |after: Duration| {
            now += after;
            state.strain_is_news(Degradation::TimedOut, now)
        };
        let soon = CALM - Duration::from_millis(1);
        for first in [Duration::ZERO, CALM] {
            let mut news = vec![is_news(first)];
            news.extend((1..100).map(|_| is_news(soon)));
            let reported: Vec<_> = (0..100).filter(|at| news[*at]).collect();
            assert_eq!(reported, [ENOUGH as usize - 1]);
        }
        // Rare decisions without the store are no strain.
        assert!(!(0..100).any(|_| is_news(CALM)));
    }
}
