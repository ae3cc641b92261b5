//! The layer around a client.

use std::{fmt, sync::Arc};

use http::request::Parts;
use tower_layer::Layer;
use tower_ratelimit::{Key, spend::SpendReaders};

use crate::{
    destination::Destination,
    pacer::Pacer,
    replayable_body::{BufferedBodies, ByReplay, ReplayFn, WithoutReplay},
    request_cost::Units,
    request_with_retries::CallSettings,
    retry::Retry,
    service::Paced,
    spend_from_bodies::SpendingPaced,
};

/// Puts a [`Pacer`] around a client: a service that takes `http::Request`s, or with the feature
/// `reqwest` a `reqwest::Client`.
///
/// See the [guide](crate::guide) for what happens to a request.
#[derive(Clone)]
#[must_use]
pub struct PacerLayer<P = ByReplay> {
    pub(crate) calls: Arc<CallSettings>,
    pub(crate) bodies: P,
}

impl PacerLayer {
    /// A layer whose requests wait for this pacer.
    pub fn new(pacer: Pacer) -> Self {
        Self {
            calls: Arc::new(CallSettings {
                pacer,
                retry: Retry::new(),
                destination: None,
                key: None,
                cost: None,
                units: None,
            }),
            bodies: ByReplay,
        }
    }
}

impl<P> PacerLayer<P> {
    /// The pacer that requests wait for.
    pub fn pacer(&self) -> &Pacer {
        &self.calls.pacer
    }

    fn with(self, set: impl FnOnce(&mut CallSettings)) -> Self {
        let mut calls = CallSettings::clone(&self.calls);
        set(&mut calls);
        Self {
            calls: Arc::new(calls),
            ..self
        }
    }

    /// Which requests are sent again. Defaults to [`Retry::new`].
    pub fn retry(self, retry: Retry) -> Self {
        self.with(|calls| calls.retry = retry)
    }

    /// Sends all requests to this destination, for a client whose requests have no host in their
    /// URI, such as a channel of tonic. Defaults to the host of each request.
    pub fn destination(self, destination: Destination) -> Self {
        self.with(|calls| calls.destination = Some(destination))
    }

    /// Splits a destination into parts with their own limits: by the token of a request, or by
    /// resource where the server counts each apart. Defaults to no key.
    pub fn key(self, key: impl Fn(&Parts) -> Key + Send + Sync + 'static) -> Self {
        self.with(|calls| calls.key = Some(Arc::new(key)))
    }

    /// The units that a request costs, of the declared limit and of those that the server reports. Defaults
    /// to 1. Without effect beside [`units`](Self::units).
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|calls| calls.cost = Some(Arc::new(cost)))
    }

    /// The units that a request costs, as for [`Pacer::turn_of`]. Replaces [`cost`](Self::cost). Defaults
    /// to one request.
    ///
    /// The amounts stay charged unless the layer is made [`spending`](Self::spending).
    pub fn units<I>(self, units: impl Fn(&Parts) -> I + Send + Sync + 'static) -> Self
    where
        I: IntoIterator<Item = Units>,
    {
        let units = move |parts: &Parts| units(parts).into_iter().collect();
        self.with(|calls| calls.units = Some(Arc::new(units)))
    }

    /// Settles the [`units`](Self::units) of each request by the body of its response, in which `readers`
    /// find the tokens, such as `Llm::any()` of `tower_ratelimit::spend::llm`: the layer of a
    /// [`SpendingPaced`].
    pub fn spending<R: SpendReaders>(self, readers: R) -> SpendingPacerLayer<R, P> {
        SpendingPacerLayer {
            layer: self,
            readers: Arc::new(readers),
        }
    }

    /// Accepts any body, and sends no request twice.
    pub fn without_replay(self) -> PacerLayer<WithoutReplay> {
        self.with_bodies(WithoutReplay)
    }

    /// Copies bodies, or whole requests of reqwest, by this closure. If it returns `None`, the request is
    /// sent once.
    pub fn replay_fn<F, B>(self, replay: F) -> PacerLayer<ReplayFn<F>>
    where
        F: Fn(&B) -> Option<B> + Clone + Send + Sync + 'static,
    {
        self.with_bodies(ReplayFn(replay))
    }

    /// Collects the bodies of requests that may be sent again, up to this many bytes. A longer one
    /// fails with the kind `Body`, and so does one with trailers, which would be lost.
    ///
    /// Intended for calls that send one message: a stream that continues while the server responds
    /// would stall. Not for reqwest, whose requests copy themselves unless their body is a stream.
    pub fn buffer_bodies(self, bytes: usize) -> PacerLayer<BufferedBodies> {
        self.with_bodies(BufferedBodies(bytes))
    }

    fn with_bodies<Q>(self, bodies: Q) -> PacerLayer<Q> {
        PacerLayer {
            calls: self.calls,
            bodies,
        }
    }
}

impl<S, P: Clone> Layer<S> for PacerLayer<P> {
    type Service = Paced<S, P>;

    fn layer(&self, inner: S) -> Paced<S, P> {
        Paced::new(inner, Arc::clone(&self.calls), self.bodies.clone())
    }
}

/// Puts a [`Pacer`] around a client, and settles the units of each request by the body of its response.
/// Made by [`PacerLayer::spending`].
#[must_use]
pub struct SpendingPacerLayer<R, P = ByReplay> {
    layer: PacerLayer<P>,
    readers: Arc<R>,
}

impl<S, R, P: Clone> Layer<S> for SpendingPacerLayer<R, P> {
    type Service = SpendingPaced<S, R, P>;

    fn layer(&self, inner: S) -> Self::Service {
        SpendingPaced::new(self.layer.layer(inner), Arc::clone(&self.readers))
    }
}

impl<R, P: Clone> Clone for SpendingPacerLayer<R, P> {
    fn clone(&self) -> Self {
        Self {
            layer: self.layer.clone(),
            readers: Arc::clone(&self.readers),
        }
    }
}

impl<R, P> fmt::Debug for SpendingPacerLayer<R, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpendingPacerLayer")
            .field("layer", &self.layer)
            .finish_non_exhaustive()
    }
}

impl<P> fmt::Debug for PacerLayer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacerLayer")
            .field("pacer", &self.calls.pacer)
            .field("retry", &self.calls.retry)
            .finish_non_exhaustive()
    }
}
