use std::{fmt, sync::Arc};

use http::{Response, request::Parts};
use tower_layer::Layer;

use super::{MissingKey, RateLimit, gate::Gate, settings::Settings};
use crate::{
    error::{ConfigError, KeyErrorKind},
    headers::Headers,
    key::KeyExtractor,
    limiter::{IntoLimiter, Limiter, LocalLimiter},
    observe::Observer,
    reject::{ProblemJson, RejectFn, Rejection},
};

/// Limits the rate of requests to a service.
///
/// See the [module page](crate::layer) for what happens to a request, where the state lives and
/// how to place the layer.
#[must_use]
pub struct RateLimitLayer<L = LocalLimiter, R = ProblemJson> {
    limiter: Arc<L>,
    rejection: Arc<R>,
    settings: Settings,
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
        })
    }
}

impl<L, R> RateLimitLayer<L, R> {
    /// How many units a request takes. Defaults to 1.
    ///
    /// A request of cost 0 is always allowed and takes nothing; one that costs more than the quota
    /// holds is always denied, without `Retry-After`.
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.settings.cost = Some(Arc::new(cost));
        self
    }

    /// Which requests pass uncounted and without headers: health checks, an allow list. Defaults
    /// to none. A second call replaces the first.
    pub fn skip(mut self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.settings.identify.set_skip(skip);
        self
    }

    /// What happens to a request that has no key. Defaults to [`MissingKey::Share`] for a client
    /// that sent none ([`KeyErrorKind::Absent`]) and to [`MissingKey::Reject`], which is a 500, for
    /// a server that is set up wrong ([`KeyErrorKind::Unavailable`]).
    pub const fn on_missing_key(mut self, kind: KeyErrorKind, action: MissingKey) -> Self {
        self.settings.identify.set_missing_key(kind, action);
        self
    }

    /// Which headers responses carry. Defaults to [`Headers::new`].
    pub fn headers(mut self, headers: Headers) -> Self {
        self.settings.headers = headers;
        self
    }

    /// Only watches: requests are counted and the observer hears the decisions, but all of them
    /// pass and no response is touched. Defaults to false.
    pub const fn shadow(mut self, shadow: bool) -> Self {
        self.settings.shadow = shadow;
        self
    }

    /// Puts the [`Decision`](crate::Decision) into the extensions of requests that pass, where
    /// handlers find it; with axum it is an extractor. Defaults to false, because it allocates.
    pub const fn expose_decision(mut self, expose: bool) -> Self {
        self.settings.expose_decision = expose;
        self
    }

    /// Who is told of every decision. Defaults to nobody; with an observer the check is timed,
    /// which reads the clock twice more.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.settings.observer = Some(Arc::new(observer));
        self
    }

    /// What a request that does not pass is answered with. Defaults to
    /// [`ProblemJson`](crate::reject::ProblemJson).
    pub fn rejection<R2>(self, rejection: R2) -> RateLimitLayer<L, R2> {
        RateLimitLayer {
            limiter: self.limiter,
            rejection: Arc::new(rejection),
            settings: self.settings,
        }
    }

    /// What a request that does not pass is answered with, by a closure.
    ///
    /// The headers of [`headers`](Self::headers) are added to what it returns.
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
    pub fn rejection_fn<F, B>(self, rejection: F) -> RateLimitLayer<L, RejectFn<F>>
    where
        F: Fn(&Rejection<'_>) -> Response<B> + Send + Sync + 'static,
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

impl<S, L: Limiter, R> Layer<S> for RateLimitLayer<L, R> {
    type Service = RateLimit<S, L, R>;

    fn layer(&self, inner: S) -> RateLimit<S, L, R> {
        let gate = Gate::new(
            Arc::clone(&self.limiter),
            Arc::clone(&self.rejection),
            self.settings.clone(),
        );
        RateLimit::new(inner, Arc::new(gate))
    }
}

impl<L, R> Clone for RateLimitLayer<L, R> {
    fn clone(&self) -> Self {
        Self {
            limiter: Arc::clone(&self.limiter),
            rejection: Arc::clone(&self.rejection),
            settings: self.settings.clone(),
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
