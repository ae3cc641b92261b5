//! The body of a response that counts as in flight, and the permits of its request.

use std::sync::Arc;
use std::{
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body::{Body, Frame};

use super::in_flight::Permit;
pub(crate) use tower_ratelimit_layer::middleware::body::{Follow, Followed};

/// The body of a response, which counts as in flight until it ends or is dropped.
pub type ConcurrencyBody<B> = Followed<B, HeldPermits>;

impl<B: Body> Follow<B> for HeldPermits {
    type Error = B::Error;

    fn poll_frame(
        &mut self,
        mut inner: Pin<&mut B>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(inner.as_mut().poll_frame(cx));
        // A caller that checks `is_end_stream` does not poll again after the last frame.
        if !matches!(frame, Some(Ok(_))) || inner.is_end_stream() {
            self.release();
        }
        Poll::Ready(frame)
    }

    fn complete(&mut self) {
        self.release();
    }

    fn is_over(&self) -> bool {
        self.is_empty()
    }
}

/// The permits of a request for an upgrade, in the extensions of the request.
///
/// A service that upgrades the connection keeps it until the connection ends, which is after the end of the response's
/// body. Clones hold the same permits.
#[derive(Debug, Clone)]
pub struct RequestPermits {
    _permits: Arc<HeldPermits>,
}

/// The permits that a request holds; released when this is dropped. The first needs no heap.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct HeldPermits {
    first: Option<Permit>,
    more: Option<Box<Self>>,
    /// The permits that an upgraded connection holds, too.
    shared: Option<RequestPermits>,
}

impl HeldPermits {
    #[doc(hidden)]
    pub fn push(&mut self, permit: Permit) {
        match &self.first {
            None => self.first = Some(permit),
            Some(_) => self.more.get_or_insert_default().push(permit),
        }
    }

    #[doc(hidden)]
    pub const fn is_empty(&self) -> bool {
        if self.shared.is_some() {
            return false;
        }
        self.first.is_none()
    }

    #[doc(hidden)]
    pub fn share(&mut self) -> RequestPermits {
        let permits = RequestPermits {
            _permits: Arc::new(mem::take(self)),
        };
        self.shared = Some(permits.clone());
        permits
    }

    #[doc(hidden)]
    pub fn release(&mut self) {
        drop(mem::take(self));
    }
}

impl From<Option<Permit>> for HeldPermits {
    fn from(first: Option<Permit>) -> Self {
        Self {
            first,
            more: None,
            shared: None,
        }
    }
}
