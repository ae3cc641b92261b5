//! The bodies whose units are charged as they pass: of responses, and of requests behind an [`UploadLayer`].

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use bytes::Buf;
use http::{HeaderMap, Request};
use http_body::{Body, Frame, SizeHint};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    middleware::wrapped_bodies::{BoxError, Follow, Followed, PolledFrame, for_each_part},
    rate_limit::{
        reservation::{background::spawn, correct_at_drop},
        spent::Spent,
    },
};

/// The body of a response, whose units are charged as it passes. Frames, boundaries and trailers are the inner body's.
///
/// A body that is dropped is charged by what it has used so far.
pub type SpendBody<B> = Followed<B, Billed<<B as Body>::Data>>;

/// The bill of a stream, without its types.
pub(super) trait StreamBill: Send {
    /// Reads a part of the data that passes.
    fn data(&mut self, data: &[u8]);

    /// Counts bytes that passed unread. Stops reading, unless bytes are all that is read.
    fn lose(&mut self, bytes: usize);

    /// Charges what the data so far has used. Starts a question if none is under way.
    fn charge(&mut self);

    fn trailers(&mut self, trailers: &HeaderMap);

    /// Continues the question that is under way. Pending while the last frame waits for its charge.
    fn poll_charged(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SpendExhausted>>;

    fn settle(self: Box<Self>, end: StreamEnd) -> BillEnd;
}

pub(super) type BillEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    Complete,
    /// The body failed or was dropped.
    BrokenOff,
    /// Nothing was left for the last frame.
    Exhausted,
}

struct OpenBill(Option<Box<dyn StreamBill>>);

impl OpenBill {
    /// Ends the bill. Nothing waits for it: if the limiter does not answer at once, it continues in the background.
    fn settle(&mut self, end: StreamEnd) {
        let mut cx = Context::from_waker(Waker::noop());
        if let Some(mut settlement) = self.0.take().map(|bill| bill.settle(end))
            && settlement.as_mut().poll(&mut cx).is_pending()
        {
            spawn(settlement);
        }
    }
}

impl Drop for OpenBill {
    fn drop(&mut self) {
        correct_at_drop(|| self.settle(StreamEnd::BrokenOff));
    }
}

/// A charge by what passes.
pub struct Billed<D>(Stream<D>);

enum Stream<D> {
    /// None, or one that has ended.
    Uncharged,
    Passing {
        bill: OpenBill,
        /// A frame that waits until it is charged.
        held: Option<Frame<D>>,
    },
    Exhausted,
}

impl<D> Billed<D> {
    pub(super) fn new(bill: Option<Box<dyn StreamBill>>) -> Self {
        Self(bill.map_or(Stream::Uncharged, |bill| Stream::Passing {
            bill: OpenBill(Some(bill)),
            held: None,
        }))
    }

    fn end(&mut self, end: StreamEnd) {
        if let Stream::Passing { bill, .. } = &mut self.0 {
            bill.settle(end);
            self.0 = match end {
                StreamEnd::Exhausted => Stream::Exhausted,
                StreamEnd::Complete | StreamEnd::BrokenOff => Stream::Uncharged,
            };
        }
    }

    fn poll_passing<B: Body<Data = D, Error: Into<BoxError>>>(
        &mut self,
        mut inner: Pin<&mut B>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<D>, BoxError>>>
    where
        D: Buf,
    {
        let Stream::Passing {
            bill: OpenBill(Some(bill)),
            held,
        } = &mut self.0
        else {
            return Poll::Ready(None);
        };
        if held.is_none() {
            match ready!(inner.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => {
                    read(&frame, &mut **bill);
                    *held = Some(frame);
                }
                Some(Err(error)) => {
                    self.end(StreamEnd::BrokenOff);
                    return Poll::Ready(Some(Err(error.into())));
                }
                None => {
                    self.end(StreamEnd::Complete);
                    return Poll::Ready(None);
                }
            }
        }
        if let Err(error) = ready!(bill.poll_charged(cx)) {
            self.end(StreamEnd::Exhausted);
            return Poll::Ready(Some(Err(error.into())));
        }
        let frame = held.take();
        // A caller that checks `is_end_stream` does not poll again after the last frame, nor after trailers.
        if frame.as_ref().is_some_and(Frame::is_trailers) || inner.is_end_stream() {
            self.end(StreamEnd::Complete);
        }
        Poll::Ready(frame.map(Ok))
    }
}

impl<D> Default for Billed<D> {
    fn default() -> Self {
        Self(Stream::Uncharged)
    }
}

impl<D> fmt::Debug for Billed<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Billed").finish_non_exhaustive()
    }
}

/// The error in place of a frame that finds no units left, see [`Exhausted::End`](crate::rate_limit::Exhausted::End).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpendExhausted(());

impl SpendExhausted {
    pub(super) const fn new() -> Self {
        Self(())
    }
}

impl fmt::Display for SpendExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the response has used all units that its limit has")
    }
}

impl Error for SpendExhausted {}

fn read<D: Buf>(frame: &Frame<D>, bill: &mut dyn StreamBill) {
    if let Some(data) = frame.data_ref() {
        let unread = for_each_part(data, |part| bill.data(part));
        if unread > 0 {
            bill.lose(unread);
        }
        bill.charge();
    } else if let Some(trailers) = frame.trailers_ref() {
        bill.trailers(trailers);
    }
}

impl<B: Body<Error: Into<BoxError>>> Follow<B> for Billed<B::Data> {
    type Error = BoxError;

    fn poll_frame(
        &mut self,
        inner: Pin<&mut B>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        match self.0 {
            Stream::Uncharged => {
                let frame = ready!(inner.poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Stream::Passing { .. } => self.poll_passing(inner, cx),
            Stream::Exhausted => Poll::Ready(None),
        }
    }

    fn complete(&mut self) {
        self.end(StreamEnd::Complete);
    }

    fn is_over(&self) -> bool {
        matches!(self.0, Stream::Uncharged)
    }

    fn is_end_stream(&self, inner: &B) -> bool {
        match self.0 {
            Stream::Exhausted => true,
            // A frame follows the inner body's last one.
            Stream::Passing { held: Some(_), .. } => false,
            _ => inner.is_end_stream(),
        }
    }

    fn size_hint(&self, inner: &B) -> SizeHint {
        let held = match &self.0 {
            Stream::Exhausted => return SizeHint::with_exact(0),
            Stream::Passing { held, .. } => held.as_ref().and_then(Frame::data_ref),
            Stream::Uncharged => None,
        };
        let mut hint = inner.size_hint();
        let held = held.map_or(0, |data| data.remaining() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint.set_lower(hint.lower().saturating_add(held));
        hint
    }
}

/// Counts the bodies of requests while they pass, for a [`SpendLayer`](super::spend_layer::SpendLayer) outside that charges their
/// [`Bytes`](crate::spend::Bytes).
///
/// It stands inside of that layer, and gives requests a body of its own. Without it a request is charged the length that
/// it declares. With it a body is charged what has passed, beyond its reservation in steps, also if the client breaks off
/// before a response. An upload is not ended by [`Exhausted::End`](crate::rate_limit::Exhausted::End): what it uses is owed.
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
