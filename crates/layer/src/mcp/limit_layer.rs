//! The layer that limits calls of MCP.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    body::BoxedResponse,
    call,
    message::Calls,
    reject::{DenialOfCall, McpRejection},
};
use crate::{
    middleware::{
        gate::{Gate, take_ready},
        setup_diagnostics::SeenCharges,
    },
    rate_limit::{Admission, layer::RateLimitLayer},
};
use tower_ratelimit_core::{
    headers::Headers,
    limiter::{limiter::Limiter, local::LocalLimiter},
    reject::rejection::RejectionBody,
};

/// Limits calls of MCP. Made by [`RateLimitLayer::mcp`].
#[must_use]
pub struct McpLayer<L = LocalLimiter> {
    layer: RateLimitLayer<L, McpRejection>,
    /// For all calls of a batch but the last that counts: the denial of another call refunds them.
    of_batch: RateLimitLayer<L, McpRejection>,
}

impl<L: Limiter, R> RateLimitLayer<L, R> {
    /// Limits requests as calls of MCP. Call it last.
    ///
    /// - Requests that call nothing pass uncounted: GET, HEAD, DELETE, OPTIONS, and responses of the client, which only a
    ///   [`McpBodyLayer`](super::McpBodyLayer) outside can distinguish from calls. Notifications count.
    /// - [`deny`](Self::deny) and [`deny_key`](Self::deny_key) apply to what calls nothing, too. It has no key by its
    ///   [call](super::Mcp): to deny a client by `deny_key`, give it a limit by the client alone.
    /// - A batch is charged for each of its calls, by the key of that call: all are charged, or none. They are charged one
    ///   after another; if one is denied, the others are refunded. Until then another request may be denied that would
    ///   have passed. [`count_if`](Self::count_if) and [`final_cost`](Self::final_cost) apply to each call.
    ///   Closures, lists and extractors may be called twice for a call: the response's fields are those of the last one that
    ///   counts.
    ///   With [`block_for`](Self::block_for), all calls of a batch but the last that counts are settled by the response: those that
    ///   pass may start a block, and their denials start none.
    /// - A rejection is an error of JSON-RPC, a [`McpRejection`].
    pub fn mcp(self) -> McpLayer<L> {
        let layer = self.rejection(McpRejection).skip_last(calls_nothing);
        let of_batch = layer.clone().headers(Headers::none());
        McpLayer {
            of_batch: of_batch.refund_if(|response| response.extensions.get::<Denied>().is_some()),
            layer,
        }
    }
}

fn calls_nothing(parts: &Parts) -> bool {
    let calls = parts.extensions.get::<Calls>();
    call::calls_nothing(&parts.method) || calls.is_some_and(|calls| calls.calls.is_empty())
}

/// The mark of a response to a batch that was denied: in its extensions.
#[derive(Debug, Clone, Copy)]
struct Denied;

impl<L> McpLayer<L> {
    /// The limiter. A clone of it is a handle to the layer's counters.
    pub fn limiter(&self) -> &L {
        self.layer.limiter()
    }
}

impl<S, L: Limiter> Layer<S> for McpLayer<L> {
    type Service = McpLimit<S, L>;

    fn layer(&self, inner: S) -> McpLimit<S, L> {
        McpLimit {
            inner,
            admission: self.layer.admission(),
            of_batch: self.of_batch.admission(),
            rest: None,
        }
    }
}

impl<L> Clone for McpLayer<L> {
    fn clone(&self) -> Self {
        Self {
            layer: self.layer.clone(),
            of_batch: self.of_batch.clone(),
        }
    }
}

impl<L> fmt::Debug for McpLayer<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpLayer").finish_non_exhaustive()
    }
}

type McpAdmission<L> = Arc<Admission<L, McpRejection>>;

/// A service whose calls of MCP are limited. Made by [`McpLayer`].
pub struct McpLimit<S, L = LocalLimiter> {
    inner: S,
    admission: McpAdmission<L>,
    /// The admission of all calls of a batch but the last that counts: it refunds a call if another one is denied, and adds
    /// no fields, which the last one adds.
    of_batch: McpAdmission<L>,
    /// `None` outside of a batch.
    rest: Option<RestOfBatch>,
}

