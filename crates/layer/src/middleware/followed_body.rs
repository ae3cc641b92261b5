//! The body of a response that something follows until it ends: permits of the request, a charge by what passes, or both.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use tower_ratelimit_core::reject::RejectionBody;

pub(crate) type PolledFrame<D, E> = Poll<Option<Result<Frame<D>, E>>>;

pub type BoxError = Box<dyn Error + Send + Sync>;

/// An admission whose responses' bodies are followed.
#[derive(Debug, Clone)]
pub struct Following<A>(pub(crate) A);

pin_project_lite::pin_project! {
    /// The body of a response, or of an upload, that is followed until it ends or is dropped. Frames, boundaries and trailers are the inner
    /// body's.
    #[derive(Default)]
    pub struct Followed<B, F> {
        #[pin]
        inner: B,
        follow: F,
    }
}

/// A follower of a body; dropped after it.
pub trait Follow<B: Body> {
    type Error;

    fn poll_frame(
        &mut self,
        inner: Pin<&mut B>,
        cx: &mut Context<'_>,
    ) -> PolledFrame<B::Data, Self::Error>;

    /// The body is complete.
    fn complete(&mut self);

    /// Whether nothing follows the body, or no longer.
    fn is_over(&self) -> bool;

    fn is_end_stream(&self, inner: &B) -> bool {
        inner.is_end_stream()
    }

    fn size_hint(&self, inner: &B) -> SizeHint {
        inner.size_hint()
    }
}

impl<B, F> Followed<B, F> {
    /// The inner service's body.
    pub const fn get_ref(&self) -> &B {
        &self.inner
    }
}

impl<B: Body, F: Follow<B>> Followed<B, F> {
    /// An empty body is complete at once, since it may never be polled.
    #[doc(hidden)]
    pub fn new(inner: B, mut follow: F) -> Self {
        if inner.is_end_stream() {
            follow.complete();
        }
        Self { inner, follow }
    }

    /// The inner service's body, if nothing follows it: it holds no permit, and no charge depends on it.
    ///
    /// # Errors
    ///
    /// This body, if something follows it.
    pub fn try_into_inner(self) -> Result<B, Self> {
        if self.follow.is_over() {
            Ok(self.inner)
        } else {
            Err(self)
        }
    }
}

impl<B: Body, F: Follow<B>> Body for Followed<B, F> {
    type Data = B::Data;
    type Error = F::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, F::Error>>> {
        let this = self.project();
        this.follow.poll_frame(this.inner, cx)
    }

    fn is_end_stream(&self) -> bool {
        self.follow.is_end_stream(&self.inner)
    }

    fn size_hint(&self) -> SizeHint {
        self.follow.size_hint(&self.inner)
    }
}

/// A rejection by an outer layer, which nothing follows.
impl<B: RejectionBody, F: Default> RejectionBody for Followed<B, F> {
    fn from_bytes(bytes: Bytes) -> Self {
        Self {
            inner: B::from_bytes(bytes),
            follow: F::default(),
        }
    }

    fn empty() -> Self {
        Self {
            inner: B::empty(),
            follow: F::default(),
        }
    }
}

impl<B: fmt::Debug, F> fmt::Debug for Followed<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Followed")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
