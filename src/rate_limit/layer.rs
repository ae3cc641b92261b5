//! The layer that limits rates.

use std::{
    fmt,
    sync::{Arc, OnceLock, atomic::AtomicBool},
};

use http::{StatusCode, request::Parts};
use tower_layer::Layer;

use super::{RateLimit, admission::Admission, settings::Settings, spending::UnitLimit};
use crate::{
    error::{ConfigError, KeyErrorKind},
    headers::Headers,
    key::{JointExtractor, Key, KeyExtractor},
    limiter::{IntoLimiter, IntoMembers, JointLimiter, KeyedLimit, Limiter, LocalLimiter},
    middleware::{
        builder_methods::common_builder_methods, key_extraction_rules::MissingKey,
        settings::CommonSettings,
    },
    observe::Observer,
    reject::ProblemJson,
};

/// Limits the rate of requests to a service.
///
/// The [module page](crate::rate_limit) has the steps of a request, the place of the state, and the
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

    /// A layer that charges `limiter` for the key that `extractor` finds.
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
    /// all limits are charged in one step. In Redis all are charged at the same time, and if one denies,
    /// the others are refunded. Until then another request may be denied that would have passed, but
    /// none passes that should not. A `RedisLimiter` that holds [leases](crate::shared::Mode) is charged
    /// after the others have allowed the request, because a lease that has expired takes no refund. With
    /// two of them, the first keeps its charge in about one of 1,000 denials by the second: list the one
    /// that denies more first.
    ///
    /// - [`on_missing_key`](Self::on_missing_key) applies to each limit whose key is missing: the limit
    ///   counts under the shared key, is left out, or the request is rejected.
    /// - [`cost`](Self::cost) and [`count_if`](Self::count_if) apply to all limits.
    /// - A [`tier`](Self::tier) applies to the limits that have it. A request's own
    ///   [`quota`](Self::quota) is not supported.
    /// - [`skip_key`](Self::skip_key) and then [`deny_key`](Self::deny_key) check each key that exists,
    ///   before a missing one matters: one listed key is enough. Observers and handlers see a
    ///   [`Key::joint`], whose [`Key::parts`] are the keys.
    /// - A limit that [`spends`](KeyedLimit::spends) is charged by the response, if the layer is made
    ///   [`spending`](Self::spending).
    /// - Requests that [`wait`](Self::wait) join the queue of the limit that denies them, for its key: of
    ///   several the one with the longest wait.
    ///
    /// # Panics
    ///
    /// When [`try_all`](Self::try_all) fails.
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
        let (mut members, mut extractors) = (Vec::new(), Vec::new());
        let (mut priorities, mut units) = (Vec::new(), Vec::new());
        for limit in limits {
            members.push(limit.limit);
            extractors.push(limit.extractor);
            priorities.push(limit.priority);
            units.push(limit.units);
        }
        let limiter = JointLimiter::new(I::into_members(members)?)?;
        for (limit, priority) in limiter.limiters().iter().zip(&priorities) {
            if priority.is_some() {
                limit.check_priority()?;
            }
        }
        if priorities.iter().all(Option::is_none) {
            priorities.clear();
        }
        let spends = limiter.limiters().iter().zip(units);
        let spends = spends.map(|(limit, units)| Some(UnitLimit::new(limit, units?)));
        let spends: Box<[_]> = spends.collect();
        let layer = Self::try_new(limiter, JointExtractor::new(extractors))?;
        Ok(layer.with(|settings| {
            settings.member_priorities = priorities.into();
            if spends.iter().any(Option::is_some) {
                settings.spends = spends.into();
            }
            settings.has_several_limits = true;
        }))
    }
}

impl<L, R> RateLimitLayer<L, R> {
    pub(super) fn with(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        set(&mut self.settings);
        self.admission = Arc::default();
        self
    }

    pub(super) const fn settings(&self) -> &Settings {
        &self.settings
    }

    fn with_common(self, set: impl FnOnce(&mut CommonSettings)) -> Self {
        self.with(|settings| set(&mut settings.common))
    }

    pub(super) fn with_rejection<R2>(self, rejection: Arc<R2>) -> RateLimitLayer<L, R2> {
        RateLimitLayer {
            limiter: self.limiter,
            rejection,
            settings: self.settings,
            admission: Arc::default(),
        }
    }

    common_builder_methods!();

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
    /// The admission of all services of this layer.
    pub(super) fn admission(&self) -> Arc<Admission<L, R>> {
        let admission = self.admission.get_or_init(|| {
            Arc::new(Admission::new(
                Arc::clone(&self.limiter),
                Arc::clone(&self.rejection),
                self.settings.clone(),
            ))
        });
        Arc::clone(admission)
    }
}

impl<R> RateLimitLayer<LocalLimiter, R> {
    /// How many keys can be tracked at the same time. Defaults to 262,144, about 8 MB for one token
    /// bucket, allocated as keys come. See
    /// [`LocalLimiterBuilder::max_keys`](crate::limiter::LocalLimiterBuilder::max_keys).
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
