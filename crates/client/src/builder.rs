//! The builder of a pacer.

use std::{fmt, sync::Arc, time::Duration};

use tower_ratelimit::{
    AnyLimiter, ConfigError, Limiter, LocalLimiter, LocalStore,
    clock::{Clock, OsClock},
    limiter::JointLimiter,
    quota::OwnedQuota,
};

use crate::{
    deadlines_and_jitter::Jitter,
    declared_limit::{DeclaredLimit, IntoDeclaredLimit, UnitLimit, with_margin},
    destination_state::{DestinationSettings, Destinations},
    pacer::Pacer,
    pacer_state::{LimitUnit, Observer, PacerEvent, PacerState},
    response_signals::Learn,
};

/// Configures a [`Pacer`]. Made by [`Pacer::builder`].
#[must_use]
pub struct PacerBuilder {
    /// `None` for a pacer that learns.
    declared: Option<Declared>,
    margin: Duration,
    max_queue: usize,
    max_wait: Duration,
    max_in_flight: Option<usize>,
    max_destinations: usize,
    learn: Learn,
    clock: Arc<dyn Clock>,
    observer: Option<Arc<Observer>>,
    seed: Option<u64>,
}

/// The declared limits.
enum Declared {
    One(DeclaredLimit),
    All(Vec<UnitLimit>),
}

impl Pacer {
    /// A pacer for a declared limit: a [`Quota`](tower_ratelimit::Quota), several, or a limiter.
    ///
    /// A fleet shares a limit through a `RedisLimiter`. Limits that the server reports apply as
    /// well. The pacer subtracts the [margin](PacerBuilder::margin) from a quota; it uses a limiter
    /// unchanged.
    ///
    /// # Panics
    ///
    /// When a quota is invalid, with the text of [`Quota::check`](tower_ratelimit::Quota::check).
    #[track_caller]
    pub fn new<Via>(limit: impl IntoDeclaredLimit<Via>) -> Self {
        match Self::try_new(limit) {
            Ok(pacer) => pacer,
            Err(error) => panic!("{error}"),
        }
    }

    /// A pacer for a declared limit.
    ///
    /// # Errors
    ///
    /// When a quota is invalid, see [`Quota::check`](tower_ratelimit::Quota::check).
    pub fn try_new<Via>(limit: impl IntoDeclaredLimit<Via>) -> Result<Self, ConfigError> {
        Self::builder(limit).build()
    }

    /// A pacer without a declared limit: it learns from what servers report.
    ///
    /// The first ten requests to a destination are sent at once, more as responses arrive.
    pub fn learning() -> Self {
        Self::learning_builder().pacer(None, None, None)
    }

