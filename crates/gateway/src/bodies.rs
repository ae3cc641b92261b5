//! The bodies of a request and of its response on their way, and the progress of both.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{BoxError, body::Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};
use tower_ratelimit::rate_limit::{DeclaredBody, UploadBody};

use crate::hop_by_hop_headers::RequestPermit;
use tower_ratelimit_service::connections::RequestBody;

/// The parts that arrived in either direction. Clones share the count.
#[derive(Clone)]
pub(crate) struct Progress(Arc<Inner>);

struct Inner {
    begun: Instant,
    /// The microseconds from the start to the last part.
    last: AtomicU64,
    parts: AtomicU64,
    is_awaited: AtomicBool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            begun: Instant::now(),
            last: AtomicU64::new(0),
            parts: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
        }))
    }

    /// Records a part.
    pub(crate) fn note(&self) {
        let micros = u64::try_from(self.0.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.0.last.store(micros, Ordering::Relaxed);
        self.0.parts.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of parts so far.
    pub(crate) fn parts(&self) -> u64 {
        self.0.parts.load(Ordering::Relaxed)
    }

    /// Sets whether the exchange waits for a part of the client.
    fn set_awaited(&self, is_awaited: bool) {
        self.0.is_awaited.store(is_awaited, Ordering::Relaxed);
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.0.is_awaited.load(Ordering::Relaxed)
    }

    /// Completes when no part has arrived for this long.
    pub(crate) async fn silence(self, limit: Duration) {
        loop {
            let last = Duration::from_micros(self.0.last.load(Ordering::Relaxed));
            let until = later(self.0.begun, last.saturating_add(limit));
            if Instant::now() >= until {
                return;
            }
            sleep_until(until).await;
        }
    }
}

/// The instant after this time, or one in the far future.
pub(crate) fn later(instant: Instant, time: Duration) -> Instant {
    const AGES: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    instant.checked_add(time).unwrap_or(instant + AGES)
}

/// The least bytes a second of a body, on average after the first `timeout`.
const LEAST_RATE: u64 = 500;

/// The body of a request, which may have been read for the call of MCP in it.
pub(crate) type CallBody = DeclaredBody<RequestBody>;

/// The body of a request that rules let pass: what they declare may have been read, and its bytes may be charged.
pub(crate) type ChargedBody = UploadBody<DeclaredBody<CallBody>>;

/// A body with a maximum length and a minimum rate.
pub(crate) struct Upload<B = ChargedBody> {
    /// `None` is an empty body.
    body: Option<B>,
    left: u64,
    progress: Progress,
    limit: Patience,
}

/// The time that a client has for its body.
enum Patience {
    /// No limit.
    None,
    Rate(Rate),
    /// For streams of messages: ends after silence in both directions.
    Silence(Pin<Box<dyn Future<Output = ()> + Send>>),
}

impl<B> Upload<B> {
    pub(crate) fn new(body: B, max: u64) -> Self {
        Self {
            body: Some(body),
            left: max,
            progress: Progress::new(),
            limit: Patience::None,
        }
    }

    /// An empty body.
    pub(crate) fn empty() -> Self {
        Self {
            body: None,
            left: 0,
            progress: Progress::new(),
            limit: Patience::None,
        }
    }

    /// Requires the least rate after this much time.
    pub(crate) fn paced(mut self, timeout: Duration) -> Self {
        self.limit = Patience::Rate(Rate::new(timeout));
        self
    }

    /// Treats the body as a stream of messages with at most this much silence.
    pub(crate) fn of_messages(mut self, silence: Duration) -> Self {
        let silence = self.progress.clone().silence(silence);
        self.limit = Patience::Silence(Box::pin(silence));
        self
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for Upload<B> {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        let frame = Pin::new(body).poll_frame(cx);
        this.progress.set_awaited(frame.is_pending());
        let Poll::Ready(frame) = frame else {
            ready!(this.limit.poll(cx));
            return Poll::Ready(Some(Err(UploadError::Slow)));
        };
        let frame = match frame {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(UploadError::Lost(error.into())))),
            Some(Ok(frame)) => frame,
        };
        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
        this.progress.note();
        this.limit.note(length);
        Poll::Ready(Some(match this.left.checked_sub(length) {
            Some(left) => {
                this.left = left;
                Ok(frame)
            }
            None => Err(UploadError::TooLong),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let empty = || SizeHint::with_exact(0);
        self.body.as_ref().map_or_else(empty, B::size_hint)
    }
}

impl Patience {
    /// Ready when the awaited client has exceeded its time.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::None => Poll::Pending,
            Self::Rate(rate) => rate.poll(cx),
            Self::Silence(silence) => silence.as_mut().poll(cx),
        }
    }

    /// Records a part.
    fn note(&mut self, bytes: u64) {
        if let Self::Rate(rate) = self {
            rate.note(bytes);
        }
    }
}

/// A rate of bytes over the time in which the gateway awaited the client. Time in which the upstream does not read is
/// excluded.
struct Rate {
    timeout: Duration,
    bytes: u64,
    waited: Duration,
    /// Since when the client is awaited.
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Rate {
    const fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            bytes: 0,
            waited: Duration::ZERO,
            since: None,
            timer: None,
        }
    }

    fn note(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        let worth = Duration::from_secs(self.bytes / LEAST_RATE);
        let may = self.timeout.saturating_add(worth);
        let until = later(since, may.saturating_sub(self.waited));
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        // Each part moves the deadline. The timer is only reset when it fires, which is rare.
        if timer.deadline() <= now && now < until {
            timer.as_mut().reset(until);
        }
        timer.as_mut().poll(cx)
    }
}

/// The reason why a body ended early.
#[derive(Debug)]
pub(crate) enum UploadError {
    TooLong,
    Slow,
    Lost(BoxError),
}

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("the body is too long"),
            Self::Slow => f.write_str("the body does not come"),
            Self::Lost(error) => error.fmt(f),
        }
    }
}

impl Error for UploadError {}

/// A body that ends if no part arrives in either direction for too long.
pub(crate) struct Download<B = Incoming, T = RequestPermit> {
    body: B,
    progress: Progress,
    limit: Duration,
    /// Started when the body is first pending.
    silence: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    _ticket: T,
}

impl<B, T> Download<B, T> {
    pub(crate) fn new(body: B, progress: Progress, limit: Duration, permit: T) -> Self {
        progress.note();
        Self {
            body,
            progress,
            limit,
            silence: None,
            _ticket: permit,
        }
    }
}

impl<B, T> Body for Download<B, T>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    T: Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.progress.note();
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let (progress, limit) = (&this.progress, this.limit);
        let silence = this
            .silence
            .get_or_insert_with(|| Box::pin(progress.clone().silence(limit)));
        ready!(silence.as_mut().poll(cx));
        let silent = "nothing has come in either direction";
        Poll::Ready(Some(Err(silent.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
