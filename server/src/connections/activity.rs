//! The activity of a connection: its active requests, and since when it has none.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// One active request, in the upper bits.
const REQUEST: u64 = 1 << 48;
/// The connection closes to free its slot, and serves no more requests.
const CLOSING: u64 = 1 << 47;
/// The connection has served a request.
const SERVED: u64 = 1 << 46;
/// The milliseconds from the listener's start to the last change; while there is no request, the start of the idle
/// time.
const SINCE: u64 = SERVED - 1;

/// How many milliseconds a new connection has for its first request before it closes ahead of served ones.
const FIRST_REQUEST: u64 = 2_000;

/// The activity of one connection. The listener's slots read it.
#[derive(Debug)]
pub(super) struct Activity {
    begun: Instant,
    state: AtomicU64,
}

/// A state as read from the atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u64);

/// The order of eviction; the least closes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// It is closing already.
    Closing,
    /// It sent no request within [`FIRST_REQUEST`].
    Silent(u64),
    Served(u64),
    New(u64),
}

impl Activity {
    /// The activity of a new connection of a listener that started at this instant.
    pub(super) fn new(begun: Instant) -> Self {
        Self {
            begun,
            state: AtomicU64::new(since(begun)),
        }
    }

    /// Adds a request. False if the connection is closing: the request must not be served.
    pub(super) fn begin(&self) -> bool {
        self.update(|state| (state + REQUEST) | SERVED) & CLOSING == 0
    }

    /// Removes a request.
    pub(super) fn end(&self) {
        let now = since(self.begun);
        self.update(|state| ((state - REQUEST) & !SINCE) | now);
    }

    /// Marks the connection as a tunnel, which is never evicted.
    pub(super) fn keep(&self) {
        self.update(|state| state + REQUEST);
    }

    pub(super) fn state(&self) -> State {
        State(self.state.load(Ordering::Relaxed))
    }

    /// Marks the connection as closing, unless its state has changed since `read`.
    pub(super) fn close(&self, State(read): State) -> bool {
        let closing = read | CLOSING;
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let exchanged = self.state.compare_exchange(read, closing, success, failure);
        exchanged.is_ok()
    }

    fn update(&self, change: impl Fn(u64) -> u64) -> u64 {
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let updated = self
            .state
            .fetch_update(set, fetch, |state| Some(change(state)));
        updated.unwrap_or_default()
    }
}

impl State {
    /// The rank of an idle connection; `None` while it has requests.
    pub(super) fn rank(self, begun: Instant) -> Option<Rank> {
        let Self(state) = self;
        let at = state & SINCE;
        match state {
            state if state >= REQUEST => None,
            state if state & CLOSING != 0 => Some(Rank::Closing),
            state if state & SERVED != 0 => Some(Rank::Served(at)),
            _ if since(begun).saturating_sub(at) < FIRST_REQUEST => Some(Rank::New(at)),
            _ => Some(Rank::Silent(at)),
        }
    }
}

fn since(begun: Instant) -> u64 {
    let millis = u64::try_from(begun.elapsed().as_millis());
    millis.unwrap_or(SINCE).min(SINCE)
}
