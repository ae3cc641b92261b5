//! The body of a request on its way to the upstream.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use axum::body::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

/// A body that may not be longer than it was said, and tells how far it is.
pub(super) struct Upload {
    body: Incoming,
    left: u64,
    progress: Progress,
}

/// How much of a body was handed on; of none there is nothing to tell.
#[derive(Clone, Default)]
pub(super) struct Progress(Option<Arc<Sent>>);

#[derive(Default)]
struct Sent {
    parts: AtomicU64,
    bytes: AtomicU64,
    has_ended: AtomicBool,
}

impl Progress {
    pub(super) fn parts(&self) -> u64 {
        let sent = self.0.as_ref();
        sent.map_or(0, |sent| sent.parts.load(Ordering::Relaxed))
    }

    pub(super) fn bytes(&self) -> u64 {
        let sent = self.0.as_ref();
        sent.map_or(0, |sent| sent.bytes.load(Ordering::Relaxed))
    }

    pub(super) fn has_ended(&self) -> bool {
        let sent = self.0.as_ref();
        sent.is_none_or(|sent| sent.has_ended.load(Ordering::Relaxed))
    }

    fn note(&self, bytes: u64) {
        if let Some(sent) = &self.0 {
            sent.parts.fetch_add(1, Ordering::Relaxed);
            sent.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn end(&self) {
        if let Some(sent) = &self.0 {
            sent.has_ended.store(true, Ordering::Relaxed);
        }
    }
}

impl Upload {
    pub(super) fn new(body: Incoming, max: u64) -> Self {
        let progress = Progress((!body.is_end_stream()).then(Arc::default));
        Self {
            body,
            left: max,
            progress,
        }
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => {
                self.progress.end();
                return Poll::Ready(None);
            }
            Some(Err(error)) => return Poll::Ready(Some(Err(UploadError::Lost(error)))),
            Some(Ok(frame)) => frame,
        };
        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
        Poll::Ready(Some(match self.left.checked_sub(length) {
            Some(left) => {
                self.left = left;
                self.progress.note(length);
                if self.body.is_end_stream() {
                    self.progress.end();
                }
                Ok(frame)
            }
            None => Err(UploadError::TooLong),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Why a body ended early.
#[derive(Debug)]
pub(super) enum UploadError {
    TooLong,
    Lost(hyper::Error),
}

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("the body is too long"),
            Self::Lost(error) => error.fmt(f),
        }
    }
}

impl Error for UploadError {}
