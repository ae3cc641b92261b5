//! The pacer: hands out turns.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    Destination, PacerError, PacerEvent, Turn, common::Common, sent_request::SentRequest,
    waiting::TurnRequest,
};
use crate::limiter::AnyLimiter;

/// Lets requests go when the destination's limits have room for them.
///
/// One type, whether it learns its limits, counts them here or shares them through Redis: the limiter
/// is an [`AnyLimiter`]. Clones share everything. A [`PacerLayer`](super::PacerLayer) puts one around
/// a client; any other client takes its [`turn`](Self::turn) by hand:
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_ratelimit::{Quota, client::{Advice, Destination, Pacer}};
///
/// # fn send() -> http::Response<()> { http::Response::new(()) }
/// let pacer = Pacer::new(Quota::per_second(10).burst(5));
/// let api: Destination = "https://api.example.com".parse()?;
///
/// let mut attempts = 0;
/// let response = loop {
///     let turn = pacer.turn(&api, 1).await?;
///     let response = send();
///     attempts += 1;
///     match turn.learn(response.status(), response.headers()) {
///         // The next turn comes when the pause is over. A server may refuse for ever.
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
    /// None if no limit was declared.
    limiter: Option<AnyLimiter>,
    common: Arc<Common>,
}

impl Pacer {
    pub(super) fn from_parts(limiter: Option<AnyLimiter>, common: Common) -> Self {
        Self {
            limiter,
            common: Arc::new(common),
        }
    }

    pub(super) const fn common(&self) -> &Arc<Common> {
        &self.common
    }

    /// The limiter of the declared limit, if one was declared.
    #[must_use]
    pub const fn limiter(&self) -> Option<&AnyLimiter> {
        self.limiter.as_ref()
    }

    /// Sends nothing to the destination for this long, at most as long as clocks can tell. A pause
    /// that lasts longer stays.
    ///
    /// Calls that wait longer than their [`max_wait`](super::PacerBuilder::max_wait) for its end fail at
    /// once. Where all [destinations](super::PacerBuilder::max_destinations) are in use, nothing is paused.
    pub fn pause(&self, destination: &Destination, pause: Duration) {
        let now = self.common.clock.now();
        if let Ok(site) = self.common.sites.of(destination, now) {
            site.memory().learned.pause(now, pause);
            site.news.notify_one();
        }
    }

    /// Ends a pause, and forgets what the destination told about its limits. The declared limit
    /// stays.
    pub fn resume(&self, destination: &Destination) {
        if let Some(site) = self.common.sites.get(destination) {
            site.memory().learned.resume();
            site.news.notify_one();
        }
    }

    /// How the destination stands; all zero for one that is not known.
    #[must_use]
    pub fn stats(&self, destination: &Destination) -> PacerStats {
        let now = self.common.clock.now();
        let mut stats = PacerStats {
            destinations: self.common.sites.len(),
            ..PacerStats::default()
        };
        if let Some(site) = self.common.sites.get(destination) {
            let since = |until: crate::clock::Timestamp| {
                Duration::from_micros(until.as_micros().saturating_sub(now.as_micros()))
            };
            let memory = site.memory();
            stats.queued = site.queued.load(Ordering::Acquire);
            stats.in_flight = memory.learned.in_flight();
            stats.paused_for = memory.learned.paused_until(now).map(since);
            let left = memory.learned.left(now);
            stats.left = left.map(|(units, until)| (units, since(until)));
        }
        stats
    }

    /// Waits for the destination to have room for a request of this cost, in the order of asking.
    ///
    /// The request should be sent at once, and its response handed to [`Turn::learn`]. A turn that
    /// is dropped is not given back: the server may have seen the request.
    ///
    /// # Errors
    ///
    /// When too many wait, the wait would be too long, the cost can never fit, or the limiter
    /// fails; see [`PacerErrorKind`](super::PacerErrorKind).
    pub async fn turn(&self, destination: &Destination, cost: u64) -> Result<Turn, PacerError> {
        let turn = self.turn_within(destination, cost, self.common.max_wait);
        let (sent, _) = turn.await?;
        Ok(Turn::new(Arc::clone(&self.common), sent))
    }

    /// Waits for a turn, at most this long, and tells how long it was. The request is on its way from
    /// then on.
    pub(super) async fn turn_within(
        &self,
        destination: &Destination,
        cost: u64,
        longest: Duration,
    ) -> Result<(SentRequest, Duration), PacerError> {
        let waiting = TurnRequest::new(&self.common, self.limiter.as_ref(), cost, longest);
        let turn = waiting.turn(destination).await;
        if let Err(error) = &turn {
            self.common.tell(PacerEvent::Refused { kind: error.kind() });
        }
        turn
    }
}

impl fmt::Debug for Pacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacer")
            .field("declared", &self.limiter.is_some())
            .field("destinations", &self.common.sites.len())
            .finish_non_exhaustive()
    }
}

/// How a destination stands at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacerStats {
    /// Requests that wait for their turn.
    pub queued: usize,
    /// Requests whose response has not come yet.
    pub in_flight: usize,
    /// The time that is left of a pause.
    pub paused_for: Option<Duration>,
    /// The units that the destination has said are left, less those that were sent since, and for
    /// how long that holds.
    pub left: Option<(u64, Duration)>,
    /// How many destinations the pacer remembers in all.
    pub destinations: usize,
}
