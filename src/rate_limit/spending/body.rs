//! The body of a response whose units are charged as it passes.

use std::{
    error::Error,
    fmt,
    io::IoSlice,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use crate::reject::RejectionBody;

/// Any error of a body.
pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// The parts of a frame's data that are read; most data is one.
const PARTS: usize = 16;

/// The account of a stream, without its types.
pub(super) trait Meter: Send {
    /// Reads a part of the data that passes.
    fn data(&mut self, data: &[u8]);

    /// Charges what the data so far has used. Starts a question if none is under way.
    fn charge(&mut self);

    fn trailers(&mut self, trailers: &HeaderMap);

    /// Continues the question that is under way. Pending while the last frame waits for its charge.
    fn poll_charged(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SpendExhausted>>;

    /// Ends the account. Called once.
    fn close(self: Box<Self>, end: StreamEnd);
}

/// The end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The body has ended.
    Complete,
    /// The body failed or was dropped.
    BrokenOff,
    /// Nothing was left for the last frame.
    Exhausted,
}

/// The account of a stream, which ends with it at the latest.
struct OpenMeter(Option<Box<dyn Meter>>);

impl OpenMeter {
    fn close(&mut self, end: StreamEnd) {
        if let Some(meter) = self.0.take() {
            meter.close(end);
        }
    }

    /// Ends the account with the end of the body, or with its error. A frame passes that is not counted.
    fn end_with<D, E: Into<BoxError>>(
        &mut self,
        frame: Option<Result<Frame<D>, E>>,
    ) -> Option<Result<Frame<D>, BoxError>> {
        match &frame {
            None => self.close(StreamEnd::Complete),
            Some(Err(_)) => self.close(StreamEnd::BrokenOff),
            Some(Ok(_)) => {}
        }
        frame.map(|frame| frame.map_err(Into::into))
    }
}

impl Drop for OpenMeter {
    fn drop(&mut self) {
        self.close(StreamEnd::BrokenOff);
    }
}

pin_project_lite::pin_project! {
    /// The body of a response, whose units are charged as it passes. Frames, boundaries and trailers are the inner
    /// body's.
    ///
    /// A body that is dropped is charged by what it has used so far.
    pub struct SpendBody<B: Body> {
        #[pin]
        inner: B,
        meter: OpenMeter,
        // A frame that waits until it is charged.
        held: Option<Frame<B::Data>>,
        // An error has ended the stream.
        is_exhausted: bool,
    }
}

/// The error in place of a frame that finds no units left, see [`Exhausted::End`](super::Exhausted::End).
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

impl<B: Body> SpendBody<B> {
    /// The inner service's body.
    pub const fn get_ref(&self) -> &B {
        &self.inner
    }

    /// The inner service's body, if no charge follows this one.
    ///
    /// # Errors
    ///
    /// This body, if a charge follows it.
    pub fn try_into_inner(self) -> Result<B, Self> {
        if self.meter.0.is_none() && self.held.is_none() && !self.is_exhausted {
            Ok(self.inner)
        } else {
            Err(self)
        }
    }

    /// A body that is not counted.
    pub(super) const fn uncounted(inner: B) -> Self {
        Self {
            inner,
            meter: OpenMeter(None),
            held: None,
            is_exhausted: false,
        }
    }

    /// An empty body is charged at once, since it may never be polled.
    pub(super) fn new(inner: B, meter: Box<dyn Meter>) -> Self {
        let mut meter = OpenMeter(Some(meter));
        if inner.is_end_stream() {
            meter.close(StreamEnd::Complete);
        }
        Self {
            inner,
            meter,
            held: None,
            is_exhausted: false,
        }
    }
}

/// Reads the parts of a frame's data.
pub(super) fn for_each_part(data: &impl Buf, mut read: impl FnMut(&[u8])) {
    let mut parts = [IoSlice::new(&[]); PARTS];
    let count = data.chunks_vectored(&mut parts);
    parts[..count].iter().for_each(|part| read(part));
}

/// Reads a frame that passes.
fn read<D: Buf>(frame: &Frame<D>, meter: &mut dyn Meter) {
    if let Some(data) = frame.data_ref() {
        for_each_part(data, |part| meter.data(part));
        meter.charge();
    } else if let Some(trailers) = frame.trailers_ref() {
        meter.trailers(trailers);
    }
}

impl<B: Body<Error: Into<BoxError>>> Body for SpendBody<B> {
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        if self.is_exhausted {
            return Poll::Ready(None);
        }
        let mut this = self.project();
        if this.held.is_none() {
            let frame = ready!(this.inner.as_mut().poll_frame(cx));
            match (frame, &mut this.meter.0) {
                (Some(Ok(frame)), Some(meter)) => {
                    read(&frame, &mut **meter);
                    *this.held = Some(frame);
                }
                (frame, _) => return Poll::Ready(this.meter.end_with(frame)),
            }
        }
        if let Some(meter) = &mut this.meter.0
            && let Err(error) = ready!(meter.poll_charged(cx))
        {
            *this.held = None;
            *this.is_exhausted = true;
            this.meter.close(StreamEnd::Exhausted);
            return Poll::Ready(Some(Err(error.into())));
        }
        let frame = this.held.take();
        // A caller that checks `is_end_stream` does not poll again after the last frame, nor after trailers.
        if this.inner.is_end_stream() || frame.as_ref().is_some_and(Frame::is_trailers) {
            this.meter.close(StreamEnd::Complete);
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.is_exhausted || (self.held.is_none() && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_exhausted {
            return SizeHint::with_exact(0);
        }
        let mut hint = self.inner.size_hint();
        let held = self.held.as_ref().and_then(Frame::data_ref);
        let held = held.map_or(0, |data| data.remaining() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint.set_lower(hint.lower().saturating_add(held));
        hint
    }
}

/// A rejection by an outer layer, which has used nothing.
impl<B: RejectionBody + Body> RejectionBody for SpendBody<B> {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::uncounted(B::from_bytes(bytes))
    }

    fn empty() -> Self {
        Self::uncounted(B::empty())
    }
}

impl<B: Body + Default> Default for SpendBody<B> {
    fn default() -> Self {
        Self::uncounted(B::default())
    }
}

impl<B: Body + fmt::Debug> fmt::Debug for SpendBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpendBody")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
