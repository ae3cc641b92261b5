//! The layer that limits how many requests of a key are in flight, and its decision about a request.
//!
//! In: the head of a request. Out: a [`RequestOutcome`]. The request passes with its permit, which the body of its response
//! holds until it ends; or it is rejected; or other nodes decide.
//!
//! The [`Responder`] finds the key. [`Permits`] acquire one: of the counts of this process (`in_flight.rs`), or of the leases of
//! all nodes (`leases.rs`), which takes a call. The answer is a [`Grant`]: a decision, and the permit if there is
//! one.
//!
//! Example: two at the same time. The third request of a key gets a grant without a permit, whose decision is a denial, and
//! gets 429. In shadow mode it passes uncounted.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    ops::ControlFlow,
    pin::Pin,
    slice,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    task::{Context, Poll, ready},
    time::Instant,
};

use http::{Response, StatusCode, request::Parts};
use http_body::Body;
use tower_layer::Layer;

use super::{
    in_flight::{ConcurrencyBody, HeldPermits, Permit},
    permits::{Grant, IntoPermits, PendingGrant, Permits},
};
use tower_ratelimit_core::{
    decision::{Decision, Policy},
    error::{ConfigError, KeyErrorKind},
    headers::Headers,
    key::{Key, extract::KeyExtractor},
    limiter::{Charge, OpRef},
    quota::Priority,
    reject::{IsResponse, ProblemJson, Reject, RejectFn, Rejection, RejectionKind},
};
use tower_ratelimit_layer::{
    middleware::{
        gate::{Admit, Admits, FinalOutcome, Gate, GateFuture, RequestOutcome},
        responder::Responder,
        settings::{CommonSettings, MissingKey},
        wrapped_bodies::Followed,
    },
    observe::{Decided, Observer},
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
    /// The limit is a [`Concurrency`](crate::concurrency_limit::Concurrency), or a `SharedConcurrency` of all nodes.
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
    /// When the limit makes no sense, see [`Concurrency::check`](crate::concurrency_limit::Concurrency::check).
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
            let policies = slice::from_ref(self.permits.policy());
            Arc::new(PermitAdmission {
                permits: self.permits.clone(),
                responder: Responder::new(&self.settings, Arc::clone(&self.rejection), &[policies]),
            })
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

/// Decides about requests; independent of tower. Shared by all services and clones of one layer.
#[allow(missing_debug_implementations, reason = "users only name it")]
struct PermitAdmission<R> {
    permits: Permits,
    responder: Responder<R>,
}

/// A service that has a limited number of requests in flight for each key. Made by
/// [`ConcurrencyLayer`](crate::layer::ConcurrencyLayer).
pub type ConcurrencyLimit<S, R = ProblemJson> = Gate<S, ByPermit<R>>;

/// The response of a [`ConcurrencyLimit`](super::ConcurrencyLimit) service. When it is dropped, its permit comes back.
pub type ResponseFuture<S, B, R> = GateFuture<S, B, ByPermit<R>>;

/// The admission of permits, as that of a [`Gate`].
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct ByPermit<R>(Arc<PermitAdmission<R>>);

impl<R> Clone for ByPermit<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> Admit for ByPermit<R> {
    type Work = Running<R>;
    type Deferred = PendingPermit<R>;
    type Late = Infallible;
}

impl<R: Reject<B>, B: Body> Admits<B> for ByPermit<R> {
    type Body = ConcurrencyBody<B>;

    fn decide(&self, parts: &mut Parts) -> PermitOutcome<R, B> {
        PermitAdmission::decide(&self.0, parts)
    }

    fn poll_decision(
        deferred: &mut PendingPermit<R>,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<FinalOutcome<Running<R>, B>> {
        let grant = ready!(deferred.grant.as_mut().poll(cx));
        let (admission, started) = (&deferred.admission, deferred.started);
        Poll::Ready(admission.admit(grant, started, parts))
    }

    fn show(running: &mut Running<R>, response: &mut Response<B>) -> ControlFlow<()> {
        if let Some((admission, decision)) = &running.shown {
            admission.responder.decorate(decision, response);
        }
        ControlFlow::Continue(())
    }

    fn wrap<E>(
        running: &mut Running<R>,
        polled: Poll<Result<Response<B>, E>>,
    ) -> Poll<Result<Response<ConcurrencyBody<B>>, E>> {
        let result = ready!(polled);
        // Taken before an error is returned, which ends the request.
        let permits = HeldPermits::from(running.permit.take());
        let held = |response: Response<B>| response.map(|body| Followed::new(body, permits));
        Poll::Ready(result.map(held))
    }
}

type PermitOutcome<R, B> = RequestOutcome<Running<R>, B, PendingPermit<R>>;

/// A request in flight.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct Running<R> {
    /// `None` if the request is not counted.
    permit: Option<Permit>,
    shown: Option<(Arc<PermitAdmission<R>>, Decision)>,
}

/// A decision that waits for other nodes.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct PendingPermit<R> {
    grant: Pin<Box<dyn Future<Output = Grant> + Send>>,
    started: Option<Instant>,
    admission: Arc<PermitAdmission<R>>,
}

