//! A body whose beginning a layer has read.

use std::{
    collections::VecDeque,
    fmt,
    future::Future as _,
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf as _;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::wrapped_bodies::for_each_part;
use tower_ratelimit_core::{
    clock::{self, NoTimer},
    log::{self, Code},
};

/// The longest time for what is read.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most frames that are read: small ones take more memory than their data.
const FRAMES: usize = 1_024;

/// The body of a request whose beginning a layer has read: that of budgets, or of
/// MCP. Frames, boundaries, trailers and errors are the request's.
pub struct DeclaredBody<B: Body> {
    inner: B,
    /// The frames that were read, and the end or the error after them.
    read: VecDeque<Frame<B::Data>>,
    end: Option<Option<B::Error>>,
    length: u64,
    /// Whether a part of it could not be seen: what follows cannot be understood.
    is_torn: bool,
    /// The end of the time for reading, from the first wait on.
    patience: Option<Pin<Box<Sleep>>>,
}

impl<B: Body + Unpin> DeclaredBody<B> {
    /// A body of which nothing was read.
    pub const fn new(inner: B) -> Self {
        Self {
            inner,
            read: VecDeque::new(),
            end: None,
            length: 0,
            is_torn: false,
            patience: None,
        }
    }

    /// The inner body, whose beginning may have been read.
    pub const fn get_ref(&self) -> &B {
        &self.inner
    }

    /// How many bytes were read.
    #[doc(hidden)]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Whether all of it was read.
    #[doc(hidden)]
    pub const fn is_whole(&self) -> bool {
        matches!(self.end, Some(None)) && !self.is_torn
    }

    /// Reads the body, until `read` returns that it has what it wants, or this many bytes or 1,024 frames, and for 5
    /// seconds.
    #[doc(hidden)]
    pub fn poll_read(
        &mut self,
        read: impl FnMut(&[u8]) -> bool,
        most: u64,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if self.poll_frames(read, most, cx).is_ready() {
            self.patience = None;
            return Poll::Ready(());
        }
        // No timer before the first wait: most bodies have arrived.
        if self.patience.is_none() {
            match clock::try_sleep(PATIENCE) {
                Ok(sleep) => self.patience = Some(Box::pin(sleep)),
                Err(NoTimer) => log_missing_timer(),
            }
        }
        let patience = self.patience.as_mut().map(Pin::as_mut);
        let ended = patience.map_or(Poll::Ready(()), |patience| patience.poll(cx));
        if ended.is_ready() {
            self.patience = None;
        }
        ended
    }

    fn poll_frames(
        &mut self,
        mut read: impl FnMut(&[u8]) -> bool,
        most: u64,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let is_wanted =
            |this: &Self| this.length < most && this.read.len() < FRAMES && !this.is_torn;
        let mut is_complete = false;
        while self.end.is_none() && !is_complete && is_wanted(self) {
            match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => self.end = Some(None),
                Poll::Ready(Some(Err(error))) => self.end = Some(Some(error)),
                Poll::Ready(Some(Ok(frame))) => {
                    if let Some(data) = frame.data_ref() {
                        self.length += data.remaining() as u64;
                        self.is_torn |= for_each_part(data, |part| is_complete |= read(part)) > 0;
                    }
                    self.read.push_back(frame);
                }
            }
        }
        Poll::Ready(())
    }
}

impl<B: Body + Unpin> Body for DeclaredBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        // A reader that gave up early leaves its timer.
        self.patience = None;
        if let Some(frame) = self.read.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        match &mut self.end {
            Some(error) => Poll::Ready(error.take().map(Err)),
            None => Pin::new(&mut self.inner).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_after = match &self.end {
            Some(error) => error.is_none(),
            None => self.inner.is_end_stream(),
        };
        self.read.is_empty() && is_after
    }

    fn size_hint(&self) -> SizeHint {
        let data = self.read.iter().filter_map(Frame::data_ref);
        let read = data.map(|data| data.remaining() as u64).sum::<u64>();
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(read));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}

// Nothing is pinned by itself.
impl<B: Body + Unpin> Unpin for DeclaredBody<B> {}

impl<B: Body + Default + Unpin> Default for DeclaredBody<B> {
    fn default() -> Self {
        Self::new(B::default())
    }
}

impl<B: Body> fmt::Debug for DeclaredBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeclaredBody")
            .field("read", &self.read.len())
            .finish_non_exhaustive()
    }
}

#[cold]
fn log_missing_timer() {
    static LOGGED: AtomicBool = AtomicBool::new(false);
    if !LOGGED.swap(true, Ordering::Relaxed) {
        let text = "to wait for the bodies of requests, a McpBodyLayer and a DeclaredLayer need a tokio runtime with a \
                    timer: call `enable_time` or `enable_all` of its builder; until then a body that arrives late is \
                    refused as a call of MCP, and a limit inside reserves by the part that is there";
        log::report(Code::BODY_UNREAD, text);
    }
}
