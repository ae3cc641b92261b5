//! Reports changes of a store's health: lines of the log, and a listener.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use super::{
    breaker::Change,
    error::StoreError,
    health::StoreHealth,
    health_listener_thread::{ChangeListener, ListenerThread},
};
use crate::{
    lock::unpoisoned,
    log::{self, Code},
};

/// Decisions without the store, each within `CALM` of the one before, that cause a line in the log.
/// A few are no news; failures in a row open the breaker, which has a line of its own.
const ENOUGH: u32 = 16;

/// The strain is over after this time without such a decision.
const CALM: Duration = Duration::from_secs(60);

/// The operator of a store. Selects the code and wording of its log lines.
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

    /// Selects the code for Redis or the code for a user's store.
    fn code(self, redis: Code, store: Code) -> Code {
        match self {
            Self::Redis => redis,
            Self::User => store,
        }
    }
}

/// Logs faults of single calls, once while they last.
#[derive(Debug)]
pub(crate) struct Alarms {
    owner: Owner,
    /// Decisions without the store since the strain began.
    strained: AtomicU32,
    reported_foreign: AtomicBool,
}

impl Alarms {
    pub(crate) fn new(owner: Owner) -> Self {
        Self {
            owner,
            strained: AtomicU32::new(0),
            reported_foreign: AtomicBool::new(false),
        }
    }

    /// Records a decision without a store that is up. `since` is the time since the last one.
    pub(crate) fn strained(&self, since: Option<Duration>, error: &StoreError) {
        if self.is_news(since) {
            let store = self.owner.store();
            let text =
                format!("requests are decided without {store}, though it is not down: {error}");
            log::report(self.owner.code(Code::RedisSlow, Code::StoreSlow), &text);
        }
    }

    /// Whether this decision is the one that causes a line in the log.
    fn is_news(&self, since: Option<Duration>) -> bool {
        if since.is_none_or(|since| since >= CALM) {
            self.strained.store(0, Ordering::Relaxed);
        }
        self.strained.fetch_add(1, Ordering::Relaxed) + 1 == ENOUGH
    }

    /// Logs that a limiter's key contains a value that no limiter wrote.
    pub(crate) fn foreign_value(&self, error: &StoreError) {
        if !self.reported_foreign.swap(true, Ordering::Relaxed) {
            let (store, advice) = match self.owner {
                Owner::Redis => ("Redis", "give the limiters a prefix of their own"),
                Owner::User => ("the store", "let nothing else write them"),
            };
            let text = format!(
                "a limiter's key in {store} contains a value that no limiter wrote: {error}; {advice}"
            );
            let code = self
                .owner
                .code(Code::RedisForeignValue, Code::StoreForeignValue);
            log::report(code, &text);
        }
    }
}

pub(crate) type Listener = ChangeListener<StoreHealth>;

/// A change, the health after it, and its log line.
struct QueuedChange {
    health: StoreHealth,
    code: Code,
    text: String,
}

/// Reports each change once, in the order in which they happen.
pub(crate) struct Notifier {
    owner: Owner,
    listener: Option<Arc<ListenerThread<StoreHealth>>>,
    /// Changes are inserted under the breaker's lock and reported after it is released.
    changes: Mutex<ChangeQueue>,
}

#[derive(Default)]
struct ChangeQueue {
    waiting: VecDeque<QueuedChange>,
    /// Whether a thread is reporting them.
    are_reported: bool,
}

/// The turn of the reporting thread; dropping it ends the turn.
struct ReportTurn<'a>(&'a Notifier);

impl Notifier {
    pub(crate) fn new(owner: Owner, listener: Option<Listener>) -> Self {
        Self {
            owner,
            listener: listener.map(ListenerThread::new),
            changes: Mutex::default(),
        }
    }