impl<R> PermitAdmission<R> {
    fn decide<B>(self: &Arc<Self>, parts: &Parts) -> PermitOutcome<R, B>
    where
        R: Reject<B>,
    {
        let key = match self.responder.key_of(parts) {
            Ok(key) => key,
            Err(why) => {
                let rejection = self.responder.exempt(why, self.policies());
                return self.undecided(rejection, parts);
            }
        };
        // One of a layer's first requests: the key may be the address of a proxy.
        let diagnostics = self.responder.diagnostics();
        if diagnostics.is_active() && diagnostics.checks_next() {
            self.responder.check_for_proxy(parts);
        }
        let started = self.responder.start();
        let class = self.responder.common.priority_of(parts);
        match self.permits.acquire(key, class) {
            PendingGrant::Ready(grant) => self.admit(grant, started, parts),
            PendingGrant::Later(grant) => RequestOutcome::Defer(PendingPermit {
                grant,
                started,
                admission: Arc::clone(self),
            }),
        }
    }

    fn admit<B, D>(
        self: &Arc<Self>,
        Grant { decision, holder }: Grant,
        started: Option<Instant>,
        parts: &Parts,
    ) -> RequestOutcome<Running<R>, B, D>
    where
        R: Reject<B>,
    {
        let decision = match decision {
            Ok(decision) => decision,
            Err(error) => {
                let rejection = self.responder.undecided(&error, self.policies());
                return self.undecided(rejection, parts);
            }
        };
        let responder = &self.responder;
        let charges = [Charge::new(holder.key(), OpRef::Acquire(1))];
        responder.decided(|| Decided::now(&decision, &charges, started));
        if decision.is_allowed() {
            let shown = responder.decorates();
            RequestOutcome::Pass(Running {
                permit: holder.permit(),
                shown: shown.then(|| (Arc::clone(self), decision)),
            })
        } else if responder.is_shadow() {
            RequestOutcome::Pass(Running::default())
        } else {
            RequestOutcome::Reject(responder.deny(parts, &decision))
        }
    }

    /// Rejects a request without a decision, or passes it if there is no rejection.
    fn undecided<B, D>(
        &self,
        rejection: Option<RejectionKind>,
        parts: &Parts,
    ) -> RequestOutcome<Running<R>, B, D>
    where
        R: Reject<B>,
    {
        match rejection {
            Some(kind) => RequestOutcome::Reject(self.responder.refuse(parts, kind)),
            None => RequestOutcome::Pass(Running::default()),
        }
    }

    fn policies(&self) -> &[Policy] {
        slice::from_ref(self.permits.policy())
    }
}

impl<R> Default for Running<R> {
    /// A request that is not counted.
    fn default() -> Self {
        Self {
            permit: None,
            shown: None,
        }
    }
}