    /// A pacer for declared limits of several units: a request that brings a unit is charged by its limit,
    /// together with those of the others or not at all.
    ///
    /// # Panics
    ///
    /// With the text of the error of [`PacerBuilder::build`].
    #[track_caller]
    pub fn all(limits: impl IntoIterator<Item = UnitLimit>) -> Self {
        match Self::all_builder(limits).build() {
            Ok(pacer) => pacer,
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts to configure a pacer for declared limits of [several units](Self::all).
    pub fn all_builder(limits: impl IntoIterator<Item = UnitLimit>) -> PacerBuilder {
        PacerBuilder::new(Some(Declared::All(limits.into_iter().collect())))
    }

    /// Starts to configure a pacer for a declared limit.
    pub fn builder<Via>(limit: impl IntoDeclaredLimit<Via>) -> PacerBuilder {
        PacerBuilder::new(Some(Declared::One(limit.into_declared_limit())))
    }

    /// Starts to configure a pacer that [learns](Self::learning) the limits.
    pub fn learning_builder() -> PacerBuilder {
        PacerBuilder::new(None)
    }
}

impl PacerBuilder {
    fn new(declared: Option<Declared>) -> Self {
        Self {
            declared,
            margin: Duration::from_millis(100),
            max_queue: 1_024,
            max_wait: Duration::from_secs(30),
            max_in_flight: None,
            max_destinations: 1_024,
            learn: Learn::all(),
            clock: Arc::new(OsClock::new()),
            observer: None,
            seed: None,
        }
    }

    /// The largest difference between the network delays of two requests. Defaults to 100 ms.
    ///
    /// Requests that leave evenly arrive closer together when their delays differ, and the server
    /// refuses some of them. A declared token bucket with a large burst loses the margin from its
    /// burst; one with a small burst gets a lower rate, see the [guide](crate::guide). Other
    /// algorithms, and limiters that you built, stay unchanged.
    ///
    /// A cost above the remaining burst fails with `CannotFit`: declare `Quota::per_second(10)`
    /// with a margin of 100 ms, and one request may cost at most 9.
    pub const fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// The most requests to one destination that may wait at the same time. Defaults to 1,024; at
    /// least 1. Further requests fail at once with `QueueFull`.
    pub const fn max_queue(mut self, requests: usize) -> Self {
        self.max_queue = requests;
        self
    }

    /// The longest time that one call may wait in total: in the queue, for a pause, before a retry.
    /// Defaults to 30 s.
    ///
    /// A call fails at once when its wait is known to be longer.
    pub const fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = wait;
        self
    }

    /// The most requests to one destination that may be in flight at the same time, each until the
    /// head of its response arrives. Defaults to no bound; at least 1.
    pub const fn max_in_flight(mut self, requests: usize) -> Self {
        self.max_in_flight = Some(requests);
        self
    }

    /// The most destinations that have a state. Defaults to 1,024.
    ///
    /// A further destination evicts the one that has been idle longest, with its learned limits.
    /// When all are in use, the request fails with `TooManyDestinations`. The limiter keeps its
    /// counts.
    pub const fn max_destinations(mut self, destinations: usize) -> Self {
        self.max_destinations = destinations;
        self
    }

    /// Selects the signals of responses that the pacer learns from. Defaults to all.
    pub const fn learn(mut self, learn: Learn) -> Self {
        self.learn = learn;
        self
    }

    /// The clock of the pacer and of a declared quota. Defaults to [`OsClock`].
    ///
    /// Waits are timers of tokio: in tests [`TokioClock`](tower_ratelimit::clock::TokioClock) moves both
    /// together.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Receives each event, on the task of its request: a slow observer delays the request. Defaults to no
    /// observer.
    pub fn observer(mut self, observer: impl Fn(&PacerEvent) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Makes the random numbers reproducible, for tests and simulations. Defaults to a random seed.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Makes the pacer.
    ///
    /// # Errors
    ///
    /// When a quota is invalid, see [`Quota::check`](tower_ratelimit::Quota::check). Of limits of
    /// [several units](Pacer::all): when there are none, two quotas have one name, or the limits cannot be
    /// charged together, see [`JointLimiter::new`].
    pub fn build(mut self) -> Result<Pacer, ConfigError> {
        let (limiter, margin) = match self.declared.take() {
            None => (None, None),
            Some(Declared::One(DeclaredLimit::Limiter(limiter))) => (Some(limiter), None),
            Some(Declared::One(DeclaredLimit::Quotas(quotas))) => {
                let (quotas, margin) = self.with_margins(quotas);
                let limiter = LocalLimiter::builder(quotas).clock(Arc::clone(&self.clock));
                (Some(AnyLimiter::new(limiter.build()?)), margin)
            }
            Some(Declared::All(limits)) => return self.build_all(limits),
        };
        Ok(self.pacer(limiter, margin, None))
    }

    /// A pacer for limits that are charged together.
    fn build_all(self, limits: Vec<UnitLimit>) -> Result<Pacer, ConfigError> {
        let store = LocalStore::builder()
            .clock(Arc::clone(&self.clock))
            .build()?;
        let (mut margin, mut units, mut limiters) = (None, Vec::new(), Vec::new());
        for UnitLimit { unit, limit } in limits {
            let limiter = match limit {
                DeclaredLimit::Limiter(limiter) => limiter,
                DeclaredLimit::Quotas(quotas) => {
                    let (mut quotas, own) = self.with_margins(quotas);
                    if let [quota] = &mut quotas[..]
                        && quota.name().is_none()
                    {
                        *quota = quota.quota().named_owned(unit);
                    }
                    margin = margin.or(own);
                    AnyLimiter::new(LocalLimiter::builder(quotas).build_in(&store)?)
                }
            };
            units.push(LimitUnit {
                unit,
                quotas: limiter.policies().len(),
            });
            limiters.push(limiter);
        }
        let limiter = AnyLimiter::new(JointLimiter::new(limiters)?);
        Ok(self.pacer(Some(limiter), margin, Some(units.into())))
    }

    /// The quotas less the margin, and the margin if it changed any of them.
    fn with_margins(&self, declared: Vec<OwnedQuota>) -> (Vec<OwnedQuota>, Option<Duration>) {
        let mut margin = None;
        let quotas = declared.into_iter().map(|quota| {
            let Some(smaller) = with_margin(&quota, self.margin) else {
                return quota;
            };
            margin = Some(self.margin);
            smaller
        });
        (quotas.collect(), margin)
    }

    fn pacer(
        self,
        limiter: Option<AnyLimiter>,
        margin: Option<Duration>,
        units_of_limits: Option<Box<[LimitUnit]>>,
    ) -> Pacer {
        let settings = DestinationSettings {
            is_unknown: limiter.is_none(),
            max_in_flight: self.max_in_flight,
        };
        let state = PacerState {
            destinations: Destinations::new(self.max_destinations, settings),
            clock: self.clock,
            jitter: Jitter::new(self.seed),
            learn: self.learn,
            observer: self.observer,
            max_queue: self.max_queue.max(1),
            max_wait: self.max_wait,
            margin,
            units_of_limits,
        };
        Pacer::from_parts(limiter, state)
    }
}

impl fmt::Debug for PacerBuilder {
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
