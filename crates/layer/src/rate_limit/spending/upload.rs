//! The layer that counts the bodies of requests while they pass.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Buf;
use http::Request;
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::handle::Spent;
use crate::middleware::followed_body::{Follow, Followed, PolledFrame};

/// Counts the bodies of requests while they pass, for a [`SpendLayer`](super::SpendLayer) outside that charges their
/// [`Bytes`](crate::spend::Bytes).
///
/// It stands inside of that layer, and gives requests a body of its own. Without it a request is charged the length that
/// it declares. With it a body is charged what has passed, beyond its reservation in steps, also if the client breaks off
/// before a response. An upload is not ended by [`Exhausted::End`](super::Exhausted::End): what it uses is owed.
///
/// ```
/// use tower::ServiceBuilder;
/// use tower_ratelimit::{PeerIp, Quota, RateLimitLayer, rate_limit::UploadLayer, spend::Bytes};
///
/// let quota = Quota::per_minute(50_000_000).debt(50_000_000);
/// let layers = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(quota, PeerIp).spending(Bytes::both()))
///     .layer(UploadLayer);
/// # let _ = layers;
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[allow(clippy::exhaustive_structs, reason = "it has no settings")]
pub struct UploadLayer;

impl<S> Layer<S> for UploadLayer {
    type Service = UploadCount<S>;

    fn layer(&self, inner: S) -> UploadCount<S> {
        UploadCount { inner }
    }
}

/// A service whose requests' bodies are counted. Made by [`UploadLayer`].
#[derive(Debug, Clone)]
pub struct UploadCount<S> {
    inner: S,
}

impl<S> UploadCount<S> {
    crate::inner_service!(S);
}

impl<S: Service<Request<UploadBody<B>>>, B: Body> Service<Request<B>> for UploadCount<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let (head, body) = request.into_parts();
        let spent = head.extensions.get().and_then(Spent::begin_upload);
        let body = UploadBody::new(body, CountedUpload(spent));
        self.inner.call(Request::from_parts(head, body))
    }
}

/// The body of a request that is counted while it passes.
pub type UploadBody<B> = Followed<B, CountedUpload>;

/// The count of a request's body; `None` if its bytes are not charged.
#[derive(Debug)]
pub struct CountedUpload(Option<Spent>);

impl<B: Body> Follow<B> for CountedUpload {
    type Error = B::Error;

    fn poll_frame(
        &mut self,
        inner: Pin<&mut B>,
        cx: &mut Context<'_>,
    ) -> PolledFrame<B::Data, B::Error> {
        let frame = ready!(inner.poll_frame(cx));
        if let (Some(spent), Some(Ok(frame))) = (&self.0, &frame)
            && let Some(data) = frame.data_ref()
        {
            spent.upload(data.remaining() as u64);
        }
        Poll::Ready(frame)
    }

    fn complete(&mut self) {}

    fn is_over(&self) -> bool {
        self.0.is_none()
    }
}
