//! The standing of a connection: whether requests are under way on it, and since when there are none.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// One request under way, in the upper bits.
const REQUEST: u64 = 1 << 48;
/// The connection closes for another, and takes no more requests.
const CLOSING: u64 = 1 << 47;
/// There was a request.
const SERVED: u64 = 1 << 46;
/// The milliseconds from the room's first instant to that from which there was no request.
const SINCE: u64 = SERVED - 1;

/// The milliseconds that a new connection has for its first request before served ones close in its place.
const FIRST_REQUEST: u64 = 2_000;

/// The standing of one connection, which the room reads.
#[derive(Debug)]
pub(super) struct Standing {
    begun: Instant,
    state: AtomicU64,
}

/// A state, as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u64);

/// The order in which connections close; the least is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// It closes already.
    Closing,
    /// It had time for a request, and sent none.
    Silent(u64),
    Served(u64),
    New(u64),
}

impl Standing {
    /// The standing of a new connection in a room that began at this instant.
    pub(super) fn new(begun: Instant) -> Self {
        Self {
            begun,
            state: AtomicU64::new(since(begun)),
        }
    }

    /// Notes that a request begins. False if the connection closes: the request is not to be served.
    #[must_use]
    pub(super) fn begin(&self) -> bool {
        self.update(|state| (state + REQUEST) | SERVED) & CLOSING == 0
    }

    /// Notes that a request has ended.
    pub(super) fn end(&self) {
        let now = since(self.begun);
        self.update(|state| ((state - REQUEST) & !SINCE) | now);
    }

    /// Keeps the connection for as long as it likes: it has become a tunnel.
    pub(super) fn keep(&self) {
        self.update(|state| state + REQUEST);
    }

    pub(super) fn state(&self) -> State {
        State(self.state.load(Ordering::Relaxed))
    }

    /// Closes the connection, unless anything was noted since the state was read.
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
    /// The rank of a connection without requests; `None` while there are any.
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