    /// Queues a change for [`report`](Self::report). `server` is its address, if the store has
    /// several.
    pub(crate) fn enqueue(&self, health: StoreHealth, change: &Change, server: Option<&str>) {
        let owner = self.owner;
        let code = match change {
            Change::Opened { .. } => owner.code(Code::RedisDown, Code::StoreDown),
            _ => owner.code(Code::RedisBack, Code::StoreBack),
        };
        let text = match server {
            Some(server) => text_of_server(change, server),
            None => text(change, owner),
        };
        let queued = QueuedChange { health, code, text };
        unpoisoned(self.changes.lock()).waiting.push_back(queued);
    }

    /// Reports the queued changes, unless another thread is doing so. Holds no lock meanwhile: a
    /// subscriber to the log may take long, and may call this store.
    pub(crate) fn report(&self) {
        let Some(turn) = self.turn() else {
            return;
        };
        while let Some(QueuedChange { health, code, text }) = turn.next() {
            log::report(code, &text);
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
    /// Takes the next change. If there is none, ends the turn.
    fn next(&self) -> Option<QueuedChange> {
        let mut changes = unpoisoned(self.0.changes.lock());
        let next = changes.waiting.pop_front();
        changes.are_reported = next.is_some();
        next
    }
}

impl Drop for ReportTurn<'_> {
    /// Ends the turn if a subscriber to the log panics.
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

    /// The driver calls `report`, and must not block.
    #[test]
    fn a_slow_listener_delays_no_caller() {
        let (go, gate) = mpsc::channel::<()>();
        let (sender, reported) = mpsc::channel();
        let gate = Mutex::new(gate);
        let notifier = Arc::new(Notifier::new(
            Owner::Redis,
            Some(Box::new(move |health| {
                let _ = gate.lock().unwrap().recv();
                let _ = sender.send(health);
            })),
        ));
        let (done, is_done) = mpsc::channel();
        let driver = Arc::clone(&notifier);
        std::thread::spawn(move || {
            for health in [StoreHealth::Up, StoreHealth::Untried, StoreHealth::Up] {
                driver.enqueue(health, &change(), None);
                driver.report();
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

        struct Back(Arc<Notifier>, mpsc::Sender<()>);

        impl<S: tracing::Subscriber> Layer<S> for Back {
            fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
                self.0.report();
                let _ = self.1.send(());
            }
        }

        let notifier = Arc::new(Notifier::new(Owner::Redis, None));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            notifier.enqueue(StoreHealth::Up, &change(), None);
            notifier.enqueue(StoreHealth::Untried, &change(), None);
            let subscriber = registry().with(Back(Arc::clone(&notifier), sender));
            tracing::subscriber::with_default(subscriber, || notifier.report());
        });
        for _ in 0..2 {
            let line = lines.recv_timeout(Duration::from_secs(20));
            line.expect("a line");
        }
    }

    #[test]
    fn a_listener_that_panics_is_called_again() {
        let (sender, reported) = mpsc::channel();
        let notifier = Notifier::new(
            Owner::Redis,
            Some(Box::new(move |health| {
                let _ = sender.send(health);
                panic!("the listener");
            })),
        );
        for health in [StoreHealth::Up, StoreHealth::Untried] {
            notifier.enqueue(health, &change(), None);
            notifier.report();
        }
        let reported: Vec<_> = reported.iter().take(2).collect();
        assert_eq!(reported, [StoreHealth::Up, StoreHealth::Untried]);
    }

    #[test]
    fn a_strain_is_reported_once_until_it_was_calm() {
        let alarms = Alarms::new(Owner::Redis);
        let soon = Some(CALM - Duration::from_millis(1));
        for first in [None, Some(CALM)] {
            let mut news = vec![alarms.is_news(first)];
            news.extend((1..100).map(|_| alarms.is_news(soon)));
            let reported: Vec<_> = (0..100).filter(|at| news[*at]).collect();
            assert_eq!(reported, [ENOUGH as usize - 1]);
        }
        // Rare decisions without the store are no strain.
        assert!(!(0..100).any(|_| alarms.is_news(Some(CALM))));
    }
}
