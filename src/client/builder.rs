//! The builder of a pacer.

use std::{cell::Cell, fmt, marker::PhantomData, sync::Arc, time::Duration};

use super::{
    Learn, Pacer, PacerEvent,
    common::{Common, Observe},
    dice::Dice,
    site::{SiteSettings, Sites},
};
use crate::{
    clock::{Clock, OsClock, SharedClock},
    error::ConfigError,
    limiter::{AnyLimiter, FromQuota, IntoLimiter},
    quota::{Algorithm, OwnedQuota, Quota},
};

/// Configures a [`Pacer`]. Made by [`Pacer::builder`].
#[must_use]
pub struct PacerBuilder<I, Via> {
    /// None to learn all there is to know.
    limiter: Option<I>,
    margin: Duration,
    max_queue: usize,
    max_wait: Duration,
    max_in_flight: Option<usize>,
    max_destinations: usize,
    learn: Learn,
    clock: Arc<dyn Clock>,
    observe: Option<Arc<Observe>>,
    seed: Option<u64>,
    via: PhantomData<fn() -> Via>,
}

impl Pacer {
    /// A pacer for a declared limit: a [`Quota`], several, or a limiter.
    ///
    /// A fleet shares a limit through a `RedisLimiter`. What a server tells holds besides. Of a
    /// quota the [margin](PacerBuilder::margin) is taken; a limiter stays as you made it.
    ///
    /// # Panics
    ///
    /// When a quota makes no sense, with the text of [`Quota::check`].
    #[track_caller]
    pub fn new<I, Via>(limiter: I) -> Self
    where
        I: IntoLimiter<Via>,
    {
        match Self::try_new(limiter) {
            Ok(pacer) => pacer,
            Err(error) => panic!("{error}"),
        }
    }

    /// A pacer for a declared limit.
    ///
    /// # Errors
    ///
    /// When a quota makes no sense, see [`Quota::check`].
    pub fn try_new<I, Via>(limiter: I) -> Result<Self, ConfigError>
    where
        I: IntoLimiter<Via>,
    {
        Self::builder(limiter).build()
    }

    /// A pacer for limits of which nothing is known but what servers tell.
    ///
    /// The first ten requests to a destination go at once, more as answers come.
    #[must_use]
    pub fn learning() -> Self {
        Self::from_parts(None, Self::learning_builder().common(true))
    }

    /// Starts to configure a pacer for a declared limit.
    pub fn builder<I, Via>(limiter: I) -> PacerBuilder<I, Via>
    where
        I: IntoLimiter<Via>,
    {
        PacerBuilder::new(Some(limiter))
    }

    /// Starts to configure a pacer that [learns](Self::learning) the limits.
    pub fn learning_builder() -> PacerBuilder<Quota, FromQuota> {
        PacerBuilder::new(None)
    }
}

impl<I: IntoLimiter<Via>, Via> PacerBuilder<I, Via> {
    pub(super) fn new(limiter: Option<I>) -> Self {
        Self {
            limiter,
            margin: Duration::from_millis(100),
            max_queue: 1_024,
            max_wait: Duration::from_secs(30),
            max_in_flight: None,
            max_destinations: 1_024,
            learn: Learn::all(),
            clock: Arc::new(OsClock::new()),
            observe: None,
            seed: None,
            via: PhantomData,
        }
    }

    /// By how much the delays of requests on their way may differ. Defaults to 100 ms.
    ///
    /// Requests that leave evenly arrive squeezed together, so that the server refuses some of a
    /// client that keeps exactly the server's own limit. With a burst large enough the margin is
    /// taken from the burst of a declared token bucket, else the rate is lowered, see the
    /// [guide](crate::guide::clients). Other algorithms, and limiters that you made, are taken as
    /// they are.
    ///
    /// A cost above the burst that the margin leaves is refused, with `CannotFit`: declare
    /// `Quota::per_second(10)` with a margin of 100 ms, and at most 9 units go at once.
    pub const fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// How many requests to one destination may wait at the same time. Defaults to 1,024; at least
    /// one may. More are refused at once, with `QueueFull`.
    pub const fn max_queue(mut self, requests: usize) -> Self {
        self.max_queue = requests;
        self
    }

