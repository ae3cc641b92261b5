//! The future of an answer that has to be waited for.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::{decision::Decision, error::LimiterError};

/// The answer of a [`RedisLimiter`](super::RedisLimiter) or a
/// [`SharedLimiter`](super::SharedLimiter), no later than its deadline.
///
/// The operation is on its way already. When this is dropped it is done all the same.
pub struct RedisFuture(Pin<Box<dyn Future<Output = Result<Decision, LimiterError>> + Send>>);

impl RedisFuture {
    pub(super) fn new(
        answer: impl Future<Output = Result<Decision, LimiterError>> + Send + 'static,
    ) -> Self {
        Self(Box::pin(answer))
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
