use std::{
    fmt, slice,
    sync::{Arc, OnceLock},
};

use http::request::Parts;
use tower_layer::Layer;

use super::{
    ConcurrencyLimit, LocalPermits,
    admission::ConcurrencyAdmission,
    in_flight::InFlight,
    permits::{IntoPermits, Opened},
};
use crate::{
    decision::Policy,
    error::{ConfigError, KeyErrorKind},
    headers::Headers,
    key::{Key, KeyExtractor},
    middleware::{
        key_rules::{KeyRules, MissingKey},
        responder::Responder,
    },
    observe::Observer,
    reject::{IsResponse, ProblemJson, RejectFn, Rejection},
};

/// Limits how many requests of one key are in flight at the same time.
///
/// See the [module page](crate::concurrency) for what happens to a request, when it is over and
/// where to place the layer.
#[must_use]
pub struct ConcurrencyLayer<R = ProblemJson, P = LocalPermits> {
    policy: Policy,
    in_flight: Arc<InFlight>,
    permits: P,
    key_rules: KeyRules,
    rejection: Arc<R>,
    headers: Headers,
    observer: Option<Arc<dyn Observer>>,
    shadow: bool,
    grpc: bool,
    /// Made once, since axum calls `layer` for every route, and for a router without state on every
    /// request.
    admission: Arc<OnceLock<Arc<ConcurrencyAdmission<R>>>>,
}

