//! Timeouts of a connection: how long its peer may take to send a header, to start the next request, and to read a
//! response.

use std::{
    future::{Future, pending},
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicU32, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use axum::response::Response;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use super::slots::{Activity, Slot};

/// The timeout of the first byte of a client after it connects, and of a header after its first byte.
pub(super) const HEADER_TIME: Duration = Duration::from_secs(10);

/// How long a peer may leave a pending part of a response unread.
const UNREAD_TIME: Duration = Duration::from_secs(60);

/// How long a response may pause after its client has ended its side. A client that has gone ends its side as well, and
/// only a write shows the difference.
const END_TIME: Duration = Duration::from_secs(10);

/// The first bytes of a client that speaks HTTP/2.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The interval at which timeouts are checked: a clock read for every request would cost as much as a decision.
const TICK: Duration = Duration::from_millis(2_500);

/// The phase of a connection, and how many ticks it has lasted.
#[derive(Debug)]
pub(super) struct ConnectionTimer {
    /// The longest idle time between requests.
    idle: Duration,
    activity: Arc<Activity>,
    phase: AtomicU8,
    ticks: AtomicU32,
    /// The number of active requests.
    requests: AtomicU32,
    /// The number of responses with a part that was handed to the connection and not yet written.
    unread: AtomicU32,
    /// The ticks since a part of a response was last handed to the connection.
    unread_ticks: AtomicU32,
    /// Woken when no request is active any more.
    waits_for_idle: Mutex<Option<Waker>>,
}

/// No request is active.
const IDLE: u8 = 0;
/// A header has begun.
const HEADER: u8 = 1;
/// A request is active.
const BUSY: u8 = 2;

impl ConnectionTimer {
    pub(crate) const fn new(idle: Duration, activity: Arc<Activity>) -> Self {
        Self {
            idle,
            activity,
            phase: AtomicU8::new(IDLE),
            ticks: AtomicU32::new(0),
            requests: AtomicU32::new(0),
            unread: AtomicU32::new(0),
            unread_ticks: AtomicU32::new(0),
            waits_for_idle: Mutex::new(None),
        }
    }

    fn enter(&self, phase: u8) {
        self.ticks.store(0, Ordering::Relaxed);
        self.phase.store(phase, Ordering::Relaxed);
    }

    fn waits_for_idle(&self) -> MutexGuard<'_, Option<Waker>> {
        let waker = self.waits_for_idle.lock();
        waker.unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the header's phase at its first bytes.
    fn note(&self) {
        if self.phase.load(Ordering::Relaxed) == IDLE {
            self.enter(HEADER);
        }
    }

    /// The response to a request, which is active until the response's body ends.
    pub(crate) fn begin<A, B>(
        self: &Arc<Self>,
        answer: A,
    ) -> impl Future<Output = Response<TimedBody<B>>> + use<A, B>
    where
        A: Future<Output = Response<B>>,
    {
        let (active, is_served) = self.admit();
        async move {
            if !is_served {
                pending::<()>().await;
            }
            let response = answer.await;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                active.timer.activity.keep();
            }
            response.map(|body| {
                let mut active = active;
                active.hand_over();
                TimedBody { body, active }
            })
        }
    }

    /// Marks the connection as busy until the guard drops.
    pub(super) fn hold(self: &Arc<Self>) -> ActiveRequest {
        self.admit().0
    }

    /// A guard, and whether the connection still serves requests.
    fn admit(self: &Arc<Self>) -> (ActiveRequest, bool) {
        let is_served = self.activity.begin();
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.enter(BUSY);
        let active = ActiveRequest {
            timer: Arc::clone(self),
            is_unread: false,
        };
        (active, is_served)
    }

    /// Whether a response has been unread for too long.
    fn is_unread(&self) -> bool {
        if self.unread.load(Ordering::Relaxed) == 0 {
            self.unread_ticks.store(0, Ordering::Relaxed);
        }
        TICK * self.unread_ticks.fetch_add(1, Ordering::Relaxed) >= UNREAD_TIME
    }

    /// Completes when the peer has exceeded a timeout.
    pub(super) async fn is_over(&self) {
        loop {
            sleep(TICK).await;
            // The first tick began before the phase did.
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

/// An active request: its body is being read, or its response sent.
pub(super) struct ActiveRequest {
    timer: Arc<ConnectionTimer>,
    is_unread: bool,
}

impl ActiveRequest {
    /// Marks a part of the response as handed over: the connection polls for another when the peer has read it.
    fn hand_over(&mut self) {
        self.timer.unread_ticks.store(0, Ordering::Relaxed);
        if !self.is_unread {
            self.is_unread = true;
            self.timer.unread.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Marks the part as written, since the connection polls for another.
    fn written(&mut self) {
        if self.is_unread {
            self.is_unread = false;
            self.timer.unread.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.written();
        self.timer.activity.end();
        if self.timer.requests.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.timer.enter(IDLE);
            if let Some(waker) = self.timer.waits_for_idle().take() {
                waker.wake();
            }
        }
    }
}

pin_project_lite::pin_project! {
    /// The body of a response that reports its progress to the timer.
    pub(super) struct TimedBody<B> {
        #[pin]
        body: B,
        active: ActiveRequest,
    }
}

impl<B: Body> Body for TimedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = this.body.poll_frame(cx);
        match frame {
            Poll::Ready(_) => this.active.hand_over(),
            Poll::Pending => this.active.written(),
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

/// A transport that reports its reads to the timer.
pub(super) struct TimedIo<I> {
    io: I,
    /// The bytes read to detect the protocol, and how many of them were read again.
    first: Vec<u8>,
    again: usize,
    timer: Arc<ConnectionTimer>,
    /// Released when the connection, or the tunnel that it became, closes.
    _slot: Slot,
    /// False in HTTP/2, where reads may belong to no request.
    is_noted: bool,
    /// Set when the client has ended its side while a request is active: the time until the server learns it.
    ended: Option<Pin<Box<Sleep>>>,
}

impl<I: AsyncRead + Unpin> TimedIo<I> {
    pub(crate) const fn new(io: I, timer: Arc<ConnectionTimer>, slot: Slot) -> Self {
        Self {
            io,
            first: Vec::new(),
            again: 0,
            timer,
            _slot: slot,
            is_noted: true,
            ended: None,
        }
    }

    /// Completes when the server may learn that the client has ended its side: at once if no request is active.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        // Dropped outside the lock: a waker may run any code.
        let replaced = self.timer.waits_for_idle().replace(waker);
        drop(replaced);
        if !self.is_noted || self.timer.requests.load(Ordering::Relaxed) == 0 {
            return Poll::Ready(());
        }
        let pause = || Box::pin(sleep(END_TIME));
        self.ended.get_or_insert_with(pause).as_mut().poll(cx)
    }

    fn note(&self) {
        if self.is_noted {
            self.timer.note();
        }
    }

    /// Whether the peer speaks HTTP/2. Its preface is no valid HTTP/1 request.
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

impl<I> TimedIo<I> {
    /// A part of a response is written: its client may pause anew.
    fn go_on(&mut self) {
        if let Some(ended) = &mut self.ended {
            ended.as_mut().reset(Instant::now() + END_TIME);
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for TimedIo<I> {
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
        let before = buffer.filled().len();
        if this.ended.is_none() {
            ready!(Pin::new(&mut this.io).poll_read(cx, buffer))?;
        }
        if buffer.filled().len() == before {
            return this.poll_ended(cx).map(Ok);
        }
        this.note();
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for TimedIo<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.go_on();
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
        self.go_on();
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
