//! The layer that limits rates, and its builder methods.

#[cfg(feature = "tokio")]
use std::time::Duration;
use std::{
    fmt,
    sync::{Arc, OnceLock, atomic::AtomicBool},
};

use http::{StatusCode, request::Parts, response};
use tower_layer::Layer;

use super::{admission::Admission, decide::RateLimit, settings::Settings};
use crate::{
    middleware::{
        responder::Responder,
        settings::{CommonSettings, MissingKey},
    },
    observe::event::Observer,
};
use tower_ratelimit_core::{
    error::{ConfigError, KeyErrorKind},
    headers::Headers,
    key::{Key, extract::KeyExtractor},
    limiter::{
        limiter::{IntoLimiter, Limiter},
        local::LocalLimiter,
        tier::{RequestQuota, Tier},
    },
    quota::Priority,
    reject::rejection::{IsResponse, ProblemJson, RejectFn, Rejection},
};

/// Limits the rate of requests to a service.
///
/// The [module page](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/rate_limit/index.html) has the steps of a request, the place of the state, and the
/// order of layers.
#[must_use]
pub struct RateLimitLayer<L = LocalLimiter, R = ProblemJson> {
    limiter: Arc<L>,
    rejection: Arc<R>,
    settings: Settings,
    /// Made once, since axum calls `layer` for every route, and for a router without state on every
    /// request.
    admission: Arc<OnceLock<Arc<Admission<L, R>>>>,
}

impl RateLimitLayer {
    /// A layer that charges `limiter` for the key that `extractor` finds.
    ///
    /// `limiter` is a [`Quota`](tower_ratelimit_core::Quota), which becomes a [`LocalLimiter`], or a limiter.
    ///
    /// # Panics
    ///
    /// When a quota makes no sense, with the text of [`Quota::check`](tower_ratelimit_core::Quota::check).
    #[track_caller]
    pub fn new<I, Via>(limiter: I, extractor: impl KeyExtractor) -> RateLimitLayer<I::Limiter>
    where
        I: IntoLimiter<Via>,
    {
        match Self::try_new(limiter, extractor) {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// A layer that charges `limiter` for the key that `extractor` finds.
    ///
    /// # Errors
    ///
    /// When a quota makes no sense, see [`Quota::check`](tower_ratelimit_core::Quota::check).
    pub fn try_new<I, Via>(
        limiter: I,
        extractor: impl KeyExtractor,
    ) -> Result<RateLimitLayer<I::Limiter>, ConfigError>
    where
        I: IntoLimiter<Via>,
    {
        Ok(RateLimitLayer {
            limiter: Arc::new(limiter.into_limiter()?),
            rejection: Arc::new(ProblemJson),
            settings: Settings::new(extractor),
            admission: Arc::default(),
        })
    }
}

impl<L, R> RateLimitLayer<L, R> {
    pub(super) fn with(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        set(&mut self.settings);
        self.admission = Arc::default();
        self
    }

    /// Passes these requests uncounted, too, unless a list denies them.
    #[cfg(feature = "mcp")]
    pub(crate) fn skip_last(self, skip: fn(&Parts) -> bool) -> Self {
        self.with(|settings| settings.common.key_rules.skip_last = Some(skip))
    }

    /// Refunds requests with such a response, whatever they cost.
    #[cfg(feature = "mcp")]
    pub(crate) fn refund_if(self, refunds: fn(&response::Parts) -> bool) -> Self {
        let own = self.settings.final_cost.clone();
        self.final_cost(move |response, units| match &own {
            _ if refunds(response) => 0,
            Some(own) => own(response, units),
            None => units,
        })
    }

    pub(super) const fn settings(&self) -> &Settings {
        &self.settings
    }

    fn with_common(self, set: impl FnOnce(&mut CommonSettings)) -> Self {
        self.with(|settings| set(&mut settings.common))
    }

    crate::common_builder_methods!();

    /// The limiter. A clone of it is a handle to the layer's counters.
    ///
    /// ```
    /// use tower_ratelimit::{Global, Key, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(Quota::per_second(10), Global);
    /// let handle = layer.limiter().clone();
    /// assert_eq!(handle.peek(&Key::global(), 1).remaining(), Some(10));
    /// ```
    pub fn limiter(&self) -> &L {
        &self.limiter
    }
}

impl<L: Limiter, R> RateLimitLayer<L, R> {
    pub(crate) fn admission(&self) -> Arc<Admission<L, R>> {
        let admission = self.admission.get_or_init(|| {
            let (rejection, policies) = (Arc::clone(&self.rejection), self.limiter.policies());
            let responder = Responder::new(&self.settings.common, rejection, &[policies]);
            let settings = self.settings.clone();
            Arc::new(Admission::new(
                Arc::clone(&self.limiter),
                responder,
                settings,
            ))
        });
        Arc::clone(admission)
    }
}

impl<R> RateLimitLayer<LocalLimiter, R> {
    /// How many keys can be tracked at the same time. Defaults to 262,144, about 8 MB for one token
    /// bucket, allocated as keys come. See
    /// [`LocalLimiterBuilder::max_keys`](tower_ratelimit_core::limiter::LocalLimiterBuilder::max_keys).
    ///
    /// For a layer made from quotas. It replaces the limiter: a handle from before this call counts
    /// separately.
    ///
    /// # Panics
    ///
    /// When it is 0, more than 2^32 or more than there is address space for.
    #[track_caller]
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        match self.limiter.with_max_keys(max_keys) {
            Ok(limiter) => self.limiter = Arc::new(limiter),
            Err(error) => panic!("{error}"),
        }
        self.with(|_| {})
    }
}

impl<S, L: Limiter, R> Layer<S> for RateLimitLayer<L, R> {
    type Service = RateLimit<S, L, R>;