impl<P> ConcurrencyLayer<ProblemJson, P> {
    /// A layer that counts requests by the key that `extractor` finds.
    ///
    /// The limit is a [`Concurrency`](super::Concurrency), or a `SharedConcurrency` of all nodes.
    ///
    /// # Panics
    ///
    /// When the limit makes no sense, with the text of its `check`.
    #[track_caller]
    pub fn new(concurrency: impl IntoPermits<Permits = P>, extractor: impl KeyExtractor) -> Self {
        match Self::try_new(concurrency, extractor) {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// A layer that counts requests by the key that `extractor` finds.
    ///
    /// # Errors
    ///
    /// When the limit makes no sense, see [`Concurrency::check`](super::Concurrency::check).
    pub fn try_new(
        concurrency: impl IntoPermits<Permits = P>,
        extractor: impl KeyExtractor,
    ) -> Result<Self, ConfigError> {
        let Opened {
            policy,
            in_flight,
            permits,
        } = concurrency.into_permits()?;
        Ok(Self {
            policy,
            in_flight,
            permits,
            key_rules: KeyRules::new(extractor),
            rejection: Arc::new(ProblemJson),
            headers: Headers::new(),
            observer: None,
            shadow: false,
            grpc: true,
            admission: Arc::default(),
        })
    }
}

impl<R, P> ConcurrencyLayer<R, P> {
    /// The admission is made anew from what has changed.
    fn with(mut self, set: impl FnOnce(&mut Self)) -> Self {
        set(&mut self);
        self.admission = Arc::default();
        self
    }

    /// Which requests pass uncounted and without headers: health checks, an allow list. Defaults
    /// to none. A second call replaces the first.
    pub fn skip(self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|layer| layer.key_rules.set_skip(skip))
    }

    /// What happens to a request that has no key. Defaults to [`MissingKey::Share`] for a client
    /// that sent none ([`KeyErrorKind::Absent`]), to [`MissingKey::Reject`], which is a 400, for one
    /// that sent several which differ ([`KeyErrorKind::Ambiguous`]), and to the same, which is then a
    /// 500, for a server that is set up wrong ([`KeyErrorKind::Unavailable`]).
    pub fn on_missing_key(self, kind: KeyErrorKind, action: MissingKey) -> Self {
        self.with(|layer| layer.key_rules.set_missing_key(kind, action))
    }

    /// Which headers responses carry. Defaults to [`Headers::new`]; of those that tell a time there
    /// are none.
    pub fn headers(self, headers: Headers) -> Self {
        self.with(|layer| layer.headers = headers)
    }

    /// Only watches: requests are counted and the observer hears the decisions, but all of them
    /// pass and no response is touched. Defaults to false.
    ///
    /// One that would have been rejected is not counted as in flight, since it would not have been.
    pub fn shadow(self, shadow: bool) -> Self {
        self.with(|layer| layer.shadow = shadow)
    }

    /// Whether calls that look like gRPC are answered in gRPC. Defaults to true; a service that is not
    /// gRPC should switch it off, see
    /// [`RateLimitLayer::grpc`](crate::RateLimitLayer::grpc).
    pub fn grpc(self, grpc: bool) -> Self {
        self.with(|layer| layer.grpc = grpc)
    }

    /// Who is told of every decision. Defaults to nobody; with an observer the check is timed,
    /// which reads the clock twice more.
    pub fn observer(self, observer: impl Observer) -> Self {
        self.with(|layer| layer.observer = Some(Arc::new(observer)))
    }

    /// What a request that does not pass is answered with. Defaults to
    /// [`ProblemJson`](crate::reject::ProblemJson).
    pub fn rejection<R2>(self, rejection: R2) -> ConcurrencyLayer<R2, P> {
        ConcurrencyLayer {
            policy: self.policy,
            in_flight: self.in_flight,
            permits: self.permits,
            key_rules: self.key_rules,
            rejection: Arc::new(rejection),
            headers: self.headers,
            observer: self.observer,
            shadow: self.shadow,
            grpc: self.grpc,
            admission: Arc::default(),
        }
    }

    /// What a request that does not pass is answered with, by a closure, which returns the inner
    /// service's own body. The headers of [`headers`](Self::headers) are added to its response.
    ///
    /// ```
    /// use http::Response;
    /// use tower_ratelimit::{Concurrency, ConcurrencyLayer, Global};
    ///
    /// let layer = ConcurrencyLayer::new(Concurrency::max(8), Global).rejection_fn(|rejection| {
    ///     let mut response = Response::new(String::from("one after another, please"));
    ///     *response.status_mut() = rejection.status();
    ///     response
    /// });
    /// # let _ = layer;
    /// ```
    pub fn rejection_fn<F, T>(self, rejection: F) -> ConcurrencyLayer<RejectFn<F>, P>
    where
        F: Fn(&Rejection<'_>) -> T + Send + Sync + 'static,
        T: IsResponse,
    {
        self.rejection(RejectFn::new(rejection))
    }

    /// How many requests of `key` are in flight in this process, for admin routes and metrics.
    /// Those that other nodes hold of a shared limit are not among them.
    #[must_use]
    pub fn in_flight(&self, key: &Key) -> u64 {
        self.in_flight.of(key)
    }

    /// How many keys have requests in flight in this process. Counting them locks each part of the table in turn.
    #[must_use]
    pub fn tracked_keys(&self) -> usize {
        self.in_flight.keys()
    }
}

impl<S, R, P: Clone> Layer<S> for ConcurrencyLayer<R, P> {
    type Service = ConcurrencyLimit<S, R, P>;

    fn layer(&self, inner: S) -> ConcurrencyLimit<S, R, P> {
        let admission = self.admission.get_or_init(|| {
            let responder = Responder::new(
                Arc::clone(&self.rejection),
                &self.headers,
                slice::from_ref(&self.policy),
                self.observer.clone(),
                self.shadow,
            );
            Arc::new(ConcurrencyAdmission::new(
                self.policy.clone(),
                Arc::clone(&self.in_flight),
                self.key_rules.clone(),
                responder.with_grpc(self.grpc),
            ))
        });
        ConcurrencyLimit::new(inner, Arc::clone(admission), self.permits.clone())
    }
}

impl<R, P: Clone> Clone for ConcurrencyLayer<R, P> {
    fn clone(&self) -> Self {
        Self {
            policy: self.policy.clone(),
            in_flight: Arc::clone(&self.in_flight),
            permits: self.permits.clone(),
            key_rules: self.key_rules.clone(),
            rejection: Arc::clone(&self.rejection),
            headers: self.headers.clone(),
            observer: self.observer.clone(),
            shadow: self.shadow,
            grpc: self.grpc,
            admission: Arc::clone(&self.admission),
        }
    }
}

impl<R, P> fmt::Debug for ConcurrencyLayer<R, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLayer")
            .field("policy", &self.policy)
            .field("key_rules", &self.key_rules)
            .field("headers", &self.headers)
            .field("shadow", &self.shadow)
            .finish_non_exhaustive()
    }
}
