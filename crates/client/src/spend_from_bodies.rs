//! Clients whose requests are settled by the bodies of their responses, in which a reader finds the tokens used.

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
use http::{Request, Response, response::Parts};
use http_body::{Body, Frame, SizeHint};
use tower_ratelimit::spend::{SpendReader, SpendReaders, Tokens};
use tower_service::Service;

use crate::{
    pacer_state::PacerState,
    permission_to_send::SentRequest,
    replayable_body::{ByReplay, CopyBody},
    request_with_retries::BoxError,
    service::{Paced, PacedFuture},
};

/// The parts of a frame's data that are read without an allocation; most data is one.
const PARTS: usize = 16;

/// The request of a response, and the tokens of that so far. When it is dropped, the request is settled: at
/// the end of the body, or where it breaks off.
struct ResponseMeter {
    reader: Box<dyn SpendReader>,
    tokens: Tokens,
    sent: Box<SentRequest>,
    pacer: Arc<PacerState>,
}

impl ResponseMeter {
    fn end(&mut self) {
        self.reader.end(&mut self.tokens);
        // Without a usage the amount stays charged.
        if self.tokens.is_reported() {
            self.sent.settle(&self.pacer, &self.tokens);
        }
    }
}

impl Drop for ResponseMeter {
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
        meter: Option<Box<ResponseMeter>>,
    }
}

impl<B: Body> SpendingBody<B> {
    /// An empty body is settled at once, since it may never be polled.
    fn new(inner: B, meter: Option<Box<ResponseMeter>>) -> Self {
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
            read(frame, meter);
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
fn read<D: Buf>(frame: &Frame<D>, meter: &mut ResponseMeter) {
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
        let ResponseMeter { reader, tokens, .. } = meter;
        parts.iter().for_each(|part| reader.data(part, tokens));
    } else if let Some(trailers) = frame.trailers_ref() {
        meter.reader.trailers(trailers, &mut meter.tokens);
    }
}

impl<B: fmt::Debug> fmt::Debug for SpendingBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpendingBody")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// A client whose requests wait for their turn, and are settled by the tokens in the bodies of their
/// responses. Made by [`PacerLayer::spending`](crate::PacerLayer::spending).
pub struct SpendingPaced<S, R, P = ByReplay> {
    paced: Paced<S, P>,
    readers: Arc<R>,
}

impl<S, R, P> SpendingPaced<S, R, P> {
    pub(crate) const fn new(paced: Paced<S, P>, readers: Arc<R>) -> Self {
        Self { paced, readers }
    }

    /// The client that waits, without the readers.
    pub const fn get_ref(&self) -> &Paced<S, P> {
        &self.paced
    }
}

impl<S, R, P, B, D> Service<Request<B>> for SpendingPaced<S, R, P>
where
    S: Service<Request<B>, Response = Response<D>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    P: CopyBody<B>,
    B: Send + 'static,
    D: Body + Send + 'static,
    R: SpendReaders,
{
    type Response = Response<SpendingBody<D>>;
    type Error = BoxError;
    type Future = PacedFuture<Response<SpendingBody<D>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let readers = Arc::clone(&self.readers);
        let pacer = Arc::clone(self.paced.pacer().state());
        let calls = Arc::clone(&self.paced.calls);
        let mut outgoing = self.paced.outgoing(request);
        PacedFuture::new(async move {
            outgoing.keep(&calls).await?;
            let mut open = None;
            let response = calls.call(&mut outgoing, &mut open).await;
            let response = response.map_err(BoxError::from)?;
            let (parts, body) = response.into_parts();
            let meter = open.and_then(|sent| meter(&*readers, pacer, &parts, sent));
            let body = SpendingBody::new(body, meter);
            Ok(Response::from_parts(parts, body))
        })
    }
}

/// The meter of a response; `None` if nothing in it can be read.
fn meter<R: SpendReaders>(
    readers: &R,
    pacer: Arc<PacerState>,
    response: &Parts,
    sent: Box<SentRequest>,
) -> Option<Box<ResponseMeter>> {
    let mut tokens = Tokens::default();
    let reader = readers.reader(response, &mut tokens)?;
    Some(Box::new(ResponseMeter {
        reader: Box::new(reader),
        tokens,
        sent,
        pacer,
    }))
}

impl<S: Clone, R, P: Clone> Clone for SpendingPaced<S, R, P> {
    fn clone(&self) -> Self {
        Self {
            paced: self.paced.clone(),
            readers: Arc::clone(&self.readers),
        }
    }
}

impl<S: fmt::Debug, R, P> fmt::Debug for SpendingPaced<S, R, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpendingPaced")
            .field("paced", &self.paced)
            .finish_non_exhaustive()
    }
}