    fn layer(&self, inner: S) -> RateLimit<S, L, R> {
        RateLimit::new(inner, self.admission())
    }
}

impl<L, R> Clone for RateLimitLayer<L, R> {
    fn clone(&self) -> Self {
        Self {
            limiter: Arc::clone(&self.limiter),
            rejection: Arc::clone(&self.rejection),
            settings: self.settings.clone(),
            admission: Arc::clone(&self.admission),
        }
    }
}

impl<L, R> fmt::Debug for RateLimitLayer<L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("headers", &self.settings.common.headers)
            .field("shadow", &self.settings.common.shadow)
            .finish_non_exhaustive()
    }
}

impl<L, R> RateLimitLayer<L, R> {
    /// How many units a request costs. Defaults to 1.
    ///
    /// A request of cost 0 is always allowed and charged nothing. One that costs more than the quota
    /// holds is always denied, without `Retry-After`.
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.cost = Some(Arc::new(cost)))
    }

    /// The class of a request: the share of the limit that it may use. Defaults to
    /// [`Priority::CRITICAL`] for all requests.
    ///
    /// A request that is denied for its class alone is shed: by default it gets 503, see
    /// [`shed_status`](Self::shed_status), and starts no block. The
    /// [`Priority`](tower_ratelimit_core::Priority#a-request-that-is-shed) page has the rules.
    ///
    /// Do not let a client choose its class: take the class from the route, from authentication, or from
    /// a field that a proxy sets.
    ///
    /// ```
    /// use tower_ratelimit::{Global, Priority, Quota, RateLimitLayer};
    ///
    /// const READS: Priority = Priority::share(80).expect("a share from 1 to 100");
    ///
    /// let layer = RateLimitLayer::new(Quota::per_second(1_000), Global).priority(|parts| {
    ///     if parts.method.is_safe() { READS } else { Priority::CRITICAL }
    /// });
    /// # let _ = layer;
    /// ```
    ///
    /// # Panics
    ///
    /// When [`try_priority`](Self::try_priority) fails.
    #[track_caller]
    pub fn priority(self, priority: impl Fn(&Parts) -> Priority + Send + Sync + 'static) -> Self
    where
        L: Limiter,
    {
        match self.try_priority(priority) {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// The class of a request. See [`priority`](Self::priority).
    ///
    /// # Errors
    ///
    /// If classes cannot share the limit: the limiter does not
    /// [support priorities](tower_ratelimit_core::limiter::Facts::classes), as a `GovernorLimiter` and the eventual mode, or
    /// a quota is uncapped or holds less than 2 units.
    pub fn try_priority(
        self,
        priority: impl Fn(&Parts) -> Priority + Send + Sync + 'static,
    ) -> Result<Self, ConfigError>
    where
        L: Limiter,
    {
        self.limiter().facts().classes?;
        Ok(self.with(|settings| settings.common.priority = Some(Arc::new(priority))))
    }

    /// The quotas that a request is charged by, for example from the plan that an outer layer found.
    /// Defaults to [`Tier::DEFAULT`] for all requests.
    ///
    /// The limiter must have a named tier, see
    /// [`LocalLimiterBuilder::tier`](tower_ratelimit_core::limiter::LocalLimiterBuilder::tier). Requests of a tier that
    /// it does not have get 503, and the first is logged with all tiers of the limiter.
    /// [`Tier::UNLIMITED`] passes uncounted.
    pub fn tier(self, tier: impl Fn(&Parts) -> Tier + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.tier = Some(Arc::new(tier)))
    }

    /// The limit of a request from data, such as a customer's row. It replaces the limiter's own.
    /// Defaults to none. Without a quota a request is charged by its [`tier`](Self::tier), or else by the
    /// limiter's own quota.
    ///
    /// Headers report the request's numbers. Algorithm, period and name are those of the limiter's quota.
    /// The limiter must have exactly one, and support quotas of requests: otherwise requests with a quota
    /// get 503, and the first is logged. A request's quota cannot exceed the room of the
    /// limiter's own: a window or log holds no more units, and a bucket no more than arrive at its rate
    /// while the limiter's own bucket fills. See [`RequestQuota`] for the parts that are cut.
    ///
    /// ```
    /// use tower_ratelimit::{Key, Quota, RateLimitLayer, key::extension_fn, limiter::RequestQuota};
    ///
    /// // The row that authentication read from the database.
    /// #[derive(Clone)]
    /// struct Customer {
    ///     id: u64,
    ///     limit: Option<u64>,
    /// }
    ///
    /// // Customers without a limit of their own may send 60 a minute.
    /// let customer = extension_fn(|customer: &Customer| Key::from(customer.id));
    /// let layer = RateLimitLayer::new(Quota::per_minute(60), customer).quota(|parts| {
    ///     let limit = parts.extensions.get::<Customer>()?.limit?;
    ///     Some(RequestQuota::limit(limit))
    /// });
    /// # let _ = layer;
    /// ```
    pub fn quota(
        self,
        quota: impl Fn(&Parts) -> Option<RequestQuota> + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.quota = Some(Arc::new(quota)))
    }

    /// Which responses count. Defaults to all.
    ///
    /// A request is charged when it arrives and refunded when its response does not count, so that
    /// concurrent requests cannot exceed the limit. A request that is dropped, or fails with the
    /// service's error, stays counted. One that passes by an [`elastic`](Self::elastic) layer is charged
    /// only if its response counts.
    ///
    /// A limiter that [blocks](tower_ratelimit_core::limiter::LocalLimiterBuilder::block_for) keys blocks them for
    /// responses that count, not for requests that were denied while others were in flight.
    ///
    /// A correction that fails leaves the request charged. It is an
    /// [`Event::Corrected`](crate::observe::Event::Corrected) with an error, and the first is logged.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};
    ///
    /// // Five failed logins a minute; those that succeed cost nothing.
    /// let layer = RateLimitLayer::new(Quota::per_minute(5), PeerIp)
    ///     .count_if(|response| response.status == StatusCode::UNAUTHORIZED);
    /// # let _ = layer;
    /// ```
    pub fn count_if(
        self,
        counts: impl Fn(&response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.final_cost(move |response, charged| if counts(response) { charged } else { 0 })
    }

    /// The cost of a request by its response and its charge in units. A request that passes by an
    /// [`elastic`](Self::elastic) layer has the charge that it was spared. Defaults to the charge. It
    /// replaces [`count_if`](Self::count_if), and the other way round.
    ///
    /// Units beyond the charge are charged whether or not they are available, and units below it are
    /// refunded.
    pub fn final_cost(
        self,
        cost: impl Fn(&response::Parts, u64) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.final_cost = Some(Arc::new(cost)))
    }

    /// Allows denied requests while `passes` returns true, because the service has capacity to spare.
    /// Defaults to never.
    ///
    /// It is called once for each request that would be denied, before the request [waits](Self::wait)
    /// or a block starts. Requests that pass are charged what is left, and their decision is marked as
    /// [excess](tower_ratelimit_core::Decision::is_excess). A key that is
    /// [blocked](tower_ratelimit_core::limiter::LocalLimiterBuilder::block_for) already stays blocked.
    ///
    /// With a limiter that cannot charge more than is left, such as a `GovernorLimiter`, they pass
    /// uncharged, which is logged.
    pub fn elastic(self, passes: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.elastic = Some(Arc::new(passes)))
    }

    /// Queues denied requests until they pass, for at most `longest`. Defaults to not waiting.
    ///
    /// The requests of one key and tier form a queue, in this process. Only its head is charged, when
    /// its wait is over, and no later request overtakes it. A request whose turn cannot come in time is
    /// denied at once, and its `Retry-After` covers at least the queue. A request without a free slot is
    /// denied as well, see [`max_waiting`](Self::max_waiting). A request of cost 0 is never queued. With
    /// [`all`](Self::all) each limit has queues of its own: a head that another limit denies leaves, and joins the
    /// queue of that limit at its end. The delay of a leaky bucket adds to `longest`. Outside of a tokio runtime with a timer a request that would
    /// wait gets 503, and the fault is logged.
    ///
    /// Timers are late by a millisecond or two. A token bucket of a [`LocalLimiter`](tower_ratelimit_core::LocalLimiter), alone or
    /// beside other quotas and limits, is therefore charged as of the end of the wait, at most 5 ms ago. So a rate
    /// whose unit is a few milliseconds is kept; in turn two requests may pass up to 5 ms closer together than the
    /// rate allows. Windows and logs are charged as of now, and so is every quota in Redis, which counts by its own
    /// clock: there a queue is slower than the rate by the lateness of each timer.
    ///
    /// A request that waits holds the service instance that was ready for it, so limits on
    /// concurrency belong outside. The decision has the [delay](tower_ratelimit_core::Decision::delay). A request that
    /// is dropped leaves the queue. Neither a refund nor `set_quota` wakes a request: it is charged when
    /// the wait of its denial is over.
    #[cfg(feature = "tokio")]
    pub fn wait(self, longest: Duration) -> Self {
        self.with(|settings| settings.waiting.longest = Some(longest))
    }

    /// How many requests may [wait](Self::wait) at the same time, of all keys together; more are denied
    /// at once. One key holds at most an eighth of the slots, but at least one. With [`all`](Self::all)
    /// this applies to each key of a request, except the key of [`Global`](crate::key::Global). Defaults to
    /// 1,024. Without `wait` no request waits.
    #[cfg(feature = "tokio")]
    pub fn max_waiting(self, most: usize) -> Self {
        self.with(|settings| settings.waiting.most = most)
    }

    /// Passes denied requests to the inner service, which decides what becomes of them: a cached response, a slower
    /// pool, a second server. Defaults to rejecting them.
    ///
    /// Such a request has its denial, a [`Decision`](tower_ratelimit_core::Decision), in its extensions, whether or not the layer
    /// has [`expose_decision`](Self::expose_decision). With axum it is an extractor, `Option<Decision>`. The status
    /// is the handler's. The response has the `RateLimit` fields of the denial, and a `Retry-After` only if the inner
    /// service sets one. Observers get [`Event::Overflowed`](crate::observe::Event::Overflowed).
    ///
    /// - It takes nothing from any limit, so [`count_if`](Self::count_if) and [`final_cost`](Self::final_cost)
    ///   change nothing. It starts no [block](tower_ratelimit_core::limiter::LocalLimiterBuilder::block_for).
    /// - A layer of several limits passes what any of them denies, and charges none.
    /// - A request that is [shed](Self::priority) passes as well.
    /// - An [`elastic`](Self::elastic) layer allows a denied request first, and with [`wait`](Self::wait) it waits
    ///   first: only a request that stays denied overflows.
    /// - In [shadow mode](Self::shadow) nothing overflows: all requests pass as they came.
    /// - Rejected as without it are requests without a key, on a deny list, of a blocked key, and those that the
    ///   limiter fails to decide.
    ///
    /// A handler that denies the request after all responds as the layer would, by
    /// [`into_result`](tower_ratelimit_core::Decision::into_result) and a [`Denial`](tower_ratelimit_core::reject::Denial), which adds the
    /// `Retry-After`. gRPC calls pass in the same way.
    ///
    /// ```
    /// use axum::{Router, http::StatusCode, routing::get};
    /// use tower_ratelimit::{Decision, Global, Quota, RateLimitLayer};
    ///
    /// async fn quote(denied: Option<Decision>) -> (StatusCode, &'static str) {
    ///     match denied {
    ///         Some(decision) if decision.is_denied() => (StatusCode::OK, "41, an hour ago"),
    ///         _ => (StatusCode::OK, "42"),
    ///     }
    /// }
    ///
    /// let app: Router = Router::new()
    ///     .route("/quote", get(quote))
    ///     .layer(RateLimitLayer::new(Quota::per_second(100), Global).overflow());
    /// ```
    pub fn overflow(self) -> Self {
        self.with(|settings| settings.overflow = true)
    }

    /// Puts the [`Decision`](tower_ratelimit_core::Decision) into the extensions of requests that pass, where
    /// handlers find it; with axum it is an extractor. Defaults to false, because it allocates.
    ///
    /// A request that passes without a charge, for example because the layer is switched off or skips it,
    /// has a decision that is not [counted](tower_ratelimit_core::Decision::is_counted). With several such layers
    /// handlers find the decision of the innermost one, and all of them, with their keys, in
    /// [`Decisions`](crate::rate_limit::Decisions). The decision of a layer in
    /// [shadow mode](Self::shadow) may be a denial.
    ///
    /// Handlers that deny requests themselves respond by this layer's settings, see
    /// [`Denial::for_request`](tower_ratelimit_core::reject::Denial::for_request).
    pub fn expose_decision(self, expose: bool) -> Self {
        self.with(|settings| settings.expose_decision = expose)
    }

    /// The response to a request that does not pass. Defaults to
    /// [`ProblemJson`](tower_ratelimit_core::reject::ProblemJson).
    pub fn rejection<R2>(self, rejection: R2) -> RateLimitLayer<L, R2> {
        RateLimitLayer {
            limiter: self.limiter,
            rejection: Arc::new(rejection),
            settings: self.settings,
            admission: Arc::default(),
        }
    }

    /// The response to a request that does not pass, made by a closure.
    ///
    /// It returns a [`Response`](http::Response), which gets the headers of [`headers`](Self::headers).
    /// A type that axum turns into a response, such as a tuple, becomes one by `.into_response()`.
    ///
    /// ```
    /// use http::Response;
    /// use tower_ratelimit::{Global, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(Quota::per_second(10), Global).rejection_fn(|rejection| {
    ///     let mut response = Response::new(format!("slow down on {}", rejection.parts().uri));
    ///     *response.status_mut() = rejection.status();
    ///     response
    /// });
    /// # let _ = layer;
    /// ```
    pub fn rejection_fn<F, T>(self, rejection: F) -> RateLimitLayer<L, RejectFn<F>>
    where
        F: Fn(&Rejection<'_>) -> T + Send + Sync + 'static,
        T: IsResponse,
    {
        self.rejection(RejectFn::new(rejection))
    }
}
