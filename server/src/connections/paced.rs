//! The pace of a connection: how long its peer may take to send a header, and to read an answer.

use std::{
    future::{Future, pending},
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::response::Response;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    time::sleep,
};

use super::{room::Slot, standing::Standing};

/// How long a request's header may take from its first byte, and a connection until then when it is new.
pub(super) const HEADER_TIME: Duration = Duration::from_secs(10);

/// How long no part of an answer may be read that is there.
const UNREAD_TIME: Duration = Duration::from_secs(60);

/// The first bytes of a client that speaks HTTP/2.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How often the time is looked at: a clock that is read for every request would cost as much as a decision.
const TICK: Duration = Duration::from_millis(2_500);

/// The thing that a connection waits for, and how many ticks it has waited.
#[derive(Debug)]
pub(super) struct Pace {
    /// How long the peer may be silent between requests.
    idle: Duration,
    standing: Arc<Standing>,
    phase: AtomicU8,
    ticks: AtomicU32,
    /// The requests that are under way.
    requests: AtomicU32,
    /// The answers of which a part was handed over, and no other was asked for.
    unread: AtomicU32,
    /// The ticks since a part of an answer was handed over.
    unread_ticks: AtomicU32,
}

/// The peer may be silent.
const IDLE: u8 = 0;
/// A header has begun.
const HEADER: u8 = 1;
/// A request is under way.
const BUSY: u8 = 2;

impl Pace {
    pub(super) const fn new(idle: Duration, standing: Arc<Standing>) -> Self {
        Self {
            idle,
            standing,
            phase: AtomicU8::new(IDLE),
            ticks: AtomicU32::new(0),
            requests: AtomicU32::new(0),
            unread: AtomicU32::new(0),
            unread_ticks: AtomicU32::new(0),
        }
    }

    fn enter(&self, phase: u8) {
        self.ticks.store(0, Ordering::Relaxed);
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Notes that something was read.
    fn note(&self) {
        if self.phase.load(Ordering::Relaxed) == IDLE {
            self.enter(HEADER);
        }
    }

    /// The answer to a request, which is under way until its body has ended.
    pub(super) fn begin<A, B>(
        self: &Arc<Self>,
        answer: A,
    ) -> impl Future<Output = Response<PacedBody<B>>> + use<A, B>
    where
        A: Future<Output = Response<B>>,
    {
        let (under_way, is_served) = self.admit();
        async move {
            if !is_served {
                pending::<()>().await;
            }
            let response = answer.await;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                under_way.pace.standing.keep();
            }
            response.map(|body| {
                let mut under_way = under_way;
                under_way.hand_over();
                PacedBody { body, under_way }
            })
        }
    }

    /// Has the connection count as busy until this is dropped.
    pub(super) fn hold(self: &Arc<Self>) -> AnswerUnderWay {
        self.admit().0
    }

    /// The hold on the connection, and whether it still serves requests.
    fn admit(self: &Arc<Self>) -> (AnswerUnderWay, bool) {
        let is_served = self.standing.begin();
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.enter(BUSY);
        let under_way = AnswerUnderWay {
            pace: Arc::clone(self),
            is_unread: false,
        };
        (under_way, is_served)
    }

    /// Whether an answer was not read for too long.
    fn is_unread(&self) -> bool {
        if self.unread.load(Ordering::Relaxed) == 0 {
            self.unread_ticks.store(0, Ordering::Relaxed);
        }
        TICK * self.unread_ticks.fetch_add(1, Ordering::Relaxed) >= UNREAD_TIME
    }

    /// Waits until the peer has taken too long.
    pub(super) async fn is_over(&self) {
        loop {
            sleep(TICK).await;
            // The first of the ticks was a part of one.
            let time = TICK * self.ticks.fetch_add(1, Ordering::Relaxed);
            match self.phase.load(Ordering::Relaxed) {
                IDLE if time >= self.idle => return,
                HEADER if time >= HEADER_TIME => return,
                _ if self.is_unread() => return,
                _ => {}
            }
        }
    }
}

/// A request that is under way: its body is read, or its answer sent.
pub(super) struct AnswerUnderWay {
    pace: Arc<Pace>,
    is_unread: bool,
}

impl AnswerUnderWay {
    /// Notes that a part of the answer was handed over: the peer has to read before another is asked for.
    fn hand_over(&mut self) {
        self.pace.unread_ticks.store(0, Ordering::Relaxed);
        if !self.is_unread {
            self.is_unread = true;
            self.pace.unread.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that another part was asked for.
    fn ask(&mut self) {
        if self.is_unread {
            self.is_unread = false;
            self.pace.unread.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for AnswerUnderWay {
    fn drop(&mut self) {
        self.ask();
        self.pace.standing.end();
        if self.pace.requests.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.pace.enter(IDLE);
        }
    }
}

pin_project_lite::pin_project! {
    /// The body of a response.
    pub(super) struct PacedBody<B> {
        #[pin]
        body: B,
        under_way: AnswerUnderWay,
    }
}

impl<B: Body> Body for PacedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = this.body.poll_frame(cx);
        match frame {
            Poll::Ready(_) => this.under_way.hand_over(),
            Poll::Pending => this.under_way.ask(),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that tells when something is read.
pub(super) struct Paced<I> {
    io: I,
    /// The bytes that were read to see what the peer speaks, and how many of them were read again.
    first: Vec<u8>,
    again: usize,
    pace: Arc<Pace>,
    /// Free again when the connection ends, or the tunnel that it has become.
    _place: Slot,
    /// In HTTP/2 not all that is read belongs to a request.
    is_noted: bool,
}

impl<I: AsyncRead + Unpin> Paced<I> {
    pub(super) const fn new(io: I, pace: Arc<Pace>, place: Slot) -> Self {
        Self {
            io,
            first: Vec::new(),
            again: 0,
            pace,
            _place: place,
            is_noted: true,
        }
    }

    fn note(&self) {
        if self.is_noted {
            self.pace.note();
        }
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
        self.is_noted = false;
        Ok(true)
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
        let read = ready!(Pin::new(&mut this.io).poll_read(cx, buffer));
        this.note();
        Poll::Ready(read)
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
