//! The layer that limits how many requests of a key are in flight, and its setters.

use std::{
    fmt,
    sync::{Arc, OnceLock, atomic::AtomicBool},
};

use http::request::Parts;
use tower_layer::Layer;

use super::{
    admission::PermitAdmission,
    permits::{IntoPermits, Permits},
    service::ConcurrencyLimit,
};
use crate::{
    error::{ConfigError, KeyErrorKind},
    headers::Headers,
    key::{Key, KeyExtractor},
    middleware::{
        front::Front, key_rules::MissingKey, setters::front_setters, settings::FrontSettings,
    },
    observe::Observer,
    reject::{IsResponse, ProblemJson, RejectFn, Rejection},
};

/// Limits how many requests of one key are in flight at the same time.
///
/// See the [module page](crate::concurrency) for what happens to a request, when it is over and
/// where to place the layer.
#[must_use]
pub struct ConcurrencyLayer<R = ProblemJson> {
    permits: Permits,
    rejection: Arc<R>,
    settings: FrontSettings,
    /// Made once, since axum calls `layer` for every route, and for a router without state on every
    /// request.
    admission: Arc<OnceLock<Arc<PermitAdmission<R>>>>,
}

impl ConcurrencyLayer {
    /// A layer that counts requests by the key that `extractor` finds.
    ///
    /// The limit is a [`Concurrency`](super::Concurrency), or a `SharedConcurrency` of all nodes.
    ///
    /// # Panics
    ///
    /// When the limit makes no sense, with the text of its `check`.
    #[track_caller]
    pub fn new(concurrency: impl IntoPermits, extractor: impl KeyExtractor) -> Self {
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
        concurrency: impl IntoPermits,
        extractor: impl KeyExtractor,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            permits: concurrency.into_permits()?,
            rejection: Arc::new(ProblemJson),
            settings: FrontSettings::new(extractor),
            admission: Arc::default(),
        })
    }
}

impl<R> ConcurrencyLayer<R> {
    /// The admission is made anew from what has changed.
    fn with_front(mut self, set: impl FnOnce(&mut FrontSettings)) -> Self {
        set(&mut self.settings);
        self.admission = Arc::default();
        self
    }

    front_setters!();

    /// The answer to a request that does not pass. Defaults to
    /// [`ProblemJson`](crate::reject::ProblemJson).
    pub fn rejection<R2>(self, rejection: R2) -> ConcurrencyLayer<R2> {
        ConcurrencyLayer {
            permits: self.permits,
            rejection: Arc::new(rejection),
            settings: self.settings,
            admission: Arc::default(),
        }
    }

    /// The answer to a request that does not pass, made by a closure, which returns the inner service's
    /// own body. The headers of [`headers`](Self::headers) are added to its response.
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
    pub fn rejection_fn<F, T>(self, rejection: F) -> ConcurrencyLayer<RejectFn<F>>
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
        self.permits.in_flight().of(key)
    }

    /// How many keys have requests in flight in this process. Counting them locks each part of the
    /// table in turn.
    #[must_use]
    pub fn tracked_keys(&self) -> usize {
        self.permits.in_flight().keys()
    }
}

impl<S, R> Layer<S> for ConcurrencyLayer<R> {
    type Service = ConcurrencyLimit<S, R>;

    fn layer(&self, inner: S) -> ConcurrencyLimit<S, R> {
        let admission = self.admission.get_or_init(|| {
            let policies = std::slice::from_ref(self.permits.policy());
            let front = Front::new(&self.settings, Arc::clone(&self.rejection), policies);
            Arc::new(PermitAdmission::new(self.permits.clone(), front))
        });
        ConcurrencyLimit::new(inner, Arc::clone(admission))
    }
}

impl<R> Clone for ConcurrencyLayer<R> {
    fn clone(&self) -> Self {
        Self {
            permits: self.permits.clone(),
            rejection: Arc::clone(&self.rejection),
            settings: self.settings.clone(),
            admission: Arc::clone(&self.admission),
        }
    }
}

impl<R> fmt::Debug for ConcurrencyLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLayer")
            .field("policy", self.permits.policy())
            .field("key_rules", &self.settings.key_rules)
            .field("headers", &self.settings.headers)
            .field("shadow", &self.settings.shadow)
            .finish_non_exhaustive()
    }
}