    /// How long one call may wait, all its waits together: in line, for a pause to end, before it
    /// is tried again. Defaults to 30 s.
    ///
    /// A wait that is known to be longer is not begun: the call fails at once.
    pub const fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = wait;
        self
    }

    /// How many requests to one destination may be on their way at the same time, each until the
    /// head of its response is there. Defaults to no bound; at least one may.
    pub const fn max_in_flight(mut self, requests: usize) -> Self {
        self.max_in_flight = Some(requests);
        self
    }

    /// Of how many destinations something is remembered. Defaults to 1,024.
    ///
    /// Beyond it the one that was idle for the longest time is forgotten, with what was learned of
    /// it; where all are in use, a request to another one is refused, with `TooManyDestinations`.
    /// Units are counted by the limiter, and stay.
    pub const fn max_destinations(mut self, destinations: usize) -> Self {
        self.max_destinations = destinations;
        self
    }

    /// Which signals of responses are believed. Defaults to all.
    pub const fn learn(mut self, learn: Learn) -> Self {
        self.learn = learn;
        self
    }

    /// Where the time comes from, also that of a declared quota. Defaults to [`OsClock`].
    ///
    /// Waits are timers of tokio: in tests [`TokioClock`](crate::TokioClock) moves both together.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Is told what happens. Defaults to nobody.
    pub fn observer(mut self, observer: impl Fn(&PacerEvent) + Send + Sync + 'static) -> Self {
        self.observe = Some(Arc::new(observer));
        self
    }

    /// Makes what is drawn by chance the same each time, for tests and simulations. Defaults to a
    /// seed of chance.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Makes the pacer.
    ///
    /// # Errors
    ///
    /// When a quota makes no sense, see [`Quota::check`].
    pub fn build(mut self) -> Result<Pacer, ConfigError> {
        let margin = self.margin;
        let is_changed = Cell::new(false);
        let change = |declared: OwnedQuota| match with_margin(&declared, margin) {
            Some(smaller) => {
                is_changed.set(true);
                smaller
            }
            None => declared,
        };
        let clock = Arc::clone(&self.clock);
        let is_unknown = self.limiter.is_none();
        let limiter = self.limiter.take();
        let limiter = limiter.map(|limiter| limiter.into_client_limiter(&change, clock));
        let limiter = limiter.transpose()?.map(AnyLimiter::new);
        let mut common = self.common(is_unknown);
        common.margin = is_changed.get().then_some(margin);
        Ok(Pacer::from_parts(limiter, common))
    }
}

impl<I, Via> PacerBuilder<I, Via> {
    fn common(self, is_unknown: bool) -> Common {
        let sites = SiteSettings {
            is_unknown,
            max_in_flight: self.max_in_flight,
        };
        Common {
            sites: Sites::new(self.max_destinations, sites),
            clock: SharedClock::new(self.clock),
            dice: Dice::new(self.seed),
            learn: self.learn,
            observe: self.observe,
            max_queue: self.max_queue.max(1),
            max_wait: self.max_wait,
            margin: None,
        }
    }
}

/// A token bucket that requests from here do not overflow, whose delays differ by at most `margin`.
/// None for other quotas, which stay as they are.
fn with_margin(declared: &OwnedQuota, margin: Duration) -> Option<OwnedQuota> {
    let quota = declared.quota();
    let is_even = quota.algorithm() == Algorithm::TokenBucket && quota.refill_every_set().is_none();
    if margin.is_zero() || !is_even || quota.check().is_err() {
        return None;
    }
    let interval = u128::from(quota.interval_nanos());
    let (burst, margin) = (u128::from(quota.capacity()), margin.as_nanos());
    let spare = margin.div_ceil(interval.max(1));
    let quota = match burst.checked_sub(spare).filter(|burst| *burst > 0) {
        // At most the burst that there was.
        Some(burst) => quota.burst(burst as u64),
        None => {
            let slower = (interval + margin).div_ceil(burst.max(1));
            let nanos = u64::try_from(slower).unwrap_or(u64::MAX);
            Quota::per(1, Duration::from_nanos(nanos))
        }
    };
    Some(match declared.name() {
        Some(name) => quota.named_owned(name),
        None => quota.into(),
    })
}

impl<I, Via> fmt::Debug for PacerBuilder<I, Via> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacerBuilder")
            .field("margin", &self.margin)
            .field("max_queue", &self.max_queue)
            .field("max_wait", &self.max_wait)
            .field("max_in_flight", &self.max_in_flight)
            .field("max_destinations", &self.max_destinations)
            .field("learn", &self.learn)
            .finish_non_exhaustive()
    }
}
