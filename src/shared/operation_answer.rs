//! Answers to an operation: the node's own, and the future of the store's.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::{decision::Decision, error::LimiterError, limiter::BoxedFuture};

/// The outcome of an operation on this node.
#[derive(Debug)]
pub(super) enum LocalAnswer {
    Decided(Decision),
    /// The node has decided, and sends a message to the store.
    Low(Decision),
    /// The store decides.
    Ask,
}

/// The decision of a [`RedisLimiter`](crate::RedisLimiter) or a
/// [`SharedLimiter`](super::SharedLimiter), ready at its deadline at the latest.
///
/// The operation has already been sent: the store does it even if this future is dropped.
pub struct RedisFuture(BoxedFuture);

impl RedisFuture {
    pub(super) fn new(
        answer: impl Future<Output = Result<Decision, LimiterError>> + Send + 'static,
    ) -> Self {
        Self(Box::pin(answer))
    }

    pub(super) fn into_boxed(self) -> BoxedFuture {
        self.0
    }
}

impl Future for RedisFuture {
    type Output = Result<Decision, LimiterError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for RedisFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFuture").finish_non_exhaustive()
    }
}
