//! `Pending`: a limiter's answer, now or later.

use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    task::{Context, Poll},
};

use crate::{decision::Decision, error::LimiterError};

/// A limiter's answer, or its future. `.await` works for both.
///
/// A caller that need not wait matches on it: a decision of this process is always ready.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "there is no third state")]
#[must_use = "the limiter's answer may be that the request is denied"]
pub enum Pending<F> {
    /// The answer.
    Ready(Result<Decision, LimiterError>),
    /// The future of the answer. The operation may be in flight already, so dropping it does not mean that
    /// nothing is charged.
    Later(F),
}

/// The future of a limiter that never waits: a type without values.
///
/// A `Pending<Never>` is always [`Ready`](Pending::Ready):
///
/// ```
/// use tower_ratelimit::{Key, Limiter, LocalLimiter, Op, Quota, limiter::Pending};
///
/// let limiter = LocalLimiter::new(Quota::per_minute(1));
/// let Pending::Ready(answer) = limiter.apply(&Key::global(), Op::Acquire(1));
/// assert!(answer?.is_allowed());
/// # Ok::<(), tower_ratelimit::LimiterError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "it has no values")]
pub enum Never {}

impl Future for Never {
    type Output = Result<Decision, LimiterError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match *self {}
    }
}

impl<F> IntoFuture for Pending<F>
where
    F: Future<Output = Result<Decision, LimiterError>>,
{
    type Output = F::Output;
    type IntoFuture = PendingFuture<F>;

    fn into_future(self) -> PendingFuture<F> {
        match self {
            Self::Ready(answer) => PendingFuture {
                state: State::Ready {
                    answer: Some(answer),
                },
            },
            Self::Later(future) => PendingFuture {
                state: State::Later { future },
            },
        }
    }
}

pin_project_lite::pin_project! {
    /// The future of a [`Pending`].
    pub struct PendingFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project_lite::pin_project! {
    #[project = StateProjection]
    enum State<F> {
        Ready { answer: Option<Result<Decision, LimiterError>> },
        Later { #[pin] future: F },
    }
}

impl<F> Future for PendingFuture<F>
where
    F: Future<Output = Result<Decision, LimiterError>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.project().state.project() {
            StateProjection::Ready { answer } => {
                Poll::Ready(answer.take().expect("polled after it was ready"))
            }
            StateProjection::Later { future } => future.poll(cx),
        }
    }
}

impl<F> fmt::Debug for PendingFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingFuture").finish_non_exhaustive()
    }
}
