//! The layer that limits rates, and its setters.

#[cfg(feature = "tokio")]
use std::time::Duration;
use std::{
    fmt,
    sync::{Arc, OnceLock, atomic::AtomicBool},
};

use http::{request::Parts, response};
use tower_layer::Layer;

use super::{
    RateLimit,
    admission::Admission,
    settings::{FinalCost, Settings},
};
use crate::{
    error::{ConfigError, KeyErrorKind},
    headers::Headers,
    key::{JointExtractor, Key, KeyExtractor},
    limiter::{
        IntoLimiter, IntoMembers, JointLimiter, KeyedLimit, Limiter, LocalLimiter, RequestQuota,
        Tier,
    },
    middleware::{key_rules::MissingKey, setters::front_setters, settings::FrontSettings},
    observe::Observer,
    reject::{IsResponse, ProblemJson, RejectFn, Rejection},
};

/// Limits the rate of requests to a service.
///
/// See the [module page](crate::rate_limit) for what happens to a request, where the state lives and
/// how to place the layer.
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
    /// A layer that asks `limiter` about the key that `extractor` finds.
    ///
    /// `limiter` is a [`Quota`](crate::Quota), which becomes a [`LocalLimiter`], or a limiter.
    ///
    /// # Panics
    ///
    /// When a quota makes no sense, with the text of [`Quota::check`](crate::Quota::check).
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

    /// A layer that asks `limiter` about the key that `extractor` finds.
    ///
    /// # Errors
    ///
    /// When a quota makes no sense, see [`Quota::check`](crate::Quota::check).
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

    /// A layer of several limits, each with a key of its own, that charges all of them or none: a
    /// request that one denies takes nothing from the others.
    ///
    /// ```
    /// use tower_ratelimit::{Global, Header, PeerIp, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::all([
    ///     Quota::per_second(5).named("address").by(PeerIp),
    ///     Quota::per_minute(1_000).named("tenant").by(Header::new("x-tenant")),
    ///     Quota::per_second(500).named("everybody").by(Global),
    /// ]);
    /// # let _ = layer;
    /// ```
    ///
    /// Quotas are counted in a [`LocalStore`](crate::LocalStore) of their own. Limiters of one type
    /// are listed in the same way: a [`LocalLimiter`] with tiers or blocks that was [built in a
    /// store](crate::limiter::LocalLimiterBuilder::build_in), or a `RedisLimiter`. In this process
    /// all limits are charged in one step. In Redis each is asked at once, and where one denies the
    /// others are refunded: until they are, another request may be denied that would have passed,
    /// but none passes that should not. A `RedisLimiter` that holds [leases](crate::shared::Mode) is
    /// asked once the others have let the request pass, because a lease that has ended takes no refund.
    /// Of two with leases the first keeps, in about one of 1,000 denials by the second, what it was
    /// charged: list the one that denies more first.
    ///
    /// - A limit whose key is missing is treated by [`on_missing_key`](Self::on_missing_key) alone:
    ///   counted under the shared key, left out, or the request is rejected.
    /// - [`cost`](Self::cost) is that of all limits, and so is [`count_if`](Self::count_if).
    /// - A [`tier`](Self::tier) is that of the limits that know it. A request's own
    ///   [`quota`](Self::quota) has nothing to stand in for.
    /// - [`skip_key`](Self::skip_key) and then [`deny_key`](Self::deny_key) are asked about each key
    ///   that there is, before a missing one matters: one key that is listed is enough. Observers and handlers see a [`Key::joint`], of which [`Key::parts`] are the keys.
    /// - Requests that [`wait`](Self::wait) stand in the line of the limit that denies them, for its key;
    ///   where several do, of the one with the longest wait.
    ///
    /// # Panics
    ///
    /// For the reasons for which [`try_all`](Self::try_all) fails.
    #[track_caller]
    pub fn all<I: IntoMembers>(
        limits: impl IntoIterator<Item = KeyedLimit<I>>,
    ) -> RateLimitLayer<JointLimiter<I::Limiter>> {
        match Self::try_all(limits) {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// A layer of several limits, each with a key of its own, that charges all of them or none. See
    /// [`all`](Self::all).
    ///
    /// # Errors
    ///
    /// When a quota makes no sense, see [`Quota::check`](crate::Quota::check), or the limits cannot
    /// be charged together, see [`JointLimiter::new`].
    pub fn try_all<I: IntoMembers>(
        limits: impl IntoIterator<Item = KeyedLimit<I>>,
    ) -> Result<RateLimitLayer<JointLimiter<I::Limiter>>, ConfigError> {
        let limits = limits.into_iter().map(KeyedLimit::into_parts);
        let (limits, extractors): (Vec<_>, Vec<_>) = limits.unzip();
        let limiter = JointLimiter::new(I::into_members(limits)?)?;
        Self::try_new(limiter, JointExtractor::new(extractors))
    }
}

impl<L, R> RateLimitLayer<L, R> {
    fn with(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        set(&mut self.settings);
        self.admission = Arc::default();
        self
    }

    fn with_front(self, set: impl FnOnce(&mut FrontSettings)) -> Self {
        self.with(|settings| set(&mut settings.front))
    }

    front_setters!();

    /// How many units a request takes. Defaults to 1.
    ///
    /// A request of cost 0 is always allowed and takes nothing; one that costs more than the quota
    /// holds is always denied, without `Retry-After`.
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.cost = Some(Arc::new(cost)))
    }

    /// By whose quotas a request is measured, from the plan that an outer layer found out, say.
    /// Defaults to [`Tier::DEFAULT`] for all.
    ///
    /// A named tier has to be known to the limiter, see
    /// [`LocalLimiterBuilder::tier`](crate::limiter::LocalLimiterBuilder::tier); one that is not is
    /// answered 503, and the first is logged with the tiers that there are. [`Tier::UNLIMITED`] passes
    /// uncounted.
    pub fn tier(self, tier: impl Fn(&Parts) -> Tier + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.tier = Some(Arc::new(tier)))
    }

    /// The limit of a request from data, such as a customer's row, in place of the limiter's own.
    /// Defaults to none; a request for which it returns `None` is measured by its
    /// [`tier`](Self::tier), else by the limiter's own quota.
    ///
    /// Headers tell the request's numbers. Algorithm, period and name are those of the limiter's quota,
    /// of which there has to be exactly one: otherwise requests that bring a quota are answered 503, and
    /// the first is logged, as they are with a limiter that knows no quotas of requests. No request's quota
    /// can hold more than the limiter's own has room for: a window or log no more units, a bucket no more than
    /// comes while the own one fills, at whatever rate; see [`RequestQuota`] for what is cut.
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
    /// A request is charged when it comes and refunded when its response turns out not to count, so
    /// that requests at the same time cannot slip through. One that is dropped, or fails with the
    /// service's error, stays counted. One that an [`elastic`](Self::elastic) layer lets pass is
    /// charged only if its response counts.
    ///
    /// Where the limiter [blocks](crate::limiter::LocalLimiterBuilder::block_for), a key is blocked for
    /// responses that counted, not for requests that were denied while others were under way.
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

    /// The cost of a request as it turns out, from its response and the units it was charged, or would
    /// have been if the layer is [`elastic`](Self::elastic) and let it pass uncharged. Defaults to what it
    /// was charged. It replaces [`count_if`](Self::count_if), and the other way round.
    ///
    /// Units beyond those that were charged are taken whether or not they are available; units that
    /// turn out not to be owed are refunded.
    pub fn final_cost(
        self,
        cost: impl Fn(&response::Parts, u64) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.final_cost = Some(FinalCost::Told(Arc::new(cost))))
    }

    /// Lets denied requests pass while `passes` says so, because the service has room to spare.
    /// Defaults to never.
    ///
    /// It is asked only when a request would be denied, once for each, before the request
    /// [waits](Self::wait) or a block starts. Those that pass take what is left, down to nothing, and
    /// their decision is marked as [excess](crate::Decision::is_excess). A key that is
    /// [blocked](crate::limiter::LocalLimiterBuilder::block_for) already stays out.
    ///
    /// Over a limiter that cannot charge more than there is, such as a `GovernorLimiter`, they pass
    /// uncharged, which is logged.
    pub fn elastic(self, passes: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.elastic = Some(Arc::new(passes)))
    }

    /// Makes denied requests wait until they pass, if that takes no longer than `longest`. Defaults
    /// to not waiting.
    ///
    /// The requests of one key and tier stand in line, in this process: only the first of them asks
    /// the limiter, when its wait is over, and none that comes later overtakes it. One whose place
    /// cannot come up in time is denied at once, and told how long the line is at least; so is one
    /// for which there is no place, see [`max_waiting`](Self::max_waiting). A request of cost 0, which
    /// takes nothing, stands in no line. The delay of a leaky bucket comes on top of `longest`.
    ///
    /// A request that waits holds the service instance that was ready for it, so limits on
    /// concurrency belong outside. The decision tells the [delay](crate::Decision::delay). One that is
    /// dropped leaves the line. A refund wakes nobody, and neither does `set_quota`: who stands in line
    /// asks again when the wait is over that the limiter named. After a change from which all keys
    /// [start afresh](crate::OnChange::Fresh) later requests do not stand behind those.
    #[cfg(feature = "tokio")]
    pub fn wait(self, longest: Duration) -> Self {
        self.with(|settings| settings.waiting_room.longest = Some(longest))
    }

    /// How many requests may [wait](Self::wait) at the same time, of all keys together; more are denied
    /// at once. One key holds at most an eighth of the places, but at least one. With [`all`](Self::all)
    /// that is so for each key of a request, apart from the one that [`Global`](crate::Global) gives to
    /// everybody. Defaults to 1,024. Without `wait` nobody does.
    #[cfg(feature = "tokio")]
    pub fn max_waiting(self, most: usize) -> Self {
        self.with(|settings| settings.waiting_room.most = most)
    }

    /// Puts the [`Decision`](crate::Decision) into the extensions of requests that pass, where
    /// handlers find it; with axum it is an extractor. Defaults to false, because it allocates.
    ///
    /// A request that passes without being asked about, because the layer is switched off or skips it,
    /// say, has one that is not [counted](crate::Decision::is_counted). With several layers that do this
    /// the innermost one's decision is found, and all of them in
    /// [`Decisions`](crate::rate_limit::Decisions), with their keys. A [shadow's](Self::shadow) may be a
    /// denial.
    ///
    /// Handlers that deny by themselves then answer by this layer's settings, see
    /// [`Denial::for_request`](crate::reject::Denial::for_request).
    pub fn expose_decision(self, expose: bool) -> Self {
        self.with(|settings| settings.expose_decision = expose)
    }

    /// The answer to a request that does not pass. Defaults to
    /// [`ProblemJson`](crate::reject::ProblemJson).
    pub fn rejection<R2>(self, rejection: R2) -> RateLimitLayer<L, R2> {
        RateLimitLayer {
            limiter: self.limiter,
            rejection: Arc::new(rejection),
            settings: self.settings,
            admission: Arc::default(),
        }
    }

    /// The answer to a request that does not pass, made by a closure.
    ///
    /// The headers of [`headers`](Self::headers) are added to what it returns, a
    /// [`Response`](http::Response); what axum turns into one, such as a tuple, becomes one by
    /// `.into_response()`.
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

    /// The limiter. A clone of it is a handle to the layer's counters.
    ///
    /// ```
    /// use tower_ratelimit::{Global, Key, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(Quota::per_second(10), Global);
    /// let handle = layer.limiter().clone();
    /// assert_eq!(handle.peek(&Key::global(), 1).remaining(), Some(10));
    /// ```
    #[must_use]
    pub fn limiter(&self) -> &L {
        &self.limiter
    }
}

impl<R> RateLimitLayer<LocalLimiter, R> {
    /// How many keys can be tracked at the same time. Defaults to 262,144, about 8 MB for one token
    /// bucket, which are taken as keys come. See
    /// [`LocalLimiterBuilder::max_keys`](crate::limiter::LocalLimiterBuilder::max_keys).
    ///
    /// For a layer made from quotas. It makes the limiter anew: a handle that was taken before counts
    /// for itself.
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
        let admission = self.admission.get_or_init(|| {
            Arc::new(Admission::new(
                Arc::clone(&self.limiter),
                Arc::clone(&self.rejection),
                self.settings.clone(),
            ))
        });
        RateLimit::new(inner, Arc::clone(admission))
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
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
