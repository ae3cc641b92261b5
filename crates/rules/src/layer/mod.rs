//! The layer that limits requests by rules.
//!
//! What comes in: the head of a request, and the rules in force. What goes out: the response of the inner service, or a
//! rejection; and what the response settles, such as units that are refunded.
//!
//! This file has the settings, and makes the services of `decide.rs`: for `in_flight` and `spend` one whose bodies hold
//! permits and follow the usage. It takes the set of admissions from `handle.rs`, once for each request: a reload or a
//! switch replaces the whole set, and requests under way end with theirs.
//!
//! A request that two rules limit, one of them in the shadow and with a quota of 5/minute:
//!
//! 1. `decide.rs` has the verdict `Limited` with two charges. It charges the shadow by itself, whose denial only the
//!    observer sees.
//! 2. For the other it takes the admission of that rule from `limiter_of_each_rule.rs`. Several would be charged as one list,
//!    all or none, by the admission of the first. `store.rs`, one directory up, splits rules into limits, and has
//!    the limiter of all limits of the set of rules.
//! 3. The admission decides as one of `RateLimitLayer` does. What depends on the limits that the request meets, such as
//!    waits, follows from the indexes of its charges. What is left is the `RulesWork` of the response. At the end the
//!    status also settles the charge of the shadow.
//!
//! `decisions_without_service.rs` answers the same question for a process that handles the request elsewhere, and for a request that waits
//! for its body.

mod decide;
mod decisions_without_service;
mod handle;
mod limiter_of_each_rule;
#[cfg(feature = "rules-watch")]
mod watch;

use std::{
    fmt,
    path::Path,
    sync::{Arc, OnceLock},
};

use tower_layer::Layer;

use self::{
    decide::ByRules,
    handle::Shared,
    limiter_of_each_rule::{Admissions, LayerSettings},
};
use crate::{in_flight::InFlightTables, rule_set::Rules};
use tower_ratelimit_core::reject::{IsResponse, ProblemJson, RejectFn, Rejection};
use tower_ratelimit_layer::{
    middleware::{gate::Gate, wrapped_bodies::Following},
    observe::Observer,
    rate_limit::Waiting,
};
use tower_ratelimit_rulefile::RulesError;

#[cfg(feature = "rules-watch")]
pub use self::watch::RulesWatch;
pub use self::{
    decide::{HoldingRulesFuture, HoldingRulesLimit, RulesFuture, RulesLimit},
    handle::RulesHandle,
};

/// Limits requests by [`Rules`], and keeps the counts when the files are read again.
///
/// Every limit that matches a request is charged, or none: in this process in one step, in Redis by refunds. See the page
/// of the [guide](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/rules/index.html).
///
/// ```
/// use tower_ratelimit::rules::{Format, Rules, RulesLayer};
///
/// # #[cfg(feature = "axum")] {
/// use axum::{Router, routing::get};
///
/// // Or `RulesLayer::from_path("rules.yaml")?`.
/// let text = "rules: [{name: api, match: {path: '/api/**'}, quota: 10/second}]";
/// let layer = RulesLayer::new(Rules::builder().parse(text, Format::Yaml)?);
/// let app: Router = Router::new().route("/api/hello", get("hello")).layer(layer);
/// # }
/// # Ok::<(), tower_ratelimit::rules::RulesError>(())
/// ```
///
/// Clones share the rules and the counts.
#[must_use]
pub struct RulesLayer<R = ProblemJson> {
    rules: Rules,
    settings: LayerSettings,
    rejection: Arc<R>,
    /// Created once, since axum calls `layer` for every route.
    shared: Arc<OnceLock<Arc<Shared<R>>>>,
}

impl RulesLayer {
    /// A layer of these rules.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            settings: LayerSettings {
                observer: None,
                expose_decision: false,
                grpc: true,
                waiting: Waiting::new(),
                in_flight: InFlightTables::default(),
                is_holding: false,
            },
            rejection: Arc::new(ProblemJson),
            shared: Arc::default(),
        }
    }

    /// A layer of the rules in a file, or in all rule files of a directory. They count in this process. See [`RulesBuilder::read`](crate::RulesBuilder::read).
    ///
    /// # Errors
    ///
    /// Those of [`RulesBuilder::read`](crate::RulesBuilder::read).
    pub fn from_path(path: impl AsRef<Path>) -> Result<Self, RulesError> {
        Rules::from_path(path).map(Self::new)
    }
}

impl<R> RulesLayer<R> {
    fn with(mut self, change: impl FnOnce(&mut LayerSettings)) -> Self {
        change(&mut self.settings);
        self.shared = Arc::default();
        self
    }