/// The calls of a batch that are left, as limits around each other: the denial of one is the response that the others
/// settle their charges by.
#[derive(Clone)]
struct RestOfBatch {
    left: usize,
    /// How many are left when the one is charged whose decision the response shows. Those that follow it are skipped.
    shown: usize,
    /// Whether the inner service was called.
    passed: Arc<AtomicBool>,
}

impl<S, L> McpLimit<S, L> {
    crate::inner_service!(S);

    /// The instance that was polled ready, for the calls of a batch that are left.
    fn ready(&mut self, rest: RestOfBatch) -> Self
    where
        S: Clone,
    {
        Self {
            inner: take_ready(&mut self.inner),
            admission: Arc::clone(&self.admission),
            of_batch: Arc::clone(&self.of_batch),
            rest: Some(rest),
        }
    }
}

impl<S, B, ResBody, L> Service<Request<B>> for McpLimit<S, L>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: 'static,
    B: Send + 'static,
    ResBody: RejectionBody + Send + 'static,
    L: Limiter,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxedResponse<ResBody, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let Some(mut rest) = self.rest.take() else {
            let calls = request.extensions().get::<Calls>();
            let left = calls.map_or(0, |calls| calls.calls.len());
            let admission = Arc::clone(&self.admission);
            if left < 2 {
                let inner = take_ready(&mut self.inner);
                return Box::pin(Gate::new(inner, admission).call(request));
            }
            let (request, shown) = last_that_counts(request, left, &admission);
            let passed = Arc::default();
            let mut batch = self.ready(RestOfBatch {
                left,
                shown,
                passed,
            });
            return Box::pin(async move {
                let mut response = batch.call(request).await?;
                let extensions = response.extensions_mut();
                extensions.remove::<Denied>();
                if let Some(DenialOfCall(decision)) = extensions.remove() {
                    admission.responder.decorate(&decision, &mut response);
                }
                Ok(response)
            });
        };
        let extensions = request.extensions_mut();
        // It would be the charge of another call.
        extensions.remove::<SeenCharges>();
        let left = rest.left.checked_sub(1);
        if let Some(calls) = extensions.get_mut::<Calls>() {
            calls.at = left.map(|left| calls.calls.len() - 1 - left);
        }
        let passed = Arc::clone(&rest.passed);
        let Some(left) = left else {
            passed.store(true, Ordering::Relaxed);
            return Box::pin(self.inner.call(request));
        };
        let shows = left == rest.shown;
        let admission = if shows {
            &self.admission
        } else {
            &self.of_batch
        };
        let admission = Arc::clone(admission);
        rest.left = left;
        let call = Gate::new(self.ready(rest), admission).call(request);
        Box::pin(async move {
            let mut response = call.await?;
            if shows {
                response.extensions_mut().remove::<DenialOfCall>();
            }
            if !passed.load(Ordering::Relaxed) {
                response.extensions_mut().insert(Denied);
            }
            Ok(response)
        })
    }
}

impl<S: Clone, L> Clone for McpLimit<S, L> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            admission: Arc::clone(&self.admission),
            of_batch: Arc::clone(&self.of_batch),
            rest: self.rest.clone(),
        }
    }
}

impl<S: fmt::Debug, L> fmt::Debug for McpLimit<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// How many calls of a batch follow the last one that is not skipped. Its decision is the one that the response shows.
fn last_that_counts<B, L: Limiter>(
    request: Request<B>,
    calls: usize,
    admission: &Admission<L, McpRejection>,
) -> (Request<B>, usize) {
    let (mut parts, body) = request.into_parts();
    let shown = (0..calls).find(|after| {
        if let Some(batch) = parts.extensions.get_mut::<Calls>() {
            batch.at = Some(calls - 1 - after);
        }
        !admission.skips(&parts)
    });
    (Request::from_parts(parts, body), shown.unwrap_or_default())
}
