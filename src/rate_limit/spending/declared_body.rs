//! The body of a request whose beginning was read.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};

use super::body::for_each_part;
use crate::spend::llm::RequestReader;

/// The most frames that are read: small ones take more memory than their data.
const FRAMES: usize = 1_024;

/// The body of a request whose beginning a [`DeclaredLayer`](super::DeclaredLayer) has read. Frames, boundaries,
/// trailers and errors are the request's.
pub struct DeclaredBody<B: Body> {
    inner: B,
    /// The frames that were read, and the end or the error after them.
    read: VecDeque<Frame<B::Data>>,
    end: Option<Option<B::Error>>,
    /// The bytes of the data that was read.
    length: u64,
    /// Whether a part of it could not be seen: what follows cannot be understood.
    is_torn: bool,
}

impl<B: Body + Unpin> DeclaredBody<B> {
    pub(super) const fn new(inner: B) -> Self {
        Self {
            inner,
            read: VecDeque::new(),
            end: None,
            length: 0,
            is_torn: false,
        }
    }

    /// The inner body, whose beginning may have been read.
    pub const fn get_ref(&self) -> &B {
        &self.inner
    }

    /// The bytes that were read.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Reads the body, until the reader has what it wants, or this many bytes or 1,024 frames.
    pub(super) fn poll_read(
        &mut self,
        reader: &mut RequestReader,
        most: u64,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let is_wanted =
            |this: &Self| this.length < most && this.read.len() < FRAMES && !this.is_torn;
        while self.end.is_none() && !reader.is_complete() && is_wanted(self) {
            match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => self.end = Some(None),
                Poll::Ready(Some(Err(error))) => self.end = Some(Some(error)),
                Poll::Ready(Some(Ok(frame))) => self.keep(frame, reader),
            }
        }
        Poll::Ready(())
    }

    fn keep(&mut self, frame: Frame<B::Data>, reader: &mut RequestReader) {
        if let Some(data) = frame.data_ref() {
            self.length += data.remaining() as u64;
            self.is_torn |= !for_each_part(data, |part| reader.read(part));
        }
        self.read.push_back(frame);
    }
}

impl<B: Body + Unpin> Body for DeclaredBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
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