    /// Sets the response to a request that does not pass. Defaults to
    /// [`ProblemJson`](tower_ratelimit_core::reject::ProblemJson).
    pub fn rejection<R2>(self, rejection: R2) -> RulesLayer<R2> {
        RulesLayer {
            rules: self.rules,
            settings: self.settings,
            rejection: Arc::new(rejection),
            shared: Arc::default(),
        }
    }

    /// Sets a closure that makes the response to a request that does not pass. See
    /// [`RateLimitLayer::rejection_fn`](tower_ratelimit_layer::rate_limit::layer::RateLimitLayer::rejection_fn).
    pub fn rejection_fn<F, T>(self, rejection: F) -> RulesLayer<RejectFn<F>>
    where
        F: Fn(&Rejection<'_>) -> T + Send + Sync + 'static,
        T: IsResponse,
    {
        self.rejection(RejectFn::new(rejection))
    }

    /// Sets the observer of all decisions and reloads. Policies have the names of their rules. Defaults to none.
    pub fn observer(self, observer: impl Observer) -> Self {
        self.with(|settings| settings.observer = Some(Arc::new(observer)))
    }

    /// Puts the [`Decision`](tower_ratelimit_core::Decision) into the extensions of requests that pass. Defaults to
    /// false. See [`RateLimitLayer::expose_decision`](tower_ratelimit_layer::rate_limit::layer::RateLimitLayer::expose_decision).
    pub fn expose_decision(self, expose: bool) -> Self {
        self.with(|settings| settings.expose_decision = expose)
    }

    /// Whether calls that look like gRPC get a gRPC response. Defaults to true. See
    /// [`RateLimitLayer::grpc`](tower_ratelimit_layer::rate_limit::layer::RateLimitLayer::grpc).
    pub fn grpc(self, grpc: bool) -> Self {
        self.with(|settings| settings.grpc = grpc)
    }
}

impl<R: Send + Sync + 'static> RulesLayer<R> {
    /// This layer with responses that have a body of their own: it holds the permits of `in_flight`, and `spend` follows
    /// it. Call it last; the rules are read with
    /// [`RulesBuilder::accept_in_flight`](crate::RulesBuilder::accept_in_flight) or
    /// [`RulesBuilder::accept_spend`](crate::RulesBuilder::accept_spend).
    pub fn holding(self) -> HoldingRulesLayer<R> {
        HoldingRulesLayer(self.with(|settings| settings.is_holding = true))
    }

    fn shared(&self) -> &Arc<Shared<R>> {
        self.shared.get_or_init(|| {
            if let Some(fault) = self.settings.fault_of(&self.rules) {
                panic!("{fault}");
            }
            let (settings, rejection) = (self.settings.clone(), Arc::clone(&self.rejection));
            let admissions = Admissions::new(self.rules.clone(), settings, rejection);
            Arc::new(Shared::new(admissions))
        })
    }

    /// A handle to the rules of this layer with its current settings: call it after the last setter.
    ///
    /// # Panics
    ///
    /// If a rule has `in_flight` or `spend`: such rules need [`holding`](Self::holding).
    pub fn handle(&self) -> RulesHandle {
        RulesHandle::new(Arc::clone(self.shared()))
    }
}

impl<S, R: Send + Sync + 'static> Layer<S> for RulesLayer<R> {
    type Service = RulesLimit<S, R>;

    fn layer(&self, inner: S) -> RulesLimit<S, R> {
        Gate::new(inner, ByRules(Arc::clone(self.shared())))
    }
}

impl<R> Clone for RulesLayer<R> {
    fn clone(&self) -> Self {
        Self {
            rules: self.rules.clone(),
            settings: self.settings.clone(),
            rejection: Arc::clone(&self.rejection),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<R> fmt::Debug for RulesLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulesLayer")
            .field("rules", &self.rules.len())
            .finish_non_exhaustive()
    }
}

/// A [`RulesLayer`] whose responses hold the permits of `in_flight`, and are followed by `spend`. Created by [`RulesLayer::holding`].
#[derive(Debug)]
#[must_use]
pub struct HoldingRulesLayer<R = ProblemJson>(RulesLayer<R>);

impl<R: Send + Sync + 'static> HoldingRulesLayer<R> {
    /// A handle to the rules of this layer, see [`RulesLayer::handle`].
    pub fn handle(&self) -> RulesHandle {
        self.0.handle()
    }
}

impl<S, R: Send + Sync + 'static> Layer<S> for HoldingRulesLayer<R> {
    type Service = HoldingRulesLimit<S, R>;

    fn layer(&self, inner: S) -> HoldingRulesLimit<S, R> {
        Gate::new(inner, Following(ByRules(Arc::clone(self.0.shared()))))
    }
}

impl<R> Clone for HoldingRulesLayer<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
