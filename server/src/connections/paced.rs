//! The pace of a connection: how long its peer may take to send a header.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use axum::response::Response;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use super::HEADER_TIME;

/// The first bytes of a client that speaks HTTP/2.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The requests of a connection.
#[derive(Debug, Default)]
pub(super) struct Pace {
    begun: AtomicUsize,
    under_way: AtomicUsize,
}

impl Pace {
    /// The answer to a request, which is under way until its body has ended.
    pub(super) fn begin<A, B>(
        self: &Arc<Self>,
        answer: A,
    ) -> impl Future<Output = Response<PacedBody<B>>> + use<A, B>
    where
        A: Future<Output = Response<B>>,
    {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let under_way = UnderWay(Arc::clone(self));
        async move {
            let response = answer.await;
            let is_tunnel = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            if is_tunnel {
                // It never comes back to requests, and may be silent for as long as it likes.
                under_way.0.under_way.fetch_add(1, Ordering::Relaxed);
            }
            response.map(|body| PacedBody {
                body,
                _under_way: under_way,
            })
        }
    }
}

struct UnderWay(Arc<Pace>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

pin_project_lite::pin_project! {
    /// The body of a response.
    pub(super) struct PacedBody<B> {
        #[pin]
        body: B,
        _under_way: UnderWay,
    }
}

impl<B: Body> Body for PacedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that fails when its peer takes too long to send a header. It is idle in between for as long as its
/// server likes.
pub(super) struct Paced<I> {
    io: I,
    /// The bytes that were read to see what the peer speaks, and how many of them were read again.
    first: Vec<u8>,
    again: usize,
    pace: Option<Arc<Pace>>,
    /// Until when the header has to be there that has begun after so many requests.
    limit: Option<(Instant, usize)>,
    /// Made once: it is set again for each limit.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<I: AsyncRead + Unpin> Paced<I> {
    pub(super) const fn new(io: I, pace: Arc<Pace>) -> Self {
        Self {
            io,
            first: Vec::new(),
            again: 0,
            pace: Some(pace),
            limit: None,
            timer: None,
        }
    }

    /// The same for a peer whose protocol has limits of its own.
    pub(super) fn without_limits(self) -> Self {
        Self { pace: None, ..self }
    }

    /// Whether the peer speaks HTTP/2: it begins with words that no request of HTTP/1 has.
    pub(super) async fn is_http2(&mut self) -> io::Result<bool> {
        while self.first.len() < PREFACE.len() {
            let mut bytes = [0; PREFACE.len()];
            let left = PREFACE.len() - self.first.len();
            let read = self.io.read(&mut bytes[..left]).await?;
            self.first.extend(&bytes[..read]);
            if read == 0 || !PREFACE.starts_with(&self.first) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The number of requests so far, if the next thing to come is a header.
    fn awaits(&self) -> Option<usize> {
        let pace = self.pace.as_ref()?;
        let is_idle = pace.under_way.load(Ordering::Relaxed) == 0;
        is_idle.then(|| pace.begun.load(Ordering::Relaxed))
    }

    /// Ready when the peer took too long.
    fn poll_limit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let awaits = self.awaits();
        let limit = self.limit.filter(|(_, begun)| awaits == Some(*begun));
        let Some((limit, _)) = limit else {
            return Poll::Pending;
        };
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(limit)));
        if timer.deadline() != limit {
            timer.as_mut().reset(limit);
        }
        timer.as_mut().poll(cx)
    }

    /// Notes that something was read: of the next header, if there is no request.
    fn note(&mut self) {
        let Some(begun) = self.awaits() else {
            return;
        };
        if self.limit.is_none_or(|(_, before)| before != begun) {
            self.limit = Some((Instant::now() + HEADER_TIME, begun));
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Paced<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(left) = this.first.get(this.again..).filter(|left| !left.is_empty()) {
            let read = left.len().min(buffer.remaining());
            buffer.put_slice(&left[..read]);
            this.again += read;
            this.note();
            return Poll::Ready(Ok(()));
        }
        match Pin::new(&mut this.io).poll_read(cx, buffer) {
            Poll::Ready(read) => {
                this.note();
                Poll::Ready(read)
            }
            Poll::Pending => {
                ready!(this.poll_limit(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Paced<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
