//! The layer that limits how many requests of a key are in flight, and its builder methods.

use std::{
    fmt,
    sync::{Arc, OnceLock, atomic::AtomicBool},
};

use http::{StatusCode, request::Parts};
use tower_layer::Layer;

use super::{
    admission::{ByPermit, ConcurrencyLimit, PermitAdmission},
    permits::{IntoPermits, Permits},
};
use tower_ratelimit_core::{
    error::{ConfigError, KeyErrorKind},
    headers::Headers,
    key::{Key, KeyExtractor},
    quota::Priority,
    reject::{IsResponse, ProblemJson, RejectFn, Rejection},
};
use tower_ratelimit_layer::{
    middleware::{
        gate::Gate, key_extraction::KeyStage, key_extraction_rules::MissingKey,
        settings::CommonSettings,
    },
    observe::Observer,
};

/// Limits how many requests of one key are in flight at the same time.
///
/// The [module page](crate) has the steps of a request, its end, and the order of layers.
#[must_use]
pub struct ConcurrencyLayer<R = ProblemJson> {
    permits: Permits,
    rejection: Arc<R>,
    settings: CommonSettings,
    /// Made once, since axum calls `layer` for every route, and for a router without state on every
    /// request.
    admission: Arc<OnceLock<Arc<PermitAdmission<R>>>>,
}

impl ConcurrencyLayer {
    /// A layer that counts requests by the key that `extractor` finds.
    ///
    /// The limit is a [`Concurrency`](crate::limit::Concurrency), or a `SharedConcurrency` of all nodes.
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
    /// When the limit makes no sense, see [`Concurrency::check`](crate::limit::Concurrency::check).
    pub fn try_new(
        concurrency: impl IntoPermits,
        extractor: impl KeyExtractor,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            permits: concurrency.into_permits()?,
            rejection: Arc::new(ProblemJson),
            settings: CommonSettings::new(extractor),
            admission: Arc::default(),
        })
    }
}

impl<R> ConcurrencyLayer<R> {
    /// Changes the settings, which need another admission.
    fn with_common(mut self, set: impl FnOnce(&mut CommonSettings)) -> Self {
        set(&mut self.settings);
        self.admission = Arc::default();
        self
    }

    tower_ratelimit_layer::common_builder_methods!();

    /// The class of a request: the share of the limit that it may use. Defaults to
    /// [`Priority::CRITICAL`] for all requests.
    ///
    /// A request of a class is allowed while fewer than max(1, ⌊max · share / 100⌋) requests of its key
    /// are in flight, whatever their classes are. With shares such as 100, 95, 80 and 60 a service under
    /// load sheds one class after another. A request that is denied for its class alone gets 503,
    /// see [`shed_status`](Self::shed_status).
    ///
    /// Do not let a client choose its class: take the class from the route, from authentication, or from
    /// a field that a proxy sets.
    pub fn priority(self, priority: impl Fn(&Parts) -> Priority + Send + Sync + 'static) -> Self {
        self.with_common(|common| common.priority = Some(Arc::new(priority)))
    }

    /// The response to a request that does not pass. Defaults to
    /// [`ProblemJson`](tower_ratelimit_core::reject::ProblemJson).
    pub fn rejection<R2>(self, rejection: R2) -> ConcurrencyLayer<R2> {
        ConcurrencyLayer {
            permits: self.permits,
            rejection: Arc::new(rejection),
            settings: self.settings,
            admission: Arc::default(),
        }
    }

    /// The response to a request that does not pass, made by a closure, with the inner service's own body
    /// type. It gets the headers of [`headers`](Self::headers).
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
    /// Requests of a shared limit on other nodes are not counted.
    pub fn in_flight(&self, key: &Key) -> u64 {
        self.permits.in_flight().of(key)
    }

    /// How many keys have requests in flight in this process. The call locks each shard of the table in
    /// turn.
    pub fn tracked_keys(&self) -> usize {
        self.permits.in_flight().keys()
    }
}

impl<S, R> Layer<S> for ConcurrencyLayer<R> {
    type Service = ConcurrencyLimit<S, R>;

    fn layer(&self, inner: S) -> ConcurrencyLimit<S, R> {
        let admission = self.admission.get_or_init(|| {
            let policies = std::slice::from_ref(self.permits.policy());
            let key_stage = KeyStage::new(&self.settings, Arc::clone(&self.rejection), &[policies]);
            let priority = self.settings.priority.clone();
            Arc::new(PermitAdmission::new(
                self.permits.clone(),
                key_stage,
                priority,
            ))
        });
        Gate::new(inner, ByPermit(Arc::clone(admission)))
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
            .field("headers", &self.settings.headers)
            .field("shadow", &self.settings.shadow)
            .finish_non_exhaustive()
    }
}
