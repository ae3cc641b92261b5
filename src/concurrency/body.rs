//! The body of a response that counts as in flight, and the permits of its request.

#[cfg(feature = "rules")]
use std::{mem, sync::Arc};
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::in_flight::Permit;
use crate::reject::RejectionBody;

pin_project_lite::pin_project! {
    /// The body of a response, which counts as in flight until it ends or is dropped.
    #[derive(Debug, Default)]
    pub struct ConcurrencyBody<B> {
        #[pin]
        inner: B,
        permits: HeldPermits,
    }
}

impl<B> ConcurrencyBody<B> {
    /// The inner service's body.
    pub const fn get_ref(&self) -> &B {
        &self.inner
    }
}

impl<B: Body> ConcurrencyBody<B> {
    /// An empty body holds no permit, since it may never be polled.
    pub(crate) fn new(inner: B, permits: impl Into<HeldPermits>) -> Self {
        let mut permits = permits.into();
        if inner.is_end_stream() {
            permits.release();
        }
        Self { inner, permits }
    }

    /// The inner service's body, if this one holds no permit.
    ///
    /// # Errors
    ///
    /// This body, if it holds one.
    #[cfg(feature = "rules")]
    pub fn try_into_inner(self) -> Result<B, Self> {
        if self.permits.is_empty() {
            Ok(self.inner)
        } else {
            Err(self)
        }
    }
}

impl<B: Body> Body for ConcurrencyBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let mut inner = this.inner;
        let frame = ready!(inner.as_mut().poll_frame(cx));
        // A caller that checks `is_end_stream` does not poll again after the last frame.
        if !matches!(frame, Some(Ok(_))) || inner.is_end_stream() {
            this.permits.release();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A rejection by an outer layer, which holds no permit.
impl<B: RejectionBody> RejectionBody for ConcurrencyBody<B> {
    fn from_bytes(bytes: Bytes) -> Self {
        Self {
            inner: B::from_bytes(bytes),
            permits: HeldPermits::default(),
        }
    }

    fn empty() -> Self {
        Self {
            inner: B::empty(),
            permits: HeldPermits::default(),
        }
    }
}

/// The permits of a request that asks for an upgrade, in the extensions of the request.
///
/// A service that upgrades the connection keeps it until the connection ends, which is after the end of the response's
/// body. Clones hold the same permits.
#[cfg(feature = "rules")]
#[derive(Debug, Clone)]
pub struct RequestPermits {
    _permits: Arc<HeldPermits>,
}

/// The permits that a request holds; released when this is dropped. The first needs no heap.
#[derive(Debug, Default)]
pub(crate) struct HeldPermits {
    first: Option<Permit>,
    more: Vec<Permit>,
    /// The permits that an upgraded connection holds, too.
    #[cfg(feature = "rules")]
    shared: Option<RequestPermits>,
}

impl HeldPermits {
    #[cfg(feature = "rules")]
    pub(crate) fn push(&mut self, permit: Permit) {
        match &self.first {
            None => self.first = Some(permit),
            Some(_) => self.more.push(permit),
        }
    }

    #[cfg(feature = "rules")]
    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_none() && self.shared.is_none()
    }

    #[cfg(feature = "rules")]
    pub(crate) fn share(&mut self) -> RequestPermits {
        let permits = RequestPermits {
            _permits: Arc::new(mem::take(self)),
        };
        self.shared = Some(permits.clone());
        permits
    }

    pub(crate) fn release(&mut self) {
        self.first = None;
        self.more.clear();
        #[cfg(feature = "rules")]
        self.shared.take();
    }
}

impl From<Option<Permit>> for HeldPermits {
    fn from(first: Option<Permit>) -> Self {
        Self {
            first,
            ..Self::default()
        }
    }
}
