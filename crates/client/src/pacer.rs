//! The pacer: grants turns to requests.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tower_ratelimit::AnyLimiter;

use crate::{
    deadlines_and_jitter::between,
    destination::Destination,
    error::PacerError,
    pacer_state::{PacerEvent, PacerState},
    permission_to_send::{SentRequest, Turn},
    request_cost::{self, OtherUnits, Units},
    wait_for_permission::TurnRequest,
};

/// Sends requests when the limits of their destination allow it.
///
/// It is one type, whether it learns its limits, counts them in this process or shares them through
/// Redis: the limiter is an [`AnyLimiter`]. Clones share all state. A
/// [`PacerLayer`](crate::PacerLayer) puts a pacer around a client; any other client requests each
/// [`turn`](Self::turn) itself:
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_ratelimit::Quota;
/// use tower_ratelimit_client::{Advice, Destination, Pacer};
///
/// # fn send() -> http::Response<()> { http::Response::new(()) }
/// let pacer = Pacer::new(Quota::per_second(10).burst(5));
/// let api: Destination = "https://api.example.com".parse()?;
///
/// let mut attempts = 0;
/// let response = loop {
///     let mut turn = pacer.turn(&api, 1).await?;
///     let response = send();
///     attempts += 1;
///     match turn.learn(response.status(), response.headers()) {
///         // The next turn waits for the end of the pause. A server may refuse forever.
///         Advice::RetryAfter(_) if attempts < 5 => {}
///         _ => break response,
///     }
/// };
/// # let _ = response;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pacer {
    /// `None` for a pacer that learns.
    limiter: Option<AnyLimiter>,
    state: Arc<PacerState>,
}

impl Pacer {
    pub(crate) fn from_parts(limiter: Option<AnyLimiter>, state: PacerState) -> Self {
        Self {
            limiter,
            state: Arc::new(state),
        }
    }

    pub(crate) const fn state(&self) -> &Arc<PacerState> {
        &self.state
    }

    /// The limiter of the declared limit, to peek at it or to charge units that other code has sent; `None`
    /// for a pacer that [learns](Self::learning). Its keys are made from destinations.
    pub const fn limiter(&self) -> Option<&AnyLimiter> {
        self.limiter.as_ref()
    }

    /// Pauses the destination for this long. A longer pause stays.
    ///
    /// A call fails at once when the pause ends after its
    /// [`max_wait`](crate::PacerBuilder::max_wait). When all
    /// [destinations](crate::PacerBuilder::max_destinations) are in use, a further one is not
    /// paused.
    pub fn pause(&self, destination: &Destination, pause: Duration) {
        let now = self.state.clock.now();
        if let Ok(destination) = self.state.destinations.state_of(destination, now) {
            destination.memory().learned.pause(now, pause);
            destination.changed.notify_one();
        }
    }

    /// Ends a pause, and discards the learned limits of the destination. The declared limit stays. Does
    /// nothing for a destination without a state.
    pub fn resume(&self, destination: &Destination) {
        if let Some(destination) = self.state.destinations.get(destination) {
            destination.memory().learned.resume();
            destination.changed.notify_one();
        }
    }

    /// The current numbers of a destination; all zero for an unknown one.
    pub fn stats(&self, destination: &Destination) -> PacerStats {
        let now = self.state.clock.now();
        let mut stats = PacerStats {
            destinations: self.state.destinations.len(),
            ..PacerStats::default()
        };
        if let Some(destination) = self.state.destinations.get(destination) {
            let memory = destination.memory();
            stats.queued = destination.queued.load(Ordering::Acquire);
            stats.in_flight = memory.learned.in_flight();
            stats.paused_for = memory
                .learned
                .paused_until(now)
                .map(|until| between(now, until));
            let left = memory.learned.left(now);
            stats.left = left.map(|(units, until)| (units, between(now, until)));
        }
        stats
    }

    /// Waits until the limits of the destination allow a request of this cost, first come, first
    /// served.
    ///
    /// Send the request at once, and pass its response to [`Turn::learn`]. A dropped turn is not
    /// refunded: the server may have received the request.
    ///
    /// # Errors
    ///
    /// When the queue is full, the wait would be too long, the cost can never fit, or the limiter
    /// fails; see [`PacerErrorKind`](crate::PacerErrorKind).
    pub async fn turn(&self, destination: &Destination, cost: u64) -> Result<Turn, PacerError> {
        let turn = self.turn_within(destination, cost, None, self.state.max_wait);
        let (sent, _) = turn.await?;
        Ok(Turn::new(Arc::clone(&self.state), sent))
    }

    /// Waits until the limits of the destination allow a request that costs several units, first come, first
    /// served: the declared limit of each unit, and those that the destination has reported.
    ///
    /// Each unit is charged together with the others or not at all. A turn without
    /// [`Units::requests`] costs one request. [`Turn::spend`] settles the units that the response has used.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tower_ratelimit::Quota;
    /// use tower_ratelimit_client::{Pacer, UnitLimit, Units};
    ///
    /// # fn send() -> http::Response<()> { http::Response::new(()) }
    /// let pacer = Pacer::all([
    ///     UnitLimit::requests(Quota::per_minute(500)),
    ///     UnitLimit::tokens(Quota::per_minute(200_000)),
    /// ]);
    /// let api = "https://api.example.com".parse()?;
    ///
    /// // The prompt has 800 tokens, and the request sets a maximum of 1,000.
    /// let mut turn = pacer.turn_of(&api, [Units::requests(1), Units::tokens(1_800)]).await?;
    /// let response = send();
    /// turn.learn(response.status(), response.headers());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`turn`](Self::turn).
    pub async fn turn_of(
        &self,
        destination: &Destination,
        units: impl IntoIterator<Item = Units>,
    ) -> Result<Turn, PacerError> {
        let (cost, others) = request_cost::split(units);
        let turn = self.turn_within(destination, cost, others, self.state.max_wait);
        let (sent, _) = turn.await?;
        Ok(Turn::new(Arc::clone(&self.state), sent))
    }

    /// Waits for a turn, at most `max_wait`. Returns the request, which counts as in flight from
    /// here on, and the time waited.
    pub(crate) async fn turn_within(
        &self,
        destination: &Destination,
        cost: u64,
        others: OtherUnits,
        longest: Duration,
    ) -> Result<(SentRequest, Duration), PacerError> {
        let limiter = self.limiter.as_ref();
        let mut waiting = TurnRequest::new(&self.state, limiter, cost, others, longest);
        let turn = waiting.turn(destination).await;
        if let Err(error) = &turn {
            self.state
                .report(PacerEvent::Refused { kind: error.kind() });
        }
        turn
    }
}

impl fmt::Debug for Pacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacer")
            .field("declared", &self.limiter.is_some())
            .field("destinations", &self.state.destinations.len())
            .finish_non_exhaustive()
    }
}

/// The numbers of a destination at one moment, for metrics and admin routes. Each may have changed when
/// the caller reads it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacerStats {
    /// Requests that wait for their turn, the head of the queue included.
    pub queued: usize,
    /// Requests that were sent, until the head of their response arrives or their
    /// [`Turn`](crate::Turn) is dropped.
    pub in_flight: usize,
    /// The remaining time of a pause; `None` without one.
    pub paused_for: Option<Duration>,
    /// The units that the destination reported, less those sent since, and how long they have to
    /// last; `None` if it reported none that still count.
    pub left: Option<(u64, Duration)>,
    /// The number of destinations that have a state, of the whole pacer; at most
    /// [`max_destinations`](crate::PacerBuilder::max_destinations).
    pub destinations: usize,
}
