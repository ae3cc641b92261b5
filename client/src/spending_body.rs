//! The body of a response, in which a reader finds the tokens that it has used.

use std::{
    fmt,
    io::IoSlice,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
};

use bytes::Buf;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tower_ratelimit::spend::{SpendReader, Tokens};

use crate::{pacer_state::PacerState, sent_request::SentRequest};

/// The parts of a frame's data that are read without an allocation; most data is one.
const PARTS: usize = 16;

/// The request of a response, and the tokens of that so far. When it is dropped, the request is settled: at
/// the end of the body, or where it breaks off.
pub(crate) struct ResponseMeter<R: SpendReader> {
    pub(crate) reader: R,
    pub(crate) tokens: Tokens,
    pub(crate) sent: Box<SentRequest>,
    pub(crate) pacer: Arc<PacerState>,
}

/// A meter, without the type of its reader.
pub(crate) trait ReadsBody: Send {
    fn data(&mut self, data: &[u8]);

    fn trailers(&mut self, trailers: &HeaderMap);
}

impl<R: SpendReader> ReadsBody for ResponseMeter<R> {
    fn data(&mut self, data: &[u8]) {
        self.reader.data(data, &mut self.tokens);
    }

    fn trailers(&mut self, trailers: &HeaderMap) {
        self.reader.trailers(trailers, &mut self.tokens);
    }
}

impl<R: SpendReader> ResponseMeter<R> {
    fn end(&mut self) {
        self.reader.end(&mut self.tokens);
        // Without a usage the amount stays charged.
        if self.tokens.is_reported() {
            self.sent.settle(&self.pacer, &self.tokens);
        }
    }
}

impl<R: SpendReader> Drop for ResponseMeter<R> {
    fn drop(&mut self) {
        if thread::panicking() {
            // Code of the user that panics a second time would end the process.
            let _ = catch_unwind(AssertUnwindSafe(|| self.end()));
        } else {
            self.end();
        }
    }
}

pin_project_lite::pin_project! {
    /// The body of a response, whose tokens are read as it passes. Frames, boundaries and trailers are the
    /// inner body's.
    ///
    /// A body that is dropped is settled by what it has reported so far. One that reports no usage leaves
    /// the whole amount charged.
    pub struct SpendingBody<B> {
        #[pin]
        inner: B,
        meter: Option<Box<dyn ReadsBody>>,
    }
}

impl<B: Body> SpendingBody<B> {
    /// An empty body is settled at once, since it may never be polled.
    pub(crate) fn new(inner: B, meter: Option<Box<dyn ReadsBody>>) -> Self {
        let meter = meter.filter(|_| !inner.is_end_stream());
        Self { inner, meter }
    }
}

impl<B: Body> Body for SpendingBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        if let (Some(Ok(frame)), Some(meter)) = (&frame, &mut *this.meter) {
            read(frame, &mut **meter);
        }
        let is_last = match &frame {
            Some(Ok(frame)) => frame.is_trailers() || this.inner.is_end_stream(),
            None | Some(Err(_)) => true,
        };
        // A caller that checks `is_end_stream` does not poll again after the last frame.
        if is_last {
            *this.meter = None;
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

/// Reads a frame that passes.
fn read<D: Buf>(frame: &Frame<D>, meter: &mut dyn ReadsBody) {
    if let Some(data) = frame.data_ref() {
        let mut few = [IoSlice::new(&[]); PARTS];
        let mut count = data.chunks_vectored(&mut few);
        let mut many = Vec::new();
        let mut room = PARTS;
        while count == room {
            room *= 2;
            many.resize(room, IoSlice::new(&[]));
            count = data.chunks_vectored(&mut many);
        }
        let parts = if room == PARTS {
            &few[..count]
        } else {
            &many[..count]
        };
        parts.iter().for_each(|part| meter.data(part));
    } else if let Some(trailers) = frame.trailers_ref() {
        meter.trailers(trailers);
    }
}

impl<B: fmt::Debug> fmt::Debug for SpendingBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpendingBody")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
