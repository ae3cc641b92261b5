//! Health and statistics of a store.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    breaker::{BreakerState, Change},
    error::{StoreError, StoreErrorKind},
    listener_thread::ListenerThread,
};
use crate::{
    decision::Degradation,
    lock::unpoisoned,
    log::{self, Code},
};

/// How long a store stays strained after something was last decided without it.
pub(super) const STRAIN: Duration = Duration::from_secs(1);

/// Whether Redis works, as far as the calls so far have shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreHealth {
    /// Redis has not been asked yet, or has not answered yet.
    Untried,
    /// Redis answers.
    Up,
    /// Redis answers, and within the last second something was decided without it all the same: no
    /// answer came in time, or none could be expected to. Also while some servers of a cluster have
    /// been failing and others answer.
    #[non_exhaustive]
    Strained {
        /// Why the last such decision was made.
        by: Degradation,
    },
    /// Redis has been failing, and is not asked except in trials. In a cluster: all servers that
    /// have been asked.
    #[non_exhaustive]
    Down {
        /// Since when.
        since: Instant,
        /// The kind of the last failure.
        cause: StoreErrorKind,
    },
}

impl StoreHealth {
    /// Whether Redis has been failing.
    #[must_use]
    pub const fn is_down(&self) -> bool {
        matches!(self, Self::Down { .. })
    }
}

impl From<BreakerState> for StoreHealth {
    fn from(state: BreakerState) -> Self {
        match state {
            BreakerState::Untried => Self::Untried,
            BreakerState::Works => Self::Up,
            BreakerState::Fails { since, cause } => Self::Down {
                since,
                cause: cause.kind(),
            },
        }
    }
}

/// Counts of a store's calls since it was made, for metrics. All numbers only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreStats {
    answered: u64,
    failures: [u64; StoreErrorKind::ALL.len()],
    connections: u64,
    breaker_openings: u64,
    degraded: [u64; Degradation::ALL.len()],
    script_loads: u64,
}

impl StoreStats {
    /// Calls that Redis answered in time, other than with an error.
    #[must_use]
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// Calls that failed for this reason. [`StoreErrorKind::BreakerOpen`] counts those that were
    /// not made.
    #[must_use]
    pub const fn failures(&self, kind: StoreErrorKind) -> u64 {
        self.failures[kind as usize]
    }

    /// Calls that failed, by reason, leaving out the reasons that have not occurred.
    pub fn failures_by_kind(&self) -> impl Iterator<Item = (StoreErrorKind, u64)> {
        StoreErrorKind::ALL
            .into_iter()
            .zip(self.failures)
            .filter(|(_, count)| *count > 0)
    }

    /// Connections that were made. All but the first are reconnections; a connection that was
    /// handed in is not counted.
    #[must_use]
    pub const fn connections(&self) -> u64 {
        self.connections
    }

    /// How often Redis was given up after failures in a row.
    #[must_use]
    pub const fn breaker_openings(&self) -> u64 {
        self.breaker_openings
    }

    /// Operations of all limiters that Redis did not decide, for this reason: those that were
    /// decided in its place, and those that were not decided at all. One call can carry many.
    #[must_use]
    pub const fn degraded(&self, reason: Degradation) -> u64 {
        self.degraded[reason as usize]
    }

    /// Operations that Redis did not decide, by reason, leaving out the reasons that have not
    /// occurred.
    pub fn degraded_by_reason(&self) -> impl Iterator<Item = (Degradation, u64)> {
        Degradation::ALL
            .into_iter()
            .zip(self.degraded)
            .filter(|(_, count)| *count > 0)
    }

    /// How often a server was given a script: after a restart, a flush, or when it was new.
    #[must_use]
    pub const fn script_loads(&self) -> u64 {
        self.script_loads
    }
}

/// Counts what [`StoreStats`] tells.
#[derive(Debug, Default)]
pub(super) struct Counters {
    answered: AtomicU64,
    failures: [AtomicU64; StoreErrorKind::ALL.len()],
    breaker_openings: AtomicU64,
    degraded: [AtomicU64; Degradation::ALL.len()],
}

