//! A response body in frames, which may break off.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tower_ratelimit::reject::RejectionBody;

/// A body of these frames, one for each poll.
#[derive(Debug, Default)]
pub struct StreamingBody {
    frames: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    breaks_off: bool,
}

impl StreamingBody {
    pub fn new(frames: impl IntoIterator<Item = Bytes>) -> Self {
        Self {
            frames: frames.into_iter().collect(),
            ..Self::default()
        }
    }

    /// The bytes in frames of at most `size` bytes.
    pub fn split(bytes: impl Into<Bytes>, size: usize) -> Self {
        let bytes = bytes.into();
        let starts = (0..bytes.len()).step_by(size);
        Self::new(starts.map(|start| bytes.slice(start..bytes.len().min(start + size))))
    }

    /// The events of a stream, a frame each.
    pub fn events(stream: &str) -> Self {
        let events = stream.split_inclusive("\n\n");
        Self::new(events.map(|event| Bytes::from(event.to_owned())))
    }

    pub fn with_trailers(mut self, trailers: HeaderMap) -> Self {
        self.trailers = Some(trailers);
        self
    }

    /// The first frames, and an error in place of the rest.
    pub fn breaking_off_after(mut self, frames: usize) -> Self {
        self.frames.truncate(frames);
        self.breaks_off = true;
        self
    }
}

impl Body for StreamingBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(data) = self.frames.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if std::mem::take(&mut self.breaks_off) {
            return Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())));
        }
        let trailers = self.trailers.take();
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.trailers.is_none() && !self.breaks_off
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.frames.iter().map(Bytes::len).sum::<usize>() as u64;
        if self.breaks_off {
            return SizeHint::default();
        }
        SizeHint::with_exact(left)
    }
}

impl RejectionBody for StreamingBody {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::new([bytes])
    }

    fn empty() -> Self {
        Self::default()
    }
}