impl Counters {
    pub(super) fn count<T>(&self, outcome: &Result<T, StoreError>) {
        let counter = match outcome {
            Ok(_) => &self.answered,
            Err(error) => &self.failures[error.kind() as usize],
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_opening(&self) {
        self.breaker_openings.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_degraded(&self, reason: Degradation) {
        self.degraded[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self, connections: u64, script_loads: u64) -> StoreStats {
        StoreStats {
            answered: self.answered.load(Ordering::Relaxed),
            failures: std::array::from_fn(|kind| self.failures[kind].load(Ordering::Relaxed)),
            connections,
            breaker_openings: self.breaker_openings.load(Ordering::Relaxed),
            degraded: std::array::from_fn(|reason| self.degraded[reason].load(Ordering::Relaxed)),
            script_loads,
        }
    }
}

/// This many decisions without Redis, each soon after the one before, are worth a line: a few are
/// not, and more in a row make the breaker open, which has a line of its own.
const ENOUGH: u32 = 16;

/// Without such a decision for so long the strain is over.
const CALM: Duration = Duration::from_secs(60);

/// The side to which a store belongs, by which its lines name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
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

    /// The code of a line, of the two that there are for what it says.
    fn code(self, redis: Code, store: Code) -> Code {
        match self {
            Self::Redis => redis,
            Self::User => store,
        }
    }
}

/// Says what goes wrong with single calls, once while it lasts.
#[derive(Debug)]
pub(super) struct Alarms {
    owner: Owner,
    /// Decisions without Redis since it last was calm.
    strained: AtomicU32,
    reported_foreign: AtomicBool,
}

impl Alarms {
    pub(super) fn new(owner: Owner) -> Self {
        Self {
            owner,
            strained: AtomicU32::new(0),
            reported_foreign: AtomicBool::new(false),
        }
    }

    /// Something was decided without a store that works, so long after the last time.
    pub(super) fn strained(&self, since: Option<Duration>, error: &StoreError) {
        if self.is_news(since) {
            let store = self.owner.store();
            let text =
                format!("requests are decided without {store}, though it is not down: {error}");
            log::say(self.owner.code(Code::RedisSlow, Code::StoreSlow), &text);
        }
    }

    /// Whether this is the decision that is worth a line.
    fn is_news(&self, since: Option<Duration>) -> bool {
        if since.is_none_or(|since| since >= CALM) {
            self.strained.store(0, Ordering::Relaxed);
        }
        self.strained.fetch_add(1, Ordering::Relaxed) + 1 == ENOUGH
    }

    /// A key of a limiter holds what no limiter wrote.
    pub(super) fn foreign_value(&self, error: &StoreError) {
        if !self.reported_foreign.swap(true, Ordering::Relaxed) {
            let (store, advice) = match self.owner {
                Owner::Redis => ("Redis", "give the limiters a prefix of their own"),
                Owner::User => ("the store", "let nothing else write them"),
            };
            let text = format!(
                "a limiter's key in {store} holds what no limiter wrote: {error}; {advice}"
            );
            let code = self
                .owner
                .code(Code::RedisForeignValue, Code::StoreForeignValue);
            log::say(code, &text);
        }
    }
}

pub(crate) type Listener = super::listener_thread::ChangeListener<StoreHealth>;

/// A change, the health that it left, and its line.
struct Note {
    health: StoreHealth,
    code: Code,
    text: String,
}

/// Reports every change once, in the order in which they came.
pub(super) struct Notifier {
    owner: Owner,
    listener: Option<Arc<ListenerThread<StoreHealth>>>,
    /// Changes are put in while the breaker is locked and reported when it no longer is.
    changes: Mutex<NotedChanges>,
}

#[derive(Default)]
struct NotedChanges {
    waiting: VecDeque<Note>,
    /// Whether a thread reports them.
    are_reported: bool,
}

/// The turn of the thread that reports changes.
struct ReportTurn<'a>(&'a Notifier);

impl Notifier {
    pub(super) fn new(owner: Owner, listener: Option<Listener>) -> Self {
        Self {
            owner,
            listener: listener.map(ListenerThread::new),
            changes: Mutex::default(),
        }
    }

    /// Keeps a change for [`tell`](Self::tell): that of a `server`, where the store has several.
    pub(super) fn note(&self, health: StoreHealth, change: &Change, server: Option<&str>) {
        let owner = self.owner;
        let code = match change {
            Change::Opened { .. } => owner.code(Code::RedisDown, Code::StoreDown),
            _ => owner.code(Code::RedisBack, Code::StoreBack),
        };
        let text = match server {
            Some(server) => text_of_server(change, server),
            None => text(change, owner),
        };
        let noted = Note { health, code, text };
        unpoisoned(self.changes.lock()).waiting.push_back(noted);
    }

    /// Reports the changes that were noted, unless another thread does so. Without a lock: a
    /// subscriber to the log may take long, and may come back to this store.
    pub(super) fn tell(&self) {
        let Some(turn) = self.turn() else {
            return;
        };
        while let Some(Note { health, code, text }) = turn.next() {
            log::say(code, &text);
            if let Some(listener) = &self.listener {
                listener.call(health);
            }
        }
    }

    fn turn(&self) -> Option<ReportTurn<'_>> {
        let mut changes = unpoisoned(self.changes.lock());
        let is_free = !std::mem::replace(&mut changes.are_reported, true);
        is_free.then_some(ReportTurn(self))
    }
}

impl ReportTurn<'_> {
    /// The next change; without one the turn is over.
    fn next(&self) -> Option<Note> {
        let mut changes = unpoisoned(self.0.changes.lock());
        let next = changes.waiting.pop_front();
        changes.are_reported = next.is_some();
        next
    }
}

impl Drop for ReportTurn<'_> {
    /// Ends the turn where a subscriber to the log panics.
    fn drop(&mut self) {
        if std::thread::panicking() {
            unpoisoned(self.0.changes.lock()).are_reported = false;
        }
    }
}

fn text(change: &Change, owner: Owner) -> String {
    match change {
        Change::Opened { cause } => {
            format!("{cause}; requests no longer wait for it until it answers again")
        }
        Change::Closed { after } | Change::Replaced { after } => {
            format!(
                "{} answers again after {:?}",
                owner.store(),
                whole_ms(*after)
            )
        }
    }
}

fn text_of_server(change: &Change, server: &str) -> String {
    match change {
        Change::Opened { cause } => format!(
            "{cause}; requests for the keys of {server} no longer wait for it until it answers \
             again; those of the cluster's other servers do"
        ),
        Change::Closed { after } => format!(
            "the server {server} of the cluster answers again after {:?}",
            whole_ms(*after)
        ),
        Change::Replaced { after } => format!(
            "another server of the cluster has the keys of {server}, which did not answer for {:?}",
            whole_ms(*after)
        ),
    }
}

fn whole_ms(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn change() -> Change {
        Change::Closed {
            after: Duration::from_secs(1),
        }
    }

    /// The driver calls `tell`: it has other things to do.
    #[test]
    fn slow_listener_holds_nobody_up() {
        let (go, gate) = mpsc::channel::<()>();
        let (heard, told) = mpsc::channel();
        let gate = Mutex::new(gate);
        let notifier = Arc::new(Notifier::new(
            Owner::Redis,
            Some(Box::new(move |health| {
                let _ = gate.lock().unwrap().recv();
                let _ = heard.send(health);
            })),
        ));
        let (done, is_done) = mpsc::channel();
        let driver = Arc::clone(&notifier);
        std::thread::spawn(move || {
            for health in [StoreHealth::Up, StoreHealth::Untried, StoreHealth::Up] {
                driver.note(health, &change(), None);
                driver.tell();
            }
            let _ = done.send(());
        });
        let held_up = is_done.recv_timeout(Duration::from_secs(20)).is_err();
        drop(go);
        assert!(!held_up, "the listener held the driver up");
        let told: Vec<_> = told.iter().take(3).collect();
        let in_order = [StoreHealth::Up, StoreHealth::Untried, StoreHealth::Up];
        assert_eq!(told, in_order);
    }

    /// A subscriber to the log that asks the store, and notices the next change.
    #[cfg(feature = "tracing")]
    #[test]
    fn subscriber_may_come_back_to_the_store() {
        use tracing_subscriber::{Layer, layer::Context, prelude::*, registry};

        struct Back(Arc<Notifier>, mpsc::Sender<()>);

        impl<S: tracing::Subscriber> Layer<S> for Back {
            fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
                self.0.tell();
                let _ = self.1.send(());
            }
        }

        let notifier = Arc::new(Notifier::new(Owner::Redis, None));
        let (said, lines) = mpsc::channel();
        std::thread::spawn(move || {
            notifier.note(StoreHealth::Up, &change(), None);
            notifier.note(StoreHealth::Untried, &change(), None);
            let subscriber = registry().with(Back(Arc::clone(&notifier), said));
            tracing::subscriber::with_default(subscriber, || notifier.tell());
        });
        for _ in 0..2 {
            let line = lines.recv_timeout(Duration::from_secs(20));
            line.expect("a line");
        }
    }

    #[test]
    fn listener_that_panics_is_called_again() {
        let (heard, told) = mpsc::channel();
        let notifier = Notifier::new(
            Owner::Redis,
            Some(Box::new(move |health| {
                let _ = heard.send(health);
                panic!("the listener");
            })),
        );
        for health in [StoreHealth::Up, StoreHealth::Untried] {
            notifier.note(health, &change(), None);
            notifier.tell();
        }
        let told: Vec<_> = told.iter().take(2).collect();
        assert_eq!(told, [StoreHealth::Up, StoreHealth::Untried]);
    }

    #[test]
    fn a_strain_is_news_once_until_it_was_calm() {
        let alarms = Alarms::new(Owner::Redis);
        let soon = Some(CALM - Duration::from_millis(1));
        for first in [None, Some(CALM)] {
            let mut news = vec![alarms.is_news(first)];
            news.extend((1..100).map(|_| alarms.is_news(soon)));
            let said: Vec<_> = (0..100).filter(|at| news[*at]).collect();
            assert_eq!(said, [ENOUGH as usize - 1]);
        }
        // Now and then is no strain.
        assert!(!(0..100).any(|_| alarms.is_news(Some(CALM))));
    }
}
